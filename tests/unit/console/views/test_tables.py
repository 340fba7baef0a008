"""The gate's table as text."""

from millstream.console.tables import columns, gate_table
from millstream.evidence import GateEvidence


def test_the_table_tells_units_signs_and_states(evidence) -> None:
    """Rates in percent, changes in points, an infinite cost as ∞, minus as a minus sign."""
    lines = gate_table(evidence)
    assert lines[0].startswith("300 unseen held-out tasks from 30 worlds at temperature 0.7; 299 pairs")
    assert "0.3% unscored" in lines[0]
    assert lines[1].startswith("McNemar mid-p: 60 won, 10 lost, 230 alike (23% discordant); one-sided p 1e-07 better")
    gold, cost, depth = lines[3:]
    assert gold.split()[-1] == "better"
    assert "45.0 %" in gold
    assert "+16.7" in gold
    assert "+10.0 … +23.0" in gold
    assert "∞" in cost
    assert cost.endswith("violated (shown, does not decide) – infinite: no success of the candidate")
    assert "+0.50" in depth


def test_no_rows_no_table() -> None:
    """A decision without figures says so."""
    assert gate_table(GateEvidence()) == ["no table: nothing was measured"]


def test_columns_line_up() -> None:
    """Each column is as wide as its widest cell; no line ends in blanks."""
    assert columns([("a", 1), ("long", 22)], ("x", "y"), "> ") == ["> x     y", "> a     1", "> long  22"]
