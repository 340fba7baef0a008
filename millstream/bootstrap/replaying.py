"""``millstream replay``: history read again by the mapping of this version, wired to the log and the store."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Final

from millstream.bootstrap.stages import assembling
from millstream.dialects.reading import MAPPING_EPOCH
from millstream.errors import Conflict, Unavailable
from millstream.partition import slot
from millstream.ports import Log, Store
from millstream.streams.assembled import Downstream
from millstream.streams.remapping import Progress, Reading, Remapped, put_out, total
from millstream.streams.runner import StageRunner
from millstream.topics import TELEMETRY

if TYPE_CHECKING:
    from millstream.bootstrap.runtime import Runtime

STAGE: Final = "assemble"
_LOOKS: Final = 50
"""How often a running stage is looked at before what it put out and how far it is are the same moment's."""


def replay(runtime: Runtime, progress: Progress, *, dry_run: bool) -> Remapped:
    """Read telemetry again and put out a revision of every trajectory that is another one now; with ``dry_run`` only
    say which. Nothing may assemble beside it, but for a dry run. Raises `SettingsError` when `up` runs, `Unavailable`
    when a worker does.
    """
    with ExitStack() as stack:
        if dry_run:
            cuts, known = looked_at(runtime.log, runtime.store)
            return _read(runtime, stack, cuts, known, progress, [])
        from millstream.adapters.lock import RunnerLock

        lock = RunnerLock(runtime.loaded.data / "runner.lock").acquire()
        stack.callback(lock.release)
        count = runtime.log.partitions(TELEMETRY.name)
        runners = [StageRunner(assembling(runtime), runtime.log, runtime.store, n) for n in range(count)]
        for runner in runners:
            runner.start()
        cuts = {n: one.positions[slot(TELEMETRY.name, n)] for n, one in enumerate(runners)}
        try:
            return _read(runtime, stack, cuts, Downstream.read(runtime.log), progress, runners)
        except Conflict as conflict:
            raise Unavailable(f"{conflict}: stop the workers of {STAGE} and replay again") from None


def _read(
    runtime: Runtime,
    stack: ExitStack,
    cuts: dict[int, int],
    known: Downstream,
    progress: Progress,
    runners: list[StageRunner],
) -> Remapped:
    """Fold each partition, and put out what it came to where there are runners to do so."""
    log, gaps = runtime.log, tuple(gap for gap in runtime.store.gaps() if gap.stage == STAGE)
    readings = {
        n: stack.enter_context(closing(Reading(log, assembling(runtime), n, cut, known=known, gaps=gaps)))
        for n, cut in cuts.items()
    }
    of = sum(one.cut - one.first for one in readings.values())
    done = 0

    def step(count: int) -> None:
        nonlocal done
        done += count
        progress(done, of)

    for n, reading in readings.items():
        reading.fold(step)
        if runners:
            put_out(reading, runners[n])
    return total(MAPPING_EPOCH, readings)


def looked_at(log: Log, store: Store) -> tuple[dict[int, int], Downstream]:
    """How far assembly is in each partition, and what it has put out by then, beside a running one."""
    for _ in range(_LOOKS):
        before, waiting = _positions(log, store), store.waiting().get(STAGE, 0)
        known = Downstream.read(log)
        if not waiting and before == _positions(log, store):
            return before, known
    raise Unavailable(f"{STAGE} is too busy to be looked at: try again, or stop it meanwhile")


def _positions(log: Log, store: Store) -> dict[int, int]:
    found = {p.partition: p.offset for p in store.positions() if (p.stage, p.topic) == (STAGE, TELEMETRY.name)}
    return {n: found.get(n, log.bounds(TELEMETRY.name, n)[0]) for n in range(log.partitions(TELEMETRY.name))}
