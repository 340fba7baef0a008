"""Arithmetic of the calculator: a few signs over numbers and references, nothing that could run code.

References follow FinQA's own program language: `profit22` is a row and fiscal year of a loaded report,
`harbor.profit22` the same when two companies are loaded, `#1` the result of the first calculation.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from millstream.syntax import parse_expression

MAX_EXPRESSION_LENGTH: Final = 80
MAX_MAGNITUDE: Final = 1e9
DECIMALS: Final = 4
"""Decimals that tools show: enough for four significant digits of any ratio of figures from 100 to 999."""

_REFERENCE = re.compile(r"#\d{1,3}|(?:[a-z]+\.)?[a-z]+\d\d")
_ARITHMETIC = re.compile(r"[0-9+\-*/(). ]+")
_BINARY: Final[dict[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class ExpressionError(ValueError):
    """The expression is not one the calculator takes; its text is what the agent is told."""


def resolve(reference: str, loaded: Mapping[str, float], results: Sequence[float]) -> float:
    """The number that one whole reference stands for.

    Raises ExpressionError where the text is no reference, or names nothing loaded or calculated yet.
    """
    if not _REFERENCE.fullmatch(reference):
        raise ExpressionError("not a reference")
    if reference.startswith("#"):
        index = int(reference[1:]) - 1
        if not 0 <= index < len(results):
            raise ExpressionError("no such result")
        return results[index]
    if reference not in loaded:
        raise ExpressionError("not loaded")
    return loaded[reference]


def evaluate(expression: str, loaded: Mapping[str, float], results: Sequence[float]) -> float:
    """The value of `expression`, not rounded.

    Takes + - * /, parentheses, numbers and references; at most 80 characters, values up to 1e9.
    Raises ExpressionError for anything else, division by zero included.
    """
    if len(expression) > MAX_EXPRESSION_LENGTH:
        raise ExpressionError("too long")
    text = _REFERENCE.sub(lambda match: f"({resolve(match[0], loaded, results):.12f})", expression).strip()
    if not _ARITHMETIC.fullmatch(text):
        raise ExpressionError("unknown sign or name")
    try:
        value = _value(parse_expression(text))
    except (SyntaxError, ZeroDivisionError, OverflowError) as error:
        raise ExpressionError("bad expression") from error
    if not math.isfinite(value) or abs(value) > MAX_MAGNITUDE:
        raise ExpressionError("out of range")
    return value


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left), _value(right))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
    raise ExpressionError("bad expression")


def number_text(value: float) -> str:
    """A number as the tools write it: up to 4 decimals, no trailing zeros, never `-0`."""
    text = f"{value:.{DECIMALS}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
