"""The soak test: a separate gateway under mixed traffic, a third of it broken; do its resources level off?"""

import asyncio
import os
import re
import signal
import sqlite3
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bench.soak.clients import KEY, Client
from bench.soak.figures import Sample, sample
from bench.soak.upstream import serve

_START_S = 30.0
_STOP_S = 30.0
_SAMPLES = 300
_LEAST_S = 0.25

_CONFIGURATION = """
[server]
listen = "127.0.0.1:0"
keys = ["{key}"]
workers = {workers}
drain_s = 5.0
log = "json"
[timeouts]
gap_s = 4.0
[admin]
enabled = true
listen = "127.0.0.1:0"
content = true
[providers.main]
base_url = "http://127.0.0.1:{port}/v1"
api_key = "key-of-the-provider"
[providers.spare]
base_url = "http://127.0.0.1:{port}/v1"
api_key = "key-of-the-provider"
[providers.main-messages]
base_url = "http://127.0.0.1:{port}/v1"
dialect = "anthropic_messages"
api_key = "key-of-the-provider"
[providers.main-responses]
base_url = "http://127.0.0.1:{port}/v1"
dialect = "openai_responses"
api_key = "key-of-the-provider"
[responses]
store = true
[routes.fallback]
targets = ["main/fails", "spare/stream"]
[prices."main/*"]
input = 1.0
output = 2.0
"""


class Options(NamedTuple):
    """How long, and by how many."""

    seconds: float
    clients: int = 12
    workers: int = 1
    seed: int = 0


class Outcome(NamedTuple):
    """The result of a run. `wrong` is everything that should not have happened."""

    calls: Counter[str]
    pairs: Counter[str]
    """The calls by the APIs of the client and of the provider."""
    wrong: list[str]
    samples: list[Sample]


async def soak(folder: Path, options: Options) -> Outcome:
    """Soak a gateway whose files lie in a folder."""
    upstream = await serve()
    file = folder / "penstock.toml"
    port = upstream.sockets[0].getsockname()[1]
    file.write_text(_CONFIGURATION.format(key=KEY, workers=options.workers, port=port))
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
    gateway = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "penstock", "serve", "--config", str(file),
        env={"PATH": os.environ.get("PATH", ""), "HOME": str(folder), "PENSTOCK_STATE": str(folder / "state")},
        stdout=asyncio.subprocess.DEVNULL, stderr=log, stdin=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        clients = [
            Client(await _port(folder / "log"), options.seed * 1_000 + number) for number in range(options.clients)
        ]
        samples = await _load(gateway.pid, clients, options)
        wrong = [problem for client in clients for problem in client.wrong]
        gateway.send_signal(signal.SIGTERM)
        async with asyncio.timeout(_STOP_S):
            status = await gateway.wait()
        if status:
            wrong.append(f"the gateway ended with status {status}")
    finally:
        with suppress(ProcessLookupError):
            gateway.kill()
        upstream.close()
        os.close(log)
    calls = sum((client.calls for client in clients), Counter[str]())
    pairs = sum((client.pairs for client in clients), Counter[str]())
    return Outcome(
        calls, pairs, [*wrong, *_check_ledger(folder / "state", calls.total()), *_errors(folder / "log")], samples
    )


async def _port(log: Path) -> int:
    deadline = time.monotonic() + _START_S
    while not (found := _listening(log)):
        if time.monotonic() > deadline:
            raise TimeoutError("the gateway does not listen")
        await asyncio.sleep(0.05)
    return int(found[1])


def _listening(log: Path) -> re.Match[str] | None:
    return re.search(r"listens on http://127\.0\.0\.1:(\d+)/v1", log.read_text())


async def _load(pid: int, clients: list[Client], options: Options) -> list[Sample]:
    over = asyncio.Event()
    running = [asyncio.create_task(client.run(over)) for client in clients]
    began = time.monotonic()
    pause_s = max(_LEAST_S, options.seconds / _SAMPLES)
    samples = []
    while (at_s := time.monotonic() - began) < options.seconds:
        calls = sum(client.calls.total() for client in clients)
        samples.append(sample(_workers(pid, options.workers), at_s, calls))
        await asyncio.sleep(pause_s)
    over.set()
    await asyncio.gather(*running)
    return samples


def _workers(pid: int, count: int) -> list[int]:
    if count == 1:
        return [pid]
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _check_ledger(folder: Path, calls: int) -> list[str]:
    """Entries that the ledger has too many or too few of."""
    with sqlite3.connect(f"file:{folder / 'ledger.db'}?mode=ro", uri=True) as book:
        booked, distinct, open_ = book.execute(
            "SELECT count(*), count(DISTINCT id), sum(outcome = 'orphaned') FROM calls"
        ).fetchone()
    wrong = []
    if booked != calls or distinct != calls or open_:
        wrong.append(f"{calls:,} calls were made, {booked:,} are booked, {distinct:,} of them once, {open_} orphaned")
    return wrong


def _errors(log: Path) -> list[str]:
    """Lines of the log that no gateway should write."""
    with log.open(errors="replace") as lines:
        return [line.strip() for line in lines if "Traceback" in line or "a call failed" in line]
