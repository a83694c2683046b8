"""What `threading`, `queue` and `time` are in a simulated process: they block its greenlet, no real thread."""

import math
import queue as real_queue
import threading as real_threading
import time as real_time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.simulation.world import EPOCH_S, MONOTONIC_S, Process, Wakeup, World


def _overlay(real: ModuleType, **replaced: object) -> Any:
    """A module of the standard library with some of its names replaced."""
    return SimpleNamespace(**{**vars(real), **replaced})


def time_of(world: World) -> Any:
    """`time`."""

    def monotonic() -> float:
        return MONOTONIC_S + world.now

    def now() -> float:
        process = world.current
        return EPOCH_S + world.now + (process.skew_s if process is not None else 0.0)

    def gmtime(seconds: float | None = None) -> real_time.struct_time:
        return real_time.gmtime(now() if seconds is None else seconds)

    return _overlay(
        real_time,
        time=now,
        time_ns=lambda: int(now() * 1_000_000) * 1_000,
        monotonic=monotonic,
        monotonic_ns=lambda: int(monotonic() * 1_000_000_000),
        perf_counter=monotonic,
        sleep=world.sleep,
        gmtime=gmtime,
    )


def threading_of(world: World) -> Any:
    """`threading`."""

    class Event:
        def __init__(self) -> None:
            self._set = False
            self._waiting: list[Wakeup] = []

        def is_set(self) -> bool:
            return self._set

        def set(self) -> None:
            self._set = True
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                each.fire()

        def clear(self) -> None:
            self._set = False

        def wait(self, timeout: float | None = None) -> bool:
            if not self._set:
                world.wait(self._waiting, timeout)
            return self._set

    class Thread:
        def __init__(
            self,
            group: None = None,
            target: Callable[..., object] | None = None,
            name: str | None = None,
            args: Sequence[object] = (),
            kwargs: Mapping[str, object] | None = None,
            *,
            daemon: bool | None = None,
        ) -> None:
            assert group is None
            self._target, self._args, self._kwargs = target, args, dict(kwargs or {})
            self.name, self.daemon = name or "a thread", daemon
            self._ended = Event()
            self._alive = False
            self._process: Process | None = None

        def start(self) -> None:
            process = self._process = world.current
            assert process is not None
            self._alive = True
            process.start_thread(self._run, self._end)

        def run(self) -> None:
            if self._target is not None:
                self._target(*self._args, **self._kwargs)

        def _run(self) -> None:
            try:
                self.run()
            except Exception as error:  # noqa: BLE001 - as threading's hook does
                assert self._process is not None
                self._process.log.append(f"THREAD {self.name} failed: {error!r}")

        def _end(self) -> None:
            self._alive = False
            self._ended.set()

        def is_alive(self) -> bool:
            return self._alive

        def join(self, timeout: float | None = None) -> None:
            self._ended.wait(timeout)

    class Timer(Thread):
        def __init__(self, interval: float, function: Callable[..., object], args: Sequence[object] = ()) -> None:
            super().__init__(target=function, args=args, daemon=True)
            self._interval, self._cancelled = interval, Event()

        def run(self) -> None:
            if not self._cancelled.wait(self._interval):
                super().run()

        def cancel(self) -> None:
            self._cancelled.set()

    class Lock:
        def __init__(self) -> None:
            self._locked = False
            self._waiting: list[Wakeup] = []

        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
            while self._locked:
                if not blocking or (not world.wait(self._waiting, timeout if timeout >= 0 else None) and self._locked):
                    return False
            self._locked = True
            return True

        def release(self) -> None:
            self._locked = False
            while self._waiting and not self._waiting.pop(0).fire():
                pass

        def locked(self) -> bool:
            return self._locked

        def __enter__(self) -> None:
            self.acquire()

        def __exit__(self, *_: object) -> None:
            self.release()

    return _overlay(real_threading, Event=Event, Thread=Thread, Timer=Timer, Lock=Lock)


def queue_of(world: World) -> Any:
    """`queue`."""

    class Queue:
        def __init__(self, maxsize: int = 0) -> None:
            self._most = maxsize or math.inf
            self._items: deque[object] = deque()
            self._getting: list[Wakeup] = []
            self._putting: list[Wakeup] = []

        @classmethod
        def __class_getitem__(cls, _: object) -> type["Queue"]:
            return cls

        def qsize(self) -> int:
            return len(self._items)

        def empty(self) -> bool:
            return not self._items

        def full(self) -> bool:
            return len(self._items) >= self._most

        def put(self, item: object, block: bool = True, timeout: float | None = None) -> None:
            while len(self._items) >= self._most:
                if not block or not world.wait(self._putting, timeout):
                    raise real_queue.Full
            self._items.append(item)
            _wake_one(self._getting)

        def get(self, block: bool = True, timeout: float | None = None) -> object:
            while not self._items:
                if not block or not world.wait(self._getting, timeout):
                    raise real_queue.Empty
            item = self._items.popleft()
            _wake_one(self._putting)
            return item

        def put_nowait(self, item: object) -> None:
            self.put(item, block=False)

        def get_nowait(self) -> object:
            return self.get(block=False)

    return _overlay(real_queue, Queue=Queue, SimpleQueue=Queue)


def _wake_one(waiting: list[Wakeup]) -> None:
    with suppress(IndexError):
        while not waiting.pop(0).fire():
            pass
