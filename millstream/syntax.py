"""Python's parser, where several threads use it: the arithmetic of the calculator, people's grader files.

Some versions of CPython 3.11 keep one count of the depth for all threads and fail with "AST constructor
recursion depth mismatch" when another thread parses meanwhile (python/cpython#106905): ours take turns, and
what a library disturbed is parsed once more.
"""

from __future__ import annotations

import ast
import threading

_TURN = threading.Lock()


def parse_module(source: str | bytes, name: str = "<unknown>") -> ast.Module:
    """The syntax tree of a file. Raises what `ast.parse` raises."""
    with _TURN:
        try:
            return ast.parse(source, name)
        except SystemError:
            return ast.parse(source, name)


def parse_expression(text: str) -> ast.expr:
    """The syntax tree of an expression. Raises what `ast.parse` raises."""
    with _TURN:
        try:
            return ast.parse(text, mode="eval").body
        except SystemError:
            return ast.parse(text, mode="eval").body
