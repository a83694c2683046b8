"""Running the gateway: one process, or several on one port, from start to the last stream.

SIGTERM and SIGINT drain: stop accepting, let streams finish within the window, tell the rest, exit 0; a second one does
not wait. SIGHUP reloads the configuration: streams under way keep theirs, and an invalid file changes nothing and says
so. Where there are several processes, their parent validates it first: the others hear of a reload only if it is valid,
and one that takes the place of another has the configuration that was validated last.
"""

import asyncio
import gc
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import NamedTuple, TypeAlias

from penstock.errors import BookError, ConfigError, ListenError, PenstockError
from penstock.gateway.config import Config, LedgerSettings
from penstock.gateway.config.addresses import Address
from penstock.gateway.config.changes import as_started, waiting_for_restart
from penstock.serve.admin.endpoint import AdminEndpoint, open_endpoint, write_endpoint_file
from penstock.serve.admin.listener import Admin
from penstock.serve.app import BACKLOG, App, validate
from penstock.serve.bookkeeping import check, shared_storage
from penstock.serve.loop import REMARK, run_loop
from penstock.serve.telemetry.log import Level, Log, is_pretty, where, write_now
from penstock.serve.telemetry.log_bridge import divert
from penstock.stores.accounts.sqlite import begin
from penstock.stores.book.open import has_living_key, state_folder
from penstock.stores.state_lock import claim
from penstock.upstream.local.model import ModelFolder

# A worker that dies younger than this is broken, not unlucky: its successor waits.
_YOUNG_S = 1.0
_SAME_SIGNAL_S = 0.3
# How long to wait for the first of several workers before it is said that they listen.
_BEGIN_S = 10.0
# Calls leave no cycles behind: the collector, which stops everything, has little to find and may look for it seldom.
_GARBAGE = 20_000
# For how long another thread may hold up the loop: one that asks the book, or sums it up. Python's own 5 ms would be so
# much for each system call, for which the loop lets go of the interpreter. While no other thread is busy it is nothing.
_SWITCH_S = 0.0005
# Reads the configuration again; it is told how to find out whether there are stored keys, and where clients are served.
Load: TypeAlias = Callable[[Callable[[LedgerSettings], bool], Address], Config]
# What to say once the port is open, given the port, where the admin API is, and a link to its page; both empty where
# there is none.
Ready: TypeAlias = Callable[[int, str, str], list[str]]
# Whether sockets that share a port share its connections. On macOS one of them gets them all: there the workers accept
# from one socket.
_BALANCES = sys.platform == "linux" and hasattr(socket, "SO_REUSEPORT")
# Says something that has a level.
Tell: TypeAlias = Callable[[str, Level], None]
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run(config: Config, load: Load, environment: Mapping[str, str], ready: Ready) -> int:
    """Serve until a signal ends it; returns the exit status.

    Raises `ConfigError` where captures cannot be written, or the admin API not be opened, as the configuration says;
    `BookError` where the ledger cannot be kept; `ListenError` where it cannot listen as the configuration says.
    """
    validate(config)
    host, port = config.server.address
    claimed = _claim(config, environment)
    tell = _teller(config)
    place = open_endpoint(config, environment, lambda words: tell(words, "warning"))
    admin = (place.banner_line, place.link()) if place is not None else ("", "")
    home = ModelFolder()
    try:
        if place is not None:
            _leave_note(place, config, environment)
        if config.server.workers == 1:
            doors = _Doors((host, port), place)
            return run_loop(_serve(config, load, environment, home, doors, lambda bound: ready(bound, *admin)))
        if config.ledger.enabled:
            begin(state_folder(config.ledger, environment))
        try:
            reserved = _reserve(host, port)
        except OSError as error:
            raise ListenError.of(error) from error
        port = reserved.getsockname()[1]
        bound = Address(host, port)
        shared = None if _BALANCES else reserved
        heard, begun = os.pipe()

        latest = config

        def work(alive: int) -> int:
            doors = _Doors((host, port), place, begun, shared)
            return run_loop(_serve(latest, load, environment, home, doors, alive))

        def reload() -> bool:
            nonlocal latest
            try:
                loaded = load(lambda _: has_living_key(config.ledger, environment, time.time() * 1000), bound)
                validate(loaded)
            except Exception as error:  # noqa: BLE001 - whatever it is, the workers go on
                tell(_not_reloaded(error), "warning")
                return False
            latest = as_started(config, loaded)
            return True

        def announce() -> None:
            select.select([heard], [], [], _BEGIN_S)  # until one of them listens
            for words in ready(port, *admin):
                tell(words, "info")

        return _supervise(config.server.workers, work, announce, reload, reserved, tell)
    finally:
        home.close()
        if claimed is not None:
            os.close(claimed)


