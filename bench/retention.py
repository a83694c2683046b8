"""Measures whether streams and the page notice that old calls are archived: `scripts/bench-retention`.

The benchmark fills a ledger (SQLite) with calls of thirty days. Then 200 streams run through the real gateway: in turns
without pruning, and with `keep_days`, so that the gateway archives calls meanwhile. At last `penstock ledger prune`
archives the rest in a process of its own, while the streams run again. The requests of the page are measured before and
after. The sums of all calls must be the same before and after.
"""

import argparse
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from bench.page.book import make
from bench.page.site import Site, delays
from bench.page.views import ask_all
from penstock.gateway.billing.book import Filter, UsageRow
from penstock.gateway.config import LedgerSettings
from penstock.stores.book.open import open_book
from tests.stores.many_calls import DAYS

# The calls that the store writes itself. The database copies them, with other ids and times, which is much faster.
TEMPLATES = 50_000
KEEP_DAYS = 20
GAP_MS = 50
SUMMED_AT_ONCE = 50_000
SETTLE_S = 2.0
_DAY_MS = 86_400_000
_COPIED = {"calls": "place", "attempts": "call", "call_tags": "call", "call_repairs": "call"}


class Turn(NamedTuple):
    """What was measured while the streams ran."""

    cpu_us: float
    p50: float
    p99: float
    most: float
    archived: int


