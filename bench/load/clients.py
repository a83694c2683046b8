"""Clients: so many connections, each with one call after another, of which every answer is checked."""

import asyncio
import gc
import time
from collections import Counter
from contextlib import nullcontext
from typing import Literal, NamedTuple, cast

import httptools

from bench.load.exchanges import Exchange
from bench.load.processes import MissingError, ahead_of_others, wait_for

# For calls to end that have begun: a stream may take twenty seconds.
TIMEOUT_S = 60.0
# More than an event of any writer has after its text.
_LONGEST_REST = 1_000


class Load(NamedTuple):
    """So many connections, each with one call after another; a call has so many texts, a gap apart."""

    name: str
    unit: Literal["event", "call"]
    """What CPU is divided by."""
    connections: int
    events: int
    gap_us: int

    @property
    def p99_of(self) -> str:
        """Of which latency the 99th percentile is reported: a short call has few events but its first."""
        return "99 % of events" if self.unit == "event" else "99 % of first events"

    def halved(self) -> "Load":
        """The same, for one of two gateways that share the load."""
        return self._replace(connections=max(1, self.connections // 2))

    def set_pace(self, provider: int) -> None:
        """Let calls that begin from now on have the events of this load."""
        wait_for(f"http://127.0.0.1:{provider}/pace/{self.events}/{self.gap_us}")


def streams(count: int, gap_us: int = 5_000, events: int = 100) -> Load:
    """Paced streams: what an event costs dominates."""
    return Load(f"{count} streams, an event every {gap_us // 1000} ms", "event", count, events, gap_us)


def short_calls() -> Load:
    """Calls of three events: what a call costs dominates. Four at a time leave the gateway idle now and then."""
    return Load("short calls: 4 at a time, 3 events 1 ms apart", "call", 4, 3, 1_000)


class Report:
    """What clients received so far; times are in microseconds."""

    def __init__(self) -> None:
        self.calls = 0
        self.events = 0
        self.latencies: list[int] = []
        """Of each event but the first of a call: from just before the provider wrote it."""
        self.firsts: list[int] = []
        """Of each call: from its request to its first event."""
        self.mistakes: Counter[str] = Counter()

    def checked(self) -> "Report":
        """The report itself. Raises `MissingError` if an answer was not whole."""
        if self.mistakes or not self.calls:
            raise MissingError(f"answers are not as expected: {dict(self.mistakes) or 'there was none'}")
        return self


def percentile(values: list[int], share: float) -> float:
    """The value below which this share of all values is."""
    return float(sorted(values)[int(len(values) * share)])


class Client(asyncio.Protocol):
    """One call after another on one connection, until it is stopped."""

    def __init__(self, exchange: Exchange, events: int, report: Report) -> None:
        self._exchange = exchange
        self._expected = events if exchange.text else 0
        self._report = report
        self._parser = httptools.HttpResponseParser(self)
        self.stopping = False
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._ask()

    def _ask(self) -> None:
        self._rest, self._texts, self._last = b"", 0, 0
        self._asked = _now()
        self._transport.write(self._exchange.request)

    def data_received(self, data: bytes) -> None:
        self._at = _now()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"not HTTP: {error}")

    def on_body(self, body: bytes) -> None:
        rest = self._rest + body
        start, report = 0, self._report
        if self._exchange.text is not None:
            for text in self._exchange.text.finditer(rest):
                start, sent = text.end(), int(text[1])
                if self._texts:
                    report.latencies.append(self._at - sent)
                else:
                    report.firsts.append(self._at - self._asked)
                if sent < self._last:
                    self._fail("texts out of order")
                self._last = sent
                self._texts += 1
            start = max(start, len(rest) - _LONGEST_REST)
        self._rest = rest[start:]

    def on_message_complete(self) -> None:
        if (status := self._parser.get_status_code()) != 200:
            self._fail(f"status {status}: {self._rest[:300]!r}")
        elif self._texts != self._expected:
            self._fail(f"{self._texts} texts, not {self._expected}")
        elif self._exchange.end not in self._rest:
            self._fail(f"{self._exchange.end!r} is not in the answer: {self._rest[-300:]!r}")
        else:
            self._report.calls += 1
            self._report.events += self._texts
            if not self.stopping:
                self._ask()
            elif not self.over.done():
                self.over.set_result(None)
                self._transport.close()

    def connection_lost(self, _error: Exception | None) -> None:
        self._fail("the connection was closed")

    def _fail(self, why: str) -> None:
        if not self.over.done():
            self._report.mistakes[why] += 1
            self.over.set_result(None)
            self._transport.close()


async def run(port: int, exchange: Exchange, load: Load, seconds: float, report: Report | None = None) -> Report:
    """Send a load to a port. Calls begin for so many seconds; all of them are awaited.

    Connections begin over twenty gaps, not all at once, or over five seconds if that is less.
    """
    loop, report, clients = asyncio.get_running_loop(), report or Report(), list[Client]()
    ramp_s = min(20 * load.gap_us / 1e6, 5.0)
    gc.collect()
    gc.freeze()
    with ahead_of_others() if load.gap_us else nullcontext():
        began = loop.time()
        for number in range(load.connections):
            client = Client(exchange, load.events, report)
            await asyncio.sleep(max(0.0, began + ramp_s * number / load.connections - loop.time()))
            clients.append(client)
            await loop.create_connection(lambda client=client: client, "127.0.0.1", port)  # type: ignore[misc]
        await asyncio.sleep(max(0.0, began + seconds - loop.time()))
        for client in clients:
            client.stopping = True
        _, unfinished = await asyncio.wait([client.over for client in clients], timeout=TIMEOUT_S)
    if unfinished:
        report.mistakes["unfinished"] += len(unfinished)
    return report


def _now() -> int:
    return time.monotonic_ns() // 1_000
