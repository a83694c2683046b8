"""A stream that a budget stops: text for which there is no room is neither delivered nor counted, on every path."""

import re
from contextlib import closing

import pytest

from penstock.gateway.relay.outcome import Committed, Completed, Failed
from tests import responses
from tests.gateway.support import USED_UP, VARIANTS, Client, Clock, Relayed
from tests.streams import by_event


class Listening(Client):
    def __init__(self) -> None:
        super().__init__()
        self.received = b""

    def write(self, data: bytes, /) -> None:
        self.received += data

    def _write_chunk(self, data: bytes) -> None:
        self.received += data

    def end(self, data: bytes) -> None:
        self.received += data


@pytest.mark.parametrize("variant", VARIANTS)
def test_text_beyond_the_budget_is_not_delivered(variant: str) -> None:
    loop, client = Clock(), Listening()

    async def run() -> Relayed:
        made = Relayed(loop, client=client)
        for _ in range(3):
            made.in_variant(variant, 0.01)
        delivered = made.attempt.output_chars
        made.control.limit = delivered + 1
        made.control.on_limit = lambda: made.relay.stop(USED_UP, "truncated")
        made.in_variant(variant, 0.01)
        assert made.attempt.output_chars == delivered
        return made

    try:
        made = loop.run_until_complete(run())
    finally:
        loop.close()
    assert made.outcomes == [Committed(), Failed(USED_UP, committed=True)]
    assert client.received.count(b" word") * len(" word") + len("Hello") == made.attempt.output_chars
    assert b"budget_exceeded" in client.received


@pytest.mark.parametrize("chunked", [True, False])
def test_a_refused_text_takes_no_number(chunked: bool) -> None:
    """Events of Responses are numbered, and a client may ask for those that it lacks."""
    loop, client = Clock(), Listening()
    begin, *words, _, _ = by_event(responses.answer(*responses.says_all(*(f"word{number} " for number in range(6)))))

    async def run() -> None:
        made = Relayed(loop, client=client, dialect=responses.DIALECT, hello=begin)
        made.control.on_limit = lambda: made.relay.stop(USED_UP, "truncated")
        for place, event in enumerate(words):
            if place == len(words) - 4:
                made.control.limit = made.attempt.output_chars + 1
            if not (chunked and made.connection.offer(event)):
                made.after(0.01, event)

    with closing(loop):
        loop.run_until_complete(run())
    numbers = [int(number) for number in re.findall(rb'"sequence_number": ?(\d+)', client.received)]
    assert b"budget_exceeded" in client.received
    assert numbers == list(range(len(numbers)))


def test_a_complete_answer_is_delivered_though_it_exceeds_the_budget() -> None:
    """The provider bills it, and reports its usage with it."""
    loop, client = Clock(), Listening()

    async def run() -> Relayed:
        made = Relayed(loop, client=client)
        made.control.limit = 6
        made.control.on_limit = lambda: made.relay.stop(USED_UP, "truncated")
        made.end()
        return made

    try:
        made = loop.run_until_complete(run())
    finally:
        loop.close()
    assert made.outcomes == [Committed(), Completed()]
