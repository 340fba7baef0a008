"""From settings to the graders that run: built-ins here, people's own in a child process.

``[graders] files`` names files whose graders all run: Python in the child, hosted JSON and judges in TOML
here. ``enabled`` names built-ins and graders of installed packages. A grader of one's own stands before a
built-in of the same name.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millstream.errors import MillstreamError, SettingsError, Unavailable, nearest
from millstream.graders import feedback, messages
from millstream.graders.builtin import BUILTINS, builtin
from millstream.graders.crews import Crews
from millstream.graders.hosted.means import NOTHING, Means
from millstream.graders.hosted.stream import is_hosted, load_hosted
from millstream.graders.judges.natives import is_judges, load_judges
from millstream.graders.registry import Grader
from millstream.graders.running import Crew, GraderSet, Spawn
from millstream.graders.userfiles import offered
from millstream.settings import Graders


def load(settings: Graders, root: Path, spawn: Spawn, means: Means = NOTHING) -> GraderSet:
    """The graders that the settings enable. Paths are relative to ``root``; ``spawn`` makes the child
    process, which is only made when somebody's own graders are asked for; ``means`` is what hosted kinds that
    reach outside are run with. Close the set after use.

    Raises `SettingsError` for an unknown grader or option, or a file that can't be loaded.
    """
    packaged = offered()
    wanted = tuple(name for name in settings.enabled if name in packaged)
    data = _from_data(settings, root, means)
    code = any(is_code(file) for file in settings.files)
    crew = _crew(settings, root, wanted, spawn) if code or wanted else None
    try:
        return _set(settings, root, crew, data, means)
    except SettingsError:
        if crew:
            crew.close()
        raise


def load_one(name: str, settings: Graders, root: Path, spawn: Spawn, means: Means = NOTHING) -> GraderSet:
    """Just the grader of that name, as the settings would make it: for `millstream grade`.

    Its file is found among ``[graders] files``. Raises `SettingsError` naming the nearest one.
    """
    if name in BUILTINS and not settings.files:
        return GraderSet([_builtin(name, settings, root, means)])
    enabled = Graders(
        enabled=(name,) if name in BUILTINS or name in offered() else (),
        files=settings.files,
        timeout_s=settings.timeout_s,
        attempts=settings.attempts,
        options=settings.options,
    )
    everything = load(enabled, root, spawn, means)
    if name not in everything.names:
        known = sorted({*everything.names, *BUILTINS, *offered()})
        everything.close()
        raise SettingsError(f"unknown grader {name!r}{nearest(name, known)}")
    return everything.only(name)


def _crew(settings: Graders, root: Path, wanted: Sequence[str], spawn: Spawn) -> Crew | Crews:
    if settings.timeout_s <= 0 or settings.attempts < 1:
        raise SettingsError("[graders]: timeout_s must be above 0 and attempts at least 1")
    files = tuple(str(_path(root, file)) for file in settings.files if is_code(file))
    load = messages.Load(files=files, wanted=tuple(wanted), options=settings.options)
    crews: list[Crew] = []
    try:
        for _ in range(settings.workers):  # each may fail, and those before it must end then
            crews.append(Crew(spawn, load, timeout_s=settings.timeout_s, attempts=settings.attempts))  # noqa: PERF401
    except MillstreamError:
        for crew in crews:
            crew.close()
        raise
    return crews[0] if len(crews) == 1 else Crews(crews)


def _path(root: Path, file: str) -> Path:
    return (root / Path(file).expanduser()).resolve()


def is_code(file: str) -> bool:
    """Whether a name in ``[graders] files`` is Python, rather than a hosted grader's JSON or judges in TOML."""
    return not (is_hosted(file) or is_judges(file))


def _from_data(settings: Graders, root: Path, means: Means) -> list[Grader]:
    """The graders that are written down as data: hosted JSON and judges."""
    found: list[Grader] = []
    for file in settings.files:
        if is_hosted(file):
            found.append(load_hosted(_path(root, file), settings.options, means))
        elif is_judges(file):
            found += load_judges(_path(root, file), means.bench, means.models)
    return found


def _set(settings: Graders, root: Path, crew: Crew | Crews | None, data: Sequence[Grader], means: Means) -> GraderSet:
    theirs = [grader.name for grader in (*data, *(crew.graders if crew else ()))]
    own = set(theirs)
    for name in own:
        if theirs.count(name) > 1:
            raise SettingsError(f"[graders] files: two graders are named {name!r}; rename one")
    names = [name for name in dict.fromkeys(settings.enabled) if name not in own and not _is_feedback(name)]
    for name in names:
        if name not in BUILTINS:
            known = sorted({*BUILTINS, *own, *offered(), feedback.NAME})
            raise SettingsError(f"[graders] enabled names an unknown grader {name!r}{nearest(name, known)}")
    for name in settings.options:
        if name not in {*BUILTINS, *own}:
            raise SettingsError(f"[graders.options.{name}]: no such grader{nearest(name, sorted({*BUILTINS, *own}))}")
    builtins = [_builtin(name, settings, root, means) for name in names]
    return GraderSet([*builtins, *data], crew)


def _builtin(name: str, settings: Graders, root: Path, means: Means) -> Grader:
    """A built-in as the settings have it. One that runs code is refused at the start where no sandbox can be had."""
    if BUILTINS[name].sandboxed and means.sandbox is not None:
        try:
            means.sandbox.check()
        except Unavailable as error:
            raise SettingsError(f"[graders] enabled names {name!r}: {error}") from None
    return builtin(name, settings.options.get(name), root, means.sandbox)


def _is_feedback(name: str) -> bool:
    """Feedback is no function of a trajectory: it is graded as it comes, enabled or not."""
    return name == feedback.NAME or name.startswith(feedback.NAME + ".")
