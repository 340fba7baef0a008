"""Millstream: production agent runs become evidence, evidence becomes a better policy.

The public names are loaded lazily, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from millstream.version import __version__

_HOMES = {
    "Trajectory": "millstream.trajectory",
    "Step": "millstream.trajectory",
    "Grade": "millstream.grade",
    "Scored": "millstream.grade",
    "StepGrade": "millstream.grade",
    "Abstained": "millstream.grade",
    "Failed": "millstream.grade",
    "Censored": "millstream.grade",
    "score": "millstream.grade",
    "step": "millstream.grade",
    "abstain": "millstream.grade",
    "fail": "millstream.grade",
    "Task": "millstream.events",
    "grader": "millstream.graders.registry",
    "example": "millstream.graders.examples",
    "record": "millstream.capture.sdk",
    "feedback": "millstream.capture.sdk",
    "agent": "millstream.capture.sdk",
    "tool": "millstream.capture.sdk",
    "wrap": "millstream.capture.sdk",
    "bound": "millstream.capture.sdk",
    "current_run": "millstream.capture.sdk",
    "flush": "millstream.capture.sdk",
    "langchain_handler": "millstream.capture.sdk",
    "agents_processor": "millstream.capture.sdk",
}

__all__ = [
    "Abstained",
    "Censored",
    "Failed",
    "Grade",
    "Scored",
    "Step",
    "StepGrade",
    "Task",
    "Trajectory",
    "__version__",
    "abstain",
    "agent",
    "agents_processor",
    "bound",
    "current_run",
    "example",
    "fail",
    "feedback",
    "flush",
    "grader",
    "langchain_handler",
    "record",
    "score",
    "step",
    "tool",
    "wrap",
]

if TYPE_CHECKING:
    from millstream.capture.sdk import (
        agent,
        agents_processor,
        bound,
        current_run,
        feedback,
        flush,
        langchain_handler,
        record,
        tool,
        wrap,
    )
    from millstream.events import Task
    from millstream.grade import Abstained, Censored, Failed, Grade, Scored, StepGrade, abstain, fail, score, step
    from millstream.graders.examples import example
    from millstream.graders.registry import grader
    from millstream.trajectory import Step, Trajectory


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'millstream' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
