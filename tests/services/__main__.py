"""``make services-up`` and ``make services-down``: Kafka and Redis on free loopback ports, in a temp folder."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from services import KafkaNode, RedisServer, missing_for_kafka, missing_for_redis

HOME = Path(tempfile.gettempdir()) / f"millstream-services-{os.getuid()}"
STATE = HOME / "state.json"


def up() -> int:
    """Start both and print the settings that use them."""
    if missing := "; ".join(filter(None, (missing_for_kafka(), missing_for_redis()))):
        print(f"services-up: {missing}", file=sys.stderr)
        return 3
    if STATE.exists():
        print(f"services-up: they run already; {STATE}", file=sys.stderr)
        return 2
    node, server = KafkaNode(HOME / "kafka"), RedisServer(HOME / "redis")
    STATE.write_text("{}", encoding="utf-8")
    try:
        server.start()
        node.start()
    except BaseException:
        node.kill()
        server.kill()
        shutil.rmtree(HOME)
        raise
    # A process is known again by what its command shows: the node's settings file, the server's address.
    found = {node.server.pid: str(HOME), server.server.pid: f"127.0.0.1:{server.port}"}
    STATE.write_text(json.dumps(found), encoding="utf-8")
    print(f'[storage]\nlog = "{node.url}"\nbuffer = "{server.url}"\n\n[kafka]\nreplication = 1\nmin_insync = 1')
    return 0


def down() -> int:
    """End both and remove their folder."""
    if not STATE.exists():
        print("services-down: nothing runs", file=sys.stderr)
        return 0
    started = {int(pid): shows for pid, shows in json.loads(STATE.read_text(encoding="utf-8")).items()}
    for by in (signal.SIGTERM, signal.SIGKILL):
        for pid in (pid for pid, shows in started.items() if _runs(pid, shows)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, by)
        deadline = time.monotonic() + 20
        while any(_runs(*one) for one in started.items()) and time.monotonic() < deadline:
            time.sleep(0.05)
    shutil.rmtree(HOME)
    return 0


def _runs(pid: int, shows: str) -> bool:
    """Whether the process that `up` started still runs (its number may have been given to another)."""
    told = subprocess.run(["ps", "-o", "stat=,command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shows in told.stdout and not told.stdout.lstrip().startswith("Z")


if __name__ == "__main__":
    sys.exit({"up": up, "down": down}[sys.argv[1]]())
