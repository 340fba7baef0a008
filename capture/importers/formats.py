"""The formats that rows of runs come in, in the order in which a row is held against them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from millstream.capture.importers import (
    cassettes,
    inspect_logs,
    langfuse,
    openai_chat,
    responses,
    run_state,
    swe_agent,
    who_and_when,
)
from millstream.capture.importers.chat import ChatRun
from millstream.dialects import items


def _alone(_row: Any) -> str:
    return ""


def _itself(row: Any) -> list[Any]:
    return [row]


class Format(Struct, frozen=True):
    """How to tell a row of a format, the runs it holds, which of them are one group, and how to read one.

    ``run`` takes a part, its number in its group and the group's size. ``parts`` and ``run`` raise `Undecodable`.
    """

    name: str
    matches: Callable[[Any], bool]
    run: Callable[[Any, int, int], ChatRun]
    group_key: Callable[[Any], str] = _alone
    parts: Callable[[Any], list[Any]] = _itself


RUNS = (
    Format("tau-bench", openai_chat.is_tau_bench, openai_chat.tau_bench_run, openai_chat.group_key),
    Format("responses", items.is_responses, responses.responses_run, responses.group_key),
    Format("inspect", inspect_logs.is_inspect, inspect_logs.inspect_run, inspect_logs.group_key, inspect_logs.samples),
    Format("langfuse", langfuse.is_langfuse, langfuse.langfuse_run),
    Format("who-and-when", who_and_when.is_who_and_when, who_and_when.who_and_when_run),
    Format("swe-agent", swe_agent.is_swe_agent, swe_agent.swe_agent_run, swe_agent.task_key),
    Format("openai-agents", run_state.is_run_state, run_state.run_state),
    Format("cassette", cassettes.is_cassette, cassettes.cassette_run, parts=cassettes.runs),
    Format("openai", openai_chat.is_chat, openai_chat.chat_run, openai_chat.group_key),
)
FORMATS = ("auto", "millstream", "otlp", *(known.name for known in RUNS))


def format_of(row: Any, wanted: str) -> Format | None:
    """The format of a row among those wanted (``auto``: all), or None."""
    return next((known for known in RUNS if wanted in ("auto", known.name) and known.matches(row)), None)
