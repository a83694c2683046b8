"""Very many streams at once through one gateway: the memory of each, and whether any event is lost.

All streams are open at the same time, while the provider sends an event every second. A stream is complete when it has
every event, `[DONE]` and the end of the body.
"""

import asyncio
import resource
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import uvloop

from bench.gateway import judge
from bench.load import clients
from bench.load.apis import APIS
from bench.load.exchanges import exchange
from bench.load.processes import free_port, provider, resident_mb, running, wait_for

EVENTS = 20
GAP_US = 1_000_000
# The open files that ten thousand streams need: each has two in the gateway.
FILES = 24_000


class Crowd(NamedTuple):
    """The result of a run."""

    streams: int
    whole: int
    kilobytes_each: float
    latest_first_s: float
    """The longest time until a first event."""


def crowd(count: int) -> Crowd:
    """Open this many streams, as far as the limit on open files allows, and wait for their ends."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # only an administrator may raise it
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, max(most, FILES)))
        most = max(most, FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    count = min(count, (most - 100) // 2)  # the gateway has two sockets for each
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, provider() as upstream:
        port, load = free_port(), clients.streams(count, GAP_US, EVENTS)
        with running(judge.command(judge.configuration(Path(folder), upstream), port)) as pid:
            wait_for(f"http://127.0.0.1:{port}/health")
            load.set_pace(upstream)
            return uvloop.run(_open(load, port, pid))


async def _open(load: clients.Load, port: int, pid: int) -> Crowd:
    """Begin streams over five seconds; when half of a stream's time is over for the last, none has ended."""
    before, report = resident_mb(pid), clients.Report()
    asked = exchange(APIS[0], "streamed", judge.MODEL)
    calls = asyncio.create_task(clients.run(port, asked, load, 0.0, report))
    await asyncio.sleep(EVENTS * GAP_US / 2e6)
    more = resident_mb(pid) - before
    await calls
    return Crowd(load.connections, report.calls, more * 1024 / load.connections, max(report.firsts, default=0) / 1e6)
