"""Passing on, over real connections: what goes through, at once and unchanged, and what does not."""

import contextlib
import gzip
import http.client
import json
import socket
import threading
import time

import pytest
from services.upstream import Upstream, reply, stream

from millstream.adapters.http_forward import Forwarder, _target
from millstream.adapters.http_forward import Upstream as Target
from millstream.adapters.http_server import Server
from millstream.errors import SettingsError
from millstream.serving import Door, Refusal, Route, json_response
from millstream.settings import ProxySettings, ServeSettings

TOKEN = "a-token-of-some-length"
CHAT = "/v1/chat/completions"


class Seen:
    """An exchange that keeps everything."""

    def __init__(self):
        self.request, self.status, self.body, self.ending = b"", 0, b"", ""
        self.done = threading.Event()

    def sent(self, piece):
        self.request += piece

    def answered(self, status, headers):
        self.status = status

    def came(self, piece):
        self.body += piece

    def over(self, ending):
        assert not self.ending, "told twice"
        self.ending = ending
        self.done.set()


class Watch:
    """Looks at POSTs."""

    def __init__(self):
        self.exchanges = []
        self.closed = 0

    def close(self):
        self.closed += 1

    def begin(self, method, path, headers):
        if method != "POST":
            return None
        self.exchanges.append(Seen())
        return self.exchanges[-1]

    def last(self):
        assert self.exchanges[-1].done.wait(10)
        return self.exchanges[-1]


@contextlib.contextmanager
def forwarding(url, *, rules=None, body_timeout_s=10.0, routes=(), token="", door_rules=None):
    watch = Watch()
    forwarder = Forwarder(Target(url), rules or ProxySettings(), watch, body_timeout_s)
    door = Door(token_header="x-millstream-token", token=token, rules=door_rules or ServeSettings())
    with Server(routes, door, forwarder) as server:
        server.watch = watch
        yield server
    assert watch.closed == 1


@pytest.fixture(scope="module")
def upstream():
    with Upstream() as server:
        yield server


@pytest.fixture
def fresh(upstream):
    """The upstream with nothing seen, answering what each test says."""
    upstream.seen.clear()
    upstream.act = reply
    return upstream


@pytest.fixture(scope="module")
def proxy(upstream):
    with forwarding(upstream.url) as server:
        yield server


def ask(server, method, path, body=None, headers=None, **more):
    """(status, body, headers) of one request."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
        connection.request(method, path, body, headers or {}, **more)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.getheaders()


def raw(server, *pieces, wait=0.0):
    """What a server says to these bytes, until it closes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(wait)
        connection.settimeout(10)
        found = b""
        while piece := connection.recv(65536):
            found += piece
            if b"\r\n\r\n" in found:
                break
        return found


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_a_request_and_its_answer_pass_unchanged(proxy, fresh, method):
    """Method, path with its escapes, query, headers and body go there; status, headers and body come back."""
    body = bytes(range(256)) * 9 if method != "GET" else None
    answer = b"\x00\xff answer"
    fresh.act = lambda handler: reply(handler, 418, answer, X_Request_Id="r1", Set_Cookie="a=1")
    headers = {"Authorization": "Bearer key", "X-Other": "y", "Content-Type": "application/json"}
    status, told, back = ask(proxy, method, "/v1/files/a%2Fb%20c?q=%41&q=2", body, headers)
    assert (status, told) == (418, answer)
    assert {("x-request-id", "r1"), ("set-cookie", "a=1")} <= set(back)
    ((asked, path, sent, came),) = fresh.seen
    assert (asked, path, came) == (method, "/v1/files/a%2Fb%20c?q=%41&q=2", body or b"")
    sent = {name.lower(): value for name, value in sent}
    assert (sent["authorization"], sent["x-other"]) == ("Bearer key", "y")
    assert sent["host"] == fresh.url.split("/")[2]


def test_all_headers_of_one_name_come_back(proxy, fresh):
    """Cookies of an answer are not one header."""

    def act(handler):
        handler.send_response(204)
        handler.send_header("Set-Cookie", "a=1")
        handler.send_header("Set-Cookie", "b=2")
        handler.end_headers()

    fresh.act = act
    status, body, headers = ask(proxy, "GET", "/v1/x")
    assert (status, body) == (204, b"")
    assert [value for name, value in headers if name == "set-cookie"] == ["a=1", "b=2"]
    assert sum(name == "date" for name, _ in headers) == 1


