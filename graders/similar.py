"""Similarity: how alike the final answer is to the reference text, by the metrics of hosted graders.

A measure of words is easily fooled (`millstream graders attack similarity`): a part of a reward at most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from millstream.errors import SettingsError, nearest
from millstream.grade import Grade, abstain, score
from millstream.graders.hosted.similarity import measure
from millstream.graders.hosted.similarity import similarity as alike
from millstream.trajectory import Trajectory

VERSION: Final = 1
METRICS: Final = (
    "fuzzy_match", "bleu", "gleu", "meteor", "rouge_1", "rouge_2", "rouge_3", "rouge_4", "rouge_5", "rouge_l",
)  # fmt: skip
MAX_LENGTH: Final = 4_000
"""Of a longer answer only the beginning is compared: nobody escapes a grade by length."""


def similarity(*, metric: str = "fuzzy_match", passes: float = 0.0) -> Callable[[Trajectory], Grade]:
    """The grader ``similarity``: in [0, 1]; with ``passes`` above 0 it is 1 from that similarity on, else 0.
    Abstains without a reference text. Raises `SettingsError` for an unknown metric or a threshold outside [0, 1].
    """
    if metric not in METRICS:
        raise SettingsError(f"similarity: unknown metric {metric!r}{nearest(metric, list(METRICS))}")
    if isinstance(passes, bool) or not isinstance(passes, int | float) or not 0.0 <= passes <= 1.0:
        raise SettingsError(f"similarity: passes = {passes!r} must lie in [0, 1]")
    measure(metric)

    def grade(t: Trajectory) -> Grade:
        reference = t.task.reference
        if reference is None or reference == "":
            return abstain("the task has no reference")
        answer = (t.final_answer or "")[:MAX_LENGTH]
        if not answer.strip():
            return score(0.0, label="no_answer", reason="no answer")
        value = alike(metric, answer, str(reference)[:MAX_LENGTH])
        told = f"{metric} {value:.3f}"
        if not passes:
            return score(value, reason=told)
        return score(float(value >= passes), label="passed" if value >= passes else "failed", reason=told)

    return grade
