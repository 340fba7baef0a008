"""Why a hosted grader could not grade: its kind here, and its flag in the hosted answer."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from millstream.errors import GraderError
from millstream.grade import Failed, FailedKind

FLAGS: Final = (
    "formula_parse_error",
    "invalid_variable_error",
    "model_grader_parse_error",
    "model_grader_refusal_error",
    "model_grader_server_error",
    "other_error",
    "python_grader_runtime_error",
    "python_grader_server_error",
    "sample_parse_error",
    "truncated_observation_error",
    "unresponsive_reward_error",
)
"""The flags of a hosted answer, all false when a grade was given."""
DETAILS: Final = {
    "model_grader_server_error": "model_grader_server_error_details",
    "python_grader_runtime_error": "python_grader_runtime_error_details",
    "python_grader_server_error": "python_grader_server_error_type",
}
"""The flags that tell more, and where."""


class Spent(Struct, frozen=True, kw_only=True):
    """What asking outside took: the model that answered, as its endpoint names it, tokens, cost in the price
    table's currency, and notes for the grade (``cached``, ``injection_suspected``).
    """

    model: str = ""
    tokens: int = 0
    cost: float = 0.0
    notes: tuple[str, ...] = ()


class HostedFault(GraderError):
    """A hosted grader could not grade. ``flag`` is one of `FLAGS`."""

    def __init__(
        self, message: str, *, flag: str = "other_error", kind: FailedKind = "error", spent: Spent | None = None
    ) -> None:
        super().__init__(message)
        self.flag, self.kind, self.spent = flag, kind, spent

    def failed(self) -> Failed:
        """As a grade."""
        return Failed(kind=self.kind, reason=str(self)[:1000])
