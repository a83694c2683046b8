"""Another origin: a server of empty pages, from which scripts call the gateway."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _EmptyPage(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""


@contextmanager
def web_server() -> Iterator[int]:
    """A server of empty pages; yields its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _EmptyPage)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
