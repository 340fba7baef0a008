"""Regular expressions: whether the final answer fits one.

The pattern is an option, or the task's metadata ``pattern``. The answer is the policy's, so matching has a deadline:
a pattern that an answer can make hang gives a Failed grade, not a stream that stands still.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from millstream.errors import GraderError, MissingExtra, SettingsError
from millstream.grade import Grade, abstain, fail, score
from millstream.trajectory import Trajectory

VERSION: Final = 1
MAX_LENGTH: Final = 100_000
TIMEOUT_S: Final = 0.5


def regex(*, pattern: str = "", whole: bool = False, case: bool = False) -> Callable[[Trajectory], Grade]:
    """The grader ``regex``: 1 when the answer holds a match (``whole``: is one), else 0. Abstains without a
    pattern. Raises `SettingsError` for one that is no regular expression.
    """
    if pattern:
        try:
            _compiled(pattern, case=case)
        except GraderError as error:
            raise SettingsError(f"[graders.options.regex] {error}") from None

    def grade(t: Trajectory) -> Grade:
        wanted = pattern or t.task.metadata.get("pattern")
        if not isinstance(wanted, str) or not wanted:
            return abstain("no pattern: set one in [graders.options.regex] or in the task's metadata")
        compiled = _compiled(wanted, case=case)
        answer = (t.final_answer or "")[:MAX_LENGTH]
        try:
            found = (compiled.fullmatch if whole else compiled.search)(answer, timeout=TIMEOUT_S)
        except TimeoutError:
            return fail(
                f"matching {wanted[:80]!r} took longer than {TIMEOUT_S} s; write a pattern that can't", "timeout"
            )
        if found is None:
            return score(0.0, label="no_match", reason=f"no match for {wanted[:80]!r}" if answer else "no answer")
        return score(1.0, label="match", reason=f"{found[0][:80]!r} for {wanted[:80]!r}")

    return grade


@lru_cache(maxsize=256)
def _compiled(pattern: str, *, case: bool) -> Any:
    try:
        import regex as library
    except ImportError:
        raise MissingExtra("graders", "the grader 'regex'") from None
    try:
        return library.compile(pattern, 0 if case else library.IGNORECASE)
    except library.error as error:
        raise GraderError(f"pattern {pattern[:80]!r} is no regular expression: {error}") from None
