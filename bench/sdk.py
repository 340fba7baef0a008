"""What recording costs the agent: the latency of one SDK call, and how many events one core brings to the log.

python bench/sdk.py [--calls N] [--json]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from millstream.adapters.sqlite import open_sqlite
from millstream.capture.client import Client
from millstream.errors import Unavailable
from millstream.settings import Capture

CALL = {"id": "c1", "type": "function", "function": {"name": "calculator", "arguments": '{"expression": "2+2"}'}}
TEXT = "The revenue of the year was 482.5 million, up from 455.0 million in the year before. " * 4


class Away:
    """A log that takes nothing: the spool is measured."""

    def partitions(self, _topic):
        return 1

    def append(self, _topic, _messages, _partition=0):
        raise Unavailable("measured away")


def latency(client: Client, calls: int) -> list[float]:
    """Microseconds of each `Run.model` and `Run.tool` call, ten steps a run, an agent's pause between them."""
    found = []
    for number in range(calls // 20):
        with client.start_run({"id": f"task-{number}"}) as run:
            for _ in range(10):
                began = time.perf_counter_ns()
                run.model(text=TEXT, tool_calls=[CALL], token_ids=list(range(64)), logprobs=[-0.5] * 64)
                between = time.perf_counter_ns()
                run.tool(call_id="c1", name="calculator", output=TEXT)
                found += [(between - began) / 1000, (time.perf_counter_ns() - between) / 1000]
                time.sleep(0.001)
    return sorted(found)


def quantiles(found: list[float]) -> dict[str, float]:
    places = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
    return {name: round(found[int(len(found) * place)], 1) for name, place in places.items()}


def throughput(client: Client, events: int) -> float:
    """Events a CPU second from the call to the durable log, nothing refused."""
    began = time.process_time()
    for _ in range(events // 500):
        run = client.start_run({"id": "t"})
        for _ in range(498):
            run.tool(call_id="c", name="calculator", output=TEXT)
        run.end()
        assert client.flush(60)
    assert client.counters.refused == 0
    return events / (time.process_time() - began)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        embedded = open_sqlite(folder / "log.db")
        client = Client(embedded.log, Capture(), folder / "spool")
        figures = {"latency_us": quantiles(latency(client, options.calls))}
        client.flush(60)
        figures["refused"] = client.counters.refused
        figures["events_per_cpu_s"] = round(throughput(client, 20_000))
        client.close()
        away = Client(Away(), Capture(), folder / "away")
        figures["latency_us_log_away"] = quantiles(latency(away, options.calls // 2))
        away.close()
        embedded.close()
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:22} {value}")


if __name__ == "__main__":
    main()
