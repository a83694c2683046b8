"""World: simulated time, the processes in it, and the order in which they run. One seed decides everything.

There is one queue of events, ordered by simulated time. An event is a timer, the arrival of bytes, or the next turn of
a process. Each turn comes after a short random delay, so the seed decides which process runs first, as the scheduler of
an operating system would. The callbacks of one event loop keep their order, because asyncio promises it.

A thread of a process is a greenlet. It runs until it blocks: in a queue, an event, a lock, `sleep`, or a database that
another one has locked. The main thread of a process runs its event loop, and may block in the same way.

A process dies at any callback, timer or write. It then runs no further code, not even `finally`: its greenlets are kept
aside until the world ends. The kernel closes its files and sockets.
"""

import asyncio
import heapq
import signal
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, Protocol

from greenlet import GreenletExit, getcurrent, greenlet  # type: ignore[import-untyped]

# The Unix time at which worlds begin: 2026-11-19, so that prices and dates are plausible.
EPOCH_S = 1_795_000_000.0
# The clock that only counts up does not begin at zero, because the zero of some deadlines means "never".
MONOTONIC_S = 10_000.0
# How long a process waits until it has its turn.
_TURN_S = 0.000_02
_LATE_TURN_S = 0.000_4
_SLOW_CALLBACK = 0.02
# The least time that a thread waits: otherwise the clock might not advance, because a float has no number in between.
_SHORTEST_S = 0.000_001
# More events within a simulated second than any load of a world has.
_MOST_EVENTS = 300_000


class StuckError(Exception):
    """Nothing can happen any more before the end of the world, or a process never rests."""


class KilledError(BaseException):
    """Raised in code of a process that is dead, if any still runs when the world ends."""


class Closable(Protocol):
    """What the kernel closes when a process dies."""

    def kill(self) -> None:
        """Close it, as the kernel does."""


