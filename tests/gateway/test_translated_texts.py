"""Texts of a translated stream skip the HTTP parser and the reader, and the client gets the same bytes."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from penstock import StreamReader, StreamWriter
from penstock.core.dialects.dialect import AnswerFacts
from penstock.gateway.record.attempt import Attempt, AttemptControl
from penstock.gateway.record.call import Call
from penstock.gateway.record.timeouts import AttemptTimeouts
from penstock.gateway.relay.outcome import Outcome
from penstock.gateway.relay.relay import Relay
from tests import gemini, messages, responses
from tests.corpus import CORPUS, captures
from tests.gateway.support import USED_UP, Clock, Connection
from tests.invariants import SlowReader, translated
from tests.streams import DONE, begins, by_event, delta, finishes, says, sse

DIALECTS = ("openai_chat", "anthropic_messages", "openai_responses", "gemini")
WORDS = ["one", " two", ' "three"', " vier\n", " fünf\u2028", " six", " \\", " eight"]
THOUGHTS = ["Let", " me", " see"]
SOURCE = {"url": "https://tide.example", "title": "Tides", "start_index": 4, "end_index": 7}
CITES = delta({"annotations": [{"type": "url_citation", "url_citation": SOURCE}]})
STREAMS = {
    "openai_chat": sse(
        begins(), *(delta({"reasoning_content": text}) for text in THOUGHTS), *map(says, WORDS), CITES, finishes(), DONE
    ),
    "anthropic_messages": messages.answer(
        messages.opens(type="thinking"),
        *map(messages.thinks, THOUGHTS),
        messages.signs("c2lnbmF0dXJl"),
        messages.closes(),
        *messages.says_all(*WORDS, index=1),
    ),
    "openai_responses": responses.answer(*responses.says_all(*WORDS)),
    "gemini": gemini.HEALTHY["text with usage, lines end with LF"],
}
STREAMS = {name: stream.replace("\u2028".encode(), b"\\u2028") for name, stream in STREAMS.items()}
CAPTURES = captures()


class Client:
    """A client that keeps what it gets, and takes HTTP chunks only as they are made by its own side."""

    stream = True

    def __init__(self) -> None:
        self.data = b""

    def begin(self) -> None: ...

    def write(self, data: bytes, /) -> None:
        self.data += data

    end = answer = hold = write

    def chunk_writer(self) -> Callable[[bytes], None]:
        pytest.fail("the client's API is another one")


class Translation:
    """A relay between a provider's API and a client's."""

    def __init__(self, reader: StreamReader, client: str) -> None:
        self.call = Call("req_1", "m", stream=True, started=0.0)
        self.attempt = Attempt("p", "m")
        self.call.progress.attempts.append(self.attempt)
        self.call.progress.control = self.control = AttemptControl(self.attempt)
        self.connection, self.client, self.taken = Connection(), Client(), 0
        self.outcomes: list[Outcome] = []
        timeouts = AttemptTimeouts(first_event_s=60, gap_s=300, heartbeat_s=0, total_s=9000)
        facts = AnswerFacts(call_id="1", model="m", created=1, include_usage=True, same_dialect=False)
        writer = StreamWriter.for_call(client, facts)
        self.relay = Relay(self.call, self.client, reader, writer, timeouts, self.outcomes.append)
        self.relay.attach(self.connection)
        self.relay.on_head(200, {})

    def feed(self, data: bytes) -> None:
        if self.connection.offer(data):
            self.taken += 1
            return
        self.connection.aligned_chunks = (data,)
        self.relay.on_data(data)

    def whole(self, pieces: list[bytes], heartbeat: int = -1) -> bytes:
        for place, piece in enumerate(pieces):
            if place == heartbeat:
                self.relay.send_heartbeat()
            self.feed(piece)
        self.relay.on_end()
        return self.client.data


@pytest.fixture(autouse=True)
def _loop() -> Iterator[None]:
    loop = Clock()
    asyncio.events._set_running_loop(loop)
    yield
    asyncio.events._set_running_loop(None)
    loop.close()


@pytest.mark.parametrize("client", DIALECTS)
def test_texts_are_written_without_parser_and_reader(client: str) -> None:
    for provider in set(DIALECTS) - {client}:
        pieces = by_event(STREAMS[provider])
        for heartbeat in range(-1, len(pieces) // 2):
            fast, slow = Translation(StreamReader(provider), client), Translation(SlowReader(provider), client)
            assert fast.whole(pieces, heartbeat) == slow.whole(pieces, heartbeat)
            assert slow.taken == 0
            assert fast.taken >= 4
            assert fast.attempt.output_chars == slow.attempt.output_chars
            assert fast.attempt.ending == slow.attempt.ending == "completed"
            assert fast.attempt.frames == slow.attempt.frames


@pytest.mark.parametrize("client", DIALECTS)
def test_a_budget_stops_texts_from_templates(client: str) -> None:
    for provider in set(DIALECTS) - {client}:
        fast, slow = Translation(StreamReader(provider), client), Translation(SlowReader(provider), client)
        for made in (fast, slow):
            made.control.limit = 24
            made.control.on_limit = partial(made.relay.stop, USED_UP, "truncated")
        pieces = by_event(STREAMS[provider])
        assert fast.whole(pieces) == slow.whole(pieces)
        assert b"no more" in fast.client.data
        assert fast.taken
        assert fast.attempt.output_chars == slow.attempt.output_chars < 24


@pytest.mark.slow
@pytest.mark.skipif(not CAPTURES, reason=f"there is no corpus in {CORPUS}; PENSTOCK_CORPUS may name another")
@pytest.mark.parametrize("client", [name for name in DIALECTS if name != "openai_chat"])
def test_recorded_streams_are_written_alike(client: str) -> None:
    facts = AnswerFacts(call_id="1", model="m", created=1, include_usage=True, same_dialect=False)
    templated = 0
    for capture in CAPTURES:
        pieces = by_event(capture.data)
        fast, count = translated(pieces, StreamReader(), StreamWriter.for_call(client, facts))
        assert fast == translated(pieces, SlowReader(), StreamWriter.for_call(client, facts))[0]
        templated += count
    assert templated > len(CAPTURES)
