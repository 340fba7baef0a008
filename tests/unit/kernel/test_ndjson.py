"""Lines are cut in one place, as every reader of a record counts them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.ndjson import cut, filled

VALUES = st.lists(st.sampled_from([b"", b" ", b"a", b"{}", b"\r", b"\x0b", b"\n", "é".encode(), b"\xff"])).map(b"".join)


@given(value=VALUES)
def test_lines_are_those_between_newlines(value):
    """A newline at the end begins no line."""
    expected = value.split(b"\n")
    assert cut(value) == (expected[:-1] if expected[-1] == b"" else expected)


@given(value=VALUES)
def test_blank_lines_are_left_out(value):
    """What holds only white space is no line of NDJSON; the others keep their order."""
    assert list(filled(value)) == [line for line in value.split(b"\n") if line.strip()]


def test_a_tombstone_has_none():
    """A null value, too, can be asked."""
    assert list(filled(None)) == []


def test_nobody_cuts_lines_of_records_by_himself(root):
    """`bytes.split` at newlines is nowhere else in the product."""
    found = [
        f"{path.relative_to(root)}:{number}"
        for room in ("millstream", "capture", "streams", "graders", "console", "trainer", "deploy", "bench")
        for path in sorted((root / room).rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if 'split(b"\\n")' in line and "sse.py" not in path.name
    ]
    assert not found