@pytest.mark.parametrize("size", [0, 1, 70_000, 20_000_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_of_any_size_pass(proxy, fresh, size, chunked):
    """Sized or in chunks; nothing of them is held back."""
    body = b"x" * size
    told = iter([body[: size // 2], body[size // 2 :]]) if chunked else body
    fresh.act = lambda handler: reply(handler, body=handler.body)
    status, back, _ = ask(proxy, "POST", CHAT, told, encode_chunked=chunked, headers=_chunked(chunked))
    assert (status, back == body) == (200, True)
    seen = proxy.watch.last()
    assert (seen.request == body, seen.body == body, seen.ending) == (True, True, "whole")


def _chunked(chunked):
    return {"Transfer-Encoding": "chunked"} if chunked else {}


def test_a_stream_comes_piece_by_piece(proxy, fresh):
    """The first piece is there while the upstream still waits to send the second; the bytes are the same."""
    go = threading.Event()
    pieces = [b"data: one\n\n", b"data: t", b"wo\n\n"]

    def act(handler):
        def told():
            yield pieces[0]
            assert go.wait(10)
            yield from pieces[1:]

        stream(handler, told())

    fresh.act = act
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)) as connection:
        connection.request("POST", CHAT, b"{}")
        answer = connection.getresponse()
        assert answer.read1() == pieces[0]
        go.set()
        assert answer.read() == b"".join(pieces[1:])
    assert proxy.watch.last().body == b"".join(pieces)


def test_hop_by_hop_headers_and_ours_stay_here(proxy, fresh):
    """Connection and what it names, proxy credentials, the token and X-Millstream-*; a caller can't have the key or
    the length of the body taken out by naming them.
    """
    names = [
        "Keep-Alive",
        "Proxy-Authorization",
        "TE",
        "Upgrade",
        "X-Hop",
        "X-Millstream-Trajectory",
        "X-Millstream-Token",
    ]
    headers = dict.fromkeys(names, "1") | {"Connection": "x-hop, authorization, content-length", "Authorization": "k"}
    assert ask(proxy, "POST", CHAT, b"{}", headers)[0] == 200
    sent = {name.lower() for name, _ in fresh.seen[0][2]}
    assert not sent & {name.lower() for name in [*names, "Connection"]}
    assert {"authorization", "content-length"} <= sent


def test_only_codings_that_can_be_read_are_asked_for(proxy, fresh):
    """Of a call that is watched; what comes gzipped goes on gzipped, byte for byte."""
    packed = gzip.compress(b'{"a": 1}')
    fresh.act = lambda handler: reply(handler, body=packed, Content_Encoding="gzip")
    status, body, headers = ask(proxy, "POST", CHAT, b"{}", {"Accept-Encoding": "gzip;q=1.0, br, zstd"})
    assert (status, body, dict(headers)["content-encoding"]) == (200, packed, "gzip")
    ask(proxy, "POST", CHAT, b"{}", {"Accept-Encoding": "br"})
    ask(proxy, "GET", "/v1/models", None, {"Accept-Encoding": "br"})
    assert [dict(seen[2])["accept-encoding"] for seen in fresh.seen] == ["gzip", "identity", "br"]


@pytest.mark.parametrize(
    "target",
    [
        "http://evil.example/v1/models",
        "//evil.example/v1/models",
        "/v1/../admin",
        "/v1/%2e%2e/admin",
        "/v1/%252e%252e/admin",
        "/v1/..%2fadmin",
        "/v1/.%2E%5cadmin",
        "/..;/../admin",
        "/v1/%" + "25" * 8 + "2e%" + "25" * 8 + "2e/admin",
        "*",
    ],
)
def test_a_target_that_leaves_the_upstream_is_refused(proxy, fresh, target):
    """Another server's address, and every spelling of a step up: 400, and nothing is sent."""
    host = f"localhost:{proxy.port}"
    assert b" 400 " in raw(proxy, f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())[:20]
    assert fresh.seen == []


def test_a_path_escaped_over_and_over_holds_up_nobody(cpu_s):
    """60 kB of escapes of escapes: refused before they are looked behind one by one, which took seconds."""

    def refused():
        with pytest.raises(Refusal, match="escaped"):
            _target(b"/v1/models", "/v1/%" + "25" * 30_000)

    assert cpu_s(refused, enough=0.1) < 0.1


@pytest.mark.parametrize("method", ["CONNECT", "TRACE"])
def test_methods_that_tunnel_or_echo_are_refused(proxy, fresh, method):
    """Neither is passed on."""
    target = "/v1" if method == "TRACE" else "evil.example:443"
    answer = raw(proxy, f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert answer.startswith((b"HTTP/1.1 405", b"HTTP/1.1 400"))
    assert fresh.seen == []


def test_a_redirect_is_the_callers_business(proxy, fresh):
    """It comes back as it is; the place it names hears nothing of us."""
    with Upstream() as elsewhere:
        fresh.act = lambda handler: reply(handler, 307, Location=f"{elsewhere.url}/chat/completions")
        assert ask(proxy, "POST", CHAT, b"{}", {"Authorization": "Bearer key"})[0] == 307
        assert elsewhere.seen == []


def test_the_base_path_of_the_upstream_stands_before_every_path(fresh):
    """With and without /v1 at its end."""
    for base in (fresh.url, fresh.url.removesuffix("/v1"), fresh.url.replace("/v1", "/tenant/openai/v1/")):
        with forwarding(base) as server:
            assert ask(server, "GET", "/v1/models")[0] == 200
    assert [seen[1] for seen in fresh.seen] == ["/v1/models", "/v1/models", "/tenant/openai/v1/models"]


@pytest.mark.parametrize(
    "url", ["ftp://x/v1", "x/v1", "http://", "http://h:99999/v1", "http://h/v1?key=1", "http://u:p@h/v1"]
)
def test_an_upstream_that_is_none_is_refused(url):
    """In one line that shows no key."""
    with pytest.raises(SettingsError, match="http://HOST:PORT") as told:
        Target(url)
    assert "u:p" not in str(told.value)
    assert "key=1" not in str(told.value)


def test_the_proxy_of_the_environment_is_used_but_for_loopback():
    """Where the upstream is reached through one."""
    environ = {"https_proxy": "http://proxy.example:3128"}
    assert Target("https://api.example.com/v1", environ).proxy == "http://proxy.example:3128"
    assert Target("https://127.0.0.1/v1", environ).proxy is None


def test_an_upstream_that_is_not_there(fresh):
    """502 in the shape of the API, and the exchange is told."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with forwarding(f"http://127.0.0.1:{free.getsockname()[1]}/v1") as server:
            status, body, _ = ask(server, "POST", CHAT, b"{}")
            assert (status, json.loads(body)["error"]["code"]) == (502, "upstream_unreachable")
            assert server.watch.last().ending == "unanswered"


def test_an_upstream_that_is_silent(fresh):
    """504 after the time of the settings."""
    go = threading.Event()
    fresh.act = lambda handler: go.wait(10)
    with forwarding(fresh.url, rules=ProxySettings(timeout_s=0.2)) as server:
        status, body, _ = ask(server, "POST", CHAT, b"{}")
    go.set()
    assert (status, json.loads(body)["error"]["code"]) == (504, "upstream_timeout")


@pytest.mark.parametrize("sized", [False, True])
def test_an_upstream_that_breaks_off_is_seen_to(proxy, fresh, sized):
    """What came goes on; then the connection is cut, so that no client takes it for the whole."""

    def act(handler):
        if sized:
            handler.send_response(200)
            handler.send_header("Content-Length", "1000")
            handler.end_headers()
            handler.wfile.write(b"data: half")
            handler.close_connection = True
        else:
            stream(handler, [b"data: half", None])

    fresh.act = act
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)) as connection:
        connection.request("POST", CHAT, b"{}")
        with pytest.raises(http.client.IncompleteRead) as told:
            connection.getresponse().read()
    assert told.value.partial == b"data: half"
    seen = proxy.watch.last()
    assert (seen.ending, seen.body) == ("broken", b"data: half")


@pytest.mark.parametrize("begun", [False, True])
def test_a_client_that_leaves_ends_the_call(proxy, fresh, begun):
    """Before the answer or in the middle of it: the upstream's connection is closed, and the exchange is told."""
    gone, asked = threading.Event(), threading.Event()

    def act(handler):
        asked.set()
        if begun:
            handler.send_response(200)
            handler.end_headers()
            handler.wfile.write(b"data: half")
        handler.connection.settimeout(10)
        if handler.connection.recv(1) == b"":
            gone.set()
        handler.close_connection = True

    fresh.act = act
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)) as connection:
        connection.request("POST", CHAT, b"{}")
        assert asked.wait(10)
        if begun:
            connection.getresponse().read1()
    assert gone.wait(10)
    seen = proxy.watch.last()
    assert (seen.ending, seen.body) == ("left", b"data: half" if begun else b"")


def test_a_body_that_stalls_is_not_waited_for(fresh):
    """A client that stops in the middle of its request gets 408."""
    with forwarding(fresh.url, body_timeout_s=0.2) as server:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"
        for half in (b"", b"half"):
            assert raw(server, head + half).startswith(b"HTTP/1.1 408")
            assert server.watch.last().ending == "unanswered"


def test_a_body_over_the_bound_is_refused(fresh):
    """Whether or not it says how long it is."""
    with forwarding(fresh.url, rules=ProxySettings(max_body_bytes=100_000)) as server:
        assert ask(server, "POST", CHAT, iter([b"x" * 70_000] * 2), _chunked(True), encode_chunked=True)[0] == 413


def test_huge_headers_are_refused(proxy, fresh):
    """More than 64 KiB of them is no request, in one or in many, at once or bit by bit."""
    start = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n"
    many = b"".join(b"X-%d: %b\r\n" % (n, b"x" * 1000) for n in range(70))
    for pieces in ((start, many, b"\r\n"), (start + b"X-Long: " + b"x" * 100_000 + b"\r\n\r\n",)):
        with contextlib.suppress(ConnectionError):  # it may hang up before it was told everything
            assert raw(proxy, *pieces).startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))
    assert fresh.seen == []


