"""The gauges: what stands in the log and the stores, looked at every few seconds by the process that runs the
stages, so that a scrape costs nothing. `streams.metering` counts what happens between two looks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import millstream
from millstream import metrics
from millstream.errors import PositionLost
from millstream.ledger import LedgerReader
from millstream.metrics import Labels, Meter, Metric
from millstream.partition import unslot
from millstream.policy import PolicyLedger
from millstream.ports import BufferStats, Log
from millstream.streams.assembly import Assembler
from millstream.streams.runner import StageRunner
from millstream.topics import BUFFER_EVENTS

Series = dict[Metric, dict[Labels, float]]


class Gauges:
    """``runners``: the stages of this process. ``buffers``: the figures of the buffers it fills, asked anew at
    each look. ``missing``: grades that wait for a second try, by grader. ``policies``: whether trainings and verdicts
    are told here, too.
    """

    def __init__(
        self,
        log: Log,
        meter: Meter,
        runners: Callable[[], Iterable[StageRunner]],
        *,
        buffers: Callable[[], Mapping[str, BufferStats]] = dict,
        missing: Callable[[], Mapping[str, int]] = dict,
        policies: bool = False,
    ) -> None:
        self.log = log
        self.meter = meter
        self.runners = runners
        self.buffers = buffers
        self.missing = missing
        self._ledger = LedgerReader(log) if policies else None

    def look(self) -> None:
        """Tell every gauge. Raises `Unavailable`: what could not be asked keeps its last value."""
        runners = tuple(self.runners())
        self._show({metrics.INFO: {(millstream.__version__,): 1.0}, metrics.OPEN: _open(runners)})
        self._show(self._places(runners))
        self._show({metrics.MISSING: {(name,): count for name, count in self.missing().items()}})
        if self._ledger:
            self._show(_policies(self._ledger.refresh()))
        self._show(_buffers(self.buffers(), self.log.bounds(BUFFER_EVENTS.name)[1]))

    def _show(self, series: Series) -> None:
        for metric, values in series.items():
            self.meter.show(metric, values)

    def _places(self, runners: Sequence[StageRunner]) -> Series:
        found: Series = {metrics.LAG: {}, metrics.DELAY: {}, metrics.MARGIN: {}}
        for runner in runners:
            for place, position in runner.positions.items():
                topic, partition = unslot(place)
                labels = (runner.processor.name, topic, str(partition))
                first, end = self.log.bounds(topic, partition)
                found[metrics.LAG][labels] = max(0, end - position)
                found[metrics.DELAY][labels] = self._age(topic, partition, max(first, position), end)
                found[metrics.MARGIN][labels] = max(0, position - first)
        return found

    def _age(self, topic: str, partition: int, offset: int, end: int) -> float:
        """Seconds since the record at ``offset`` was written; 0 where there is none."""
        if offset >= end:
            return 0.0
        try:
            records = self.log.read(topic, partition, offset, 1)
        except PositionLost:
            return 0.0  # trimmed since: the next look finds the new beginning
        return max(0, self.log.now_ms() - records[0].log_ms) / 1000 if records else 0.0


def _open(runners: Sequence[StageRunner]) -> dict[Labels, float]:
    return {(str(runner.partition),): one.open for runner in runners if isinstance(one := runner.processor, Assembler)}


def _buffers(stats: Mapping[str, BufferStats], end: int) -> Series:
    return {
        metrics.BUFFER_ROLLOUTS: {(name,): found.rollouts for name, found in stats.items()},
        metrics.BUFFER_GROUPS: {(name,): found.groups for name, found in stats.items()},
        metrics.BUFFER_BYTES: {(name,): found.bytes for name, found in stats.items()},
        metrics.BUFFER_LEASED: {(name,): found.leased for name, found in stats.items()},
        metrics.BUFFER_LAG: {(name,): max(0, end - found.applied) for name, found in stats.items()},
    }


def _policies(ledger: PolicyLedger) -> Series:
    states = Counter((training.request.lineage, training.state) for training in ledger.trainings.values())
    verdicts = Counter((gate.lineage, gate.verdict) for gates in ledger.gates.values() for gate in gates)
    raised = Counter((alarm.lineage, alarm.alarm) for alarm in ledger.graders.alarms.values())
    cleared = Counter(
        (ledger.graders.alarms[name].lineage, ledger.graders.alarms[name].alarm) for name in ledger.graders.cleared
    )
    return {
        metrics.TRAININGS: {labels: float(count) for labels, count in states.items()},
        metrics.VERDICTS: {labels: float(count) for labels, count in verdicts.items()},
        metrics.ALARMS: {labels: float(count - cleared[labels]) for labels, count in raised.items()},
        metrics.CHAMPION: {(one.name,): float(one.champion) for one in ledger.lineages.values() if one.champion},
    }
