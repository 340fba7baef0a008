"""Tool use against what the task expects: right tools, right arguments, right order, nothing needless.

The task says so in its metadata: ``expected_calls`` is a list of ``{"name", "arguments"?}`` (arguments given
must be equal; those not given may be anything), ``ordered`` (default false) whether their order counts, and
``free_tools`` names tools that may be called at will. The score is the F1 of calls against expectations:
2 · matched / (expected + made).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from millstream.events import ToolCall
from millstream.grade import Grade, abstain, fail, score
from millstream.trajectory import Trajectory

VERSION: Final = 1


def tool_use() -> Callable[[Trajectory], Grade]:
    """The grader ``tools``; abstains where the task expects nothing in particular."""

    def grade(t: Trajectory) -> Grade:
        metadata = t.task.metadata
        expected = metadata.get("expected_calls")
        if expected is None:
            return abstain("the task's metadata has no expected_calls")
        if not isinstance(expected, list) or not all(isinstance(e, Mapping) and "name" in e for e in expected):
            return fail("the task's expected_calls must be a list of {name, arguments?}")
        free = metadata.get("free_tools") or ()
        made = [call for response in t.responses for call in response.tool_calls if call.name not in free]
        return _grade(expected, made, ordered=bool(metadata.get("ordered")))

    return grade


def _grade(expected: Sequence[Mapping[str, Any]], made: Sequence[ToolCall], *, ordered: bool) -> Grade:
    if not expected and not made:
        return score(1.0, reason="no call expected, none made")
    any_order = _matched(expected, made)
    matched = _longest(expected, made) if ordered else any_order
    names = _matched([{"name": e["name"]} for e in expected], made)
    counts = {
        "missing": len(expected) - names,
        "with wrong arguments": names - any_order,
        "out of order": any_order - matched,
        "needless": len(made) - names,
        "repeated": _repeated(made),
    }
    told = ", ".join(f"{n} {name}" for name, n in counts.items() if n)
    reason = f"{matched} of {len(expected)} expected calls" + (f"; {told}" if told else "")
    return score(2 * matched / (len(expected) + len(made)), reason=reason)


def fits(call: ToolCall, expected: Mapping[str, Any]) -> bool:
    """Whether a call is the expected one."""
    wanted = expected.get("arguments") or {}
    given = call.arguments or {}
    return call.name == expected["name"] and all(name in given and given[name] == wanted[name] for name in wanted)


def _matched(expected: Sequence[Mapping[str, Any]], made: Sequence[ToolCall]) -> int:
    """The size of a matching of calls to expectations: the most particular expectations choose first."""
    free = list(made)
    count = 0
    for wanted in sorted(expected, key=lambda e: -len(e.get("arguments") or {})):
        found = next((i for i, call in enumerate(free) if fits(call, wanted)), None)
        if found is not None:
            del free[found]
            count += 1
    return count


def _longest(expected: Sequence[Mapping[str, Any]], made: Sequence[ToolCall]) -> int:
    """The longest common subsequence of expectations and calls."""
    row = [0] * (len(made) + 1)
    for wanted in expected:
        before = row
        row = [0]
        for i, call in enumerate(made):
            row.append(before[i] + 1 if fits(call, wanted) else max(before[i + 1], row[i]))
    return row[-1]


def _repeated(made: Sequence[ToolCall]) -> int:
    seen: list[tuple[str, Any]] = []
    for call in made:
        if (call.name, call.arguments) not in seen:
            seen.append((call.name, call.arguments))
    return len(made) - len(seen)
