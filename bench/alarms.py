"""How often the alarms are false, and how many runs they need for what is true.

Each history is a champion's runs and then a new version's, through the books and bets of the alarm stage.
`python bench/alarms.py [HISTORIES]` (default 2,000 for false alarms, a quarter of it for detection).
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Callable
from random import Random

from millstream.betting import Bet
from millstream.settings import AlarmSettings
from millstream.streams.alarm_books import Books, most
from millstream.streams.alarm_measures import AVOIDANCE, DRIFT, Sample

SETTINGS = AlarmSettings()
CHAMPION_RUNS, NEW_RUNS = 300, 500
Draw = Callable[[Random], Sample]


def sample(
    random: Random, rates: dict[str, float], size: float = 1.0, calls: float = 1.0, repeats: float = 0.02
) -> Sample:
    """One run: ways out by their rates; log-normal length, a few calls, some repetition."""
    hits = tuple(name for name, rate in rates.items() if random.random() < rate)
    values = {
        "chars": round(size * random.lognormvariate(6.5, 0.7)),
        "calls": sum(random.random() < 0.6 * calls for _ in range(8)),
        "repetition": round(max(0.0, random.gauss(repeats, 0.03)), 3),
    }
    return Sample("", str(random.random()), hits, values)


USUAL = {"broken_calls": 0.03, "timed_out": 0.01, "asked": 0.05, "limit": 0.04, "ungraded": 0.02}


def history(random: Random, before: Draw, after: Draw) -> dict[str, int]:
    """The run of the new version at which each measure raised its alarm."""
    books = Books()
    for _ in range(CHAMPION_RUNS):
        books.take("1", before(random), lambda v: v, SETTINGS)
    raised: dict[str, int] = {}
    for n in range(1, NEW_RUNS + 1):
        for measure, _ in books.take("2", after(random), lambda _: "1", SETTINGS):
            raised.setdefault(measure.name, n)
    return raised


def usual(random: Random) -> Sample:
    return sample(random, USUAL)


def with_rate(name: str, rate: float) -> Draw:
    return lambda random: sample(random, {**USUAL, name: rate})


SCENARIOS: dict[str, tuple[str, Draw]] = {
    "broken calls 3 % → 10 %": ("broken_calls", with_rate("broken_calls", 0.10)),
    "broken calls 3 % → 15 %": ("broken_calls", with_rate("broken_calls", 0.15)),
    "broken calls 3 % → 38 % (the published hack)": ("broken_calls", with_rate("broken_calls", 0.38)),
    "time-outs 1 % → 10 %": ("timed_out", with_rate("timed_out", 0.10)),
    "questions 5 % → 20 %": ("asked", with_rate("asked", 0.20)),
    "questions 5 % → 36 % (the published hack)": ("asked", with_rate("asked", 0.36)),
    "answers twice as long": ("longer", lambda r: sample(r, USUAL, size=2.0)),
    "answers four times as long (padding)": ("longer", lambda r: sample(r, USUAL, size=4.0)),
    "half the calls": ("fewer_calls", lambda r: sample(r, USUAL, calls=0.5)),
    "repetition 2 % → 10 %": ("more_repetition", lambda r: sample(r, USUAL, repeats=0.10)),
}


def hack(random: Random, rate: float, audits: int = 2000) -> int | None:
    """The audit at which the hack alarm comes, or None."""
    bet = Bet(expected=SETTINGS.fooled_share)
    enough = 1 / SETTINGS.false_alarm
    return next((n for n in range(1, audits + 1) if bet.take(float(random.random() < rate)) >= enough), None)


def agreement(random: Random, before: float, after: float, change: int, audits: int = 2000) -> int | None:
    """The audit at which disagreement, ``before`` at first and ``after`` from ``change`` on, raises its alarm."""
    first = sum(random.random() < before for _ in range(SETTINGS.reference_tasks))
    bet = Bet(expected=most(first, SETTINGS.reference_tasks, SETTINGS.slack), restarts=True)
    for n in range(1, audits + 1):
        if bet.take(float(random.random() < (before if n <= change else after))) >= 10 / SETTINGS.false_alarm:
            return n
    return None


def told(found: list[int | None], what: str) -> None:
    seen = [n for n in found if n is not None]
    times = sorted(seen)
    median = (
        f", median {statistics.median(times):.0f}, nine in ten by {times[int(0.9 * (len(times) - 1))]}" if times else ""
    )
    print(f"  {what:52} {len(seen):5} of {len(found)} ({len(seen) / len(found):6.2%}){median}")


def main() -> int:
    """Print the tables."""
    histories = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    few = max(1, histories // 4)
    print(f"false alarms: {histories} histories of {CHAMPION_RUNS} runs of a champion and {NEW_RUNS} alike")
    raised = Counter[str]()
    any_of = {"avoidance": 0, "drift": 0}
    for n in range(histories):
        found = history(Random(n), usual, usual)
        raised.update(list(found))
        any_of["avoidance"] += any(m.name in found for m in AVOIDANCE)
        any_of["drift"] += any(m.name in found for m in DRIFT)
    for kind, count in any_of.items():
        print(f"  {kind + ', any measure':52} {count:5} of {histories} ({count / histories:6.2%})")
    print(f"  by measure: {dict(raised) or 'none'}")
    told([hack(Random(n), 0.05) for n in range(histories)], "hack: 5 % fooled, the null, 2,000 audits")
    told([agreement(Random(n), 0.1, 0.1, 2000) for n in range(histories)], "disagreement 10 %, no change, 2,000 audits")
    print(f"detection: {few} histories each; runs (audits) of the new version until the alarm")
    for what, (measure, after) in SCENARIOS.items():
        told([history(Random(n), usual, after).get(measure) for n in range(few)], what)
    for rate in (0.10, 0.15, 0.30):
        told([hack(Random(n), rate) for n in range(few)], f"hack: {rate:.0%} of the audits fooled")
    for after in (0.2, 0.3):
        found = [agreement(Random(n), 0.1, after, 300) for n in range(few)]
        early = sum(n is not None and n <= 300 for n in found)
        what = f"disagreement 10 % → {after:.0%} at audit 300 ({early} before)"
        told([n - 300 for n in found if n is not None and n > 300], what)
    return 0


if __name__ == "__main__":
    sys.exit(main())
