"""Ctrl-C during a query of PostgreSQL: the command exits with 130, at whatever line of Python the signal arrives."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
import pytest

from penstock.providers.secret import Secret
from penstock.stores.book.postgres import PostgresBook
from tests.cli.support import ROOT, command
from tests.stores.entries import entry
from tests.stores.postgres import PostgresServer

# Asks again and again. Each time, SIGINT comes one traced line later, until a query ends before it comes.
_EVERY_LINE = """
import signal, sys
from penstock.providers.secret import Secret
from penstock.stores.book.postgres import PostgresBook

book = PostgresBook.open(Secret(sys.argv[1]), readonly=True)
traced = ("book/postgres.py", "asyncio/runners.py")
lines_left = 0

def trace(frame, event, argument):
    global lines_left
    if not frame.f_code.co_filename.endswith(traced):
        return None
    if event == "line":
        lines_left -= 1
        if lines_left == 0:
            signal.raise_signal(signal.SIGINT)
    return trace

missed, line = [], 0
while True:
    line += 1
    lines_left = line
    sys.settrace(trace)
    try:
        book.last()
        if lines_left > 0:
            break
        missed.append(line)
    except KeyboardInterrupt:
        pass
    except BaseException as error:
        missed.append((line, repr(error)))
    finally:
        sys.settrace(None)
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
book.close()
print(line, missed)
"""


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    url = postgres.new_database()
    book = PostgresBook.open(Secret(url))
    book.append([entry("a")])
    book.close()
    return url


def test_sigint_at_any_line_of_a_query_is_a_keyboard_interrupt(url: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _EVERY_LINE, url], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stderr == ""
    lines, _, missed = ended.stdout.strip().partition(" ")
    assert int(lines) > 50  # so many places were tried
    assert missed == "[]"


def test_sigint_ends_a_query_that_waits(url: str, tmp_path: Path) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text(f"[ledger]\npostgres = {url!r}\n")
    with subprocess.Popen(
        command("ledger", "-f", "--json", "--config", str(config)), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            asyncio.run(_interrupt_behind_a_lock(url, process))
            assert process.wait(20) == 130
            assert process.stderr.read().strip() == b""
        finally:
            process.kill()


async def _interrupt_behind_a_lock(url: str, process: subprocess.Popen[bytes]) -> None:
    """Lock the table, interrupt the process when its query waits for the lock, and keep the lock until it has ended."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE penstock.calls")
            for _ in range(2000):
                if await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                    break
                await asyncio.sleep(0.01)
            process.send_signal(signal.SIGINT)
            process.wait(10)  # sooner than the statement would time out
    finally:
        await connection.close()
