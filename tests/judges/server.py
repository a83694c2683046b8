"""StreamServer: a loopback HTTP server that plays recorded streams to a real client.

`play` adds a stream and returns its name, which is the `model` of the request. The bytes are sent unchanged, in writes
of the given size, so that the client's reads split them anywhere.
"""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class StreamServer(ThreadingHTTPServer):
    """Plays each stream to every client that requests it, any number of times."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Player)
        self.streams: dict[str, tuple[bytes, int]] = {}

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as its `base_url`."""
        return f"http://127.0.0.1:{self.server_port}/v1"

    def play(self, wire: bytes, write_size: int | None = None) -> str:
        """Put a stream on; returns the model to ask for. Without a size it is sent in one write."""
        model = f"stream-{len(self.streams)}"
        self.streams[model] = (wire, write_size or max(len(wire), 1))
        return model

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect, as they do at `[DONE]` and at errors."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serving() -> Iterator[StreamServer]:
    """A server at work, until the block ends."""
    with StreamServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Player(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or small writes wait for each other's acknowledgement
    server: StreamServer

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        wire, write_size = self.server.streams[request["model"]]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for start in range(0, len(wire), write_size):
            piece = wire[start : start + write_size]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        pass