def _claim(config: Config, environment: Mapping[str, str]) -> int | None:
    """Hold the folder of the ledger, and see that one can be kept there, before anybody is served."""
    if not config.ledger.enabled:
        return None
    claimed = None
    if config.ledger.redis is None:
        claimed = claim(state_folder(config.ledger, environment))
    else:
        shared_storage(config, environment).close()  # tells what is wrong with its URL
    check(config, environment)
    return claimed


def _leave_note(place: AdminEndpoint, config: Config, environment: Mapping[str, str]) -> None:
    """For `penstock open`. Where there is no room for it, the link in the banner has to do."""
    with suppress(OSError, BookError):
        write_endpoint_file(place, state_folder(config.ledger, environment))


class _Doors(NamedTuple):
    """Where clients are served, and where the admin API is, if there is one."""

    address: tuple[str, int]
    admin: AdminEndpoint | None
    begun: int | None = None
    """Where one of several workers writes when it listens."""
    shared: socket.socket | None = None
    """The socket from which all workers accept, where each cannot have its own."""


async def _serve(
    config: Config,
    load: Load,
    environment: Mapping[str, str],
    home: ModelFolder,
    doors: _Doors,
    told: Callable[[int], list[str]] | int,
) -> int:
    """One process. `told` is what to say when it listens; or, for one of several, its supervisor's pipe."""
    _go_first()
    with closing(_open_log(config)) as log:
        loop = asyncio.get_running_loop()
        divert(log, loop)
        alive = told if isinstance(told, int) else None
        if REMARK:
            log.write(REMARK)
        app = App(config, environment, log, home)
        signals: asyncio.Queue[int] = asyncio.Queue()
        for wanted in _SIGNALS:
            loop.add_signal_handler(wanted, signals.put_nowait, int(wanted))
        if alive is not None:
            loop.add_reader(alive, _orphaned, loop, alive, signals)
        try:
            if doors.shared is not None:
                bound = await app.listen_on(doors.shared)
            else:
                bound = await app.listen(*doors.address, reuse_port=alive is not None)
        except OSError as error:
            raise ListenError.of(error) from error
        admin = (
            Admin(doors.admin, app, config, environment, home.subfolder("links")) if doors.admin is not None else None
        )
        if admin is not None:
            await admin.listen()
        if not isinstance(told, int):
            for words in told(bound):
                log.write(words)
        elif doors.begun is not None:
            os.write(doors.begun, b".")
        gc.collect()
        gc.freeze()  # what is there now stays: the collector need not look at it again
        gc.set_threshold(_GARBAGE, 10, 10)
        sys.setswitchinterval(_SWITCH_S)
        while await signals.get() == signal.SIGHUP:
            reloaded = await _reload(
                app, lambda: load(app.has_stored_keys, Address(doors.address[0], bound)), config, log
            )
            if reloaded and admin is not None:
                admin.use(app.config)
        if app.open_calls:
            calls = "1 call" if app.open_calls == 1 else f"{app.open_calls} calls"
            window = f"up to {app.config.server.drain_s:g} s"
            log.write(f"penstock waits {window} for {calls} to finish; Ctrl-C or SIGTERM once more ends it at once")
        draining = loop.create_task(app.drain(app.config.server.drain_s))
        again = loop.create_task(_another(signals))
        await asyncio.wait((draining, again), return_when=asyncio.FIRST_COMPLETED)
        if not draining.done():
            draining.cancel()
            await app.drain(0.0)
        again.cancel()
        if admin is not None:
            await admin.close()
        return 0


def _go_first() -> None:
    """Where this process runs under a real-time policy, only the loop's thread does: what others do can wait."""
    reset = getattr(os, "SCHED_RESET_ON_FORK", None)
    with suppress(OSError):  # some systems know of no policies, though they have the names
        if reset is not None and (policy := os.sched_getscheduler(0)) in (os.SCHED_FIFO, os.SCHED_RR):
            os.sched_setscheduler(0, policy | reset, os.sched_getparam(0))


