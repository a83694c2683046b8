"""Machine: the operating system below Penstock: what its modules get in place of `os`, `time`, `socket` and so on.

Nothing of Penstock is replaced. Its modules refer to modules of the standard library; while a world is installed, they
refer to these. So the production code has no parameter and no cost for it, and code that is imported later is included.

Files lie in a folder of the real system, which is what the page cache is to processes: it outlives each of them. There
is no loss of power.
"""

import errno
import fcntl
import gc
import logging
import mmap
import os
import pkgutil
import queue
import random
import secrets
import select
import signal
import socket
import sqlite3
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import penstock
from penstock.stores.accounts import redis
from penstock.stores.book import postgres
from tests.simulation.databases import DatabaseServer, Store
from tests.simulation.network import Network, socket_of
from tests.simulation.threads import _overlay, queue_of, threading_of, time_of
from tests.simulation.world import EPOCH_S, KilledError, Process, World

# The descriptor of standard error: no file has it, and each process has its own log.
_STDERR = -2
_WRITES = ("INSERT", "UPDATE", "DELETE", "COMMIT", "REPLACE", "CREATE")


def import_all() -> None:
    """Import all modules of a gateway: what is imported later would see the real system."""
    for found in pkgutil.walk_packages(penstock.__path__, "penstock."):
        if not found.name.startswith(("penstock.cli", "penstock.__main__", "penstock.upstream.local")):
            import_module(found.name)


class _OpenFile:
    """A file that the kernel closes when its process dies."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def kill(self) -> None:
        with suppress(OSError):
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)  # memory that is mapped to it would keep the lock
            os.close(self.descriptor)


class _Connection:
    """A connection to SQLite that blocks the thread in simulated time, and that dies with its process.

    A process may die before and after each statement that writes. What was not committed is rolled back, as SQLite does
    with what it finds in the write-ahead log.
    """

    def __init__(self, world: World, process: Process, real: sqlite3.Connection, timeout_s: float) -> None:
        self._world = world
        self._process = process
        self._real = real
        self._timeout_s = timeout_s
        self._number = process.opens(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        return self._run(sql, self._real.execute, parameters)

    def executemany(self, sql: str, rows: Any) -> sqlite3.Cursor:
        return self._run(sql, self._real.executemany, rows)

    def close(self) -> None:
        self._process.open.pop(self._number, None)
        self._real.close()

    def rollback(self) -> None:
        self._real.rollback()

    def kill(self) -> None:
        with suppress(sqlite3.Error):
            self._real.rollback()  # also while a statement is running
            self._real.close()

    def _run(self, sql: str, execute: Any, parameters: Any) -> sqlite3.Cursor:
        process, world = self._process, self._world
        if not process.alive:
            raise KilledError
        writes = sql.startswith(_WRITES)
        if writes:
            if process.disk_full and not sql.startswith("COMMIT"):
                raise _error(sqlite3.SQLITE_FULL, "database or disk is full")
            _die_if_due(world, process, "is killed before it writes to a database")
        until = world.now + self._timeout_s
        done: sqlite3.Cursor | None = None
        while done is None:
            try:
                done = execute(sql, parameters)
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
                if not busy or world.now >= until:
                    raise
                world.sleep(0.001 + world.random.random() * 0.005)
        if writes:
            if world.random.random() < 0.05:
                world.sleep(world.random.random() * 0.01)  # the disk is slow; others run
            _die_if_due(world, process, "is killed after it wrote to a database")
        return done


def _error(code: int, message: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = code
    return error


def _die_if_due(world: World, process: Process, why: str) -> None:
    process.writes += 1
    if process.writes == process.dies_at_write:
        world.kill(process, why)


class _Map(mmap.mmap):
    """Memory that is mapped to a file. Its process may die while it copies bytes into it."""

    machine: "Machine"
    file: tuple[int, int]

    def __setitem__(self, place: Any, data: Any) -> None:
        machine = self.machine
        machine.disk.touch(self.file)
        process = machine.world.current
        if process is None or not process.alive:
            raise KilledError
        process.writes += 1
        if process.writes == process.dies_at_write and isinstance(place, slice):
            torn = machine.world.random.randrange(len(data) + 1)
            super().__setitem__(slice(place.start, place.start + torn), data[:torn])
            machine.world.kill(process, f"is killed in a write, after {torn} of {len(data)} bytes")
        super().__setitem__(place, data)


class Disk:
    """When the files were changed, in the time of the world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.changed_ns: dict[tuple[int, int], int] = {}

    def touch(self, file: tuple[int, int]) -> None:
        """A file is changed now."""
        self.changed_ns[file] = int((EPOCH_S + self._world.now) * 1_000_000) * 1_000


