"""The calculator: right values, and nothing but arithmetic."""

import pytest

from millstream.examples.finqa.expressions import ExpressionError, evaluate, number_text, resolve

LOADED = {"profit22": 310.0, "profit21": 248.0, "acme.profit22": 310.0}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1+2*3", 7),
        ("(310-248)/248*100", 25),
        ("(profit22-profit21)/profit21*100", 25),
        ("acme.profit22-#1", 300),
        ("-#2", 4.5),
        ("--1", 1),
        (" 1.5 + 1 ", 2.5),
    ],
)
def test_an_expression_has_its_value(expression: str, value: float) -> None:
    """Numbers, loaded figures and earlier results mix; a negative result keeps its sign inside an expression."""
    assert evaluate(expression, LOADED, [10.0, -4.5]) == pytest.approx(value)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "1+",
        "(1",
        "1/0",
        "2**9",
        "9//2",
        "7%2",
        "1e5",
        "0x1f",
        "1or 2",
        "1_000",
        "True",
        "a",
        "abs(1)",
        "(1)(2)",
        "().__class__",
        "[1][0]",
        "profit23",
        "#3",
        "#0",
        "1,2",
        "1\n+2",
        "\x00",
        "²",
        "999999*999999",
        "9" * 81,
        "(" * 80,
        "-" * 80,
        "5 5",
    ],
)
def test_anything_else_is_refused(expression: str) -> None:
    """Powers, calls, names, attributes, huge values and long texts all raise the one error, without a warning."""
    with pytest.raises(ExpressionError):
        evaluate(expression, LOADED, [10.0, -4.5])


def test_only_a_whole_known_reference_resolves() -> None:
    """An answer is a figure that was loaded or calculated, not an expression."""
    assert resolve("profit22", LOADED, []) == 310
    assert resolve("#1", LOADED, [2.5]) == 2.5
    for text in ("profit22+1", "12", "", "#", "cash22", "#1"):
        with pytest.raises(ExpressionError):
            resolve(text, LOADED, [])


@pytest.mark.parametrize(
    ("value", "text"), [(12.0, "12"), (-0.00001, "0"), (1 / 3, "0.3333"), (-2.50, "-2.5"), (100.0, "100"), (0.0, "0")]
)
def test_numbers_are_written_short(value: float, text: str) -> None:
    """Four decimals at most, and no zeros at the end."""
    assert number_text(value) == text
