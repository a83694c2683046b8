"""Settled calls are counted and logged soon, several at once, and a scrape misses none."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.gateway.billing.ledger import NoLedger
from penstock.serve.live.live_calls import LiveCalls
from penstock.serve.live.text_stream import TextStreams
from penstock.serve.settlement import Settlement
from penstock.serve.telemetry.log import Log
from penstock.serve.telemetry.metric_specs import REQUESTS
from penstock.serve.telemetry.metrics import Metrics
from tests.serve.support import call


@pytest.fixture
def log() -> Iterator[tuple[Log, int]]:
    reading, writing = os.pipe()
    log = Log(writing, pretty=False)
    yield log, reading
    log.close()
    os.close(reading)
    os.close(writing)


class Settled:
    """A settlement, and what it has reported."""

    def __init__(self, log: Log) -> None:
        self.metrics, ledger = Metrics(dict), NoLedger()
        self.settlement = Settlement({}, ledger, self.metrics, LiveCalls({}, ledger.output), TextStreams(), log)

    def settle(self, calls: int = 1, **changes: object) -> None:
        for _ in range(calls):
            made = call("main/m", answered=True)
            for name, change in changes.items():
                setattr(made, name, change)
            session: Any = SimpleNamespace(call=made, address="127.0.0.1", request_headers={})
            self.settlement.settle(session)

    @property
    def counted(self) -> float:
        return sum(numbers[0] for (name, _), numbers in self.metrics.counters.counts().items() if name == REQUESTS.name)


def in_loop(log: Log, claim: Callable[[Settled], Awaitable[None]]) -> None:
    async def run() -> None:
        await claim(Settled(log))

    asyncio.run(run())


def test_calls_are_counted_and_logged_together_soon(log: tuple[Log, int]) -> None:
    async def claim(settled: Settled) -> None:
        settled.settle(3)
        assert settled.counted == 0
        async with asyncio.timeout(10):
            while not settled.counted:  # noqa: ASYNC110 - it has no event to wait for
                await asyncio.sleep(0.01)
        assert settled.counted == 3

    in_loop(log[0], claim)
    log[0].close()
    assert os.read(log[1], 65_536).count(b'"request_id"') == 3


def test_so_many_calls_are_not_waited_for(log: tuple[Log, int]) -> None:
    async def claim(settled: Settled) -> None:
        settled.settle(100)
        assert settled.counted == 64

    in_loop(log[0], claim)


def test_a_scrape_counts_first(log: tuple[Log, int]) -> None:
    async def claim(settled: Settled) -> None:
        settled.metrics.before_scrape = settled.settlement.report
        settled.settle()
        assert b'penstock_requests_total{model="' in await settled.metrics.text()
        assert settled.counted == 1

    in_loop(log[0], claim)


def test_a_call_that_cannot_be_logged_costs_no_other(log: tuple[Log, int]) -> None:
    async def claim(settled: Settled) -> None:
        raised: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
        settled.settle(model=None)
        settled.settle()
        settled.settlement.report()
        assert settled.counted == 2
        assert len(raised) == 1

    in_loop(log[0], claim)
