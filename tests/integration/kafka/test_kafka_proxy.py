"""The proxy before Kafka, and while Kafka is away."""

from __future__ import annotations

import openai
import pytest
from services.openai_api import answering, call, completion

from millstream.bootstrap.runtime import Runtime
from millstream.bootstrap.serving import proxy_server
from millstream.codec import decode_lines
from millstream.loading import load
from millstream.partition import partition_of
from millstream.serving import Door

pytestmark = [pytest.mark.services, pytest.mark.timeout(400)]


def play(folder, chat, url, prefix):
    """A run of two calls through a proxy with its log at ``url``."""
    chat.script(
        answering(completion("", [call("c1", "look")], identity="1")), answering(completion("done", identity="2"))
    )
    options = {"storage.data": str(folder), "storage.log": url, "kafka.namespace": prefix, "kafka.timeout_s": 3.0}
    with Runtime(load(environ={}, options=options)) as runtime:
        server = proxy_server(runtime, chat.url, Door())
        with server, openai.OpenAI(base_url=f"{server.url}/v1", api_key="key", max_retries=0) as client:
            told = [{"role": "user", "content": "q"}]
            told.append(client.chat.completions.create(model="m", messages=told).choices[0].message)
            told.append({"role": "tool", "tool_call_id": "c1", "content": "seen"})
            client.chat.completions.create(
                model="m", messages=told, extra_headers={"X-Millstream-End": "done"}, timeout=20
            )


def events_of(log):
    """All events of telemetry, each in the partition of its run."""
    found = []
    for partition in range(log.partitions("telemetry")):
        offset, end = log.bounds("telemetry", partition)
        while offset < end:
            for record in log.read("telemetry", partition, offset):
                told = [event for event, _ in decode_lines(record.value)]
                assert {partition_of(one.trajectory_id, log.partitions("telemetry")) for one in told} == {partition}
                found += told
                offset = record.offset + 1
    return found


KINDS = ["MessageReceived", "ModelResponded", "ModelResponded", "ToolReturned", "TrajectoryEnded", "TrajectoryStarted"]


def test_calls_are_in_their_partition(log, topics, kafka_node, prefix, tmp_path, chat):
    """A run is in the cluster when the proxy has ended."""
    play(tmp_path, chat, kafka_node.url, prefix)
    assert sorted(type(event).__name__ for event in events_of(log)) == KINDS


def test_calls_while_kafka_is_away_come_later(log, topics, kafka_node, prefix, tmp_path, chat):
    """They go on and are spooled; the next proxy of the folder brings them."""
    play(tmp_path, chat, "kafka://127.0.0.1:1", prefix)
    assert events_of(log) == []
    assert list((tmp_path / "spool").glob("*.ndjson"))
    play(tmp_path, chat, kafka_node.url, prefix)
    assert sorted(type(event).__name__ for event in events_of(log)) == sorted(KINDS * 2)
    assert not list((tmp_path / "spool").glob("*.ndjson"))
