"""Measures whether streams and the page notice that old calls are archived: `scripts/bench-retention`.

The benchmark fills a ledger (SQLite) with calls of thirty days. Then 200 streams run through the real gateway, in
turns: without pruning; with `keep_days`, so that the gateway archives calls meanwhile; and while `penstock ledger
prune` archives calls in a process of its own. In each turn a client starts further calls, one after another. The
requests of the page are measured before, while the command runs beside the streams, and after. The sums of all calls
must be the same before and after.
"""

import argparse
import contextlib
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

from bench.page.book import make
from bench.page.site import KEY, Site, delays
from bench.page.views import ask_all
from penstock.gateway.billing.queries import Filter, UsageRow
from penstock.gateway.config import LedgerSettings
from penstock.stores.book.open import open_book
from penstock.stores.book.summary import FINE_MS, USED
from penstock.stores.book.time_histogram import COLUMNS
from tests.stores.many_calls import DAYS

# The calls that the store writes itself. The database copies them, with other ids and times, which is much faster.
TEMPLATES = 50_000
KEEP_DAYS = 20
GAP_MS = 50
SETTLE_S = 2.0
# The pause between the calls of which the time to the first event is measured.
_PROBE_S = 0.1
_DAY_MS = 86_400_000
# The tables with rows of single calls, and the column that has the call's place.
_COPIED = {"calls": "place", "attempts": "call", "call_traits": "call"}
# The tables with sums, and the columns that are sums.
_MULTIPLIED = {
    "summed_names": (),
    "summed_answers": ("count", "estimated"),
    "summed_times": COLUMNS,
    "summed_usage": USED,
}


class Turn(NamedTuple):
    """What was measured while the streams ran."""

    cpu_us: float
    p50: float
    p99: float
    most: float
    first: float
    first_p99: float
    archived: int


