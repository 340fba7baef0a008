"""A small OpenAI-compatible chat server, told what to do: the replies of a judge, and the faults of one."""

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL = "scripted-judge-2026-01"


class Chat:
    """Answers ``POST /v1/chat/completions`` by a script: what is left of it is used in order, the last act for
    ever. An act is a text (the reply), a dict (fields of the answer, see `answer`), a status code, a callable of
    the request that gives any of these, or a callable of the handler marked by `raw`.
    """

    def __init__(self, port=0):
        self.acts = ["{}"]
        self.asked = []
        self.headers = []
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                outer.serve(self)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._generation = 0
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self):
        """Each test has a path of its own, so that what an earlier one gave up waiting for is not taken for its."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/{self._generation}/v1"

    def fresh(self):
        """Begin anew, for another test."""
        self._generation += 1
        self.script("{}")
        return self

    def script(self, *acts):
        """What to do from now on; forgets what was asked."""
        self.acts = list(acts)
        self.asked.clear()
        self.headers.clear()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def serve(self, handler):
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        if not handler.path.startswith(f"/{self._generation}/"):
            handler.close_connection = True
            return
        with self._lock:
            self.asked.append(body)
            self.headers.append(dict(handler.headers))
            act = self.acts.pop(0) if len(self.acts) > 1 else self.acts[0]
        if callable(act) and not getattr(act, "raw", False):
            act = act(body)
        if getattr(act, "raw", False):
            act(handler)
            return
        status, headers, text = answer(act)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            send(handler, status, text, headers)


def answer(act):
    """Status, headers and body of an act."""
    if isinstance(act, int):
        act = {"status": act}
    if isinstance(act, str):
        act = {"text": act}
    status = act.get("status", 200)
    if status != 200 or "body" in act:
        body = act.get("body", json.dumps({"error": {"message": act.get("message", "scripted fault")}}))
        return status, act.get("headers", {}), body
    message = {"role": "assistant", "content": act.get("text", "")}
    if "refusal" in act:
        message = {"role": "assistant", "content": None, "refusal": act["refusal"]}
    document = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": act.get("model", MODEL),
        "choices": [{"index": 0, "message": message, "finish_reason": act.get("finish", "stop")}],
        "usage": act.get("usage", {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}),
    }
    return 200, {}, json.dumps(document)


def send(handler, status, text, headers=None):
    """One HTTP answer."""
    body = text.encode()
    handler.send_response(status)
    for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def raw(act):
    """Mark a function of the handler: it answers itself, or does not."""
    act.raw = True
    return act


@raw
def hang_up(handler):
    """Close the connection without an answer."""
    handler.close_connection = True


@raw
def cut_short(handler):
    """Promise more than comes."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.close_connection = True


@raw
def trickle(handler):
    """Send a byte now and then, for ever."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    with contextlib.suppress(OSError):
        for _ in range(1000):
            handler.wfile.write(b" ")
            threading.Event().wait(0.02)


@raw
def silent(handler):
    """Take the question and say nothing for a while."""
    threading.Event().wait(1.0)
    handler.close_connection = True
