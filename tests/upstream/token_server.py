"""A server on loopback that gives access tokens: over HTTP, and over TLS to clients for which it is a proxy."""

import asyncio
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from penstock.upstream.access_tokens import TokenCredentials

HOUR_S, SOON_S = 3600, 200
Form = dict[str, str]


class TokenServer:
    """Numbers its tokens. `life_s` is how long the next ones are valid; if it is `broken`, there are none; if they are
    `cached`, the last one is given again.

    With `tls`, it accepts CONNECT and answers in place of the host that is named there.
    """

    token = ""
    """The beginning of all its tokens."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.life_s = HOUR_S
        self.broken = False
        self.cached = False
        self.asked = 0
        self.given = 0
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_CONNECT(self) -> None:
                assert tls is not None
                self.send_response(200)
                self.end_headers()
                self.connection = tls.wrap_socket(self.connection, server_side=True)
                self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)
                self.close_connection = False  # whichever version of HTTP the client said

            def finish(self) -> None:
                super().finish()
                self.connection.close()

            def do_GET(self) -> None:
                self._answer(urlsplit(self.path).query)

            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers["content-length"])).decode())

            def _answer(self, text: str) -> None:
                form = {name: value for name, (value,) in parse_qs(text).items()}
                status, fields = endpoint.answer(urlsplit(self.path).path, form, dict(self.headers.items()))
                body = json.dumps(fields).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def reset(self) -> None:
        """As it was at first."""
        self.life_s, self.broken, self.cached = HOUR_S, False, False
        self.asked = self.given = 0

    def answer(self, path: str, form: Form, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """The status and the body of an answer."""
        raise NotImplementedError

    def next_token(self) -> str:
        """The token that is given now."""
        self.given += not (self.cached and self.given)
        return f"{self.token}{self.given}"


def sent_token(credentials: TokenCredentials) -> str:
    """The token with which a request is sent. Nothing else shows it."""
    line = credentials.headers("https://a.example/", b"{}").decode()
    (token,) = credentials.secrets()
    assert line == f"authorization: Bearer {token}\r\n"
    assert token not in repr(credentials.__dict__)
    return token


async def idle() -> None:
    """Wait until no other task runs."""
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)
