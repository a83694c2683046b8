"""Measures whether the page stays usable with a million calls and a thousand concurrent streams: `scripts/bench-page`.

The benchmark writes a book and starts the real gateway on it. It makes the requests of the views to the admin API, and
then opens each view in a real browser. A few streams run meanwhile, to measure whether their events are delayed. At
last a thousand streams run, and a browser opens the Live view.
"""

import argparse
import asyncio
import os
import re
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]

from bench.page.book import make
from bench.page.bulk import make_bulk
from bench.page.live import watch
from bench.page.site import Site, delays
from bench.page.views import HEALTH, ask_all, browser, open_all, sign_in
from penstock.gateway.config import LedgerSettings, Secret
from tests.stores.postgres import PostgresServer

_NAMES = (os.environ.get("PENSTOCK_CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
_FEW, _FEW_GAP_MS = 10, 10
_QUIET_S = 4.0


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench-page", description=(__doc__ or "").split("\n\n", maxsplit=1)[0]
    )
    parser.add_argument("--calls", type=int, default=1_000_000, help="in the book (default: 1000000)")
    parser.add_argument(
        "--keys", type=int, default=0, help="in the book: then it is made by SQL, and only the admin API is measured"
    )
    parser.add_argument(
        "--postgres",
        metavar="URL",
        nargs="?",
        const="",
        help="with --keys: the book is in this PostgreSQL database, empty or filled before, or in a server of its own",
    )
    parser.add_argument(
        "--streams", type=int, default=1_000, help="at once (default: 1000), more than 400; 0 leaves them out"
    )
    parser.add_argument("--gap", type=int, default=250, help="milliseconds between two events of one (default: 250)")
    parser.add_argument("--book", type=Path, help="a folder for the book, which is kept, and used again if it is there")
    options = parser.parse_args()
    if 0 < options.streams <= 400:
        parser.error("--streams: of 400 or fewer there are not two whole pages to look at")
    if options.postgres is not None and not options.keys:
        parser.error("--postgres needs --keys")
    chromium = next(filter(None, (shutil.which(name) for name in _NAMES if name)), None)
    if chromium is None and not options.keys:
        print("bench-page: no Chromium: apt install chromium, or PENSTOCK_CHROMIUM=/path/to/it", file=sys.stderr)
        return 2
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(prefix=".bench-page-", dir=Path.cwd()) as name:
        scratch = Path(name)
        folder = options.book or scratch / "state"
        with postgres(options.postgres) as url:
            settings = LedgerSettings(folder=str(folder), postgres=Secret(url, "--postgres") if url else None)
            began = time.monotonic()
            if options.keys:
                made = make_bulk(settings, options.calls, options.keys)
            elif made := not (folder / "ledger.db").exists():
                make(folder, options.calls)
            if made:
                print(f"a book of {options.calls:,} calls, made in {time.monotonic() - began:.0f} s\n")
            ledger, server = (f'postgres = "{url}"', asyncio.run(server_pid(url))) if url else ("", None)
            with Site(folder.absolute(), scratch, ledger, server) as site:
                measure_views(site, None if options.keys else chromium)
                if options.streams and chromium is not None and not options.keys:
                    measure_live(site, chromium, options.streams, options.gap)
    return 0


@contextmanager
def postgres(url: str | None) -> Iterator[str]:
    """The URL of the database: "" if there is none, or that of a new server, which runs as long as the context."""
    if url != "":
        yield url or ""
        return
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        server = PostgresServer(Path(folder), durable=True)
        server.start()
        try:
            yield server.new_database()
        finally:
            server.stop()


async def server_pid(url: str) -> int | None:
    """The process that started the processes of a database, if it runs on this machine."""
    connection = await asyncpg.connect(url)
    try:
        return parent(await connection.fetchval("SELECT pg_backend_pid()"))
    finally:
        await connection.close()


def parent(pid: int) -> int | None:
    """The parent of a process, if it is one of PostgreSQL."""
    status = Path(f"/proc/{pid}/status")
    found = re.search(r"Name:\s+postgres\n(?:.*\n)*PPid:\s+(\d+)", status.read_text()) if status.exists() else None
    return int(found[1]) if found else None


def measure_views(site: Site, chromium: str | None) -> None:
    """Measure each request, each view, and the delays of streams meanwhile."""
    crowd = site.crowd(_FEW, _FEW_GAP_MS)
    try:
        began = time.monotonic()
        time.sleep(_QUIET_S)
        quiet, cpu = time.monotonic(), site.cpu_s()
        columns = ("median", "worst", "CPU", "database", "loop", "callback", "blocked")
        print(f"{'the admin API answers; milliseconds':46}{''.join(f'{column:>9}' for column in columns)}")
        for took in ask_all(site):
            print(took, flush=True)
        asked, spent = time.monotonic(), site.cpu_s() - cpu
        while time.monotonic() - asked < _QUIET_S:
            for query in HEALTH.values():
                site.ask(f"/admin/health?{query}")
        health = time.monotonic()
        if chromium is not None:
            print(f"\n{'the page shows a view, from its loading on':46}{'median':>9}{'worst':>9}")
            with browser(chromium) as opened:
                for took in open_all(sign_in(opened, site), site):
                    print(took)
    finally:
        seen = crowd.end()
    print(f"\n{f'events of {_FEW} streams, one each {_FEW_GAP_MS} ms':46}{'median':>9}{'99%':>9}{'worst':>9}")
    spans = (
        ("without requests to the admin API", began, quiet),
        ("during all of these requests", quiet, asked),
        ("during requests for Health without a pause", asked, health),
    )
    for what, since, until in spans:
        delayed = delays(seen, since, until)
        print(f"  {what:44}{delayed.p50:9.1f}{delayed.p99:9.1f}{delayed.most:9.1f}")
    print(f"\nthe gateway: {spent:.1f} s of CPU for all of these, {site.megabytes():.0f} MB\n")


def measure_live(site: Site, chromium: str, streams: int, gap_ms: int) -> None:
    """Measure the Live view."""
    with browser(chromium) as opened:
        seen = watch(opened, site, streams, gap_ms)
    frames = sorted(seen.frames)
    print(
        f"{streams:,} streams, an event each {gap_ms} ms; the page says that {seen.shown} run, and lists {seen.listed}"
    )
    print(f"  a click on a row until its text shows        {seen.click_ms:9.1f} ms")
    print(f"  a click on Older until others are listed     {seen.older_ms:9.1f} ms")
    print(f"  a search for one until it is listed alone    {seen.find_ms:9.1f} ms")
    print(f"  between two frames, 99%                      {frames[int(0.99 * len(frames))]:9.1f} ms")
    longest = max(seen.busy, default=0)
    print(f"  tasks of more than 50 ms                     {len(seen.busy):9}, the longest {longest:.0f} ms")
    print(f"\n{'':46}{'CPU':>9}{'median':>9}{'99%':>9}{'worst':>9}   of an event, ms")
    for what, cpu, delayed in (
        ("no page is open", seen.cpu_alone, seen.alone),
        ("Live is open", seen.cpu_watched, seen.watched),
    ):
        print(f"  {what:44}{cpu:9.0%}{delayed.p50:9.1f}{delayed.p99:9.1f}{delayed.most:9.1f}   of {delayed.events:,}")
    print(f"\nthe gateway: {seen.megabytes:.0f} MB")


if __name__ == "__main__":
    sys.exit(main())
