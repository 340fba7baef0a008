"""How long work tells how far it is: a line that moves on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from millstream.cli.common import ELSEWHERE_S, TERMINAL_S, Meter


class Screen(io.StringIO):
    """Standard error, a terminal or none."""

    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


@pytest.mark.parametrize(
    ("terminal", "pause", "told"),
    [(True, TERMINAL_S, "read 3 of 9\rread 1,000 of 9\r\n"), (False, ELSEWHERE_S, "read 3 of 9\nread 1,000 of 9\n")],
)
def test_it_tells_only_now_and_then(monkeypatch, terminal, pause, told):
    """Nothing before the first pause, then one line a pause; work that is short says nothing."""
    screen, now = Screen(terminal), [0.0]
    monkeypatch.setattr(sys, "stderr", screen)
    meter = Meter("read {done} of {of}", now=lambda: now[0])
    meter(1, 9)
    meter.end()
    assert screen.getvalue() == ""
    for at, done in ((pause, 3), (pause * 1.5, 4), (pause * 2.5, 1000)):
        now[0] = at
        meter(done, 9)
    meter.end()
    assert screen.getvalue() == told
