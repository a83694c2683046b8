"""Gaps between events are counted in every lane: how many, how long, and where the stalls were."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from math import inf

import pytest

from penstock import StreamReader, StreamWriter
from penstock.core.failure import Failure
from penstock.gateway.billing.accounting import entry_of
from penstock.gateway.calls.call import Attempt, Call
from penstock.gateway.relay.control import AttemptControl
from penstock.gateway.relay.event_gaps import BOUNDS, MAX_STALLS
from penstock.gateway.relay.ports import Patience
from penstock.gateway.relay.relay import Relay
from penstock.http.client import Receiver
from tests.streams import DONE, begins, finishes, says, sse

HELLO, REST = sse(begins(), says("Hello")), sse(finishes(), DONE)
# What each lane reads: text in whole frames; the same in whole HTTP chunks; and text with something beside it.
LANES = {"slow": sse(says(" word", padding="")) + b": a comment\n\n", "fast": sse(says(" word")) * 2, "no parser": b""}


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time is what a test says."""

    now = 1000.0

    def time(self) -> float:
        return self.now


class Connection:
    aligned_chunks: tuple[bytes, ...] = ()
    on_chunk: Callable[[bytes, bytes], bool] | None = None

    def offer(self, data: bytes) -> bool:
        """Whether a chunk with this data is taken without the parser. It is not parsed if not."""
        if self.on_chunk is None:
            return False
        if self.on_chunk(data, b"%x\r\n%b\r\n" % (len(data), data)):
            return True
        self.on_chunk = None
        return False

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def abandon(self, receiver: Receiver) -> None: ...


class Client:
    stream = True

    def __init__(self) -> None:
        self.chunks = 0

    def begin(self) -> None: ...

    def write(self, data: bytes, /) -> None: ...

    def chunk_writer(self) -> Callable[[bytes], None]:
        return self._write_chunk

    def _write_chunk(self, _data: bytes) -> None:
        self.chunks += 1

    def end(self, data: bytes) -> None: ...

    def answer(self, body: bytes) -> None: ...


class Relayed:
    """A relay that is given events after so many seconds."""

    def __init__(self, loop: Clock, *, keep: bool = False, drain_s: float = 0.0, client: Client | None = None) -> None:
        self.loop = loop
        self.outcomes: list[Failure | None] = []
        self.call = Call("req_1", "m", stream=True, started=loop.time())
        self.attempt = Attempt("p", "m")
        self.call.attempts.append(self.attempt)
        self.call.control = self.control = AttemptControl(self.attempt)
        if keep:
            self.control.keep_transcript()
        self.connection, self.client = Connection(), client or Client()
        patience = Patience(first_event_s=60, gap_s=300, heartbeat_s=0, total_s=9000, drain_s=drain_s)
        self.relay = Relay(self.call, self.client, StreamReader(), StreamWriter(), patience, self._outcome)
        self.relay.attach(self.connection)
        self.relay.on_head(200, {})
        self.after(2.0, HELLO)

    def _outcome(self, failure: Failure | None) -> None:
        assert failure is None or self.outcomes, "it failed before it was committed"
        self.outcomes.append(failure)

    def after(self, seconds: float, data: bytes) -> None:
        self.loop.now += seconds
        self.connection.aligned_chunks = (data,)
        self.relay.on_data(data)

    def in_lane(self, lane: str, seconds: float) -> None:
        if lane != "no parser":
            self.after(seconds, LANES[lane])
            return
        if self.connection.on_chunk is None:
            self.after(0.0, sse(says(" word")))
        self.loop.now += seconds
        assert self.connection.offer(sse(says(" word")))

    def end(self) -> None:
        self.relay.on_data(REST)
        self.relay.on_end()


@pytest.fixture
def loop() -> Clock:
    return Clock()


def relayed(loop: Clock, drive: Callable[[Relayed], None]) -> Relayed:
    async def run() -> Relayed:
        made = Relayed(loop)
        drive(made)
        made.end()
        return made

    try:
        return loop.run_until_complete(run())
    finally:
        loop.close()


@pytest.mark.parametrize("lane", LANES)
def test_every_lane_counts_the_same(lane: str, loop: Clock) -> None:
    gaps_s = [0.004, 0.004, 0.03, 1.5, 0.7, 3.0, 90.0]

    def drive(made: Relayed) -> None:
        for gap_s in gaps_s:
            made.in_lane(lane, gap_s)

    made = relayed(loop, drive)
    gaps = made.attempt.gaps
    at_once = gaps.counts[0] - 2
    expected = [sum(lower < gap_s <= upper for gap_s in gaps_s) for lower, upper in pairwise((*BOUNDS, inf))]
    assert gaps.counts[1:] == expected
    assert 1 <= at_once <= 3  # the end, and what the template is learned of
    assert made.client.chunks == (len(gaps_s) if lane == "no parser" else 0)
    assert gaps.total_s == pytest.approx(sum(gaps_s))
    attempt = entry_of(made.call, lambda *_: 0).attempts[0]
    assert attempt.longest_gap_ms == 90_000
    assert attempt.stalls == ((2038, 1500), (4238, 3000), (7238, 90_000))


def test_so_many_stalls_are_kept_and_no_more(loop: Clock) -> None:
    def drive(made: Relayed) -> None:
        for _ in range(MAX_STALLS + 9):
            made.in_lane("no parser", 1.25)

    made = relayed(loop, drive)
    assert len(made.attempt.gaps.stalls) == MAX_STALLS
    assert made.attempt.gaps.counts[BOUNDS.index(1.28)] == MAX_STALLS + 9


def test_what_a_slow_client_holds_up_is_no_gap(loop: Clock) -> None:
    def drive(made: Relayed) -> None:
        made.after(0.5, LANES["fast"])
        made.relay.pause()
        loop.now += 40.0
        made.relay.resume()
        made.after(0.25, LANES["fast"])

    made = relayed(loop, drive)
    assert made.attempt.gaps.total_s == pytest.approx(0.75)
    assert made.attempt.gaps.longest_s == pytest.approx(0.5)
    assert made.attempt.gaps.stalls == []


def test_the_wait_for_the_first_event_is_no_gap(loop: Clock) -> None:
    made = relayed(loop, lambda _: None)
    assert made.attempt.first_event_s == 2.0
    assert made.attempt.gaps.longest_s == 0.0


@pytest.mark.parametrize("halted", [False, True])
def test_who_leaves_is_drained_for_so_long_also_while_the_provider_has_to_wait(halted: bool, loop: Clock) -> None:
    async def run() -> Relayed:
        made = Relayed(loop, drain_s=0.5)
        for _ in range(2):
            await asyncio.sleep(0)  # so that the timer is for later
        made.relay.halt(halted)
        assert made.relay.leave(lambda: None)
        for _ in range(3):
            loop.now += 0.2
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return made

    try:
        made = loop.run_until_complete(run())
    finally:
        loop.close()
    assert made.attempt.ending == "timed_out"
