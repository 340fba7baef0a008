"""What every server checks at its door, over real connections."""

import contextlib
import http.client
import json
import socket
import threading

import pytest

from millstream.adapters.http_server import Server
from millstream.errors import SettingsError, Unavailable
from millstream.serving import Door, Refusal, Response, Route, json_response, loopback, token_of
from millstream.settings import ServeSettings

TOKEN = "a-token-of-some-length"


def echo(request):
    return json_response({"body": request.body.decode(), "query": dict(request.query), "values": dict(request.values)})


def refuse(_):
    raise Refusal(409, "not now", code="busy", param="time")


def broken(_):
    raise ZeroDivisionError("the words of a fault")


async def piecewise(_):
    async def pieces():
        for piece in (b"one ", b"two ", b"three"):
            yield piece

    return Response(body=pieces(), media_type="text/plain")


ROUTES = (
    Route("POST", "/echo/{place}", echo),
    Route("GET", "/refuse", refuse),
    Route("GET", "/broken", broken),
    Route("GET", "/pieces", piecewise),
)


@contextlib.contextmanager
def serving(routes=ROUTES, **door):
    with Server(routes, Door(**door)) as server:
        yield server


@pytest.fixture(scope="module")
def plain():
    """A server with the default door, for all tests that need no other."""
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def named():
    """One whose settings name a host and an origin."""
    with serving(rules=ServeSettings(hosts=("mine.example",), origins=("https://ours.example",))) as server:
        yield server


@pytest.fixture(scope="module")
def guarded():
    """One that asks for a token."""
    with serving(token=TOKEN) as server:
        yield server


def ask(server, method, path, body=None, headers=None, host=None):
    """Status and JSON of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    with contextlib.closing(connection):
        extra = {"Host": host} if host is not None else {}
        connection.request(method, path, body=body, headers={**extra, **(headers or {})})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text.startswith(b"{") else text.decode()


def test_a_handler_gets_the_request_and_gives_the_answer(plain):
    """Body, query and the places of the path arrive; the answer is JSON."""
    status, found = ask(plain, "POST", "/echo/here?a=1", body="text")
    assert (status, found) == (200, {"body": "text", "query": {"a": "1"}, "values": {"place": "here"}})


def test_an_answer_may_come_in_pieces(plain):
    """An async iterator is sent as it comes."""
    assert ask(plain, "GET", "/pieces") == (200, "one two three")


@pytest.mark.parametrize(
    ("path", "status", "code"), [("/refuse", 409, "busy"), ("/nowhere", 404, None), ("/echo/x", 405, None)]
)
def test_errors_have_the_shape_of_the_openai_api(plain, path, status, code):
    """A refusal, an unknown path and a wrong method say so in one shape."""
    found, body = ask(plain, "GET", path)
    assert (found, body["error"]["code"]) == (status, code)
    assert set(body["error"]) == {"message", "type", "param", "code"}


def test_a_handlers_exception_is_a_500_without_its_words(plain, caplog):
    """The caller learns the kind, the log learns the words."""
    status, body = ask(plain, "GET", "/broken")
    assert status == 500
    assert "the words" not in json.dumps(body)
    assert "the words of a fault" in caplog.text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_a_foreign_host_is_refused(plain, host):
    """A page that rebinds a name to this machine gets nothing."""
    assert ask(plain, "POST", "/echo/x", body="", host=host)[0] in {400, 421}


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9", "127.0.0.1:1", "[::1]:3", "mine.example"])
def test_its_own_names_are_let_in(named, host):
    """Loopback's names, and those of the settings, at any port."""
    assert ask(named, "POST", "/echo/x", body="", host=host)[0] == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://evil.example", 403), ("null", 403), ("http://localhost:1", 403), ("https://ours.example", 200)],
)
def test_a_foreign_page_is_refused(named, origin, status):
    """An Origin must be the server's own or one that the settings name."""
    assert ask(named, "POST", "/echo/x", body="", headers={"Origin": origin})[0] == status
    own = f"http://127.0.0.1:{named.port}"
    assert ask(named, "POST", "/echo/x", body="", headers={"Origin": own})[0] == 200


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}, {"Authorization": f"Basic {TOKEN}"}]
)
def test_without_the_token_nothing_is_answered(guarded, headers):
    """Neither a missing nor a wrong token opens the door; health needs none."""
    assert ask(guarded, "POST", "/echo/x", body="", headers=headers)[0] == 401
    assert ask(guarded, "GET", "/nowhere", headers=headers)[0] == 401
    assert ask(guarded, "GET", "/health") == (200, {"status": "ok"})
    assert ask(guarded, "POST", "/echo/x", body="", headers={"Authorization": f"Bearer {TOKEN}"})[0] == 200


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_bound_is_refused(chunked):
    """By its declared length before it is read, and by what comes when none was declared."""
    with serving(rules=ServeSettings(max_body_bytes=1000)) as server:
        body = iter([b"x" * 600, b"x" * 600]) if chunked else b"x" * 1001
        assert ask(server, "POST", "/echo/x", body=body)[0] == 413
        assert ask(server, "POST", "/echo/x", body=b"x" * 1000)[0] == 200


