"""``make bench``: every benchmark in turn, each in its own process, both sides in one run.

Ratios are safer than absolutes: these machines are shared. Names given on the command line run only those.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
BENCHES = {
    "assembly": "decode only, decode + assemble, bytewax on the same sessionization",
    "log": "the embedded path end to end: append, assemble, grade, buffer",
    "graders": "built-in graders, people's own in a child, code in the sandbox, and the grade stage",
    "judges": "what asking a judge costs beside the model's time; text similarity beside its libraries",
    "numeric_answers": "which renderings of right and wrong answers the numeric grader accepts",
    "alarms": "false alarms and detection of the alarms, simulated",
    "regrade": "regrading 100,000 runs, an interruption in the middle, and the buffer that follows",
    "buffer": "rollouts admitted, leased and read a second on Redis and Valkey, and the memory of one",
    "sdk": "what a call costs the agent",
    "gateway": "spans into the log beside decode only, and reading them in each dialect",
    "proxy": "what the proxy adds to a call, beside calling the upstream directly",
}


def main(names: list[str]) -> int:
    """Run them; 1 when a target was missed."""
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; known: {', '.join(BENCHES)}")
        return 2
    missed = []
    for name in names or list(BENCHES):
        print(f"\n== {name}: {BENCHES[name]}", flush=True)
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, str(HERE / f"{name}.py")], env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
        )
        print(f"-- {name}: {time.monotonic() - began:.0f} s", flush=True)
        if done.returncode:
            missed.append(name)
    print("\nall targets met" if not missed else f"\na target was missed in: {', '.join(missed)}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
