"""A compressed answer reaches the relay in small pieces, one per turn of the event loop, then its end."""

import asyncio
import gzip
import zlib
from collections.abc import Awaitable, Callable, Mapping

import pytest

from penstock.core.hub.events import Ending
from penstock.core.hub.failure import Failure
from penstock.core.slow_path import MAX_BODY
from penstock.gateway.record.call import Call
from penstock.gateway.relay.decompressing import DecompressingReceiver
from penstock.http.upstream_connection import Receiver, ReceiverError, UpstreamError

TEXT = bytes(range(256)) * 100
LOST = UpstreamError("upstream_reset", "the connection was lost")


class Relay:
    """Notes what it gets. `each` is called with every piece."""

    over = False
    frames = 0

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.then: list[object] = []
        self.heads: list[int] = []
        self.each: Callable[[], None] = lambda: None

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:  # noqa: ARG002
        self.heads.append(status)

    def on_data(self, data: bytes, *, last: bool = False) -> None:
        assert not last
        self.pieces.append(data)
        self.frames += 1
        self.each()

    def on_end(self) -> None:
        self.then.append("end")

    def on_error(self, error: UpstreamError) -> None:
        self.then.append(error)

    def cancel(self, failure: Failure, ending: Ending) -> None:
        self.over = True
        self.then.append((failure.code, ending))


