"""Network: connections in memory that split, delay, stall, reset and half-close, and that exert backpressure.

The bytes of one direction keep their order. How long each piece takes, and where it is split, follows from the seed, so
pieces of different connections overtake each other. A direction holds a limited number of bytes that the receiver has
not read (`_WINDOW`), as the buffers of two kernels do; the rest stays with the sender, who notices it as backpressure.

As with TCP: closing a socket with unread bytes resets the connection, and so does sending to a closed one. A kernel
whose process has died closes its sockets; a host that is cut off sends nothing any more, and neither side learns of it.
"""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.simulation.world import Process, World

_WINDOW = 65_536
_LONGEST_READ = 262_144
_LINGER_RESET = struct.pack("ii", 1, 0)
_FIN = b""
Address = tuple[str, int] | str


class Flow:
    """One direction of a connection."""

    __slots__ = (
        "_due",
        "_finned",
        "_latency_s",
        "_used",
        "_window",
        "_world",
        "receiver",
        "sender",
        "stalled",
        "unsent",
        "unsent_size",
    )

    def __init__(self, world: World, latency_s: float, window: int) -> None:
        self._world = world
        self._latency_s = latency_s
        self._window = window
        self._used = 0
        self._due = 0.0
        self._finned = False
        self.unsent: deque[bytes] = deque()
        self.unsent_size = 0
        self.stalled = False
        self.sender: Endpoint
        self.receiver: Endpoint

    def send(self, data: bytes) -> None:
        self.unsent.append(data)
        self.unsent_size += len(data)
        self.pump()

    def finish(self) -> None:
        """No bytes follow."""
        self._finned = True
        self.pump()

    def pump(self) -> None:
        """Put as many bytes on the way as the receiver has room for."""
        world = self._world
        while self.unsent and self._used < self._window and not self.stalled:
            data = self.unsent.popleft()
            chance = world.random.random()
            most = self._window - self._used
            if chance < 0.06:
                most = min(most, 1 + int(chance * 300))
            elif chance < 0.12:
                most = min(most, 1 + int((chance - 0.06) * 40_000))
            if len(data) > most:
                self.unsent.appendleft(data[most:])
                data = data[:most]
            self.unsent_size -= len(data)
            self._used += len(data)
            self._arrive(data)
        if self._finned and not self.unsent and not self.stalled:
            self._finned = False
            self._arrive(_FIN)

    def _arrive(self, data: bytes) -> None:
        world = self._world
        chance = world.random.random()
        late = 1.0 + chance if chance < 0.98 else 1.0 + (chance - 0.98) * 2_500
        self._due = max(self._due, world.now + self._latency_s * late)
        world.at(self._due, self.receiver.arrive, data)
        self._due += 1e-9  # the pieces of a direction keep their order

    def reset(self) -> None:
        """Tell the receiver that the connection is broken."""
        self.unsent.clear()
        self.unsent_size = 0
        if not self.stalled:
            self._world.after(self._latency_s, self.receiver.break_off)

    def taken(self, size: int) -> None:
        """The receiver has read so many bytes."""
        self._used -= size
        before = self.unsent_size
        self.pump()
        if before != self.unsent_size:
            self.sender.drained()


class Endpoint:
    """One end of a connection: what a socket is to the kernel. `reader` is called when there is something to read."""

    def __init__(self, world: World, process: Process, out: Flow, into: Flow, local: Address, remote: Address) -> None:
        self._world = world
        self.process = process
        self.out, self.into = out, into
        out.sender = into.receiver = self
        self.local, self.remote = local, remote
        self.inbox: deque[bytes] = deque()
        self.ended = False
        """Whether the other side has closed its direction."""
        self.broken = False
        self.closed = False
        self.reader: Callable[[], None] = lambda: None
        self.drained: Callable[[], None] = lambda: None
        self.linger_reset = False
        self._number = process.opens(self)

    def arrive(self, data: object) -> None:
        """Bytes have arrived, or the end."""
        assert isinstance(data, bytes)
        if self.broken:
            return
        if self.closed:
            if data is not _FIN:
                self.out.reset()  # they are never read
            return
        if data is _FIN:
            self.ended = True
        else:
            self.inbox.append(data)
        self.reader()

    def break_off(self, _: object = None) -> None:
        """The connection is reset."""
        if not self.broken:
            self.broken = True
            self.inbox.clear()
            if not self.closed:
                self.reader()

    def read(self) -> bytes:
        """Take the bytes that are there."""
        inbox = self.inbox
        if len(inbox) == 1:
            data = inbox.popleft()
        else:
            size, pieces = 0, []
            while inbox and size < _LONGEST_READ:
                pieces.append(inbox.popleft())
                size += len(pieces[-1])
            data = b"".join(pieces)
        self.into.taken(len(data))
        return data

    def close(self) -> None:
        """Close the socket. What was written is still sent, unless unread bytes make it a reset."""
        if self.closed:
            return
        self.closed = True
        self.process.open.pop(self._number, None)
        if self.broken:
            return
        if self.inbox or self.linger_reset:
            self.out.reset()
        else:
            self.out.finish()

    def kill(self) -> None:
        """The process has died."""
        self.reader = self.drained = lambda: None
        self.close()

    def reset(self) -> None:
        """Reset the connection, as a router in between may do."""
        self.out.stalled = self.into.stalled = False
        self.out.reset()
        self.into.reset()

    def stall(self) -> None:
        """Nothing arrives any more in either direction, and no side learns of it."""
        self.out.stalled = self.into.stalled = True


