"""Upstream: a provider on loopback that misbehaves by script.

A script is a list of ops. It is put on with `play`, which returns the name under which it is played: the `model` of a
request. What happens to each connection is kept with its time: when it was opened, what was asked on it, how much was
sent, and when the peer closed it. Tests wait for such things with `until`; they do not sleep.

    model = upstream.play([head(), chunk(sse(says("Hi"))), rst()])
    ...
    upstream.until(lambda: upstream.connection(model).closed_at)
"""

import asyncio
import itertools
import json
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Self, cast

_MODEL = re.compile(rb'"model":\s*"((?:[^"\\]|\\.)*)"')
_MODEL_IN_PATH = re.compile(rb"^POST \S*/models?/([^:?/ ]+)[:/]")
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
_WAIT_S = 30.0

EVENT_STREAM = {"content-type": "text/event-stream"}
JSON = {"content-type": "application/json"}


class Connection(asyncio.Protocol):
    """One accepted connection, and its history."""

    def __init__(self, upstream: "Upstream") -> None:
        self._upstream = upstream
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self.gone = asyncio.Event()
        self.opened_at = 0.0
        self.closed_at = 0.0
        """When the peer closed it, or it broke; 0 while it is open."""
        self.ended_by_us = False
        self.requests: list[bytes] = []
        self.models: list[str] = []
        self.sent = 0
        self.last_sent = b""
        """The last bytes that were sent, some of them."""
        self.blocked = False
        """Whether a send waits because the peer does not read."""

    @property
    def busy(self) -> bool:
        """Whether a script is being played on it."""
        return self._task is not None and not self._task.done()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if transport.get_extra_info("sslcontext") is None:  # asyncio's TLS never resumes a buffer of none
            self._transport.set_write_buffer_limits(high=0)
        self.opened_at = time.monotonic()
        self._upstream.connections.append(self)
        self._upstream.changed()
        if self._upstream.greeting is not None:
            self._play(self._upstream.greeting)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found or self.busy:
            return
        length = _LENGTH.search(head)
        whole = len(body) >= (int(length[1]) if length else 0)
        model = _MODEL_IN_PATH.search(head) or _MODEL.search(body)
        name = model[1].decode() if model else ""
        script = self._upstream.scripts.get(name)
        if not whole and not (script is not None and isinstance(script[0], Early)):
            return
        self.requests.append(self._received)
        self.models.append(name)
        self._received = b""
        self._upstream.asked_for.append((name, self.requests[-1]))
        self._upstream.changed()
        self._play(script if script is not None else [status(404, JSON, b'{"error": {"message": "no script"}}')])

    def eof_received(self) -> bool:
        self._closed()
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._closed()
        self._writable.set()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()
        self.blocked = True
        self._upstream.changed()

    def resume_writing(self) -> None:
        self._writable.set()
        self.blocked = False

    # What ops call.

    async def send(self, data: bytes) -> None:
        """Send bytes, and wait until the kernel has them."""
        if self._transport is None or self._transport.is_closing():
            await self.gone.wait()
            return
        self._transport.write(data)
        await self._writable.wait()
        await asyncio.sleep(0)  # for other connections, and to notice that the peer has closed
        self.sent += len(data)
        self.last_sent = (self.last_sent + data)[-1000:] if len(data) < 1000 else data[-1000:]
        self._upstream.changed()

    def fin(self) -> None:
        """Close normally."""
        self.ended_by_us = True
        if self._transport is not None:
            self._transport.close()

    def half_close(self) -> None:
        """Shut down the sending side, but keep reading."""
        if self._transport is not None:
            self._transport.write_eof()

    def rst(self) -> None:
        """Reset."""
        self.ended_by_us = True
        if self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()

    def abort(self) -> None:
        """Drop the transport: with TLS, without `close_notify`."""
        self.ended_by_us = True
        if self._transport is not None:
            self._transport.abort()

    def unread(self) -> bool:
        """Whether the peer has not read all that was sent: the system lists the bytes that wait for each socket."""
        if self._transport is None:
            return False
        (_, ours), (_, theirs) = (self._transport.get_extra_info(name) for name in ("sockname", "peername"))
        line = rf":{theirs:04X} [0-9A-F]+:{ours:04X} [0-9A-F]+ [0-9A-F]+:([0-9A-F]+) "
        found = re.search(line, Path("/proc/net/tcp").read_text())
        return found is not None and int(found[1], 16) > 0

    def mute(self) -> None:
        """Stop reading."""
        if self._transport is not None:
            self._transport.pause_reading()

    def _play(self, script: "Script") -> None:
        async def play() -> None:
            for op in script:
                await op(self)
            self._upstream.changed()

        self._task = asyncio.get_running_loop().create_task(play())
        self._task.add_done_callback(self._played)

    def _played(self, _task: asyncio.Task[None]) -> None:
        self._upstream.changed()
        if not self.closed_at:
            self.data_received(b"")  # the next request may have come before this one's script was over

    def _closed(self) -> None:
        if not self.closed_at:
            self.closed_at = time.monotonic()
            self.gone.set()
            self._upstream.changed()