class Connection:
    """Notes whether it is read from, and where its response goes."""

    aligned_chunks: tuple[bytes, ...] = ()
    on_chunk: Callable[[bytes, bytes], bool] | None = None
    reading = True
    receiver: Receiver | None = None
    abandoned: Receiver | None = None

    def pause(self) -> None:
        self.reading = False

    def resume(self) -> None:
        self.reading = True

    def redirect(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def abandon(self, receiver: Receiver) -> None:
        self.abandoned = receiver


class Answer:
    def __init__(self, coding: str = "gzip", *, paused: bool = False) -> None:
        self.relay, self.connection = Relay(), Connection()
        call = Call("req_1", "m", stream=True, started=0.0)
        self.receiver = DecompressingReceiver(coding, call, self.relay, self.connection, paused=paused)

    @property
    def text(self) -> bytes:
        return b"".join(self.relay.pieces)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await test()

    asyncio.run(whole())


async def turns(number: int = 400) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


ENCODED: dict[str, tuple[str, bytes]] = {
    "gzip": ("gzip", gzip.compress(TEXT)),
    "gzip of two members": ("x-gzip", gzip.compress(TEXT[:10]) + gzip.compress(TEXT[10:])),
    "deflate": ("deflate", zlib.compress(TEXT)),
    "deflate without a header": ("Deflate", zlib.compress(TEXT)[2:-4]),
}


@pytest.mark.parametrize(("coding", "encoded"), ENCODED.values(), ids=ENCODED)
@pytest.mark.parametrize("size", [1, 100, 1_000_000])
def test_it_is_the_same_however_its_bytes_arrive(coding: str, encoded: bytes, size: int) -> None:
    async def test() -> None:
        answer = Answer(coding)
        answer.receiver.on_head(200, {})
        for start in range(0, len(encoded), size):
            answer.receiver.on_data(encoded[start : start + size])
        answer.receiver.on_end()
        await turns(4 * len(encoded) if size == 1 else 400)
        assert (answer.text, answer.relay.then, answer.relay.heads) == (TEXT, ["end"], [200])
        assert max(map(len, answer.relay.pieces)) <= 2_048

    run(test)


def test_nothing_is_read_while_pieces_wait_and_the_end_comes_behind_them() -> None:
    async def test() -> None:
        answer = Answer()
        answer.receiver.on_data(gzip.compress(TEXT))
        assert (len(answer.relay.pieces), answer.connection.reading) == (1, False)
        await turns(1)
        assert len(answer.relay.pieces) == 2
        await turns()
        assert (answer.text, answer.connection.reading, answer.relay.then) == (TEXT, True, [])
        answer.receiver.on_end()
        assert answer.relay.then == ["end"]

    run(test)


def test_a_paused_relay_gets_nothing_until_it_resumes() -> None:
    async def test() -> None:
        answer = Answer(paused=True)
        answer.receiver.on_data(gzip.compress(TEXT))
        await turns()
        assert answer.relay.pieces == []
        answer.receiver.resume()
        assert answer.relay.pieces == []  # not within the call
        await turns(2)
        answer.receiver.pause()
        got = len(answer.relay.pieces)
        await turns()
        assert (0 < got == len(answer.relay.pieces), answer.connection.reading) == (True, False)
        answer.receiver.resume()
        answer.receiver.resume()
        await turns(1)
        assert len(answer.relay.pieces) == got + 1  # one piece per turn
        await turns()
        assert (answer.text, answer.connection.reading) == (TEXT, True)

    run(test)


def test_a_relay_that_pauses_at_the_last_piece_is_not_read_for() -> None:
    async def test() -> None:
        answer = Answer()
        answer.relay.each = answer.receiver.pause
        answer.receiver.on_data(gzip.compress(b"short"))
        await turns()
        assert (answer.text, answer.connection.reading) == (b"short", False)
        answer.receiver.resume()
        await turns()
        assert answer.connection.reading

    run(test)


def test_a_lost_connection_is_known_behind_what_has_come() -> None:
    async def test() -> None:
        answer = Answer()
        answer.receiver.on_data(gzip.compress(TEXT)[:-20])
        answer.receiver.on_error(LOST)
        assert answer.relay.then == []
        await turns()
        assert TEXT.startswith(answer.text[:20_000])
        assert answer.relay.then == [LOST]

    run(test)


def test_an_exception_of_ours_is_known_at_once() -> None:
    async def test() -> None:
        answer, error = Answer(), ReceiverError(ValueError("a mistake"))
        answer.receiver.on_data(gzip.compress(TEXT))
        answer.receiver.on_error(error)
        assert (answer.relay.then, len(answer.relay.pieces)) == ([error], 1)

    run(test)


def test_what_is_not_compressed_as_it_says_fails() -> None:
    async def test() -> None:
        answer = Answer()
        answer.receiver.on_data(b"data: {}\n\n")
        assert (answer.relay.then, answer.relay.pieces) == ([("upstream_bad_response", "failed")], [])

    run(test)


@pytest.mark.slow
@pytest.mark.parametrize("framed", [True, False], ids=["events", "no event"])
def test_more_than_an_event_may_have_without_an_event_fails(framed: bool) -> None:
    async def test() -> None:
        answer = Answer()
        if not framed:
            answer.relay.each = lambda: setattr(answer.relay, "frames", 0)
        answer.receiver.on_data(gzip.compress(b" " * (MAX_BODY + 10_000)))
        answer.receiver.on_end()
        while not answer.relay.then:
            await turns(1)
        if framed:
            assert (len(answer.text), answer.relay.then) == (MAX_BODY + 10_000, ["end"])
        else:
            assert MAX_BODY - 2_048 < len(answer.text) <= MAX_BODY
            assert answer.relay.then == [("upstream_event_too_large", "failed"), "end"]

    run(test)


def test_an_attempt_that_has_ended_decompresses_nothing_more() -> None:
    async def test() -> None:
        answer, recording = Answer(), Relay()
        answer.receiver.on_data(gzip.compress(TEXT))
        answer.receiver.redirect(recording)
        assert answer.connection.receiver is recording
        answer.receiver.abandon(answer.relay)
        await turns()
        assert (len(answer.relay.pieces), answer.connection.abandoned) == (1, answer.receiver)

    run(test)


def test_a_receiver_in_front_of_it_is_what_the_connection_abandons() -> None:
    async def test() -> None:
        answer, recording = Answer(), Relay()
        answer.receiver.abandon(recording)
        assert answer.connection.abandoned is recording

    run(test)


def test_a_connection_whose_answer_has_ended_is_left_alone() -> None:
    async def test() -> None:
        answer = Answer()
        answer.receiver.on_data(gzip.compress(TEXT))
        answer.connection.reading = True  # the pool gives it to another call
        answer.receiver.on_end()
        answer.receiver.pause()
        answer.receiver.resume()
        answer.receiver.redirect(answer.relay)
        await turns()
        assert (answer.text, answer.relay.then) == (TEXT, ["end"])
        assert (answer.connection.reading, answer.connection.receiver) == (True, None)
        answer.receiver.abandon(answer.relay)
        assert answer.connection.abandoned is None

    run(test)