def fill(folder: Path, calls: int, templates: int = TEMPLATES) -> int:
    """Fill a ledger; returns the number of its calls, which is a multiple of that of the templates."""
    copies = max(1, calls // templates)
    if copies == 1:
        make(folder, min(templates, calls))
        return min(templates, calls)
    make(folder, 0)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        make(Path(name), templates)
        _copy(folder / "ledger.db", Path(name) / "ledger.db", copies, DAYS * _DAY_MS // (templates * copies))
    return templates * copies


def _copy(path: Path, source: Path, copies: int, apart_ms: int) -> None:
    """Copy each call of a ledger several times, in the order of time, into another, empty one.

    A copy is in the same half hour as its template. So all sums are those of the templates, times the number of copies.
    """
    with closing(sqlite3.connect(path, isolation_level=None)) as ledger:
        # Neither a log nor waiting for the disk: what is half written after a crash is thrown away.
        for setting in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -400000", "temp_store = FILE"):
            ledger.execute(f"PRAGMA {setting}").fetchall()
        ledger.execute("ATTACH ? AS source", (str(source),))
        indexes = ledger.execute(
            "SELECT name, sql FROM main.sqlite_master WHERE type = 'index' AND tbl_name IN "
            f"({', '.join('?' * len(_COPIED))}) AND sql <> ''",
            tuple(_COPIED),
        ).fetchall()
        for name, _ in indexes:
            ledger.execute(f"DROP INDEX {name}")
        ledger.execute("CREATE TEMP TABLE copies (number INTEGER PRIMARY KEY)")
        ledger.executemany("INSERT INTO copies VALUES (?)", [(number,) for number in range(copies)])
        at_ms = f"s.at_ms / {FINE_MS} * {FINE_MS} + (s.at_ms % {FINE_MS} + n.number * {apart_ms}) % {FINE_MS}"
        changed = {
            "id": "printf('%s-%05d', s.id, n.number)",
            "at_ms": at_ms,
            "settled_ms": f"s.settled_ms - s.at_ms + {at_ms}",
        }
        for table, place in _COPIED.items():
            values = changed | {place: f"(s.{place} - 1) * {copies} + n.number + 1"}
            columns = _columns(ledger, table)
            selected = ", ".join(values.get(column, f"s.{column}") for column in columns)
            ledger.execute(
                f"INSERT INTO main.{table} ({', '.join(columns)}) SELECT {selected} FROM source.{table} s "
                "CROSS JOIN copies n"
            )
        for table, sums in _MULTIPLIED.items():
            columns = _columns(ledger, table)
            selected = ", ".join(f"{column} * {copies}" if column in sums else column for column in columns)
            ledger.execute(f"INSERT INTO main.{table} ({', '.join(columns)}) SELECT {selected} FROM source.{table}")
        ledger.execute("UPDATE main.meta SET value = (SELECT MAX(place) FROM main.calls) WHERE name = 'summed'")
        for _, sql in indexes:
            ledger.execute(sql)
        ledger.execute("PRAGMA journal_mode = WAL").fetchall()


def _columns(ledger: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in ledger.execute(f"PRAGMA source.table_info({table})")]


class Probe:
    """Starts calls one after another, and ends each at its first event."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ending = Event()
        self._took: list[float] = []
        self._thread = Thread(target=self._run)
        self._thread.start()

    def end(self) -> list[float]:
        """End; returns how many milliseconds the first events took, sorted."""
        self._ending.set()
        self._thread.join()
        return sorted(self._took) or [0.0]

    def _run(self) -> None:
        body = b'{"model":"mock/paced-%d","stream":true,"messages":[{"role":"user","content":"hi"}]}' % GAP_MS
        request = (
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer %b\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (KEY.encode(), len(body), body)
        )
        while not self._ending.wait(_PROBE_S):
            with socket.create_connection(("127.0.0.1", self._port), timeout=60) as client:
                began = time.perf_counter()
                client.sendall(request)
                got = b""
                while b"@" not in got and (data := client.recv(65_536)):
                    got += data
                self._took.append(1e3 * (time.perf_counter() - began))


@contextlib.contextmanager
def running(command: list[str] | None) -> Iterator[None]:
    """Run a command, if there is one, and interrupt it at the end."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) if command else None
    try:
        yield
    finally:
        if process is not None:
            process.send_signal(signal.SIGINT)
            process.wait()


def turn(site: Site, folder: Path, streams: int, seconds: float, command: list[str] | None = None) -> Turn:
    """Run streams, and the command meanwhile."""
    crowd = site.crowd(streams, GAP_MS)
    try:
        with running(command):
            time.sleep(SETTLE_S)
            probe = Probe(site.port)
            before, began, used = _archived(folder), time.monotonic(), site.cpu_s()
            time.sleep(seconds)
            ended, used = time.monotonic(), site.cpu_s() - used
            archived = _archived(folder) - before
            first = probe.end()
    finally:
        seen = crowd.end()
    during = delays(seen, began, ended)
    return Turn(
        1e6 * used / max(1, during.events),
        during.p50,
        during.p99,
        during.most,
        first[len(first) // 2],
        first[int(0.99 * len(first))],
        archived,
    )


def _archived(folder: Path) -> int:
    with closing(sqlite3.connect(f"file:{folder / 'ledger.db'}?mode=ro", uri=True)) as ledger:
        return int(ledger.execute("SELECT COALESCE(SUM(calls), 0) FROM archives").fetchone()[0])


def sums(folder: Path) -> list[UsageRow]:
    """Sums of the calls that were filled in. Those of the streams have a key of the configuration, and no tag."""
    book = open_book(LedgerSettings(folder=str(folder)), {}, readonly=True)
    try:
        rows = book.usage(Filter(), ["key"]) + book.usage(Filter(tags={"team": "search"}), ["model", "provider"])
        return [row for row in rows if not row.group[0].startswith("configured-")]
    finally:
        book.close()


def report(name: str, turns: list[Turn], base: list[Turn]) -> None:
    """Print the medians of turns, as they are and relative to others."""

    def median(of: list[Turn], field: str) -> float:
        return float(statistics.median(getattr(each, field) for each in of))

    figures = "".join(f"{median(turns, field):9.2f}" for field in ("cpu_us", "p50", "p99", "first", "first_p99"))
    worst, moved = max(each.most for each in turns), sum(each.archived for each in turns)
    compared = () if turns is base else ("cpu_us", "p99", "first")
    ratios = "".join(f"{median(turns, field) / median(base, field):8.2f}" for field in compared)
    print(f"  {name:32}{figures}{worst:9.1f}{moved:11,}{ratios}", flush=True)


def ask(site: Site, when: str) -> None:
    """Print how long the requests of the page take."""
    kinds: dict[str, list[float]] = {}
    for took in ask_all(site):
        kinds.setdefault(took.what.partition(":")[0], []).append(took.usual)
    figures = "; ".join(
        f"{kind} {statistics.median(times):.1f} (slowest {max(times):.1f})" for kind, times in kinds.items()
    )
    print(f"requests of the page {when}, milliseconds: {figures}", flush=True)


def measure(folder: Path, scratch: Path, options: argparse.Namespace) -> None:
    """Measure by turns, and print."""
    print(f"\n{options.streams} streams, an event each {GAP_MS} ms; medians of {options.turns} turns; µs of CPU, ms")
    names = ("CPU/event", "delay", "99%", "first", "99%", "worst")
    print(f"  {'':32}{''.join(f'{name:>9}' for name in names)}{'archived':>11}   ratios: CPU, 99%, first event")
    command = [sys.executable, "-m", "penstock", "ledger", "prune", "--before", f"{KEEP_DAYS}d"]
    command += ["--config", str(scratch / "penstock.toml")]
    kinds: dict[str, tuple[str, list[str] | None]] = {
        "without pruning": ("", None),
        "the gateway prunes (keep_days)": (f"keep_days = {KEEP_DAYS}", None),
        "penstock ledger prune runs": ("", command),
    }
    turns: dict[str, list[Turn]] = {name: [] for name in kinds}
    for _ in range(options.turns):
        for name, (settings, running_command) in kinds.items():
            with Site(folder, scratch, settings) as site:
                turns[name].append(turn(site, folder, options.streams, options.seconds, running_command))
    for name, measured in turns.items():
        report(name, measured, turns["without pruning"])
    with Site(folder, scratch) as site:
        crowd = site.crowd(options.streams, GAP_MS)
        with running(command):
            ask(site, "while the command and the streams run")
        crowd.end()


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench-retention", description=(__doc__ or "").split("\n\n", maxsplit=1)[0]
    )
    parser.add_argument("--entries", type=int, default=10_000_000, help="in the ledger (default: 10000000)")
    parser.add_argument("--streams", type=int, default=200, help="at once (default: 200)")
    parser.add_argument("--seconds", type=float, default=30, help="of a turn (default: 30)")
    parser.add_argument("--turns", type=int, default=3, help="of each kind (default: 3)")
    parser.add_argument("--folder", type=Path, help="where the ledger is made (default: beside the project)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix=".bench-retention-", dir=options.folder or Path.cwd()) as name:
        scratch = Path(name)
        folder = scratch / "state"
        folder.mkdir()
        began = time.monotonic()
        calls = fill(folder, options.entries)
        size = (folder / "ledger.db").stat().st_size / 1e6
        print(f"a ledger of {calls:,} calls, made in {time.monotonic() - began:.0f} s, {size:,.0f} MB", flush=True)
        expected = sums(folder)
        with Site(folder, scratch) as site:
            ask(site, "before")
        measure(folder, scratch, options)
        with Site(folder, scratch) as site:
            ask(site, "after")
        print(f"archived {_archived(folder):,} calls; it took {time.monotonic() - began:.0f} s in all")
        same = sums(folder) == expected
        print(f"the sums are {'the same as before' if same else 'DIFFERENT'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
