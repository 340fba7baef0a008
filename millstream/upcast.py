"""Upcasters: one function a schema number, from the shape it had to the next one.

An event of schema n passes through the upcasters n, n+1, … up to `SCHEMA - 1`; one of the newest
schema passes through none. Each upcaster is pure and total on objects, and held by a golden file in
``tests/golden/events``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from millstream.errors import UnknownSchema
from millstream.events import SCHEMA

Body: TypeAlias = dict[str, Any]


def from_0(body: Body) -> Body:
    """Schema 0 (before the first release): ``answer`` became ``final_answer``, ``policy_version`` was
    a text such as "policy-7", and a tool call's ``args`` became ``arguments``.
    """
    body = dict(body)
    if "answer" in body:
        body["final_answer"] = body.pop("answer")
    version = body.get("policy_version")
    if isinstance(version, str):
        number = version.rpartition("-")[2]
        body["policy_version"] = int(number) if number.isdecimal() else None
    if isinstance(body.get("tool_calls"), list):
        body["tool_calls"] = [_renamed(call) for call in body["tool_calls"]]
    return body


def _renamed(call: Any) -> Any:
    if not isinstance(call, dict) or "args" not in call:
        return call
    return {("arguments" if key == "args" else key): value for key, value in call.items()}


UPCASTERS: tuple[Callable[[Body], Body], ...] = (from_0,)
"""Indexed by the schema they take."""


def upcast(body: Body, schema: int) -> Body:
    """The body in schema `SCHEMA`. Raises `UnknownSchema` for a number below the first."""
    if schema < 0:
        raise UnknownSchema(f"schema {schema} never existed; the oldest is 0")
    for number in range(schema, SCHEMA):
        body = UPCASTERS[number](body)
    return body | {"schema": SCHEMA}
