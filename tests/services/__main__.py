"""``make services-up`` and ``make services-down``: Kafka and Redis on free loopback ports, in a temp folder."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
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
    STATE.write_text(json.dumps({"pids": []}), encoding="utf-8")
    try:
        server.start()
        node.start()
    except BaseException:
        node.kill()
        server.kill()
        shutil.rmtree(HOME)
        raise
    urls = {"log": node.url, "redis": server.url}
    pids = [node.server.pid, server.server.pid]
    STATE.write_text(json.dumps({"pids": pids, **urls}), encoding="utf-8")
    print(f'[storage]\nlog = "{node.url}"\nbuffer = "{server.url}"\n\n[kafka]\nreplication = 1\nmin_insync = 1')
    return 0


def down() -> int:
    """End both and remove their folder."""
    if not STATE.exists():
        print("services-down: nothing runs", file=sys.stderr)
        return 0
    pids = [pid for pid in json.loads(STATE.read_text(encoding="utf-8"))["pids"] if _ours(pid)]
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 20
    while any(map(_ours, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in filter(_ours, pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(HOME)
    return 0


def _ours(pid: int) -> bool:
    """Whether the process runs and was started by `up` (a number may have been given to another since)."""
    try:
        return str(HOME) in Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit({"up": up, "down": down}[sys.argv[1]]())