def test_an_answer_waits_for_a_slow_reader(proxy, fresh):
    """What a client does not take stays with the upstream: no more than the buffers between is read ahead."""
    sent = []

    def act(handler):
        def told():
            for _ in range(2000):
                yield b"x" * 65_536
                sent.append(1)

        stream(handler, told())

    fresh.act = act
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)) as connection:
        connection.request("GET", "/v1/files/1/content")
        answer = connection.getresponse()
        before = -1
        while before != len(sent):
            before = len(sent)
            time.sleep(0.2)
        assert before < 500
        assert sum(len(piece) for piece in iter(lambda: answer.read(1 << 20), b"")) == 2000 * 65_536


def test_the_token_has_a_header_of_its_own(fresh):
    """The caller's key is no token and passes on, the token opens the door and stays; our own paths take either."""
    page = Route("GET", "/metrics", lambda _: json_response({}))
    with forwarding(fresh.url, token=TOKEN, routes=(page,)) as server:
        for headers in ({}, {"Authorization": f"Bearer {TOKEN}"}, {"X-Millstream-Token": "wrong"}):
            assert ask(server, "GET", "/v1/models", headers=headers)[0] == 401
        shown = {"X-Millstream-Token": TOKEN, "Authorization": "Bearer key"}
        assert ask(server, "GET", "/v1/models", headers=shown)[0] == 200
        assert ask(server, "GET", "/health")[0] == 200
        assert ask(server, "GET", "/metrics")[0] == 401
        assert ask(server, "GET", "/metrics", headers={"Authorization": f"Bearer {TOKEN}"})[0] == 200
        assert ask(server, "GET", "/metrics", headers=shown)[0] == 200
    ((_, _, headers, _),) = fresh.seen
    assert TOKEN not in str(headers)
    assert dict(headers)["authorization"] == "Bearer key"


