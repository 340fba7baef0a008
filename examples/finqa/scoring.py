"""What graders of the example compare, as pure functions of texts: no episode is needed to grade one."""

import re
from collections.abc import Iterable
from typing import Final

RELATIVE_TOLERANCE: Final = 1e-3
_FIGURE = re.compile(r"(?<![\w.-])\d+(?![\w.])")


def is_correct(final_answer: str | None, reference: float) -> bool:
    """Whether an answer text is the reference within 0.1 % (half a shown unit near zero).

    The quick check of the warm start and of tuning; the stream grades with its numeric grader.
    """
    try:
        value = float((final_answer or "").rstrip("%"))
    except ValueError:
        return False
    return abs(value - reference) <= max(5e-5, RELATIVE_TOLERANCE * abs(reference))


def figures_shown(loads: Iterable[str]) -> frozenset[str]:
    """The figures that the observations of `load` show, as texts; fiscal years (`FY22`) are not figures."""
    return frozenset(figure for text in loads if not text.startswith("error") for figure in _FIGURE.findall(text))


def is_grounded(final_answer: str | None, loads: Iterable[str]) -> bool:
    """Whether the answer is a figure that `load` showed: the proxy with a hole.

    A right answer that the calculator made is overlooked, so a policy that is paid for this learns to answer
    with any loaded figure.
    """
    return final_answer is not None and final_answer in figures_shown(loads)
