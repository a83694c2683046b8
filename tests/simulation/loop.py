"""SimulatedLoop: an event loop of asyncio whose clock, timers, sockets and threads are those of a world."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, cast

from greenlet import greenlet  # type: ignore[import-untyped]

from penstock.serve.telemetry.log import where
from tests.simulation.network import Address, Endpoint, Listener, Network
from tests.simulation.world import MONOTONIC_S, Process, World

_LOW_SHARE = 4
# A timer is never early: the difference of two floats may be, by a last digit.
_LATE_S = 0.000_001


class Transport(asyncio.Transport):
    """What a protocol writes to."""

    def __init__(
        self, loop: "SimulatedLoop", endpoint: Endpoint, protocol: asyncio.BaseProtocol, connected: Any
    ) -> None:
        super().__init__()
        self._loop = loop
        self._endpoint = endpoint
        self._protocol: Any = protocol
        self._socket = connected
        connected.endpoint = endpoint
        self._high, self._low = 65_536, 16_384
        self._writing_paused = False
        self._reading = True
        self._read_due = False
        self._closing = False
        self._lost = False
        self._eof_written = self._eof_seen = False
        endpoint.reader, endpoint.drained = self._readable, self._drained
        loop.transports[self] = None

    # Writing.

    def write(self, data: Any) -> None:
        if self._closing or self._eof_written or not data:
            return
        self._endpoint.out.send(bytes(data))
        if not self._writing_paused and self._endpoint.out.unsent_size > self._high:
            self._writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, pieces: Any) -> None:
        self.write(b"".join(pieces))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 65_536 if high is None else high
        self._low = self._high // _LOW_SHARE if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._endpoint.out.unsent_size

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._closing and not self._eof_written:
            self._eof_written = True
            self._endpoint.out.finish()

    def _drained(self) -> None:
        if self._lost:
            return
        size = self._endpoint.out.unsent_size
        if self._closing and not size:
            self._lose(None)
        elif self._writing_paused and size <= self._low:
            self._writing_paused = False
            self._loop.call_soon(self._resume_writing)

    def _resume_writing(self) -> None:
        if not self._lost:
            self._protocol.resume_writing()

    # Reading.

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading and not self._closing:
            self._reading = True
            self._readable()

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def _readable(self) -> None:
        """Something may be read: also called with the world's own stack."""
        if not self._read_due and (self._reading or self._endpoint.broken) and not self._lost:
            self._read_due = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._read_due = False
        endpoint = self._endpoint
        if self._lost or (self._closing and not endpoint.broken):
            return
        if endpoint.broken:
            if not self._closing or endpoint.out.unsent_size >= 0:
                self._closing = True
                self._lose(ConnectionResetError(104, "Connection reset by peer"))
            return
        if not self._reading:
            return
        if endpoint.inbox:
            self._protocol.data_received(endpoint.read())
            if endpoint.inbox or endpoint.ended:
                self._readable()
        elif endpoint.ended and not self._eof_seen:
            self._eof_seen = True
            if not self._protocol.eof_received():
                self.close()

    # Closing.

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if not self._endpoint.out.unsent_size:
            self._lose(None)

    def abort(self) -> None:
        if self._lost:
            return
        self._closing = True
        self._endpoint.out.unsent.clear()
        self._endpoint.out.unsent_size = 0
        self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._endpoint.close()
            self._loop.call_soon(self._tell_lost, error)

    def _tell_lost(self, error: Exception | None) -> None:
        self._loop.transports.pop(self, None)
        protocol, self._protocol = self._protocol, None
        protocol.connection_lost(error)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        match name:
            case "socket":
                return self._socket
            case "peername":
                return self._endpoint.remote
            case "sockname":
                return self._endpoint.local
            case _:
                return default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast("asyncio.BaseProtocol", self._protocol)


