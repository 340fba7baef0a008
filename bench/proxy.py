"""What the proxy adds to a call: time to the first byte and to the last, through it and without it, in one run.

python bench/proxy.py [--seconds N] [--rate N] [--turns N] [--json]

Three processes: an upstream that answers at once, `millstream serve proxy` on the embedded log, and this one, which
calls both in turn at a fixed rate (open loop: a call that is late delays no other). Whole answers, and streams of 20
pieces; a prompt of 4 kB; every call begins a conversation or goes on with one. Target: less than 2 ms added at p99.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpcore2

TEXT = "The revenue of the year was 482.5 million, up from 455.0 million. "
PIECES = 20
UPSTREAM = """
import asyncio, json, sys
TEXT = "The revenue of the year was 482.5 million, up from 455.0 million. "
whole = json.dumps({"id": "c", "object": "chat.completion", "model": "m", "choices": [
    {"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1000, "completion_tokens": 20}}).encode()
def chunk(delta, finish=None):
    told = {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    data = b"data: %b\\n\\n" % json.dumps(told).encode()
    return b"%x\\r\\n%b\\r\\n" % (len(data), data)
pieces = [chunk({"content": TEXT[n * 3 : n * 3 + 3]}) for n in range(20)]
end = b"data: [DONE]\\n\\n"
last = chunk({}, "stop") + b"%x\\r\\n%b\\r\\n0\\r\\n\\r\\n" % (len(end), end)
kind = b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\n"
plain = kind + b"content-length: %d\\r\\n\\r\\n%b" % (len(whole), whole)
head = b"HTTP/1.1 200 OK\\r\\ncontent-type: text/event-stream\\r\\ntransfer-encoding: chunked\\r\\n\\r\\n"
async def serve(reader, writer):
    try:
        while True:
            told = await reader.readuntil(b"\\r\\n\\r\\n")
            size = int(told.lower().split(b"content-length:")[1].split(b"\\r\\n")[0])
            body = await reader.readexactly(size)
            if b'"stream": true' not in body:
                writer.write(plain)
                continue
            writer.write(head)
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(0)
            writer.write(last)
    except asyncio.IncompleteReadError:
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


class Caller:
    """Calls one place, and keeps how long each call took (seconds to the first byte, and to the last)."""

    def __init__(self, url: str) -> None:
        self.url = f"{url}/v1/chat/completions"
        self.pool = httpcore2.AsyncConnectionPool(max_keepalive_connections=64, keepalive_expiry=60)
        self.took: dict[bool, list[tuple[float, float]]] = {False: [], True: []}

    async def call(self, body: bytes, *, stream: bool) -> None:
        headers = [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
        ]
        began = time.perf_counter()
        async with self.pool.stream("POST", self.url, headers=headers, content=body) as answer:
            assert answer.status == 200, answer.status
            first = 0.0
            async for _ in answer.aiter_stream():
                first = first or time.perf_counter() - began
        self.took[stream].append((first, time.perf_counter() - began))


def bodies(number: int, turns: int) -> tuple[bytes, bool]:
    """The n-th call, after so many earlier turns; every second one streams, and every second pair goes on with the
    conversation of the pair before.
    """
    stream = number % 2 == 1
    messages: list[dict[str, Any]] = [{"role": "system", "content": TEXT * 60}]
    for turn in range(turns):
        messages += [{"role": "user", "content": f"{turn}: {TEXT * 5}"}, {"role": "assistant", "content": TEXT * 5}]
    messages.append({"role": "user", "content": f"question {number // 4}"})
    if number % 4 > 1:
        messages += [{"role": "assistant", "content": TEXT.strip()}, {"role": "user", "content": "go on"}]
    return json.dumps({"model": "m", "messages": messages, "stream": stream}).encode(), stream


async def load(direct: Caller, through: Caller, seconds: float, rate: float, turns: int) -> None:
    """Calls to both, in turn, each at the rate."""
    for caller in (direct, through):
        for number in range(20):
            body, stream = bodies(number, turns)
            await caller.call(body, stream=stream)
        caller.took = {False: [], True: []}
    tasks = set()
    began = time.perf_counter()
    for number in range(round(seconds * rate)):
        for part, caller in ((0.0, direct), (0.5, through)):
            await asyncio.sleep(max(0.0, began + (number + part) / rate - time.perf_counter()))
            body, stream = bodies(1000 + number, turns)
            tasks.add(asyncio.create_task(caller.call(body, stream=stream)))
    await asyncio.gather(*tasks)
    await direct.pool.aclose()
    await through.pool.aclose()


def quantile(values: list[float], share: float) -> float:
    """Milliseconds."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] * 1000


def figures(direct: Caller, through: Caller) -> dict[str, float]:
    """Milliseconds by what was measured."""
    found = {}
    for stream, kind in ((False, "whole"), (True, "stream")):
        for place, what in ((0, "first byte"), (1, "last byte")):
            for share, name in ((0.5, "p50"), (0.99, "p99")):
                one = quantile([took[place] for took in direct.took[stream]], share)
                other = quantile([took[place] for took in through.took[stream]], share)
                found[f"{kind}, {what}, direct {name}"] = one
                found[f"{kind}, {what}, through {name}"] = other
                found[f"{kind}, {what}, added {name}"] = other - one
    return {name: round(value, 3) for name, value in found.items()}


def measured(seconds: float, rate: float, turns: int) -> dict[str, float]:
    """Start everything, measure, and end it."""
    with tempfile.TemporaryDirectory() as folder:
        upstream = subprocess.Popen([sys.executable, "-c", UPSTREAM], stdout=subprocess.PIPE, text=True)
        assert upstream.stdout is not None
        there = f"http://127.0.0.1:{upstream.stdout.readline().strip()}"
        command = [sys.executable, "-c", "from millstream.cli import main; main()", "serve", "proxy"]
        env = {**os.environ, "MILLSTREAM_STORAGE__DATA": str(Path(folder) / "data")}
        proxy = subprocess.Popen([*command, "--upstream", there], stderr=subprocess.PIPE, text=True, env=env)
        try:
            assert proxy.stderr is not None
            told = re.search(r"http://[0-9.:]+", proxy.stderr.readline())
            assert told is not None
            direct, through = Caller(there), Caller(told[0])
            asyncio.run(load(direct, through, seconds, rate, turns))
            cpu = sum(map(int, Path(f"/proc/{proxy.pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
            calls = sum(map(len, through.took.values())) + 20
            found = figures(direct, through)
            found["CPU of the proxy a call, ms"] = round(cpu * 1000 / os.sysconf("SC_CLK_TCK") / calls, 3)
            return found
        finally:
            for process in (proxy, upstream):
                process.terminate()
                process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rate", type=float, default=50)
    parser.add_argument("--turns", type=int, default=0, help="earlier turns that each prompt tells again, 0.7 kB each")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = measured(asked.seconds, asked.rate, asked.turns)
    if asked.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:<40} {value:>8.3f}")
    if not asked.turns and any(value >= 2.0 for name, value in found.items() if name.endswith("added p99")):
        sys.exit("target missed: less than 2 ms added at p99")


if __name__ == "__main__":
    main()
