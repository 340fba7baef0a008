"""MLflow's traces: ``mlflow.spanType`` says what a span is, ``mlflow.spanInputs`` and ``mlflow.spanOutputs`` hold what
its function took and gave, every attribute as JSON. A model's are the request and the response of its provider.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from millstream import values
from millstream.dialects.messages import decoded, input_messages, output_messages, tool_definitions
from millstream.dialects.spans import Span
from millstream.dialects.told import Told, number, sampling, text, whole, without_empty
from millstream.events import Usage

_TYPE: Final = "mlflow.spanType"
_MODEL: Final = ("CHAT_MODEL", "LLM")


def reads(span: Span) -> bool:
    """Whether a span speaks this dialect."""
    return _TYPE in span.attributes


def told(span: Span) -> Told:
    """What it tells."""
    found = {name: decoded(value) for name, value in span.attributes.items() if name.startswith("mlflow.")}
    kind, given, gave = text(found, _TYPE).upper(), found.get("mlflow.spanInputs"), found.get("mlflow.spanOutputs")
    conversation = text(span.resource, "mlflow.trace.session")
    if kind in _MODEL:
        return _call(found, given, gave, conversation)
    if kind == "TOOL":
        return Told(kind="tool", tool=span.name, output=gave, conversation=conversation)
    if kind == "AGENT" or (span.root and kind in ("CHAIN", "WORKFLOW", "TASK", "UNKNOWN", "")):
        agent = span.name if kind == "AGENT" else ""
        answer = gave if isinstance(gave, str) else ""
        return Told(kind="agent", agent=agent, conversation=conversation, answer=answer)
    return Told(kind="other", conversation=conversation)


def _call(found: Mapping[str, Any], given: Any, gave: Any, conversation: str) -> Told:
    asked, answered = values.mapping(given), values.mapping(gave)
    return Told(
        kind="model",
        given=without_empty(input_messages(given)),
        gave=without_empty(output_messages(gave)),
        model=values.word(answered.get("model") or asked.get("model") or found.get("mlflow.llm.model")),
        response_id=values.word(answered.get("id")),
        conversation=conversation,
        temperature=number(asked.get("temperature")),
        top_p=number(asked.get("top_p")),
        top_k=whole(asked["top_k"]) if isinstance(asked.get("top_k"), int) else None,
        sampling=sampling(asked),
        tools=tool_definitions(given),
        usage=_usage(values.mapping(found.get("mlflow.chat.tokenUsage")), answered),
    )


def _usage(counted: Mapping[str, Any], answered: Mapping[str, Any]) -> Usage:
    """What MLflow counted, else what the provider said."""
    if not counted:
        return values.usage_of(answered.get("usage"))
    return Usage(
        input_tokens=whole(counted.get("input_tokens")),
        output_tokens=whole(counted.get("output_tokens")),
        cached_tokens=whole(counted.get("cache_read_input_tokens")),
    )
