"""RawClient: a client of the gateway that can misbehave at the level of bytes; and an exact reader of answers."""

import json
import re
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

# Longer than a busy machine needs, and shorter than the ten seconds after which a gateway disconnects slow clients.
TIMEOUT_S = 8.0
# A key that the gateway accepts, and that must not appear in anything that it writes.
CLIENT_KEY = "canary-of-the-client-4f1d"
AUTHORIZED = {"Host": "localhost", "Authorization": f"Bearer {CLIENT_KEY}"}
Cut = Literal["", "closed", "reset"]


@dataclass
class Response:
    """One answer, as it was on the wire."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    complete: bool = False
    """Whether the body ended as its framing wants it: its last chunk, or its length."""
    cut: Cut = ""
    """How the connection ended, if it did before the body was complete."""
    repeated: list[str] = field(default_factory=list)
    """Headers that came more than once."""
    codes_in_streams: ClassVar[bool] = True
    """Whether the error at the end of a stream has Penstock's code."""

    @property
    def request_id(self) -> str:
        return self.headers["x-request-id"]

    @property
    def streamed(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def data(self) -> list[str]:
        """The data of each event of a stream; the framing must be flawless."""
        assert self.body == b"" or self.body.endswith(b"\n\n"), f"the last event has no end: {self.body[-80:]!r}"
        blocks = self.body.decode().split("\n\n")[:-1]
        events = [block for block in blocks if not block.startswith(":")]
        assert all(block.startswith("data: ") and "\n" not in block for block in events), events
        return [block.removeprefix("data: ") for block in events]

    @property
    def chunks(self) -> list[Any]:
        return [json.loads(data) for data in self.data if data != "[DONE]"]

    @property
    def done(self) -> bool:
        """Whether the stream ends with `[DONE]`."""
        return self.data[-1:] == ["[DONE]"]

    @property
    def error(self) -> Any:
        """The error: of the body, or the last event of the stream; None if there is none."""
        if self.streamed:
            errors = [chunk["error"] for chunk in self.chunks if "error" in chunk]
            assert len(errors) <= 1
            assert not errors or "error" in self.chunks[-1], "something follows the error"
            return errors[0] if errors else None
        return self.json.get("error")

    @property
    def text(self) -> str:
        """What the model said in choice 0: of a stream, or of a body."""
        if self.streamed:
            return "".join(choice["delta"].get("content") or "" for choice in self._choices)
        return self.json["choices"][0]["message"]["content"] or ""

    @property
    def finish(self) -> str | None:
        """The finish reason of choice 0."""
        if self.streamed:
            finishes = [choice["finish_reason"] for choice in self._choices if choice.get("finish_reason")]
            assert len(finishes) <= 1
            return finishes[0] if finishes else None
        reason = self.json["choices"][0]["finish_reason"]
        return reason if isinstance(reason, str) else None

    @property
    def usage(self) -> tuple[int, int] | None:
        """The tokens of the input and of the output, if they are reported."""
        found = (self.chunks[-1] if self.streamed else self.json).get("usage")
        return (found["prompt_tokens"], found["completion_tokens"]) if found else None

    @property
    def _choices(self) -> list[Any]:
        return [choice for chunk in self.chunks for choice in chunk.get("choices", ()) if choice["index"] == 0]


class RawClient:
    """A connection to the gateway."""

    def __init__(self, port: int, *, receive_buffer: int | None = None) -> None:
        self._socket = socket.socket()
        self._socket.settimeout(TIMEOUT_S)
        if receive_buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            self._socket.connect(("127.0.0.1", port))
        except OSError:
            self._socket.close()
            raise
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port: int = self._socket.getsockname()[1]
        self._buffer = b""
        self._ended: Cut = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Sending.

    def send(self, data: bytes) -> None:
        """Send bytes. If the other side has closed the connection, that is noticed when the answer is read."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(data)

    def half_close(self) -> None:
        """Shut down the sending side, but keep reading."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def rst(self) -> None:
        """Reset the connection."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    # Reading.

    def read_some(self) -> bytes:
        """The next bytes; none if the connection has ended."""
        if self._ended:
            return b""
        try:
            data = self._socket.recv(65_536)
        except ConnectionResetError:
            self._ended = "reset"
            return b""
        if not data:
            self._ended = "closed"
        return data

    def read_for(self, seconds: float) -> bytes:
        """All that comes within a time; it is taken from what is still to be read."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            with suppress(TimeoutError):
                self._buffer += self.read_some()
        self._socket.settimeout(TIMEOUT_S)
        found, self._buffer = self._buffer, b""
        return found

    def read_until(self, wanted: bytes | re.Pattern[bytes], times: int = 1) -> bytes:
        """The bytes received so far, up to and including these for so many times. They stay in the buffer."""
        pattern = re.compile(re.escape(wanted)) if isinstance(wanted, bytes) else wanted
        while len(found := [*pattern.finditer(self._buffer)]) < times:
            data = self.read_some()
            assert data, f"the connection ended before {wanted!r} came: {self._buffer!r}"
            self._buffer += data
        return self._buffer[: found[times - 1].end()]

    def ends(self, timeout_s: float = TIMEOUT_S) -> Cut:
        """Wait until the other side has closed; returns how. Bytes before that are dropped."""
        deadline = time.monotonic() + timeout_s
        self._socket.settimeout(timeout_s)
        while not self._ended:
            assert time.monotonic() < deadline, "the connection is still open"
            self.read_some()
        return self._ended

    def response(self, method: str = "POST") -> Response:
        """Read one answer, as far as it arrives. Interim responses (100) are skipped."""
        while True:
            while b"\r\n\r\n" not in self._buffer:
                data = self.read_some()
                if not data:
                    raise ConnectionError(f"no answer: the connection was {self._ended} after {self._buffer!r}")
                self._buffer += data
            raw, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            response = _parse_head(raw)
            if response.status >= 200:
                break
        if method == "HEAD" or response.status in (204, 304):
            response.complete = True
        elif response.headers.get("transfer-encoding") == "chunked":
            assert "content-length" not in response.headers
            self._read_chunks(response)
        elif "content-length" in response.headers:
            length = int(response.headers["content-length"])
            response.body = self._take(length)
            response.complete = len(response.body) == length
        else:
            while data := self.read_some():
                self._buffer += data
            response.body, self._buffer = self._buffer, b""
            response.complete = self._ended == "closed"
        if not response.complete:
            response.cut = self._ended
        return response

    def _read_chunks(self, response: Response) -> None:
        pieces: list[bytes] = []
        while not response.complete:
            while b"\r\n" not in self._buffer and (data := self.read_some()):
                self._buffer += data
            line, end, self._buffer = self._buffer.partition(b"\r\n")
            if not end:
                break
            size = int(line, 16)
            piece = self._take(size + 2)
            pieces.append(piece[:size])
            if len(piece) < size + 2:
                break
            assert piece[size:] == b"\r\n"
            response.complete = not size
        response.body = b"".join(pieces)

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            data = self.read_some()
            if not data:
                break
            self._buffer += data
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken


def _parse_head(raw: bytes) -> Response:
    first, *lines = raw.decode("latin-1").split("\r\n")
    version, status, _ = first.split(" ", 2)
    assert version == "HTTP/1.1", first
    response = Response(int(status), {})
    for line in lines:
        name, colon, value = line.partition(":")
        assert colon, line
        name = name.lower()
        if name in response.headers:
            response.repeated.append(name)
        response.headers[name] = value.strip()
    return response


def body(model: str, *, stream: bool, **fields: object) -> bytes:
    """The body of a chat request."""
    messages = [{"role": "user", "content": "Say hello."}]
    return json.dumps({"model": model, "stream": stream, "messages": messages} | fields).encode()


def post(content: bytes, headers: Mapping[str, str] | None = None, path: str = "/v1/chat/completions") -> bytes:
    """A whole POST request; `headers` override the usual ones."""
    usual = {**AUTHORIZED, "Content-Type": "application/json", "Content-Length": str(len(content))}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in (usual | dict(headers or {})).items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + content


def get(path: str, headers: dict[str, str] | None = None, method: str = "GET") -> bytes:
    """A whole request without a body."""
    lines = [
        f"{method} {path} HTTP/1.1",
        *(f"{name}: {value}" for name, value in (AUTHORIZED | (headers or {})).items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode()
