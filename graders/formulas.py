"""The language of formulas: a small parser by hand, so that no text of the settings is ever evaluated.

sum     = product (("+" | "-") product)*
product = signed (("*" | "/") signed)*
signed  = ("+" | "-")* power
power   = atom ("^" signed)?                  right-associative, before a sign: -2^2 is -4
atom    = number | name | function "(" sum ("," sum)* ")" | "(" sum ")"
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from millstream.errors import SettingsError, nearest

FUNCTIONS: Final[dict[str, tuple[int, int, Callable[..., float]]]] = {
    "min": (1, 64, min),
    "max": (1, 64, max),
    "abs": (1, 1, abs),
    "floor": (1, 1, math.floor),
    "ceil": (1, 1, math.ceil),
    "exp": (1, 1, math.exp),
    "sqrt": (1, 1, math.sqrt),
    "log": (1, 1, math.log),
}
"""The functions: fewest and most arguments, and what they do."""
MAX_LENGTH: Final = 2000
MAX_DEPTH: Final = 64

Scores: TypeAlias = Mapping[str, float]
Node: TypeAlias = Callable[[Scores], float]

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_]\w*(?:\.\w+)*)|(?P<sign>[-+*/^(),])|(?P<end>$))"
)
_BINARY: Final[dict[str, Callable[[float, float], float]]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}


class Parser:
    """Recursive descent: sum → product → signed → power → atom, each a closure over the scores."""

    def __init__(self, text: str, where: str = "[reward] formula") -> None:
        """``where`` is what messages call the formula."""
        self.text, self.where, self.place, self.depth = text, where, 0, 0
        self.names: set[str] = set()
        if len(text) > MAX_LENGTH:
            raise SettingsError(f"{self.where} is longer than {MAX_LENGTH} characters")
        self.kind, self.lexeme = "", ""
        self._advance()

    def whole(self) -> Node:
        """The whole text as one function of the scores."""
        node = self._sum()
        if self.kind != "end":
            self._fail("an operator or the end")
        return node

    def _advance(self) -> None:
        match = _TOKEN.match(self.text, self.place)
        if match is None:
            self._fail("a number, a grade name or one of + - * / ^ ( ) ,", at=self.place)
        assert match is not None
        self.kind = str(match.lastgroup)
        self.lexeme, self.start, self.place = match[self.kind], match.start(self.kind), match.end()

    def _fail(self, wanted: str, at: int | None = None) -> None:
        place = self.start if at is None else at
        raise SettingsError(f"{self.where} {self.text!r}: expected {wanted} at character {place + 1}")

    def _take(self, sign: str) -> bool:
        if self.kind == "sign" and self.lexeme == sign:
            self._advance()
            return True
        return False

    def _sum(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise SettingsError(f"{self.where} {self.text[:60]!r}…: nested deeper than {MAX_DEPTH}")
        node = self._joined("+-", self._product)
        self.depth -= 1
        return node

    def _product(self) -> Node:
        return self._joined("*/", self._signed)

    def _joined(self, signs: str, part: Callable[[], Node]) -> Node:
        node = part()
        while self.kind == "sign" and self.lexeme in signs:
            operate = _BINARY[self.lexeme]
            self._advance()
            node = _binary(operate, node, part())
        return node

    def _signed(self) -> Node:
        negative = False
        while self.kind == "sign" and self.lexeme in "+-":
            negative ^= self.lexeme == "-"
            self._advance()
        node = self._power()
        return (lambda scores: -node(scores)) if negative else node

    def _power(self) -> Node:
        base = self._atom()
        if not self._take("^"):
            return base
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise SettingsError(f"{self.where} {self.text[:60]!r}…: nested deeper than {MAX_DEPTH}")
        exponent = self._signed()
        self.depth -= 1
        return _binary(math.pow, base, exponent)

    def _atom(self) -> Node:
        kind, lexeme = self.kind, self.lexeme
        if kind == "number":
            self._advance()
            value = float(lexeme)
            return lambda _: value
        if kind == "name":
            self._advance()
            return self._call(lexeme) if lexeme in FUNCTIONS and self.lexeme == "(" else self._grade(lexeme)
        if self._take("("):
            node = self._sum()
            self._close()
            return node
        self._fail("a number, a grade name or '('")
        raise AssertionError

    def _grade(self, name: str) -> Node:
        if self.lexeme == "(":
            raise SettingsError(f"{self.where}: no function {name!r}{nearest(name, sorted(FUNCTIONS))}")
        self.names.add(name)
        return lambda scores: scores[name]

    def _call(self, name: str) -> Node:
        self._advance()
        arguments = [self._sum()]
        while self._take(","):
            arguments.append(self._sum())
        self._close()
        fewest, most, function = FUNCTIONS[name]
        if not fewest <= len(arguments) <= most:
            raise SettingsError(f"{self.where}: {name} takes {most} argument{'s' * (most > 1)}, not {len(arguments)}")
        return lambda scores: function(*(argument(scores) for argument in arguments))

    def _close(self) -> None:
        if not self._take(")"):
            self._fail("')'")


def _binary(operate: Callable[[float, float], float], left: Node, right: Node) -> Node:
    return lambda scores: operate(left(scores), right(scores))
