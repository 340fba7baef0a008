"""What hosted graders that reach outside are run with, from the settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from millstream.bootstrap.parts import require
from millstream.errors import SettingsError
from millstream.graders.builtin import BUILTINS
from millstream.graders.hosted.code import PythonGraders
from millstream.graders.hosted.definitions import Python, Single
from millstream.graders.hosted.endpoints import Endpoints
from millstream.graders.hosted.means import Means, Runner
from millstream.graders.hosted.parsing import parse
from millstream.graders.hosted.stream import is_hosted, parts_of
from millstream.graders.judges.hosted import runner
from millstream.loading import Loaded

if TYPE_CHECKING:
    from millstream.adapters.sandbox import BubblewrapSandbox
    from millstream.graders.judges.judge import Judge


def means_of(loaded: Loaded, judge: Judge | None, on_close: Callable[[Callable[[], object]], None]) -> Means:
    """The means that the settings name. ``on_close`` takes what ends them."""
    from millstream.adapters.children import Child

    sandbox = sandbox_of(loaded)
    on_close(sandbox.close)
    asked = _endpoints(loaded, on_close)
    known = Means(python=PythonGraders(sandbox), sandbox=sandbox, endpoint=asked, models=Child)
    if judge is None:
        return known
    return structs.replace(known, judge=runner(judge), propensity=judge.budget.propensity, bench=judge)


def _endpoints(loaded: Loaded, on_close: Callable[[Callable[[], object]], None]) -> Runner | None:
    """What asks the URLs that the settings allow; None when they allow none."""
    settings = loaded.settings.hosted
    if not settings.endpoints:
        return None
    require("[hosted] endpoints", "graders")
    from millstream.adapters.http_client import HttpPoster

    poster = HttpPoster()
    on_close(poster.close)
    return Endpoints(poster, settings.endpoints, settings.endpoint_timeout_s)


def sandbox_of(loaded: Loaded) -> BubblewrapSandbox:
    """The sandbox, or what the frightening setting puts in its place; nothing is started before it is used."""
    from millstream.adapters.sandbox import BubblewrapSandbox, NoSandbox

    settings = loaded.settings.sandbox
    return NoSandbox(settings) if settings.run_untrusted_code_without_a_sandbox else BubblewrapSandbox(settings)


def needs_sandbox(loaded: Loaded) -> bool:
    """Whether the settings name code that arrived as data: code under test, or a hosted ``python`` grader."""
    if any(name in BUILTINS and BUILTINS[name].sandboxed for name in loaded.settings.graders.enabled):
        return True
    files = [loaded.path(file) for file in loaded.settings.graders.files if is_hosted(file)]
    return any(isinstance(part, Python) for file in files for part in _parts(file))


def _parts(file: Path) -> list[Single]:
    try:
        return parts_of(parse(file.read_bytes(), where=str(file)))
    except (OSError, SettingsError):
        return []  # what reads the file for its grades says so
