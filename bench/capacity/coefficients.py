"""The coefficients of the capacity model, each measured: CPU, memory and disk of a call, an event, an entry, a limit.

CPU is what the kernel counted for the process that did the work, so other work on the machine disturbs it little. The
rates of databases depend on the disk, and on other work.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from bench.gateway import judge
from bench.gateway.streams import crowd
from bench.ledger import entry, sum_up
from bench.load.clients import short_calls, streams
from bench.load.processes import cpu_s, free_port, provider, running, wait_for
from penstock.gateway.config import LedgerSettings, Secret
from penstock.gateway.keys.quota import Quota
from penstock.gateway.keys.store import Spent
from penstock.gateway.limits.admission import Reservation
from penstock.stores.accounts.client import SharedAccountClient
from penstock.stores.accounts.operations import Booked, Reserve, Settle
from penstock.stores.accounts.redis import RedisAccounts
from penstock.stores.accounts.sqlite import SqliteAccounts
from penstock.stores.accounts.storage import Storage
from penstock.stores.book.open import open_book
from penstock.stores.book.sql_book import Book
from tests.stores.conftest import RedisServer
from tests.stores.postgres import PostgresServer

# What the writer of a busy gateway books together: the calls that end in a tenth of a second.
BATCH = 50
_TICKS = os.sysconf("SC_CLK_TCK")
_SUM_BATCH = 2_000


class GatewayFigures(NamedTuple):
    """What one process of the gateway takes."""

    event_us: float
    call_us: float
    """Without what its events take."""
    stream_kb: float


class LedgerFigures(NamedTuple):
    """What a database takes for entries, with their sums."""

    entries_s: float
    """Entries per second in batches, one after another."""
    commits_s: float
    """Batches per second, if each has one entry."""
    entry_bytes: float
    client_us: float
    """CPU of the gateway for an entry. With SQLite, that is all there is."""
    server_us: float


class LimitFigures(NamedTuple):
    """What the limits of one call take: it is reserved, settled and booked, one after another."""

    calls_s: float
    """Of one key."""
    server_us: float


def of_gateway(seconds: float, rounds: int, many: int) -> GatewayFigures:
    """Measure a gateway of one process, with its ledger and its log; for memory, with so many streams."""
    long, short = streams(50), short_calls()
    found: dict[str, list[float]] = {long.name: [], short.name: []}
    with tempfile.TemporaryDirectory(prefix="penstock-capacity-") as name, provider() as upstream:
        for _ in range(rounds):
            gateway = judge.Gateway("penstock", "", free_port())
            command = judge.command(judge.configuration(Path(name), upstream), gateway.port)
            with running(command) as pid:
                wait_for(f"http://127.0.0.1:{gateway.port}/health")
                for load in (long, short):
                    load.set_pace(upstream)
                    judge.load_of(gateway, load, 0.5)  # warms up
                    used = cpu_s(pid)
                    report = judge.load_of(gateway, load, seconds).checked()
                    count = report.events if load is long else report.calls
                    found[load.name].append((cpu_s(pid) - used) / count * 1e6)
    # Two equations: a call of `long.events` events, and one of `short.events`.
    long_call_us = statistics.median(found[long.name]) * long.events
    short_call_us = statistics.median(found[short.name])
    event_us = (long_call_us - short_call_us) / (long.events - short.events)
    return GatewayFigures(event_us, short_call_us - short.events * event_us, crowd(many).kilobytes_each)


def of_sqlite(seconds: float) -> LedgerFigures:
    """Measure the ledger in SQLite, on the disk of the working directory."""
    with tempfile.TemporaryDirectory(prefix=".bench-capacity-", dir=Path.cwd()) as folder:
        with closing(open_book(LedgerSettings(folder=folder), {})) as book:
            measured = _book(book, seconds, lambda: 0.0)
        size = (Path(folder) / "ledger.db").stat().st_size
        return measured(int(size or 0))


def of_postgres(seconds: float) -> LedgerFigures:
    """Measure the ledger in a PostgreSQL that waits for the disk."""
    with tempfile.TemporaryDirectory(prefix="penstock-capacity-") as folder:
        server = PostgresServer(Path(folder), durable=True)
        server.start()
        try:
            url = server.new_database()
            with closing(open_book(LedgerSettings(postgres=Secret(url, "bench")), {})) as book:
                measured = _book(book, seconds, lambda: _cpu_s(server.pid))
                ((size,),) = book.database.fetch(
                    "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c JOIN pg_namespace n "
                    "ON n.oid = c.relnamespace WHERE n.nspname = 'penstock' AND c.relkind = 'r'"
                )
            return measured(int(size or 0))
        finally:
            server.stop()


def of_redis(calls: int) -> LimitFigures:
    """Measure limits in Redis, on a unix socket."""
    with tempfile.TemporaryDirectory(prefix="penstock-capacity-") as folder:
        server = RedisServer(Path(folder))
        try:
            url = f"{server.url}?socket_timeout=5&socket_connect_timeout=5"
            return _limits(RedisAccounts(Secret(url, "bench")), calls, lambda: _cpu_s(server.process.pid))
        finally:
            server.kill()


def of_shared_file(calls: int) -> LimitFigures:
    """Measure limits in the file that the workers of one machine share."""
    with tempfile.TemporaryDirectory(prefix="penstock-capacity-") as folder:
        return _limits(SqliteAccounts(folder), calls, lambda: 0.0)


def _book(book: Book, seconds: float, server_cpu_s: Callable[[], float]) -> "Callable[[int], LedgerFigures]":
    """Append entries; the result takes the size of the database, and returns the figures."""
    number = time.time_ns()
    commits, number = _append(book, 1, seconds, number)
    began_client, began_server, first = time.process_time(), server_cpu_s(), number
    entries, number = _append(book, BATCH, seconds, number)
    sum_up(book)
    while book.sum_up(_SUM_BATCH):
        pass
    client_s, server_s, booked = time.process_time() - began_client, server_cpu_s() - began_server, number - first
    total = booked + int(commits * seconds)
    return lambda size: LedgerFigures(entries, commits, size / total, client_s / booked * 1e6, server_s / booked * 1e6)


def _append(book: Book, batch: int, seconds: float, number: int) -> tuple[float, int]:
    """Entries per second in batches of this size, and the next number."""
    began, first = time.perf_counter(), number
    while (passed := time.perf_counter() - began) < seconds:
        book.append([entry(number + index) for index in range(batch)])
        number += batch
    return (number - first) / passed, number


def _limits(storage: Storage, calls: int, server_cpu_s: Callable[[], float]) -> LimitFigures:
    quota = Quota(id="key_bench", budget=10**15, requests_per_minute=10**9)
    client = SharedAccountClient(
        storage, lambda *_: Spent(total=0, recent=frozenset()), 0.25, lambda: time.time_ns() // 1_000_000
    )
    began, server_s = time.perf_counter(), server_cpu_s()
    for number in range(calls):
        id, now = f"req_{number}", time.time_ns() // 1_000_000
        client.apply(
            quota.id, [Reserve(quota, Reservation(id=id, cost=1_000, tokens=100, now=now, until=now + 60_000))]
        )
        client.apply(quota.id, [Settle(id, 900, 90, now)])
        client.apply(quota.id, [Booked(id, now)])
    passed = time.perf_counter() - began
    assert not client.degraded
    used = (server_cpu_s() - server_s) / calls * 1e6
    storage.close()
    return LimitFigures(calls / passed, used)


def _cpu_s(pid: int) -> float:
    """Seconds of CPU of a process and of its children, also of those that have ended."""
    return sum(_ticks(each) for each in (pid, *_children(pid))) / _TICKS


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0
    return sum(map(int, fields[11:15]))


def _children(pid: int) -> Iterable[int]:
    return map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
