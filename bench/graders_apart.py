"""Graders that run elsewhere: people's own in a child process, and code that arrived as data in the sandbox."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from millstream.adapters.children import Child
from millstream.adapters.sandbox import BubblewrapSandbox
from millstream.graders.loading import load
from millstream.graders.running import GraderSet
from millstream.ports import Record
from millstream.sandboxing import Code
from millstream.settings import Graders, SandboxSettings
from millstream.streams.grading import GradingStage

OWN = """import millstream as ms

@ms.grader
def exact(t):
    return float(t.final_answer == t.task.reference)
"""
GRADE = "def grade(sample, item):\n    return 1.0 if sample['output_text'] == item['reference_answer'] else 0.0"
WITH_NUMPY = "import numpy as np\n" + GRADE
WARM, COLD = 400, 12


@contextmanager
def own() -> Iterator[tuple[GraderSet, Callable[[], float]]]:
    """A grader of one's own, and the processor time that this process and its child have used."""
    children: list[Child] = []

    def spawn(module: str) -> Child:
        children.append(Child(module))
        return children[-1]

    def cpu() -> float:
        words = Path(f"/proc/{children[0].pid}/stat").read_text().rpartition(")")[2].split()
        return time.process_time() + (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "graders.py").write_text(OWN)
        graders = load(Graders(enabled=(), files=("graders.py",)), Path(folder), spawn)
        try:
            yield graders, cpu
        finally:
            graders.close()


def own_rate(runs: Sequence[bytes], size: int, repeats: int) -> float:
    """Trajectories a second of a core, ``size`` in a call: processor time of both processes."""
    with own() as (graders, cpu):
        best = 0.0
        for _ in range(repeats):
            begun = cpu()
            for start in range(0, len(runs), size):
                assert graders.foresee(runs[start : start + size])
            best = max(best, len(runs) / (cpu() - begun))
    return best


def own_stage_rate(runs: Sequence[bytes], repeats: int) -> float:
    """The whole stage with it: decode, ask the child, facts, encode; processor time of both processes."""
    with own() as (graders, cpu):
        stage, best = GradingStage(graders, topic_id="bench"), 0.0
        for round_ in range(repeats):
            first = round_ * len(runs)
            records = [
                Record("trajectories", 0, first + n, n, str(n), run, {"kind": "trajectory"})
                for n, run in enumerate(runs)
            ]
            begun = cpu()
            stage.expect(records)
            for record in records:
                stage.feed(record)
            best = max(best, len(runs) / (cpu() - begun))
    return best


def sandbox_lines() -> Iterator[str]:
    """A grade in the sandbox by the clock: warm, with NumPy, cold, and after a hang that cost a sandbox."""
    made = BubblewrapSandbox(SandboxSettings(timeout_s=2))
    try:
        made.check()
        for name, source, preload in (("warm", GRADE, ()), ("warm, NumPy", WITH_NUMPY, ("numpy",))):
            for _ in range(20):
                _took(made, source, preload)
            begun = time.process_time() + _used(made)
            took = [_took(made, source, preload) for _ in range(WARM)]
            spent = 1000 * (time.process_time() + _used(made) - begun) / WARM
            yield f"{_line(name, took)}; {spent:.2f} ms of processor time each"
        hang = Code(sources=(("g", "def grade(s, i):\n    while True: pass"),), function="grade", arguments=({}, {}))
        after = []
        for _ in range(3):
            made.run(hang, timeout_s=0.2)
            after.append(_took(made, GRADE))
        yield _line("after a hang", after)
    finally:
        made.close()
    yield _line("cold", [_cold(GRADE) for _ in range(COLD)])
    yield _line("cold, NumPy", [_cold(WITH_NUMPY, ("numpy",)) for _ in range(COLD)])


def _used(sandbox: BubblewrapSandbox) -> float:
    """Processor seconds of the warm sandboxes, their ended jobs among them."""
    return sum(_used_by(cell.pid) for cell in sandbox._warm)  # noqa: SLF001


def _used_by(pid: int) -> float:
    """Down from bubblewrap to the process that waits in it: the ended jobs are in its books."""
    while inner := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(inner[0])
        words = Path(f"/proc/{pid}/stat").read_text()
        if "python" in words:
            return sum(map(int, words.rpartition(")")[2].split()[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _line(name: str, took: Sequence[float]) -> str:
    p99 = sorted(took)[min(len(took) - 1, int(0.99 * len(took)))]
    return f"{name:14} {statistics.median(took):8.2f} ms median {p99:8.2f} ms p99   ({len(took)} grades)"


def _took(sandbox: BubblewrapSandbox, source: str, preload: tuple[str, ...] = ()) -> float:
    arguments = ({"output_text": "42"}, {"reference_answer": "42"})
    begun = time.perf_counter()
    code = Code(sources=(("g", source),), function="grade", arguments=arguments, preload=preload)
    assert sandbox.run(code).value == 1.0
    return 1000 * (time.perf_counter() - begun)


def _cold(source: str, preload: tuple[str, ...] = ()) -> float:
    sandbox = BubblewrapSandbox(SandboxSettings())
    try:
        return _took(sandbox, source, preload)
    finally:
        sandbox.close()
