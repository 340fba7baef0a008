"""A learned reward model as a grader: a Hugging Face folder that scores a question with an answer.

The folder holds a sequence classifier, or a language model with a linear head on its last token
(``head.safetensors``: ``weight`` of one row, and ``bias`` if there is one). It runs in a child process of its own:
torch is loaded there alone. A reward model is a proxy: never a gate's gold.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from millstream.codec import digest
from millstream.errors import GraderError, SettingsError, Unavailable
from millstream.grade import Grade, Scored, abstain, fail
from millstream.graders.epochs import file_digest, parameters_digest
from millstream.graders.messages import Caller
from millstream.graders.registry import Grader, grader
from millstream.trajectory import Trajectory

CHILD: Final = "millstream.graders.learned_child"
LOAD_TIMEOUT_S: Final = 300.0
SCORE_TIMEOUT_S: Final = 60.0
Spawn: TypeAlias = Callable[[str], Caller]


class Learned(Struct, frozen=True, kw_only=True, tag_field="kind", tag="learned", forbid_unknown_fields=True):
    """``folder``: the model's, relative to the file of judges. ``squash``: the logit through the logistic function
    into [0, 1], or as it is, in ``range``. ``label``: which logit of a classifier of several classes.
    """

    folder: str = ""
    squash: Literal["sigmoid", "none"] = "sigmoid"
    range: tuple[float, float] = (0.0, 1.0)
    label: int = 0
    max_length: int = 1024

    def check(self, where: str) -> None:
        """Raises `SettingsError`."""
        if not self.folder:
            raise SettingsError(f"{where}: folder is empty; name the model's folder")
        if self.max_length < 1 or self.label < 0:
            raise SettingsError(f"{where}: max_length must be at least 1 and label at least 0")

    def ends(self) -> tuple[float, float]:
        """The range of the grade."""
        return (0.0, 1.0) if self.squash == "sigmoid" else self.range


class Load(Struct, frozen=True, kw_only=True):
    """What the child loads."""

    folder: str
    label: int = 0
    max_length: int = 1024


class Score(Struct, frozen=True, kw_only=True):
    """What is scored, a question and its answer, and by what: a fresh child loads what its forerunner had."""

    load: Load
    question: str
    answer: str


class RewardModel:
    """The model in its child, loaded at the first run and again when the child was replaced. Safe for threads."""

    def __init__(self, definition: Learned, folder: Path, spawn: Spawn) -> None:
        self._definition, self._spawn = definition, spawn
        self._load = Load(folder=str(folder), label=definition.label, max_length=definition.max_length)
        self._lock = threading.Lock()
        self._child: Caller | None = None
        self._loaded = False

    def __call__(self, t: Trajectory) -> Grade:
        """The score of the run's answer."""
        if t.final_answer is None:
            return abstain("the run has no answer to score")
        asked = msgspec.json.encode(Score(load=self._load, question=t.task.question, answer=t.final_answer))
        try:
            with self._lock:
                logit = msgspec.json.decode(self._called(asked), type=float)
        except TimeoutError:
            return fail(f"the reward model gave no score within {SCORE_TIMEOUT_S:g} s", "timeout")
        except Unavailable as error:
            return fail(f"the reward model's process ended: {error}", "infrastructure")
        except (GraderError, msgspec.MsgspecError) as error:
            return fail(f"the reward model: {error}"[:1000])
        return Scored(score=_logistic(logit) if self._definition.squash == "sigmoid" else logit)

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.close()

    def _called(self, asked: bytes) -> bytes:
        if self._child is None:
            self._child = self._spawn(CHILD)
        patience, self._loaded = SCORE_TIMEOUT_S if self._loaded else LOAD_TIMEOUT_S, False
        logit = self._child.call("score", asked, patience)
        self._loaded = True
        return logit


def learned_grader(name: str, definition: Learned, file: Path, spawn: Spawn | None) -> Grader:
    """A reward model as a grader. Its epoch has the folder's files. Raises `SettingsError`."""
    folder = (file.parent / Path(definition.folder).expanduser()).resolve()
    where = f"{file}: [{name}]"
    if not (folder / "config.json").is_file():
        raise SettingsError(f"{where}: no model at {folder}: it has no config.json")
    if spawn is None:
        raise SettingsError(f"{where}: there is nothing here that runs a model")
    low, high = definition.ends()
    files = sorted(path for path in folder.iterdir() if path.suffix in {".json", ".safetensors", ".jinja", ".model"})
    content = [f"{path.name} {file_digest(path, where)}" for path in files]
    options = {k: v for k, v in msgspec.to_builtins(definition).items() if k != "folder"}
    epoch = f"{name}@{digest('learned', parameters_digest(options), *content)[:16]}"
    return grader(name=name, low=low, high=high)(RewardModel(definition, folder, spawn)).with_epoch(epoch, "file")


def _logistic(logit: float) -> float:
    return 1.0 / (1.0 + math.exp(-logit)) if logit >= 0 else math.exp(logit) / (1.0 + math.exp(logit))