async def _another(signals: "asyncio.Queue[int]") -> None:
    """Wait for a second signal to end. One that comes with the first is the same, from a terminal and a supervisor."""
    began = asyncio.get_running_loop().time()
    while await signals.get() == signal.SIGHUP or asyncio.get_running_loop().time() - began < _SAME_SIGNAL_S:
        continue


def _orphaned(loop: asyncio.AbstractEventLoop, alive: int, signals: "asyncio.Queue[int]") -> None:
    """The supervisor has died: end as if it had asked for it."""
    loop.remove_reader(alive)
    signals.put_nowait(int(signal.SIGTERM))


async def _reload(app: App, load: Callable[[], Config], started: Config, log: Log) -> bool:
    try:
        await app.reload(load())
    except Exception as error:  # noqa: BLE001 - whatever it is, calls are served as before
        log.warning(_not_reloaded(error))
        return False
    waiting = ", ".join(waiting_for_restart(started, app.config))
    but = f"; what changed in {waiting} needs a restart" if waiting else ""
    log.write(f"the configuration was reloaded from {app.config.source}{but}")
    return True


def _not_reloaded(error: Exception) -> str:
    # What other errors say may quote a secret.
    reason = str(error) if isinstance(error, ConfigError | BookError) else f"unexpected {type(error).__name__}"
    return f"the configuration was not reloaded, the old one stays: {reason}"


def _open_log(config: Config) -> Log:
    descriptor = sys.stderr.fileno()
    return Log(descriptor, pretty=is_pretty(config.server.log, descriptor), enabled=config.server.log != "off")


def _teller(config: Config) -> Tell:
    """What writes lines for a process without a `Log`: one that has not begun to serve, or the parent of workers."""
    descriptor = sys.stderr.fileno()
    pretty = is_pretty(config.server.log, descriptor)
    return lambda words, level: write_now(descriptor, words, level, pretty=pretty)


def _reserve(host: str, port: int) -> socket.socket:
    """Hold a port for the workers to share: without listening on it, where each of them does."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as alone:
        # Others who share their port as our workers do would share it with us, and nobody would notice.
        alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        alone.bind((host, port))
    reserved = socket.socket(family, socket.SOCK_STREAM)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if _BALANCES:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind((host, port))
    if not _BALANCES:
        reserved.listen(BACKLOG)
    return reserved


def _supervise(
    count: int,
    work: Callable[[int], int],
    announce: Callable[[], None],
    reload: Callable[[], bool],
    reserved: socket.socket,
    tell: Tell,
) -> int:
    """Keep so many workers running until a signal ends them all. Workers whose supervisor dies end themselves.

    `announce` is called when they have been started; `reload` at SIGHUP: whether the workers are to reload too.
    `reserved` holds their port until they are to end.
    """
    born: dict[int, float] = {}
    stopping = False
    alive, lifeline = os.pipe()  # workers hold the reading end: it closes with this process

    def pass_on(number: int, _frame: object) -> None:
        nonlocal stopping
        if number == signal.SIGHUP:
            before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP,))  # one after the other
            valid = reload()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            if not valid:
                return
        stopping = stopping or number != signal.SIGHUP
        if stopping:
            reserved.close()  # else new clients would wait in its queue, and not be refused
        for pid in list(born):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def spawn() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # none may come between the birth and its being noted
        if not stopping:
            born[_spawn(work, alive, lifeline, tell)] = time.monotonic()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    for number in _SIGNALS:
        signal.signal(number, pass_on)
    for _ in range(count):
        spawn()
    announce()
    while born:
        pid, _ = os.wait()
        age = time.monotonic() - born.pop(pid, 0.0)
        if not stopping:
            if age < _YOUNG_S:
                time.sleep(_YOUNG_S)
            tell(f"worker {pid} died; another one takes its place", "error")
            spawn()
    return 0


def _spawn(work: Callable[[int], int], alive: int, lifeline: int, tell: Tell) -> int:
    pid = os.fork()
    if pid:
        return pid
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    os.close(lifeline)
    status = 1
    try:
        status = work(alive)
    except Exception as error:  # noqa: BLE001 - whatever ends it is told
        tell(f"a worker ends: {error if isinstance(error, PenstockError) else where(error)}", "error")
    finally:
        sys.stderr.flush()
        os._exit(status)
