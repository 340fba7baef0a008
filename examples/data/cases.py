"""What the example files tell: questions about the invented company Larkspur, and attempts at them."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

SYSTEM = "You answer questions about Larkspur Ltd. Use the calculator for arithmetic, then give the number alone."
REPORT = "Larkspur Ltd, in millions: revenue 2023 482.5, 2022 455.0; costs 2023 371.9, 2022 364.2; staff 2023 1,240."
TOOL = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Evaluate an arithmetic expression.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
    },
}


class Attempt(Struct, frozen=True):
    """One try: the call it made (None: none), what the calculator said, the answer, whether it was right."""

    call: str | None
    output: str
    answer: str
    right: bool
    reason: Literal["done", "limit"] = "done"


class Case(Struct, frozen=True):
    """A task and its attempts."""

    id: str
    question: str
    reference: float
    attempts: tuple[Attempt, ...]


CASES = (
    Case(
        "larkspur-growth",
        "By how many percent did revenue grow from 2022 to 2023? One decimal.",
        6.0,
        (
            Attempt('{"expression": "(482.5 - 455.0) / 455.0 * 100"}', "6.043956043956044", "6.0", right=True),
            Attempt('{"expression": "(482.5 - 455.0) / 482.5 * 100"}', "5.699481865284974", "5.7", right=False),
        ),
    ),
    Case(
        "larkspur-profit",
        "What was the profit of 2023, in millions?",
        110.6,
        (
            Attempt('{"expression": "482.5 - 371.9"}', "110.6", "110.6", right=True),
            Attempt('{"expression": "482.5 - 371.9', "error: the arguments are no JSON", "118.3", right=False),
        ),
    ),
    Case(
        "larkspur-per-head",
        "What was the revenue of 2023 for each of the staff, in thousands? One decimal.",
        389.1,
        (
            Attempt('{"expression": "482.5 * 1000 / 1240"}', "389.1129032258065", "389.1", right=True),
            Attempt(None, "", "", right=False, reason="limit"),
        ),
    ),
)
