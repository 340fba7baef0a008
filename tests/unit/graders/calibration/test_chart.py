"""The control chart: silent on a steady judge, loud on one that drifts."""

from __future__ import annotations

import random

from millstream.graders.calibration.chart import chart


def labels(seed, n, before, after=None, change=0):
    draw = random.Random(seed)
    return [(i * 1000, f"r{i}", draw.random() < (before if i < change or after is None else after)) for i in range(n)]


def test_a_steady_judge_is_not_said_to_drift():
    """A disagreement of one in ten over 600 labels, 100 draws: not once."""
    assert [chart(labels(seed, 600, 0.1)).drifted_at for seed in range(100)].count(None) >= 99


def test_a_judge_that_drifts_is_told_with_its_runs():
    """From one in ten to four in ten after 300 of 600 labels: the windows go out, the alarm names the runs."""
    found = chart(labels(1, 600, 0.1, 0.4, change=300))
    assert found.drifted_at is not None
    assert 100 < found.drifted_at < 180
    assert [w.out for w in found.windows[:2]] == [False, False]
    assert all(w.out for w in found.windows[4:])
    assert found.ids
    assert all(int(run[1:]) >= 200 for run in found.ids)


def test_few_labels_make_no_chart():
    """Nothing to compare with."""
    assert chart(labels(1, 99, 0.1)) is None