def test_a_body_that_does_not_come_is_not_waited_for():
    """A caller that stalls gets 408, and the next one its answer."""
    with serving(rules=ServeSettings(body_timeout_s=0.2)) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as slow:
            slow.sendall(b"POST /echo/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf")
            assert b" 408 " in slow.recv(200)
        assert ask(server, "POST", "/echo/x", body="")[0] == 200


@pytest.mark.parametrize(
    ("asked", "head"),
    [(False, b""), (False, b"GET /he"), (True, b"GET /he"), (True, b"GET /health HTTP/1.1\r\nHost: l")],
)
def test_a_head_that_does_not_come_is_not_waited_for(asked, head):
    """A caller that sends half the head of a request, or nothing, is let go; also after a whole request."""
    with serving(rules=ServeSettings(body_timeout_s=0.3)) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=8) as slow:
            if asked:
                slow.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                answer = b""
                while not answer.endswith(b"}"):
                    answer += slow.recv(1000)
            slow.sendall(head)
            assert slow.recv(1000) == b""
        assert ask(server, "GET", "/health")[0] == 200


def test_headers_have_a_bound(plain):
    """More than 64 KiB of them are refused before anything looks at the request; half of that, in pieces, is taken."""
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: "
    with socket.create_connection(("127.0.0.1", plain.port), timeout=10) as connection:
        for piece in (head, b"x" * 20_000, b"x" * 12_000, b"\r\n\r\n"):
            connection.sendall(piece)
            threading.Event().wait(0.05)
        assert connection.recv(12) == b"HTTP/1.1 200"
    assert ask(plain, "POST", "/echo/x", body="", headers={f"X-{n}": "x" * 1000 for n in range(70)})[0] == 431


def test_a_request_under_way_is_answered_before_the_server_ends():
    """Ending waits for the handler that runs."""
    begun, go = threading.Event(), threading.Event()

    def slow(_):
        begun.set()
        go.wait(10)
        return json_response({"done": True})

    found = []
    server = Server((Route("GET", "/slow", slow),), Door())
    with server:
        asking = threading.Thread(target=lambda: found.append(ask(server, "GET", "/slow")))
        asking.start()
        assert begun.wait(10)
        server.stop()
        go.set()
    asking.join()
    assert found == [(200, {"done": True})]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_others_are_let_in_with_a_token_only(host):
    """Listening where others can reach it is refused without a token, and the mend is named."""
    assert not loopback(host)
    with pytest.raises(SettingsError, match="--token-file"):
        Door(host=host).checked()
    assert Door(host=host, token=TOKEN).checked()


def test_where_it_listens_everywhere_addresses_are_known_and_names_are_not():
    """An address can't be rebound; a name can."""
    door = Door(host="0.0.0.0", token=TOKEN)
    assert door.knows_host("192.168.1.5:80")
    assert door.knows_host("[fe80::1]:80")
    assert not door.knows_host("evil.example")


def test_a_port_that_is_taken_is_said_in_one_line(plain):
    """The message names the place and the mend."""
    with pytest.raises(Unavailable, match="choose another --port"):
        Server((), Door(port=plain.port))


def test_the_token_comes_from_a_file_or_the_environment(tmp_path):
    """The file wins; a short or unreadable one is refused without being shown."""
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert token_of(file, {"MILLSTREAM_TOKEN": "another-long-token"}) == TOKEN
    assert token_of(None, {"MILLSTREAM_TOKEN": "another-long-token"}) == "another-long-token"
    assert token_of(None, {}) == ""
    file.write_text("short-secret")
    with pytest.raises(SettingsError, match="16") as told:
        token_of(file)
    assert "short-secret" not in str(told.value)
    with pytest.raises(SettingsError, match="can't be read"):
        token_of(tmp_path / "none")
    assert TOKEN not in repr(Door(token=TOKEN))
