"""Every decoder of what others send, on inputs that nobody sane would send: no exception out of the boundary, no
hang, no memory that grows without end.

python bench/fuzz.py [TARGET…] [--inputs N] [--seed S] [--seconds N] [--data FOLDER] [--atheris] [--save FOLDER]

Without a target all take their turn; N inputs in total, mutated from seeds (the files of examples/data, golden lines,
and with --data the files of a folder). --atheris: guided by coverage (libFuzzer), one target at a time, N inputs each;
needs `pip install atheris` (the extra `fuzz`). The same seed gives the same inputs. Exit 1 when something was found;
each find tells its target, its input (hex, short) and where it came out.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).resolve().parent))

from fuzz_inputs import Inputs

if "--atheris" in sys.argv:
    import atheris

    with atheris.instrument_imports(include=["millstream", "fuzz_targets"]):
        from fuzz_targets import TARGETS, Target
else:
    from fuzz_targets import TARGETS, Target

HANG_S = 5.0
"""An input of at most a few hundred kilobytes that takes more CPU time is a hang."""
MOST_MEMORY = 4 << 30
"""The address space of the process: what asks for more gets a MemoryError, which is a find."""
ENDS = 20
"""After so many different finds the rest would tell nothing new."""


class HangError(Exception):
    """An input took too long."""


def _alarm(_signal: int, _frame: FrameType | None) -> None:
    raise HangError(f"longer than {HANG_S} s")


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Raises `HangError` inside when the block takes too long."""
    signal.setitimer(signal.ITIMER_PROF, HANG_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def place(error: BaseException) -> str:
    """What came out and where, the same for inputs that found the same."""
    frames = traceback.extract_tb(error.__traceback__)
    where = [f"{Path(one.filename).name}:{one.lineno}" for one in frames if "fuzz" not in one.filename]
    return f"{type(error).__name__} at {where[-1] if where else '?'}: {str(error)[:160]}"


class Finds:
    """What was found, each kind once."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.known: dict[tuple[str, str], str] = {}

    def take(self, target: str, data: bytes, error: BaseException) -> None:
        """Note a find and say it, if it is new."""
        frames = place(error).split(":", 2)
        kind = (target, ":".join(frames[:2]))
        if kind in self.known:
            return
        self.known[kind] = place(error)
        print(f"FOUND {target}: {place(error)}\n  {len(data)} bytes: {data[:300]!r}", flush=True)
        if self.folder:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / f"{target}-{hashlib.sha256(data).hexdigest()[:12]}").write_bytes(data)


def mutated(targets: dict[str, Target], arguments: argparse.Namespace, finds: Finds) -> Counter[str]:
    """Inputs in turn for every target, until there were enough; how many each had."""
    counts: Counter[str] = Counter()
    slowest: dict[str, float] = {}
    makers = {
        name: Inputs(target.seeds(arguments.data), random.Random(f"{arguments.seed} {name}"))
        for name, target in targets.items()
    }
    deadline = time.monotonic() + arguments.seconds if arguments.seconds else None
    names = list(targets)
    for number in range(arguments.inputs):
        name = names[number % len(names)]
        data = makers[name].next()
        began = time.process_time()
        try:
            with watched():
                targets[name].run(data)
        except (Exception, HangError) as error:  # noqa: BLE001 — that is what is looked for
            finds.take(name, data, error)
            if len(finds.known) >= ENDS:
                break
        counts[name] += 1
        slowest[name] = max(slowest.get(name, 0.0), time.process_time() - began)
        if deadline and time.monotonic() > deadline:
            break
    for name in names:
        print(f"{name:16} {counts[name]:9,} inputs, slowest {1000 * slowest.get(name, 0):8.1f} ms")
    return counts


def guided(name: str, target: Target, arguments: argparse.Namespace, finds: Finds) -> int:
    """One target by atheris, in this process; it ends the process itself."""
    corpus = Path(arguments.save or ".") / f"corpus-{name}"
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds(arguments.data):
        (corpus / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)

    began, count = time.monotonic(), 0

    def one(data: bytes) -> None:
        nonlocal count
        try:
            with watched():
                target.run(data)
        except (Exception, HangError) as error:  # noqa: BLE001 — that is what is looked for
            finds.take(name, data, error)
        count += 1
        if count >= arguments.inputs or len(finds.known) >= ENDS:
            told = {"target": name, "inputs": count, "seconds": round(time.monotonic() - began, 1)}
            print(json.dumps({**told, "finds": len(finds.known), "peak_mib": round(most_memory_mib())}), flush=True)
            os._exit(int(bool(finds.known)))  # the library ends the process as it likes, and never with a find's code

    limits = [f"-seed={arguments.seed}", "-max_len=65536", "-verbosity=0", "-timeout=60", "-rss_limit_mb=4096"]
    atheris.Setup([sys.argv[0], *limits, str(corpus)], one)
    atheris.Fuzz()
    return 0


def most_memory_mib() -> float:
    """The most memory that this process had. What `resource` tells begins with what its parent had."""
    status = Path("/proc/self/status")
    told = status.read_text(encoding="utf-8") if status.exists() else ""
    kib = next((line.split()[1] for line in told.splitlines() if line.startswith("VmHWM")), None)
    return int(kib or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 1024


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", choices=[*TARGETS, []], help=", ".join(TARGETS))
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0, help="stop after this long")
    parser.add_argument("--data", type=Path, help="a folder of files to begin from")
    parser.add_argument("--save", type=Path, help="where to put inputs that found something")
    parser.add_argument("--atheris", action="store_true")
    return parser.parse_args()


def main() -> int:
    """Run; 1 when something was found."""
    arguments = parsed()
    signal.signal(signal.SIGPROF, _alarm)
    targets = {name: TARGETS[name] for name in arguments.targets or TARGETS}
    finds = Finds(arguments.save)
    if arguments.atheris and len(targets) > 1:
        words = [word for word in sys.argv[1:] if word not in targets]
        return max(subprocess.run([sys.executable, __file__, name, *words], check=False).returncode for name in targets)
    if arguments.atheris:
        ((name, target),) = targets.items()
        return guided(name, target, arguments, finds)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    began = time.monotonic()
    counts = mutated(targets, arguments, finds)
    peak = most_memory_mib()
    took = time.monotonic() - began
    print(
        json.dumps(
            {"inputs": counts.total(), "seconds": round(took, 1), "finds": len(finds.known), "peak_mib": round(peak)}
        )
    )
    return int(bool(finds.known))


if __name__ == "__main__":
    sys.exit(main())
