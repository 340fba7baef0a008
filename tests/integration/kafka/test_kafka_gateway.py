"""The gateway before Kafka: 200 means that the cluster has every part."""

from __future__ import annotations

import json
import threading
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from spans import chat, said

from millstream.adapters.http_server import Server
from millstream.adapters.otlp_requests import decoded
from millstream.capture.gateway import routes
from millstream.dialects.reading import mapped
from millstream.partition import partition_of
from millstream.serving import Door
from millstream.settings import Settings

pytestmark = [pytest.mark.services, pytest.mark.timeout(400)]


def test_spans_of_many_traces_are_in_their_partitions(log, topics):
    """Eight requests side by side, four traces each: every span is a line of the partition of its trace."""
    traces = [f"{n + 1:032x}" for n in range(4)]
    answers = []

    def send(number, url):
        given = [said("user", f"q {number}")]
        told = [chat(number + 1, None, given, [said("assistant", "a")], trace=trace) for trace in traces]
        body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": told}]}]}).encode()
        try:
            with urlopen(Request(f"{url}/v1/traces", body, {"content-type": "application/json"}), timeout=60) as answer:
                answers.append(answer.status)
        except HTTPError as error:
            answers.append(error.code)

    with Server(routes(log, Settings(), decoded), Door()) as server:
        senders = [threading.Thread(target=send, args=(number, server.url)) for number in range(8)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
    assert answers == [200] * 8
    found = []
    for partition in range(log.partitions("telemetry")):
        offset, end = log.bounds("telemetry", partition)
        while offset < end:
            for record in log.read("telemetry", partition, offset):
                told = [mapped(line, record.headers) for line in record.value.splitlines()]
                assert {partition_of(one.trajectory_id, log.partitions("telemetry")) for one in told} == {partition}
                found += [(one.trajectory_id, one.span_id) for one in told]
                offset = record.offset + 1
    assert sorted(found) == [(trace, f"{number + 1:016x}") for trace in traces for number in range(8)]
