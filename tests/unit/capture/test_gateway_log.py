"""The SDK through a gateway: what it answers decides what is sent again, spooled or given up."""

from __future__ import annotations

import gzip
import json
import os
import socket
import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from millstream.adapters.gateway_log import GatewayLog
from millstream.adapters.http_server import Server
from millstream.adapters.otlp_requests import decoded
from millstream.capture.client import Client
from millstream.capture.gateway import routes
from millstream.errors import SettingsError, Unavailable
from millstream.events import ModelResponded
from millstream.ports import Message
from millstream.serving import Door
from millstream.settings import Capture, Settings


def until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


class Answering:
    """A server that answers each POST by a script; its last word for ever."""

    def __init__(self):
        self.script, self.asked = [200], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.asked.append((self.path, dict(self.headers), body))
                act = outer.script.pop(0) if len(outer.script) > 1 else outer.script[0]
                if act == "hang up":
                    self.close_connection = True
                    return
                status, told = act if isinstance(act, tuple) else (act, {"accepted": 1, "rejected": 0, "why": ""})
                answer = told if isinstance(told, bytes) else json.dumps(told).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def answering():
    server = Answering()
    yield server
    server.close()


@pytest.fixture
def gateway():
    """A `GatewayLog` for a URL, hung up at the end."""
    made = []

    def log(url, token="", **options):
        made.append(GatewayLog(url, token, **options))
        return made[-1]

    yield log
    for one in made:
        one.close()


RECORD = [Message("t", b'{"a":1}\n{"a":2}\n', {})]


def test_events_reach_the_log_behind_a_gateway(log, told, spool, gateway):
    """A run told through a real gateway, with its token; large records are zipped; nothing is told twice."""
    door = Door(token="a-token-of-some-length")
    with Server(routes(log, Settings(), decoded), door) as server:
        url = f"http://127.0.0.1:{server.port}"
        client = Client(lambda: gateway(url, "a-token-of-some-length"), Capture(flush_ms=5), spool)
        with client.start_run({"id": "t"}) as run:
            for number in range(300):
                run.model(text=f"{number} " + "long text " * 50)
        assert client.flush()
        client.close()
    texts = [e.text.split()[0] for e in told() if isinstance(e, ModelResponded)]
    assert texts == [str(number) for number in range(300)]
    assert len({e.id for e in told()}) == 302


def test_a_gateway_that_is_down_costs_nothing(log, told, spool, gateway):
    """Nobody listens, then it comes up: events wait on disk and arrive once, in order."""
    with closing(socket.create_server(("127.0.0.1", 0))) as held:
        port = held.getsockname()[1]
    client = Client(lambda: gateway(f"http://127.0.0.1:{port}"), Capture(flush_ms=5), spool)
    with client.start_run({"id": "t"}) as run:
        for number in range(50):
            run.model(text=str(number))
    until(lambda: client.counters.spooled == 52)
    assert list(spool.glob("*.ndjson"))
    with Server(routes(log, Settings(), decoded), Door(port=port)):
        assert client.flush()
        client.close()
    assert [e.text for e in told() if isinstance(e, ModelResponded)] == [str(number) for number in range(50)]
    assert not list(spool.glob("*.ndjson"))


@pytest.mark.parametrize("act", [401, 403, 404, 429, 500, 503, 302, "hang up"])
def test_what_may_pass_is_tried_again(answering, gateway, act):
    """A token that is wrong, a house that is full, a log that is away, a redirect: none of these loses anything."""
    answering.script = [act]
    log = gateway(answering.url)
    with pytest.raises(Unavailable, match="gateway"):
        log.append("telemetry", RECORD)
    answering.script = [200]
    log.append("telemetry", RECORD)
    assert answering.asked[-1][2] == RECORD[0].value
    assert log.rejected == 0


@pytest.mark.parametrize(
    "act", [(400, {"accepted": 0, "rejected": 2, "why": "line 1"}), (413, b"too large"), (422, b"{")]
)
def test_what_is_never_taken_does_not_hold_up_the_rest(answering, gateway, act, caplog):
    """Rejected for good: counted, logged with the reason, and the next record goes on."""
    answering.script = [act, 200]
    log = gateway(answering.url)
    log.append("telemetry", [*RECORD, Message("t", b'{"a":3}\n', {})])
    assert log.rejected == 2
    assert "rejected 2 events for good" in caplog.text
    assert [body for _, _, body in answering.asked] == [RECORD[0].value, b'{"a":3}\n']


def test_a_connection_that_went_stale_is_opened_anew(answering, gateway):
    """A gateway closes idle connections: the next record opens one, and is sent once more at most."""
    log = gateway(answering.url)
    log.append("telemetry", RECORD)
    answering.script = ["hang up", 200]
    log.append("telemetry", RECORD)
    assert len(answering.asked) == 3


def test_a_gateway_that_hangs_is_left(gateway):
    """No answer within the time: it is tried again later."""
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        log = gateway(f"http://127.0.0.1:{silent.getsockname()[1]}/mill/", timeout_s=0.1)
        with pytest.raises(Unavailable, match="TimeoutError"):
            log.append("telemetry", RECORD)


def test_the_request_says_what_it_is(answering, gateway):
    """The path under a prefix, the token as bearer, gzip for what is worth it."""
    log = gateway(f"{answering.url}/mill/", "the-token-of-this-test")
    log.append("telemetry", [Message("t", b'{"a":1}\n' * 1000, {})])
    path, headers, body = answering.asked[0]
    assert path == "/mill/v1/events"
    assert headers["Authorization"] == "Bearer the-token-of-this-test"
    assert headers["Content-Type"] == "application/x-ndjson"
    assert gzip.decompress(body) == b'{"a":1}\n' * 1000


@pytest.mark.parametrize("url", ["127.0.0.1:4318", "ftp://h", "http://", "http://u:p@h", "http://h?x=1", ""])
def test_a_url_that_is_none_is_refused(url):
    """With an example of one that is."""
    with pytest.raises(SettingsError, match="give the URL of a gateway"):
        GatewayLog(url)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_a_connection_of_its_own(log, told, spool, gateway):
    """Parent and child send through the same gateway and do not mix their requests."""
    with Server(routes(log, Settings(), decoded), Door()) as server:
        client = Client(lambda: gateway(f"http://127.0.0.1:{server.port}"), Capture(flush_ms=5), spool)
        run = client.start_run({"id": "t"})
        run.model(text="before")
        assert client.flush()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                run.model(text="in the child")
                code = 0 if client.flush() else 2
            finally:
                os._exit(code)
        run.model(text="in the parent")
        assert client.flush()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        client.close()
    texts = sorted(e.text for e in told() if isinstance(e, ModelResponded))
    assert texts == ["before", "in the child", "in the parent"]