def fill(folder: Path, calls: int) -> int:
    """Fill a ledger; returns the number of its calls, which is a multiple of that of the templates."""
    templates = min(TEMPLATES, calls)
    copies = max(1, calls // templates)
    make(folder, templates if copies == 1 else 0)
    if copies > 1:
        with tempfile.TemporaryDirectory(dir=folder) as name:
            make(Path(name), templates)
            _copy(folder / "ledger.db", Path(name) / "ledger.db", copies, DAYS * _DAY_MS // (templates * copies))
    book = open_book(LedgerSettings(folder=str(folder)), {})
    while book.sum_up(SUMMED_AT_ONCE):
        continue
    book.close()
    return templates * copies


def _copy(path: Path, source: Path, copies: int, apart_ms: int) -> None:
    """Copy each call of a ledger several times, in the order of time, into another, empty one."""
    with closing(sqlite3.connect(path, isolation_level=None)) as ledger:
        ledger.execute("PRAGMA synchronous = OFF")
        ledger.execute("PRAGMA cache_size = -400000")
        ledger.execute("ATTACH ? AS source", (str(source),))
        indexes = ledger.execute(
            "SELECT name, sql FROM main.sqlite_master WHERE type = 'index' AND tbl_name = 'calls' AND sql <> ''"
        ).fetchall()
        for name, _ in indexes:
            ledger.execute(f"DROP INDEX {name}")
        ledger.execute("CREATE TEMP TABLE copies (number INTEGER PRIMARY KEY)")
        ledger.executemany("INSERT INTO copies VALUES (?)", [(number,) for number in range(copies)])
        for table, place in _COPIED.items():
            values = {place: f"(s.{place} - 1) * {copies} + n.number + 1"}
            if table == "calls":
                values |= {
                    "id": "printf('%s-%05d', s.id, n.number)",
                    "at_ms": f"s.at_ms + n.number * {apart_ms}",
                    "settled_ms": f"s.settled_ms + n.number * {apart_ms}",
                }
            columns = [row[1] for row in ledger.execute(f"PRAGMA source.table_info({table})")]
            selected = ", ".join(values.get(column, f"s.{column}") for column in columns)
            ledger.execute(
                f"INSERT INTO main.{table} ({', '.join(columns)}) SELECT {selected} FROM source.{table} s "
                f"CROSS JOIN copies n ORDER BY s.{place}, n.number"
            )
        for _, sql in indexes:
            ledger.execute(sql)


def turn(site: Site, folder: Path, streams: int, seconds: float, command: list[str] | None = None) -> Turn:
    """Run streams, and the command meanwhile."""
    crowd = site.crowd(streams, GAP_MS)
    try:
        time.sleep(SETTLE_S)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL) if command else None
        before, began, used = _archived(folder), time.monotonic(), site.cpu_s()
        time.sleep(seconds)
        ended, used = time.monotonic(), site.cpu_s() - used
        archived = _archived(folder) - before
        if process is not None:
            process.wait()
    finally:
        seen = crowd.end()
    during = delays(seen, began, ended)
    return Turn(1e6 * used / max(1, during.events), during.p50, during.p99, during.most, archived)


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

    cpu, p99 = median(turns, "cpu_us"), median(turns, "p99")
    ratios = f"{cpu / median(base, 'cpu_us'):9.2f}{p99 / median(base, 'p99'):9.2f}" if turns is not base else ""
    worst, moved = max(each.most for each in turns), sum(each.archived for each in turns)
    print(f"  {name:36}{cpu:9.1f}{median(turns, 'p50'):9.2f}{p99:9.2f}{worst:9.1f}{moved:12,}{ratios}", flush=True)


def ask(site: Site, when: str) -> None:
    """Print how long the requests of the page take."""
    answers = list(ask_all(site))
    kinds: dict[str, list[float]] = {}
    for took in answers:
        kinds.setdefault(took.what.partition(":")[0], []).append(took.usual)
    figures = "; ".join(
        f"{kind} {statistics.median(times):.1f} (slowest {max(times):.1f})" for kind, times in kinds.items()
    )
    print(f"requests of the page {when}, milliseconds: {figures}", flush=True)


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench-retention", description=(__doc__ or "").split("\n\n", maxsplit=1)[0]
    )
    parser.add_argument("--calls", type=int, default=10_000_000, help="in the ledger (default: 10000000)")
    parser.add_argument("--streams", type=int, default=200, help="at once (default: 200)")
    parser.add_argument("--seconds", type=float, default=30, help="of a turn (default: 30)")
    parser.add_argument("--turns", type=int, default=3, help="without and with pruning (default: 3)")
    parser.add_argument("--folder", type=Path, help="where the ledger is made (default: beside the project)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix=".bench-retention-", dir=options.folder or Path.cwd()) as name:
        scratch = Path(name)
        folder = scratch / "state"
        folder.mkdir()
        began = time.monotonic()
        calls = fill(folder, options.calls)
        size = (folder / "ledger.db").stat().st_size / 1e6
        print(f"a ledger of {calls:,} calls, made in {time.monotonic() - began:.0f} s, {size:,.0f} MB", flush=True)
        expected = sums(folder)
        with Site(folder, scratch) as site:
            ask(site, "before")
        print(f"\n{options.streams} streams, an event each {GAP_MS} ms; medians of {options.turns} turns")
        print(f"  {'':36}{'CPU/event':>9}{'median':>9}{'99%':>9}{'worst':>9}{'archived':>12}{'CPU':>9}{'99%':>9}")
        print(f"  {'':36}{'µs':>9}{'ms':>9}{'ms':>9}{'ms':>9}{'calls':>12}{'ratio':>9}{'ratio':>9}", flush=True)
        without: list[Turn] = []
        pruning: list[Turn] = []
        for _ in range(options.turns):
            for turns, settings in ((without, ""), (pruning, f"keep_days = {KEEP_DAYS}")):
                with Site(folder, scratch, settings) as site:
                    turns.append(turn(site, folder, options.streams, options.seconds))
        report("without pruning", without, without)
        report("the gateway prunes (keep_days)", pruning, without)
        command = [sys.executable, "-m", "penstock", "ledger", "prune", "--before", f"{KEEP_DAYS}d"]
        with Site(folder, scratch) as site:
            command += ["--config", str(scratch / "penstock.toml")]
            began = time.monotonic()
            by_hand = turn(site, folder, options.streams, options.seconds, command)
            report("penstock ledger prune runs", [by_hand], without)
            took = time.monotonic() - began
        with Site(folder, scratch) as site:  # anew: the connection of the first one has been idle for too long
            ask(site, "after")
        total, left = _archived(folder), sqlite3_count(folder)
        print(f"archived {total:,} calls, the last ones by hand in {took:.0f} s; {left:,} are left")
        same = sums(folder) == expected
        print(f"the sums are {'the same as before' if same else 'DIFFERENT'}")
    return 0 if same else 1


def sqlite3_count(folder: Path) -> int:
    """The calls that are in the database."""
    with closing(sqlite3.connect(f"file:{folder / 'ledger.db'}?mode=ro", uri=True)) as ledger:
        return int(ledger.execute("SELECT COUNT(*) FROM calls").fetchone()[0])


if __name__ == "__main__":
    sys.exit(main())