Op = Callable[[Connection], Awaitable[None]]
Script = Sequence[Op]


class Early:
    """An op that does nothing. As the first op of a script, it starts the script before the request is complete."""

    async def __call__(self, connection: Connection) -> None:
        pass


def send(data: bytes) -> Op:
    """Send bytes as they are."""

    async def op(connection: Connection) -> None:
        await connection.send(data)

    return op


def status(code: int, headers: dict[str, str], body: bytes = b"") -> Op:
    """Send a whole response of known length."""
    lines = [f"HTTP/1.1 {code} Whatever", *(f"{name}: {value}" for name, value in headers.items())]
    return send("\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body)


def head(code: int = 200, headers: dict[str, str] | None = None, *, framing: str = "transfer-encoding: chunked") -> Op:
    """Send the head of a response; chunked, unless another framing is named, or none."""
    lines = [f"HTTP/1.1 {code} Whatever"]
    lines += [f"{name}: {value}" for name, value in (EVENT_STREAM if headers is None else headers).items()]
    return send("\r\n".join([*lines, *filter(None, [framing]), "", ""]).encode())


def chunk(data: bytes) -> Op:
    """Send one chunk of a chunked body."""
    return send(b"%x\r\n%b\r\n" % (len(data), data))


def last_chunk() -> Op:
    """End a chunked body, as HTTP wants it."""
    return send(b"0\r\n\r\n")


def drip(data: bytes, gap_s: float, size: int = 1) -> Op:
    """Send a few bytes at a time, in chunks."""

    async def op(connection: Connection) -> None:
        for start in range(0, len(data), size):
            piece = data[start : start + size]
            await connection.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            await asyncio.sleep(gap_s)

    return op


def for_ever(data: bytes, gap_s: float = 0.0) -> Op:
    """Send a chunk again and again until the peer closes."""

    async def op(connection: Connection) -> None:
        while not connection.closed_at:
            await connection.send(b"%x\r\n%b\r\n" % (len(data), data))
            await asyncio.sleep(gap_s)

    return op


def sleep(seconds: float) -> Op:
    """Wait: for scripts in which the time itself is the fault."""

    async def op(_: Connection) -> None:
        await asyncio.sleep(seconds)

    return op


def until_read() -> Op:
    """Wait until the peer has read all that was sent, so that it reads alone what comes next."""

    async def op(connection: Connection) -> None:
        while not connection.closed_at and connection.unread():  # noqa: ASYNC110 - the system does not notify
            await asyncio.sleep(0.001)

    return op


def hang() -> Op:
    """Do nothing until the peer closes."""

    async def op(connection: Connection) -> None:
        await connection.gone.wait()

    return op


def fin() -> Op:
    """Close."""
    return _calls(Connection.fin)


def rst() -> Op:
    """Reset the connection, after a moment in which the peer can read what was sent."""

    async def op(connection: Connection) -> None:
        await asyncio.sleep(0.03)  # a reset overtakes what the peer has not read yet
        connection.rst()

    return op


def abort() -> Op:
    """Drop the transport."""
    return _calls(Connection.abort)


def half_close() -> Op:
    """Close the sending side only."""
    return _calls(Connection.half_close)


def mute() -> Op:
    """Stop reading."""
    return _calls(Connection.mute)


def _calls(method: Callable[[Connection], None]) -> Op:
    async def op(connection: Connection) -> None:
        method(connection)

    return op


class Gate:
    """An op that waits until the test opens it."""

    def __init__(self) -> None:
        self._opened = threading.Event()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def __call__(self, connection: Connection) -> None:
        event = asyncio.Event()
        self._waiting.append((asyncio.get_running_loop(), event))
        if self._opened.is_set():
            return
        gone = asyncio.ensure_future(connection.gone.wait())
        opened = asyncio.ensure_future(event.wait())
        await asyncio.wait((gone, opened), return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        opened.cancel()

    def open(self) -> None:
        """Open the gate."""
        self._opened.set()
        for loop, event in self._waiting:
            loop.call_soon_threadsafe(event.set)


class Turns:
    """An op that does one thing for the first request, and another one for later requests."""

    def __init__(self, first: Script, later: Script) -> None:
        self._first, self._later = first, later
        self._used = False

    async def __call__(self, connection: Connection) -> None:
        script = self._later if self._used else self._first
        self._used = True
        for op in script:
            await op(connection)


class ByRequest:
    """An op that depends on the request: `choose` gets the decoded body, and returns the script to play."""

    def __init__(self, choose: Callable[[Any], Script]) -> None:
        self._choose = choose

    async def __call__(self, connection: Connection) -> None:
        for op in self._choose(json.loads(connection.requests[-1].partition(b"\r\n\r\n")[2])):
            await op(connection)


class Upstream:
    """The server, in a thread of its own."""

    def __init__(self, *, tls: ssl.SSLContext | None = None, greeting: Script | None = None) -> None:
        self._tls = tls
        self._numbers = itertools.count()
        self._condition = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True, name="upstream")
        self._server: asyncio.Server | None = None
        self.greeting = greeting
        """Played on every connection as soon as it is accepted, whatever is requested."""
        self.scripts: dict[str, Script] = {}
        self.connections: list[Connection] = []
        self.asked_for: list[tuple[str, bytes]] = []
        """The model and the bytes of every request, in order, on whichever connection."""
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(_WAIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(_WAIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_WAIT_S)
        self._loop.close()

    @property
    def url(self) -> str:
        """What a provider has as its `base_url`."""
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}/v1"

    def play(self, script: Script, model: str | None = None) -> str:
        """Put a script on; returns the model to ask for."""
        name = model or f"script-{next(self._numbers)}"
        self.scripts[name] = script
        return name

    def requests(self, model: str) -> list[bytes]:
        """The requests for a model, in order."""
        return [request for asked, request in list(self.asked_for) if asked == model]

    def connection(self, model: str) -> Connection:
        """The last connection with a request for a model."""
        return [connection for connection in list(self.connections) if model in connection.models][-1]

    def asked(self, model: str, count: int = 1) -> Connection:
        """Wait until a model has been requested this many times; returns the last connection."""
        self.until(lambda: len(self.requests(model)) >= count)
        return self.connection(model)

    @property
    def open(self) -> list[Connection]:
        """The connections that are open."""
        return [connection for connection in list(self.connections) if not connection.closed_at]

    def until(self, true: Callable[[], object], timeout_s: float = _WAIT_S) -> None:
        """Wait until something has happened here."""
        with self._condition:
            assert self._condition.wait_for(true, timeout_s), "it has not happened at the upstream"

    def drop(self) -> None:
        """Close whatever is open."""
        for connection in self.open:
            self._loop.call_soon_threadsafe(connection.abort)
        with self._condition:
            self._condition.wait_for(lambda: not self.open, _WAIT_S)

    def changed(self) -> None:
        """Something has happened (called by connections)."""
        with self._condition:
            self._condition.notify_all()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _listen(self) -> None:
        self._server = await self._loop.create_server(lambda: Connection(self), "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self.connections:
            connection.abort()
        await asyncio.sleep(0)
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
