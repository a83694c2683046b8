"""The timeouts of a client's connection: at which moment each passes, and what ends it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.gateway.support import Clock
from tests.http.wire import Client, post

TIMEOUTS: dict[str, Any] = {
    "head_timeout_s": 10.0,
    "body_timeout_s": 30.0,
    "keep_alive_s": 75.0,
    "stalled_client_s": 60.0,
}
WHOLE = post(b"hello")


class Timed:
    """A client, and the clock of its connection."""

    def __init__(self, loop: Clock) -> None:
        self.loop = loop
        self.client = Client(**TIMEOUTS)
        self.wire = self.client.wire

    async def later(self, seconds: float) -> None:
        """Advance the time, and run what is due."""
        self.loop.now += seconds
        for _ in range(3):
            await asyncio.sleep(0)

    async def lasts(self, seconds: float) -> None:
        """The connection is open until just before that time, and is closed or refused then."""
        await self.later(seconds - 0.01)
        assert (self.wire.closed, self.client.connection.closing) == (False, False)
        await self.later(0.01)
        assert self.wire.closed or self.client.connection.closing


def timed(claim: Callable[[Timed], Awaitable[None]]) -> None:
    loop = Clock()

    async def run() -> None:
        await claim(Timed(loop))

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


def test_a_client_that_sends_nothing_is_disconnected_without_a_word() -> None:
    async def claim(it: Timed) -> None:
        await it.lasts(10)
        assert (it.wire.written, it.wire.closed, it.wire.aborted) == ([], True, False)

    timed(claim)


@pytest.mark.parametrize(("start", "seconds"), [(WHOLE[:-9], 10), (WHOLE[:-5], 30), (WHOLE[:-1], 30)])
def test_a_request_that_does_not_arrive_in_time_is_refused(start: bytes, seconds: float) -> None:
    async def claim(it: Timed) -> None:
        it.client.send(start)
        await it.lasts(seconds)
        assert it.client.status == 408
        assert b"took too long to arrive" in it.wire.written[0]
        assert (it.wire.closed, it.wire.ended) == (False, True)
        await it.later(1.99)
        assert not it.wire.closed, "it may still read the answer"
        await it.later(0.01)
        assert it.wire.aborted

    timed(claim)


def test_bytes_now_and_then_do_not_move_the_deadline() -> None:
    async def claim(it: Timed) -> None:
        for byte in WHOLE[:9]:
            it.client.send(bytes([byte]))
            await it.later(1)
        await it.lasts(1)
        assert it.client.status == 408

    timed(claim)


def test_a_connection_is_kept_between_two_requests_for_a_time() -> None:
    async def claim(it: Timed) -> None:
        it.client.send(WHOLE)
        await it.later(1_000)
        assert not it.wire.closed, "the answer may take as long as it takes"
        it.client.answer()
        await it.later(70)
        it.client.send(WHOLE)
        it.client.answer()
        await it.lasts(75)
        assert (it.wire.closed, it.wire.aborted) == (True, False)

    timed(claim)


def test_a_request_that_began_before_the_answer_to_the_last_has_its_own_time() -> None:
    async def claim(it: Timed) -> None:
        it.client.send(WHOLE + WHOLE[:-2])
        it.client.answer()
        await it.later(0)
        await it.lasts(30)
        assert it.client.status == 408

    timed(claim)


def test_a_client_that_reads_nothing_is_disconnected_and_one_that_is_slow_is_not() -> None:
    async def claim(it: Timed) -> None:
        it.client.send(WHOLE)
        exchange = it.client.waiting[0]
        seen: list[str] = []
        exchange.on_pause, exchange.on_resume = (lambda: seen.append("pause")), (lambda: seen.append("resume"))
        exchange.start(200, {})
        it.wire.buffered = 1_000
        it.client.connection.pause_writing()
        assert (seen, exchange.paused) == (["pause"], True)
        for _ in range(3):
            it.wire.buffered -= 1
            await it.later(60)
        assert not it.wire.closed, "it reads a little"
        it.client.connection.resume_writing()
        await it.later(600)
        assert (seen, exchange.paused, it.wire.closed) == (["pause", "resume"], False, False)
        it.client.connection.pause_writing()
        await it.later(59.99)
        assert not it.wire.closed
        await it.later(0.01)
        assert it.wire.aborted

    timed(claim)


def test_an_answer_behind_a_slow_one_begins_paused() -> None:
    async def claim(it: Timed) -> None:
        it.client.send(WHOLE)
        it.client.connection.pause_writing()
        it.wire.buffered = 10
        it.client.answer()
        await it.later(59)
        assert not it.wire.closed
        it.client.send(WHOLE)
        assert it.client.waiting[0].paused
        await it.later(1)
        assert it.wire.aborted, "its time runs since the last answer"

    timed(claim)


def test_the_buffer_for_a_slow_client_has_its_limit() -> None:
    async def claim(it: Timed) -> None:
        assert it.wire.high == 65_536
        assert it.client.connection.peer == "127.0.0.1"

    timed(claim)


def test_a_server_that_drains_closes_idle_connections_now_and_others_after_their_answer() -> None:
    async def claim(it: Timed) -> None:
        busy = Client(**TIMEOUTS)
        busy.send(WHOLE)
        busy.connection.close_when_idle()
        it.client.connection.close_when_idle()
        assert (it.wire.closed, busy.wire.closed) == (True, False)
        busy.answer()
        assert busy.wire.closed
        assert b"connection: close" in busy.wire.written[0]

    timed(claim)