class World:
    """Time, and everything that happens in it."""

    def __init__(self, seed: int, *, readable: bool = False) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self._events: list[tuple[float, float, int, Callable[[Any], None], Any]] = []
        self._number = 0
        self._ended = False
        self.processes: list[Process] = []
        self.current: Process | None = None
        self.steps = 0
        """The turns of all processes so far."""
        self.trace: list[str] | None = [] if readable else None
        """What happened, if it is to be read."""
        self.on_kill: Callable[[Process], None] = lambda _: None
        self._root = getcurrent()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._dead: list[greenlet] = []

    def note(self, line: str) -> None:
        """Add a line to the trace."""
        if self.trace is not None:
            self.trace.append(f"{self.now:14.6f} {line}")

    # Events.

    def at(self, when: float, act: Callable[[Any], None], argument: object = None) -> None:
        """Do something at a time; if several things happen at once, the seed decides their order."""
        self._number += 1
        heapq.heappush(self._events, (when, self.random.random(), self._number, act, argument))

    def after(self, seconds: float, act: Callable[[Any], None], argument: object = None) -> None:
        """Do something after a time."""
        self.at(self.now + seconds, act, argument)

    def turn_delay(self) -> float:
        """How long a process waits until it has its turn."""
        chance = self.random.random()
        return _TURN_S * chance if chance < 1 - _SLOW_CALLBACK else _LATE_TURN_S

    def run(self, until: float = float("inf"), done: Callable[[], bool] | None = None) -> None:
        """Let things happen until a time, or until something is true."""
        self._root = getcurrent()
        events = self._events
        busy, busy_until = 0, 0.0
        while done is None or not done():
            if not events:
                if until == float("inf"):
                    raise StuckError("nothing can happen any more")
                break
            if events[0][0] > until:
                break
            when, _, _, act, argument = heapq.heappop(events)
            if when > self.now:
                self.now = when
                if when > busy_until:
                    busy_until, busy = when + 1.0, 0
            busy += 1
            if busy > _MOST_EVENTS:
                raise StuckError(f"there is no rest: {_MOST_EVENTS} events within a second, the last one {act}")
            act(argument)
        if until != float("inf") and (done is None or not done()):
            self.now = max(self.now, until)

    # Greenlets.

    def resume(self, thread: greenlet, process: "Process", value: object = None) -> None:
        """Let a thread of a process run until it blocks or ends."""
        if not process.alive:
            return
        self.current = process
        self.steps += 1
        try:
            thread.switch(value)
        finally:
            self.current = None

    def block(self) -> Any:
        """Leave the current thread until it is resumed; returns the value with which it is."""
        process = self.current
        if process is None or self._ended:
            raise KilledError
        loop = self._loop
        value = self._root.switch()
        if self._ended:
            raise KilledError
        self.use_loop(loop)
        self.current = process
        return value

    def use_loop(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Make this the running event loop, as asyncio knows it. To tell asyncio is slow, so the loop stays until there
        is another."""
        if loop is not self._loop:
            self._loop = loop
            asyncio._set_running_loop(loop)

    def wait(self, waiting: list["Wakeup"] | None, timeout_s: float | None) -> bool:
        """Block until one of `waiting` is woken, or for a time. Returns whether it was woken."""
        process = self.current
        if process is None or self._ended:
            raise KilledError
        wakeup = Wakeup(self, process, getcurrent())
        if waiting is not None:
            waiting.append(wakeup)
        if timeout_s is not None:
            self.after(max(timeout_s, _SHORTEST_S), wakeup.expire)
        woken = bool(self.block())
        if not woken and waiting is not None:
            with suppress(ValueError):
                waiting.remove(wakeup)
        return woken

    def sleep(self, seconds: float) -> None:
        """Block the current thread for a time."""
        self.wait(None, seconds)

    # Processes.

    def kill(self, process: "Process", why: str = "killed") -> None:
        """End a process at once: it runs no further code."""
        if not process.alive:
            return
        self.note(f"{process.name} {why}")
        process.alive = False
        process.ended_at = self.now
        for each in list(process.open.values()):
            each.kill()
        process.open.clear()
        self.on_kill(process)
        if self.current is process:
            self._dead.append(getcurrent())
            self._root.switch()
            raise KilledError

    def end(self) -> None:
        """Unwind what is left of all processes. Nothing of it has an effect any more."""
        self._ended = True
        for process in self.processes:
            process.alive = False
            for each in list(process.open.values()):
                each.kill()
            process.open.clear()
        for process in self.processes:
            for thread in process.threads:
                if thread and thread is not getcurrent():
                    with suppress(BaseException):
                        thread.throw(GreenletExit)
            process.threads.clear()
        self.use_loop(None)
        self._events.clear()


class Wakeup:
    """A thread that waits."""

    __slots__ = ("_fired", "_process", "_thread", "_world")

    def __init__(self, world: World, process: "Process", thread: greenlet) -> None:
        self._world = world
        self._process = process
        self._thread = thread
        self._fired = False

    def fire(self) -> bool:
        """Wake it; returns False if it waits no longer."""
        if self._fired or not self._process.alive:
            return False
        self._fired = True
        self._world.after(self._world.turn_delay(), self._resume, True)
        return True

    def expire(self, _: object) -> None:
        """Its time is over."""
        if not self._fired:
            self._fired = True
            self._resume(False)

    def _resume(self, woken: object) -> None:
        self._world.resume(self._thread, self._process, woken)


class Process:
    """A process of the world: a gateway, one of its workers, or all clients and providers."""

    def __init__(self, world: World, name: str, number: int) -> None:
        self.world = world
        self.name = name
        self.pid = 1_000 + number
        self.random = Random(world.random.getrandbits(64))
        """What the process gets as random bytes."""
        self.alive = True
        self.ended_at = 0.0
        self.skew_s = 0.0
        """How much its clock is ahead."""
        self.signals: dict[int, Callable[[], None]] = {}
        self.threads: list[greenlet] = []
        self.open: dict[int, Closable] = {}
        """What the kernel closes when it dies."""
        self.log: list[str] = []
        self.callbacks = 0
        self.dies_at_callback = -1
        self.dies_at_write = -1
        self.writes = 0
        self.disk_full = False
        self.stopped_until = 0.0
        """It gets no turn before, as after SIGSTOP or while the machine sleeps."""
        self.on_callback: tuple[int, Callable[[], None]] | None = None
        """What is done before a callback with this number."""
        self.ended_by_signal = False
        self.status: int | None = None
        """Its exit status, once it has ended by itself."""
        self._opened = 0
        world.processes.append(self)

    def opens(self, each: Closable) -> int:
        """The kernel closes this when the process dies. Returns its number."""
        self._opened += 1
        self.open[self._opened] = each
        return self._opened

    def start_thread(self, work: Callable[[], object], on_end: Callable[[], None] = lambda: None) -> None:
        """Run something in a thread of its own."""

        def run(_: object) -> None:
            try:
                work()
            except (KilledError, GreenletExit):
                return
            finally:
                if thread in self.threads:
                    self.threads.remove(thread)
            on_end()

        thread = greenlet(run, self.world._root)
        self.threads.append(thread)
        self.world.after(self.world.turn_delay(), lambda _: self.world.resume(thread, self))

    def send_signal(self, number: int) -> None:
        """Send it a signal: without a handler it dies."""
        if not self.alive:
            return
        self.world.note(f"{self.name} gets {signal.Signals(number).name}")
        handler = self.signals.get(number)
        if handler is not None:
            handler()
        elif number != signal.SIGHUP or self.signals:
            self.ended_by_signal = True
            self.world.kill(self, "ended by a signal")