class SimulatedLoop(asyncio.AbstractEventLoop):
    """The event loop of one process, which runs in its main thread."""

    def __init__(self, world: World, network: Network, process: Process, make_socket: Callable[..., Any]) -> None:
        self._world = world
        self._network = network
        self._make_socket = make_socket
        self.process = process
        self._ready: deque[asyncio.Handle] = deque()
        self._due = False
        self._idle = True
        self._closed = False
        self._on_error: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None] | None = None
        self.transports: dict[Transport, None] = {}
        self.timers: dict[asyncio.TimerHandle, None] = {}
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._executing = 0
        self.check_callback: Callable[[asyncio.Handle], None] | None = None
        """Runs a callback, and checks how long it takes."""
        self._main = greenlet(self._run_turns, world._root)
        process.threads.append(self._main)

    # The main thread.

    def _run_turns(self, _: object) -> None:
        process, world = self.process, self._world
        while True:
            ready = self._ready
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle._cancelled:
                    continue
                process.callbacks += 1
                if process.callbacks == process.dies_at_callback:
                    world.kill(process, "is killed before a callback")
                if process.on_callback is not None and process.callbacks >= process.on_callback[0]:
                    act, process.on_callback = process.on_callback[1], None
                    act()
                if self.check_callback is None:
                    handle._run()
                else:
                    self.check_callback(handle)
            self._idle = True
            if ready:
                self._turn_soon()
            world._root.switch()

    def _turn_soon(self) -> None:
        if not self._due:
            self._due = True
            self._world.after(self._world.turn_delay(), self._turn)

    def _turn(self, _: object) -> None:
        self._due = False
        process = self.process
        if not process.alive or not self._idle:
            return
        if process.stopped_until > self._world.now:
            self._due = True
            self._world.at(process.stopped_until, self._turn)
            return
        self._idle = False
        self._world.use_loop(self)
        self._world.resume(self._main, process)

    # Callbacks.

    def time(self) -> float:
        return MONOTONIC_S + self._world.now

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        if not self._due and self._idle:
            self._turn_soon()
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        if self._closed:
            raise RuntimeError("Event loop is closed")
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:  # type: ignore[override]
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        timer._scheduled = True  # type: ignore[attr-defined]
        self.timers[timer] = None
        self._world.at(max(when - MONOTONIC_S, self._world.now) + _LATE_S, self._expire, timer)
        return timer

    def _expire(self, timer: object) -> None:
        assert isinstance(timer, asyncio.TimerHandle)
        if self.timers.pop(timer, 0) is None and self.process.alive:
            self._ready.append(timer)
            if not self._due and self._idle:
                self._turn_soon()

    def _timer_handle_cancelled(self, timer: asyncio.TimerHandle) -> None:
        self.timers.pop(timer, None)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, work: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        task: asyncio.Task[Any] = asyncio.Task(work, loop=self, **options)
        self.tasks[task] = None
        task.add_done_callback(self._end_task)
        return task

    def _end_task(self, task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)

    def run_in_executor(self, _: object, work: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = self.create_future()
        self._executing += 1

        def run() -> None:
            result, failure = None, None
            try:
                result = work(*args)
            except Exception as error:  # noqa: BLE001 - it is the future's result
                failure = error
            self.call_soon_threadsafe(end, result, failure)

        def end(result: object, failure: Exception | None) -> None:
            self._executing -= 1
            if future.done():
                return
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(result)

        self.process.start_thread(run)
        return future

    def tasks_of_clients(self) -> int:
        """How many tasks that play clients still run."""
        return sum(task.get_coro().__qualname__ == "Client.run" for task in self.tasks)  # type: ignore[union-attr]

    # What is asked of a loop besides.

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True

    def get_task_factory(self) -> None:
        return None

    def set_exception_handler(self, handler: Any) -> None:
        self._on_error = handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.process.log.append(f"LOOP {context.get('message')}: {context.get('exception')!r}")

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not self.process.alive or self._world._ended:
            return
        place = f" at {where(error)}" if isinstance(error, BaseException) else ""
        self.process.log.append(f"LOOP {context.get('message')}: {error!r}{place}")
        if self._on_error is not None:
            self._on_error(self, context)

    def add_signal_handler(self, number: int, callback: Any, *args: Any) -> None:  # type: ignore[override]
        self.process.signals[number] = self._later(callback, *args)

    def add_reader(self, _: object, callback: Any, *args: Any) -> None:  # type: ignore[override]
        """The only file that is watched is the supervisor's pipe, which closes when it dies."""
        self.process.signals[0] = self._later(callback, *args)

    def _later(self, callback: Callable[..., object], *args: object) -> Callable[[], None]:
        def call() -> None:
            self.call_soon_threadsafe(callback, *args)

        return call

    def remove_reader(self, _: object) -> bool:
        return self.process.signals.pop(0, None) is not None

    # The network.

    def accept(self, factory: Callable[[], asyncio.Protocol], endpoint: Endpoint) -> None:
        """A listener of this loop has a new connection."""
        self.call_soon(self._attach, factory, endpoint, None, None)

    def _attach(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        endpoint: Endpoint,
        connected: Any,
        future: asyncio.Future[Any] | None,
    ) -> None:
        protocol = factory()
        if connected is None:
            unix = isinstance(endpoint.local, str) or isinstance(endpoint.remote, str)
            connected = self._make_socket(socket.AF_UNIX if unix else socket.AF_INET)
        transport = Transport(self, endpoint, protocol, connected)
        protocol.connection_made(transport)
        if future is not None and not future.done():
            future.set_result((transport, protocol))
        if endpoint.inbox or endpoint.ended or endpoint.broken:
            transport._readable()

    async def _connect(self, address: Address) -> Endpoint:
        future: asyncio.Future[Endpoint] = self.create_future()

        def then(found: Endpoint | OSError) -> None:
            if future.done():
                if isinstance(found, Endpoint):
                    found.close()
            elif isinstance(found, OSError):
                future.set_exception(found)
            else:
                future.set_result(found)

        self._network.connect(self.process, address, lambda found: self._later(then, found)())
        return await future

    async def sock_connect(self, sock: Any, address: Any) -> None:
        sock.endpoint = await self._connect((address[0], address[1]))

    async def create_connection(self, protocol_factory: Any, *args: Any, sock: Any = None, **_: Any) -> Any:
        endpoint = sock.endpoint if sock is not None else await self._connect((args[0], args[1]))
        future = self.create_future()
        self._attach(protocol_factory, endpoint, sock, future)
        return await future

    async def create_unix_connection(self, protocol_factory: Any, path: Any = None, **_: Any) -> Any:
        future = self.create_future()
        self._attach(protocol_factory, await self._connect(str(path)), None, future)
        return await future

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        if self._network.listeners.get((host, port)) and not _.get("reuse_port"):
            raise OSError(98, "Address already in use")
        return Listener(self._network, self, protocol_factory, (host, port))

    async def create_unix_server(self, protocol_factory: Any, path: Any = None, **_: Any) -> Any:
        with open(path, "wb"):  # noqa: ASYNC230 - the world has no other time
            return Listener(self._network, self, protocol_factory, str(path))

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:  # noqa: ARG002
        await asyncio.sleep(self._world.random.random() * 0.01)
        if self._network.no_names:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.1.0.1", port))]

    def check_idle(self) -> str:
        """What is still open after the process has closed everything; empty if nothing is."""
        live = [f"timer of {timer._callback.__qualname__}" for timer in self.timers if not timer.cancelled()]  # type: ignore[attr-defined]
        current = [task for task in self.tasks if not task.done()]
        found = {"connections": len(self.transports), "tasks": len(current)}
        return ", ".join([*live, *(f"{count} {name}" for name, count in found.items() if count)])