def test_its_door_is_that_of_every_server(proxy, fresh):
    """Host and Origin are checked; /health is its own."""
    assert ask(proxy, "GET", "/v1/models", headers={"Host": "evil.example"})[0] == 421
    assert ask(proxy, "GET", "/v1/models", headers={"Origin": "http://evil.example"})[0] == 403
    assert ask(proxy, "GET", "/health")[1] == b'{"status": "ok"}'
    assert fresh.seen == []


def test_many_calls_side_by_side(proxy, fresh):
    """Each gets its own answer."""
    fresh.act = lambda handler: reply(handler, body=handler.body)
    found = {}

    def one(n):
        found[n] = ask(proxy, "POST", CHAT, b"%d" % n)[1]

    threads = [threading.Thread(target=one, args=(n,)) for n in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: b"%d" % n for n in range(24)}


def test_more_connections_than_allowed_are_told(fresh):
    """503, rather than an ever longer line."""
    go = threading.Event()
    fresh.act = lambda handler: (go.wait(10), reply(handler))
    with forwarding(fresh.url, door_rules=ServeSettings(max_connections=2)) as server:
        held = threading.Thread(target=ask, args=(server, "GET", "/v1/x"))
        held.start()
        deadline = time.monotonic() + 10
        while not fresh.seen and time.monotonic() < deadline:
            time.sleep(0.01)
        assert ask(server, "GET", "/v1/x")[0] == 503
        go.set()
        held.join()
