"""Run: starts the gateway as one process, or as several on one port, and ends it without losing streams.

SIGTERM and SIGINT drain: stop accepting, let streams finish within the window, end the rest with an error, exit 0. A
second signal ends the window at once. SIGHUP reloads the configuration: streams in progress keep theirs; an invalid
file changes nothing, and the log reports it.

With several processes, the parent (supervisor) validates the configuration first and passes SIGHUP on only if it is
valid. A worker that replaces a dead one gets the configuration that was validated last.
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
from penstock.serve.admin.port import AdminPort
from penstock.serve.batches import batch_s
from penstock.serve.bookkeeping import check, shared_storage
from penstock.serve.composition import BACKLOG, NOT_RELOADED, App, validate
from penstock.serve.file_watch import FileWatch
from penstock.serve.loop import NOTICE, run_loop
from penstock.serve.telemetry.log import BATCH_S, Log, is_pretty, where, write_now
from penstock.serve.telemetry.log_bridge import divert
from penstock.serve.telemetry.log_lines import Level
from penstock.stores.accounts.sqlite import remove_old
from penstock.stores.book.open import has_usable_key, state_folder
from penstock.stores.state_lock import claim
from penstock.upstream.local.model import RuntimeFolder

# Backoff: a worker that dies within this time after its start is replaced only after as long a pause.
_RESPAWN_BACKOFF_S = 1.0
_SAME_SIGNAL_S = 0.3
# How long the supervisor waits for the first worker to listen before it prints the banner.
_LISTEN_S = 10.0
# Calls leave no reference cycles. The garbage collector stops the event loop and finds little, so it runs seldom.
_GC_THRESHOLD = 20_000
# How long another thread (such as one that queries the book) may hold the GIL while the event loop waits for it. The
# default of 5 ms would be added to every system call of the loop, because each of them releases the GIL. While no other
# thread is busy, this costs nothing.
_SWITCH_INTERVAL_S = 0.0005
# Loads the configuration again. Its arguments: whether the ledger has stored keys, and the address that clients use.
Load: TypeAlias = Callable[[Callable[[LedgerSettings], bool], Address], Config]
# Returns the lines of the banner, given the port, the line on the admin API, and a link to its page (both may be
# empty).
Ready: TypeAlias = Callable[[int, str, str], list[str]]
# Whether the kernel balances connections between sockets with SO_REUSEPORT. macOS gives them all to one socket, so
# there the workers accept from one shared socket.
_BALANCES = sys.platform == "linux" and hasattr(socket, "SO_REUSEPORT")
# Writes a message with a level to standard error.
WriteMessage: TypeAlias = Callable[[str, Level], None]
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run(config: Config, load: Load, environment: Mapping[str, str], ready: Ready) -> int:
    """Serve until a signal arrives. Returns the exit status.

    Raises `ConfigError` if captures cannot be written or the admin API cannot be opened, `BookError` if the ledger
    cannot be opened, and `ListenError` if the address cannot be listened on.
    """
    validate(config)
    host, port = config.server.address
    claimed = _claim(config, environment)
    write = _message_writer(config)
    endpoint = open_endpoint(config, environment, lambda message: write(message, "warning"))
    admin = (endpoint.banner_line, endpoint.link()) if endpoint is not None else ("", "")
    home = RuntimeFolder()
    try:

        def banner(bound: int) -> list[str]:
            if endpoint is not None:
                _publish_endpoint(endpoint, Address(host, bound), config, environment)
            return ready(bound, *admin)

        if config.server.workers == 1:
            listeners = _Listeners((host, port), endpoint)
            return run_loop(_serve(config, load, environment, home, listeners, banner))
        if config.ledger.enabled:
            remove_old(state_folder(config.ledger, environment))
        try:
            reserved = _reserve(host, port)
        except OSError as error:
            raise ListenError.of(error) from error
        port = reserved.getsockname()[1]
        bound = Address(host, port)
        shared = None if _BALANCES else reserved
        listening_pipe, listening = os.pipe()

        latest, not_reloaded = config, home.folder / NOT_RELOADED

        def work(supervisor: int) -> int:
            listeners = _Listeners((host, port), endpoint, listening, shared)
            return run_loop(_serve(latest, load, environment, home, listeners, supervisor))

        def reload() -> bool:
            nonlocal latest
            try:
                loaded = load(lambda _: has_usable_key(config.ledger, environment, time.time() * 1000), bound)
                validate(loaded)
            except Exception as error:  # noqa: BLE001 - the workers continue in any case
                write(_not_reloaded(error), "warning")
                with suppress(OSError):  # only a metric
                    not_reloaded.touch()
                return False
            not_reloaded.unlink(missing_ok=True)
            latest = as_started(config, loaded)
            return True

        def announce() -> None:
            select.select([listening_pipe], [], [], _LISTEN_S)  # until a worker listens
            for line in banner(port):
                write(line, "info")

        gc.collect()
        gc.freeze()  # a collection writes to every object that it looks at: workers would not share their pages
        return _supervise(config.server.workers, work, announce, reload, reserved, write)
    finally:
        home.close()
        if claimed is not None:
            os.close(claimed)


def _claim(config: Config, environment: Mapping[str, str]) -> int | None:
    """Lock the directory of the ledger, and check that the ledger can work, before any request is served."""
    if not config.ledger.enabled:
        return None
    claimed = None
    if config.ledger.redis is None:
        claimed = claim(state_folder(config.ledger, environment))
    else:
        shared_storage(config, environment).close()  # raises if its URL is invalid
    check(config, environment)
    return claimed


def _publish_endpoint(endpoint: AdminEndpoint, bound: Address, config: Config, environment: Mapping[str, str]) -> None:
    """Write the file for commands such as `penstock open`. If that fails, the link in the banner still works."""
    clients = f"{'http' if config.server.tls is None else 'https'}://{bound}/v1"
    with suppress(OSError, BookError):
        write_endpoint_file(endpoint, state_folder(config.ledger, environment), clients)


class _Listeners(NamedTuple):
    """The address for clients, and the endpoint of the admin API, if there is one."""

    address: tuple[str, int]
    admin: AdminEndpoint | None
    listening: int | None = None
    """The pipe to which one of several workers writes once it listens."""
    shared: socket.socket | None = None
    """The socket from which all workers accept, if the kernel does not balance (see `_BALANCES`)."""


async def _serve(
    config: Config,
    load: Load,
    environment: Mapping[str, str],
    home: RuntimeFolder,
    listeners: _Listeners,
    ready: Callable[[int], list[str]] | int,
) -> int:
    """Serve in this process. `ready` returns the banner; for one of several workers it is the supervisor's pipe."""
    _restrict_realtime_to_loop()
    with closing(_open_log(config, environment)) as log:
        loop = asyncio.get_running_loop()
        divert(log, loop)
        supervisor = ready if isinstance(ready, int) else None
        if NOTICE:
            log.write(NOTICE)
        # Before there is a journal or a child process: one of the signals could end this process and leave them behind.
        signals: asyncio.Queue[int] = asyncio.Queue()
        for number in _SIGNALS:
            loop.add_signal_handler(number, signals.put_nowait, int(number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)  # a worker starts with them blocked
        app = App(config, environment, log, home)
        if supervisor is not None:
            loop.add_reader(supervisor, _on_supervisor_death, loop, supervisor, signals)
        try:
            if listeners.shared is not None:
                bound = await app.listen_on(listeners.shared)
            else:
                bound = await app.listen(*listeners.address, reuse_port=supervisor is not None)
        except OSError as error:
            raise ListenError.of(error) from error
        admin = (
            AdminPort(listeners.admin, app, config, environment, home.subfolder("links"))
            if listeners.admin is not None
            else None
        )
        if admin is not None:
            admin.listen()
        if not isinstance(ready, int):
            for line in ready(bound):
                log.write(line)
        elif listeners.listening is not None:
            os.write(listeners.listening, b".")
        gc.collect()
        gc.freeze()  # objects that exist now stay until the end: exclude them from garbage collection
        gc.set_threshold(_GC_THRESHOLD, 10, 10)
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        # With several workers, the supervisor reloads for all of them.
        watch = FileWatch(
            lambda: os.kill(os.getpid() if supervisor is None else os.getppid(), signal.SIGHUP),
            lambda file: log.write(f"{file} is gone; its secret stays in use until a restart", "warning"),
        )
        watch.use(config.secret_files)
        while await signals.get() == signal.SIGHUP:
            reloaded = await _reload(
                app, lambda: load(app.has_stored_keys, Address(listeners.address[0], bound)), config, log
            )
            watch.use(app.config.secret_files)
            if reloaded and admin is not None:
                admin.use(app.config)
        watch.close()
        if app.open_calls:
            calls = "1 call" if app.open_calls == 1 else f"{app.open_calls} calls"
            window = f"up to {app.config.server.drain_s:g} s"
            log.write(
                f"penstock waits {window} for {calls} to finish; press Ctrl-C or send SIGTERM again to end at once"
            )
        draining = loop.create_task(app.shut_down(app.config.server.drain_s))
        second = loop.create_task(_second_signal(signals))
        await asyncio.wait((draining, second), return_when=asyncio.FIRST_COMPLETED)
        if not draining.done():
            draining.cancel()
            await app.shut_down(0.0)
        second.cancel()
        if admin is not None:
            await admin.close()
        return 0


def _restrict_realtime_to_loop() -> None:
    """If this process has a real-time scheduling policy, only the event loop keeps it: new threads do not."""
    reset = getattr(os, "SCHED_RESET_ON_FORK", None)
    with suppress(OSError):  # some systems define the names but do not support policies
        if reset is not None and (policy := os.sched_getscheduler(0)) in (os.SCHED_FIFO, os.SCHED_RR):
            os.sched_setscheduler(0, policy | reset, os.sched_getparam(0))


async def _second_signal(signals: "asyncio.Queue[int]") -> None:
    """Wait for a second SIGTERM or SIGINT. One that arrives with the first is a duplicate."""
    first_at = asyncio.get_running_loop().time()
    while await signals.get() == signal.SIGHUP or asyncio.get_running_loop().time() - first_at < _SAME_SIGNAL_S:
        continue


def _on_supervisor_death(loop: asyncio.AbstractEventLoop, supervisor: int, signals: "asyncio.Queue[int]") -> None:
    """End as after SIGTERM, because the supervisor has died."""
    loop.remove_reader(supervisor)
    signals.put_nowait(int(signal.SIGTERM))


async def _reload(app: App, load: Callable[[], Config], started: Config, log: Log) -> bool:
    try:
        await app.reload(load())
    except Exception as error:  # noqa: BLE001 - calls are served as before in any case
        log.warning(_not_reloaded(error))
        app.reload_failed = True
        return False
    app.reload_failed = False
    waiting = ", ".join(waiting_for_restart(started, app.config))
    but = f"; what changed in {waiting} needs a restart" if waiting else ""
    log.write(f"the configuration was reloaded from {app.config.source}{but}")
    return True


def _not_reloaded(error: Exception) -> str:
    # The message of any other error may contain a secret.
    reason = str(error) if isinstance(error, ConfigError | BookError) else f"unexpected {type(error).__name__}"
    return f"the configuration was not reloaded, the old one stays: {reason}"


def _open_log(config: Config, environment: Mapping[str, str]) -> Log:
    descriptor, kind = sys.stderr.fileno(), config.server.log
    wait_s = batch_s(environment, BATCH_S)
    return Log(descriptor, pretty=is_pretty(kind, descriptor), enabled=kind != "off", batch_s=wait_s)


def _message_writer(config: Config) -> WriteMessage:
    """A writer of messages for a process without a `Log`: before it serves, or the supervisor."""
    descriptor = sys.stderr.fileno()
    pretty = is_pretty(config.server.log, descriptor)
    return lambda message, level: write_now(descriptor, message, level, pretty=pretty)


def _reserve(host: str, port: int) -> socket.socket:
    """Reserve the port that the workers share. Listens on it only if they accept from this socket."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as exclusive:
        # First without SO_REUSEPORT: with it, another program's sockets could share the port with ours unnoticed.
        exclusive.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        exclusive.bind((host, port))
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
    write: WriteMessage,
) -> int:
    """Keep so many workers running until a signal ends them all. Workers end by themselves if the supervisor dies.

    `announce` is called once they have been started. `reload` is called at SIGHUP and returns whether the workers shall
    reload too. `reserved` keeps their port until they end.
    """
    started_at: dict[int, float] = {}
    stopping = False
    supervisor, supervisor_end = os.pipe()  # workers read from it: it closes when this process dies

    def forward_signal(number: int, _frame: object) -> None:
        nonlocal stopping
        if number == signal.SIGHUP:
            before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP,))  # one reload at a time
            valid = reload()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            if not valid:
                return
        stopping = stopping or number != signal.SIGHUP
        if stopping:
            reserved.close()  # otherwise new clients would wait in its queue instead of being refused
        for pid in list(started_at):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def spawn() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # none may arrive between the fork and the assignment
        if not stopping:
            started_at[_spawn(work, supervisor, supervisor_end, write)] = time.monotonic()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    for number in _SIGNALS:
        signal.signal(number, forward_signal)
    for _ in range(count):
        spawn()
    announce()
    while started_at:
        pid, _ = os.wait()
        age = time.monotonic() - started_at.pop(pid, 0.0)
        if not stopping:
            if age < _RESPAWN_BACKOFF_S:
                time.sleep(_RESPAWN_BACKOFF_S)
            write(f"worker {pid} died; another one takes its place", "error")
            spawn()
    return 0


def _spawn(work: Callable[[int], int], supervisor: int, supervisor_end: int, write: WriteMessage) -> int:
    pid = os.fork()
    if pid:
        return pid
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    # They stay blocked until `_serve` handles them: by default they would end the worker in the middle of its start.
    os.close(supervisor_end)
    status = 1
    try:
        status = work(supervisor)
    except Exception as error:  # noqa: BLE001 - reported below
        write(f"a worker ends: {error if isinstance(error, PenstockError) else where(error)}", "error")
    finally:
        sys.stderr.flush()
        os._exit(status)
