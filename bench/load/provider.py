"""A provider of every API, paced or at once, in a process of its own: `python -m bench.load.provider [PORT]`.

It prints its port. `GET /pace/EVENTS/MICROSECONDS` sets how many deltas streams have that begin from now on, and the
time between two of them. The first follows the opening at once. Each event is a system call of its own, as from a
provider that sends an event as soon as it has one, and its text is the time just before that call.
"""

import gc
import heapq
import re
import select
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

from bench.load.apis import APIS, TEXT, Api
from bench.load.exchanges import HEAD, SHORT_ANSWERS, Kind, chunk

# What gateways ask for besides: whether the provider is there, and its models.
_MODELS = (
    b'{"object":"list","status":"ok","data":[{"id":"gpt-4o-mini","object":"model","created":1,"owned_by":"bench"}]}'
)
_OTHER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(_MODELS), _MODELS)
_TEXT = TEXT.encode()
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_STREAMED = re.compile(rb'"stream": ?true')
_PATHS = {api.path.partition("{model}")[0].encode(): api for api in APIS}


class Stream:
    """The streams of one API with so many deltas."""

    def __init__(self, api: Api, deltas: int) -> None:
        self._opening = HEAD + (chunk(api.opening) if api.opening else b"")
        self._deltas = [chunk(api.delta(number)) for number in range(deltas - api.ends_with_text)]
        self._closing = api.closing(deltas)
        self._ends_with_text = api.ends_with_text

    def writes(self) -> Iterator[bytes]:
        """The writes of one answer, each made when it is asked for."""
        yield self._opening
        texts = []
        for delta in self._deltas:
            texts.append(_now())
            yield delta.replace(_TEXT, texts[-1])
        if self._ends_with_text:
            yield chunk(self._closing.replace(_TEXT, _now())) + b"0\r\n\r\n"
        else:  # some APIs repeat the whole text
            yield chunk(self._closing.replace(_TEXT * len(texts), b"".join(texts))) + b"0\r\n\r\n"


class Provider:
    """Serves until its process is ended."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port), backlog=4_096)
        self.port = self._listener.getsockname()[1]
        self._pace(2, 0)
        self._connections: dict[int, socket.socket] = {}
        self._received: dict[int, bytes] = {}
        self._due: list[tuple[int, int, socket.socket, Iterator[bytes]]] = []
        self._epoll = select.epoll()
        self._epoll.register(self._listener, select.EPOLLIN)

    def _pace(self, deltas: int, gap_us: int) -> None:
        self._gap_ns = gap_us * 1_000
        self._streams = {api.name: Stream(api, deltas) for api in APIS}

    def serve(self) -> None:
        """Read and write when it is due. An epoll waits for whole milliseconds, `select` for any time."""
        due = self._due
        while True:
            wait_s = max(0, due[0][0] - time.monotonic_ns()) / 1e9 if due else None
            if select.select([self._epoll], [], [], wait_s)[0]:
                for file, _ in self._epoll.poll(0):
                    if file == self._listener.fileno():
                        self._accept()
                    else:
                        self._read(file)
            while due and due[0][0] <= time.monotonic_ns():
                at, _, connection, writes = heapq.heappop(due)
                self._write(connection, writes, at)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections[connection.fileno()], self._received[connection.fileno()] = connection, b""
        self._epoll.register(connection, select.EPOLLIN)

    def _read(self, file: int) -> None:
        data = b""
        with suppress(ConnectionError):
            data = self._connections[file].recv(65_536)
        if not data:
            self._connections.pop(file).close()
            return
        data = self._received[file] + data
        end = data.find(b"\r\n\r\n") + 4
        found = _LENGTH.search(data, 0, end)
        size = end + (int(found[1]) if found else 0)
        whole = end >= 4 and len(data) >= size
        self._received[file] = data[size:] if whole else data
        if whole:
            with suppress(OSError):  # a gateway may have closed the connection
                self._answer(self._connections[file], data[:size])

    def _answer(self, connection: socket.socket, request: bytes) -> None:
        path = request.split(b" ", 2)[1]
        api = next((api for prefix, api in _PATHS.items() if path.startswith(prefix)), None)
        if api is None:
            if path.startswith(b"/pace/"):
                self._pace(*map(int, path.split(b"/")[2:]))
            connection.sendall(_OTHER)
        elif (kind := _kind(path, request)) == "streamed":
            writes = self._streams[api.name].writes()
            connection.sendall(next(writes))
            self._write(connection, writes, time.monotonic_ns())
        else:
            for data in SHORT_ANSWERS[api.name, kind]:
                connection.sendall(data)

    def _write(self, connection: socket.socket, writes: Iterator[bytes], at: int) -> None:
        """Make the write that is due at this time, or without a pace all of them. One that is late delays no other."""
        with suppress(OSError):
            for data in writes:
                connection.sendall(data)
                if self._gap_ns:
                    heapq.heappush(self._due, (at + self._gap_ns, connection.fileno(), connection, writes))
                    return


def _kind(path: bytes, request: bytes) -> Kind:
    if b":streamGenerateContent" not in path and _STREAMED.search(request) is None:
        return "unstreamed"
    return "tool call" if b'"tools"' in request else "streamed"


def _now() -> bytes:
    return b"@%013d " % (time.monotonic_ns() // 1_000)


def main() -> None:
    provider = Provider(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    print(provider.port, flush=True)
    gc.freeze()
    with suppress(KeyboardInterrupt):
        provider.serve()


if __name__ == "__main__":
    main()