class Machine:
    """What the modules of Penstock see of the system, in one world. Several machines may share the world."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.folder = folder
        self.network = Network(world)
        self.disk = Disk(world)
        self.disk_full = False
        self.database = DatabaseServer(world, folder)
        self.store = Store(world)
        self.modules = self._modules()
        self.make_socket = self.modules[id(socket)].socket  # type: ignore[attr-defined]

    @property
    def _process(self) -> Process:
        process = self.world.current
        if process is None or not process.alive:
            raise KilledError
        return process

    def _modules(self) -> dict[int, object]:
        """What replaces what, by the identity of the real thing."""
        world = self.world
        times, threads, queues = time_of(world), threading_of(world), queue_of(world)

        def token_bytes(size: int = 32) -> bytes:
            return self._random.randbytes(size)

        systems = _overlay(
            os,
            pwrite=self._pwrite,
            open=self._open,
            close=self.close,
            write=self._write,
            fdopen=self._fdopen,
            fsync=self._fsync,
            fdatasync=self._fsync,
            fstat=self._fstat,
            isatty=lambda _: False,
            getpid=lambda: self._process.pid,
            kill=self._kill,
            urandom=token_bytes,
        )
        randoms = _overlay(
            random,
            Random=lambda *seed: random.Random(*seed) if seed else random.Random(self._random.getrandbits(64)),
            random=self._random_number,
        )
        replaced: dict[object, object] = {
            os: systems,
            time: times,
            threading: threads,
            queue: queues,
            queue.SimpleQueue: queues.SimpleQueue,
            queue.Queue: queues.Queue,
            time.time: times.time,
            time.monotonic: times.monotonic,
            secrets: _overlay(secrets, token_bytes=token_bytes, token_hex=lambda size=32: token_bytes(size).hex()),
            random: randoms,
            mmap: _overlay(mmap, mmap=self._map),
            socket: socket_of(world),
            sqlite3: _overlay(sqlite3, connect=self._connect_database),
            select: _overlay(select, select=lambda *lists: lists[:3]),
            signal: _overlay(signal, pthread_sigmask=lambda *_: set()),
            gc: _overlay(gc, freeze=lambda: None, collect=lambda *_: 0, set_threshold=lambda *_: None),
            sys: _overlay(sys, stderr=SimpleNamespace(fileno=lambda: _STDERR), setswitchinterval=lambda _: None),
            fcntl: _overlay(fcntl, ioctl=lambda *_: bytes(4)),
            tempfile: _overlay(tempfile, gettempdir=lambda: str(self.folder)),
            logging: _overlay(logging, captureWarnings=lambda **_: None, getLogger=lambda *_: _Logger()),
        }
        return {id(real): simulated for real, simulated in replaced.items()}

    def _random_number(self) -> float:
        return self._random.random()

    @property
    def _random(self) -> random.Random:
        process = self.world.current
        return process.random if process is not None else self.world.random

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Have all modules of Penstock see this machine."""
        import_all()
        changed: list[tuple[dict[str, Any], str, object]] = []
        served = {
            (postgres.__name__, "PostgresDatabase"): self.database.database_class(),
            (redis.__name__, "RedisAccounts"): self.store.accounts_class(),
        }
        for name, module in sorted(sys.modules.items()):
            if name.partition(".")[0] != "penstock" or not isinstance(module, ModuleType):
                continue
            names = vars(module)
            for each, value in list(names.items()):
                if (simulated := self.modules.get(id(value))) is not None and not each.startswith("__"):
                    changed.append((names, each, value))
                    names[each] = simulated
                elif (model := served.get((name, each))) is not None:
                    changed.append((names, each, value))
                    names[each] = model
        try:
            yield
        finally:
            for names, each, value in changed:
                names[each] = value

    # Files.

    def _open(self, path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        process = self._process
        descriptor = os.open(path, flags, mode, **options)
        process.open[-1 - descriptor] = _OpenFile(descriptor)
        return descriptor

    def _fdopen(self, descriptor: int, *arguments: Any, **options: Any) -> Any:
        self._process.open.pop(-1 - descriptor, None)  # the file object closes it
        return os.fdopen(descriptor, *arguments, **options)

    def close(self, descriptor: int) -> None:
        process = self.world.current
        if process is None or not process.alive:
            return  # the kernel has closed it
        process.open.pop(-1 - descriptor, None)
        os.close(descriptor)

    def _pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        process, world = self._process, self.world
        process.writes += 1
        found = os.fstat(descriptor)
        self.disk.touch((found.st_dev, found.st_ino))
        if process.writes == process.dies_at_write:
            torn = world.random.randrange(len(data) + 1)
            os.pwrite(descriptor, data[:torn], offset)
            world.kill(process, f"is killed in a write, after {torn} of {len(data)} bytes")
        return os.pwrite(descriptor, data, offset)

    def _map(self, descriptor: int, size: int, **options: Any) -> mmap.mmap:
        if descriptor == -1:
            return mmap.mmap(descriptor, size, **options)
        mapped = _Map(descriptor, size, **options)
        found = os.fstat(descriptor)
        mapped.machine, mapped.file = self, (found.st_dev, found.st_ino)
        return mapped

    def _fsync(self, descriptor: int) -> None:
        """There is no loss of power: nothing is left to sync."""

    def _fstat(self, descriptor: int) -> Any:
        if descriptor == _STDERR:
            return SimpleNamespace(st_mode=stat.S_IFIFO)
        found = os.fstat(descriptor)
        changed = self.disk.changed_ns.get((found.st_dev, found.st_ino))
        now_ns = int((EPOCH_S + self.world.now) * 1_000_000) * 1_000
        return SimpleNamespace(
            **{name: getattr(found, name) for name in dir(found) if name.startswith("st_")}
            | {"st_mtime_ns": changed if changed is not None else now_ns}
        )

    def _write(self, descriptor: int, data: Any) -> int:
        if descriptor < _STDERR:
            return len(data)  # the pipe to a supervisor
        if descriptor != _STDERR:
            return os.write(descriptor, data)
        lines = bytes(data).decode(errors="replace").replace(str(self.folder), "FOLDER").splitlines()
        process = self._process
        process.log += lines
        for line in lines:
            self.world.note(f"{process.name} logs {line}")
        return len(data)

    def _connect_database(self, path: str, timeout: float = 5.0, **options: Any) -> Any:
        real = sqlite3.connect(path, timeout=0, **options)
        real.execute("PRAGMA synchronous = OFF")
        return _Connection(self.world, self._process, real, timeout)

    # Processes.

    def _kill(self, pid: int, number: int) -> None:
        process = next((each for each in self.world.processes if each.pid == pid and each.alive), None)
        if process is None:
            raise ProcessLookupError(errno.ESRCH, "No such process")
        if number:
            process.send_signal(number)


class _Logger:
    """The logger of other packages: they log nothing in a world."""

    def addHandler(self, _: object) -> None:
        return
