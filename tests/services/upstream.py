"""A real HTTP server that does what a test's function says with each request; what a proxy forwards to."""

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


class Upstream:
    """Answers every request by ``act(request)``, where the request is the handler with its ``body`` read.

    ``seen``: (method, path, headers as a list of pairs, body) of each request, in order of arrival.
    """

    def __init__(self, act=None):
        self.act = act or ok
        self.seen = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 0

            def handle_one_request(self):
                with contextlib.suppress(ConnectionError, TimeoutError):
                    super().handle_one_request()

            def do(self):
                self.body = _body(self)
                outer.seen.append((self.command, self.path, self.headers.items(), self.body))
                with contextlib.suppress(ConnectionError):
                    outer.act(self)

            def log_message(self, *_):
                pass

        for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            setattr(Handler, f"do_{method}", Handler.do)
        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _body(handler):
    if handler.headers.get("Transfer-Encoding") == "chunked":
        read = bytearray()
        while size := int(handler.rfile.readline(), 16):
            read += handler.rfile.read(size)
            handler.rfile.readline()
        handler.rfile.readline()
        return bytes(read)
    return handler.rfile.read(int(handler.headers.get("Content-Length") or 0))


def reply(handler, status=200, body=b"{}", **headers):
    """One whole answer."""
    handler.send_response(status)
    for name, value in {"Content-Type": "application/json", **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def ok(handler):
    """200 and an empty object."""
    reply(handler)


def stream(handler, pieces, **headers):
    """An answer of server-sent events, a chunk for each piece; None between them cuts the connection."""
    handler.send_response(200)
    for name, value in {"Content-Type": "text/event-stream", **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for piece in pieces:
        if piece is None:
            handler.close_connection = True
            return
        handler.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
    handler.wfile.write(b"0\r\n\r\n")