class Listener:
    """A socket that accepts connections; what `asyncio.Server` is to its user, too."""

    def __init__(
        self, network: "Network", loop: Any, factory: Callable[[], asyncio.Protocol], address: Address
    ) -> None:
        self._network = network
        self.loop = loop
        self.factory = factory
        self.address = address
        self.process: Process = loop.process
        self._number = self.process.opens(self)
        self.sockets = [self]
        network.listeners.setdefault(address, []).append(self)

    def getsockname(self) -> Address:
        return self.address

    def is_serving(self) -> bool:
        return self in self._network.listeners.get(self.address, ())

    def close(self) -> None:
        self.process.open.pop(self._number, None)
        self.kill()

    def kill(self) -> None:
        listeners = self._network.listeners.get(self.address, [])
        if self in listeners:
            listeners.remove(self)

    async def wait_closed(self) -> None:
        return


class Network:
    """All connections of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.listeners: dict[Address, list[Listener]] = {}
        self.connections: list[Endpoint] = []
        """The side of each connection that has opened it, while it is open."""
        self._ports = 40_000
        self.window = _WINDOW
        self.unreachable: set[Address] = set()
        """Where no packet arrives."""
        self.no_names = False
        """Whether no name can be resolved."""

    def connect(self, process: Process, address: Address, then: Callable[[Endpoint | OSError], None]) -> None:
        """Open a connection; `then` gets its end, or why there is none. Nothing is called if no packet arrives."""
        world = self._world
        latency_s = 0.000_05 if isinstance(address, str) else world.random.choice((0.000_1, 0.001, 0.02))

        def answer(_: object) -> None:
            if not process.alive or address in self.unreachable:
                return
            listeners = self.listeners.get(address)
            if not listeners:
                then(ConnectionRefusedError(111, f"Connect call failed {address}"))
                return
            listener = listeners[world.random.randrange(len(listeners))] if len(listeners) > 1 else listeners[0]
            self._ports = self._ports + 1 if self._ports < 65_000 else 40_000
            local = ("10.0.0.9", self._ports) if not isinstance(address, str) else ""
            there, back = Flow(world, latency_s, self.window), Flow(world, latency_s, self.window)
            near = Endpoint(world, process, there, back, local, address)
            far = Endpoint(world, listener.process, back, there, address, local)
            if len(self.connections) > 200:
                self.connections = [each for each in self.connections if not each.closed]
            self.connections.append(near)
            listener.loop.accept(listener.factory, far)
            then(near)

        world.after(2 * latency_s, answer)


def socket_of(world: World) -> Any:
    """`socket`."""
    from tests.simulation.threads import _overlay  # noqa: PLC0415

    class Socket:
        """A socket that is not connected yet, or that is known by its `Endpoint`."""

        def __init__(self, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM, protocol: int = 0) -> None:
            self.family, self.type, self.proto = family, kind, protocol
            self.endpoint: Endpoint | None = None

        def setblocking(self, _: bool) -> None:
            return

        def setsockopt(self, level: int, option: int, value: object) -> None:
            if self.endpoint is not None and (level, option) == (socket.SOL_SOCKET, socket.SO_LINGER):
                self.endpoint.linger_reset = value == _LINGER_RESET

        def getsockname(self) -> Address:
            assert self.endpoint is not None
            return self.endpoint.local

        def fileno(self) -> int:
            return -1

        def close(self) -> None:
            if self.endpoint is not None:
                self.endpoint.close()

    assert world is not None
    return _overlay(socket, socket=Socket)
