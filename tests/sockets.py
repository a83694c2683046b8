"""A client on a WebSocket, by the package `websockets`: messages of JSON, or frames with what is wrong in them."""

import json
import os
import socket
import struct
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Self

from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Opcode
from websockets.http11 import Response
from websockets.sync.client import ClientConnection, connect
from websockets.utils import apply_mask

from tests.faults.client import CLIENT_KEY

TIMEOUT_S = 30.0
_LAST = frozenset(("response.completed", "response.failed", "response.incomplete", "error"))
Json = dict[str, Any]


class Socket:
    """An open WebSocket, to `path` of a gateway on this port."""

    def __init__(
        self,
        port: int,
        path: str = "/v1/responses",
        *,
        key: str = CLIENT_KEY,
        headers: Mapping[str, str] | None = None,
        receive_buffer: int | None = None,
    ) -> None:
        connected = socket.socket()
        if receive_buffer is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connected.settimeout(TIMEOUT_S)
        connected.connect(("127.0.0.1", port))
        given = ({"Authorization": f"Bearer {key}"} if key else {}) | dict(headers or {})
        self.raw = connected
        self._open = ExitStack()
        connecting = connect(
            f"ws://127.0.0.1:{port}{path}",
            sock=connected,
            additional_headers=given,
            max_size=None,
            open_timeout=TIMEOUT_S,
            close_timeout=2,
            ping_interval=None,
        )
        self.connection: ClientConnection = self._open.enter_context(connecting)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def create(self, model: str, **fields: object) -> None:
        """Send a request for a response."""
        self.send({"type": "response.create", "model": model, "input": "Say hello."} | fields)

    def send(self, message: object) -> None:
        """Send a message."""
        self.connection.send(json.dumps(message))

    def receive(self) -> Json:
        """The next message."""
        found: Json = json.loads(self.connection.recv(TIMEOUT_S))
        return found

    def turn(self) -> list[Json]:
        """The messages to the end of a response."""
        messages = [self.receive()]
        while messages[-1]["type"] not in _LAST:
            messages.append(self.receive())
        return messages

    def respond(self, model: str, **fields: object) -> list[Json]:
        """Request a response, and read it to its end."""
        self.create(model, **fields)
        return self.turn()

    def closes(self) -> tuple[int, str]:
        """The code and reason with which the gateway closes the connection; whatever comes before is dropped."""
        while True:
            try:
                self.connection.recv(TIMEOUT_S)
            except ConnectionClosed as closed:
                received = closed.rcvd
                return (received.code, received.reason) if received is not None else (1006, "")


def refusal(port: int, path: str = "/v1/responses", **options: Any) -> Response:
    """The response to an offer that is not accepted."""
    try:
        with Socket(port, path, **options):
            raise AssertionError("the offer is accepted")
    except InvalidStatus as refused:
        return refused.response


def frame(payload: bytes, opcode: int = Opcode.TEXT, *, fin: bool = True, masked: bool = True, rsv: int = 0) -> bytes:
    """A frame as a client sends it, or as it must not."""
    head = bytes([(0x80 if fin else 0) | rsv << 4 | opcode])
    mark, size = 0x80 if masked else 0, len(payload)
    if size < 126:
        head += bytes([mark | size])
    elif size < 65_536:
        head += bytes([mark | 126]) + struct.pack("!H", size)
    else:
        head += bytes([mark | 127]) + struct.pack("!Q", size)
    if not masked:
        return head + payload
    mask = os.urandom(4)
    return head + mask + apply_mask(payload, mask)
