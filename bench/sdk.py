"""What recording costs the agent: the latency of one SDK call, of a wrapped client beside a bare one, and how many
events one core brings to the log.

python bench/sdk.py [--calls N] [--json]

Wrapped and bare clients take turns, over a transport that answers from memory. ``ours`` is what the SDK's own code took
of a call in the agent's thread, ``block`` each single time it took. A call tells a message and an answer with a tool
call; the long conversation is 200 KB and grows, and each request sends all of it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import httpx2
import openai

from millstream.adapters.sqlite import open_sqlite
from millstream.capture import watching
from millstream.capture.client import Client
from millstream.errors import Unavailable
from millstream.settings import Capture

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from services.openai_api import call, chunks, completion

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


class Canned:
    """A transport that answers every request from memory: chat completions, whole or as a stream of 200 chunks."""

    def __init__(self) -> None:
        self.whole = json.dumps(completion(TEXT, calls=[call("c1", "calculator", expression="2+2")])).encode()
        told = chunks(completion(TEXT * 2), size=len(TEXT * 2) // 196)
        self.stream = [*(f"data: {json.dumps(one)}\n\n".encode() for one in told), b"data: [DONE]\n\n"]

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        streamed = json.loads(request.content).get("stream")
        kind = "text/event-stream" if streamed else "application/json"
        return httpx2.Response(
            200, headers={"content-type": kind}, content=iter(self.stream if streamed else [self.whole])
        )


class Timed:
    """The SDK's own functions in the agent's thread, each call of them timed: ``blocks``, in microseconds."""

    def __init__(self) -> None:
        self.blocks: list[float] = []
        for owner, name in ((watching.Watcher, "_begun"), (watching.Call, "feed"), (watching.Call, "finish")):
            setattr(owner, name, self.timed(getattr(owner, name)))

    def timed(self, function):
        def made(*args, **kwargs):
            began = time.perf_counter_ns()
            try:
                return function(*args, **kwargs)
            finally:
                self.blocks.append((time.perf_counter_ns() - began) / 1000)

        return made


def wrapped(sdk: Client, calls: int, history: int = 0, *, stream: bool = False) -> dict[str, object]:
    """Microseconds of a call by a bare and by a wrapped client, in turns; how much of it is ours, a call and a block.

    With a ``history`` (bytes) all calls are of one run, each sends the conversation so far.
    """
    bare, watched = (
        openai.OpenAI(api_key="k", base_url="http://canned", http_client=httpx2.Client(transport=transport))
        for transport in (httpx2.MockTransport(Canned()), httpx2.MockTransport(Canned()))
    )
    watching.watch(watched, lambda: sdk)
    roles = ("user", "assistant")
    talk = [{"role": role, "content": TEXT} for _ in range(history // len(TEXT) // 2) for role in roles]
    found: dict[str, list[float]] = {"bare": [], "wrapped": [], "ours": []}
    TIMED.blocks.clear()
    for number in range(calls):
        talk = (
            [*talk, {"role": "user", "content": f"{number} {TEXT}"}] if history else [{"role": "user", "content": TEXT}]
        )
        turns = [("bare", bare), ("wrapped", watched)]
        for name, client in turns if number % 2 else turns[::-1]:
            with sdk.start_run({"id": "t"}) if name == "wrapped" and not history else nullcontext():
                done = len(TIMED.blocks)
                began = time.perf_counter_ns()
                answer = client.chat.completions.create(model="m", messages=talk, stream=stream)
                if stream:
                    for _ in answer:
                        pass
                found[name].append((time.perf_counter_ns() - began) / 1000)
                if name == "wrapped":
                    found["ours"].append(sum(TIMED.blocks[done:]))
        talk.append({"role": "assistant", "content": TEXT})
        time.sleep(0.001)
    return {
        **{name: quantiles(sorted(listed)) for name, listed in found.items()},
        "block": quantiles(sorted(TIMED.blocks)),
    }


TIMED = Timed()


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
        figures["openai_us"] = wrapped(client, options.calls // 10)
        figures["openai_stream_200_chunks_us"] = wrapped(client, options.calls // 50, stream=True)
        with client.start_run({"id": "long"}):
            figures["openai_conversation_200_kb_us"] = wrapped(client, options.calls // 50, 200_000)
        client.close()
        away = Client(Away(), Capture(), folder / "away")
        figures["latency_us_log_away"] = quantiles(latency(away, options.calls // 2))
        away.close()
        embedded.close()
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        for part, told in value.items() if isinstance(value, dict) and "ours" in value else [("", value)]:
            print(f"{name:30} {part:8} {told}")


if __name__ == "__main__":
    main()
