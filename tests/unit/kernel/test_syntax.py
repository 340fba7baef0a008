"""Threads that parse at once."""

from __future__ import annotations

import ast
from concurrent.futures import ThreadPoolExecutor

import pytest

from millstream.syntax import parse_expression, parse_module


def test_threads_parse_at_once():
    """Deep and shallow sources by several threads give the trees that one thread gives."""
    texts = ["+".join(["(1)"] * n) for n in range(1, 120)]
    expected = [ast.dump(ast.parse(text, mode="eval").body) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert list(pool.map(ast.dump, pool.map(parse_expression, texts))) == expected


def test_what_is_no_python_is_told():
    """The errors are those of `ast.parse`."""
    with pytest.raises(SyntaxError):
        parse_module("def")
    with pytest.raises(SyntaxError):
        parse_expression("1 +")
    assert isinstance(parse_module(b"a = 1", "a.py"), ast.Module)
