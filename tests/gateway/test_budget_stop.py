"""A stream that a budget stops: text for which there is no room is neither delivered nor counted, on every path."""

import pytest

from penstock.core.hub.failure import Failure
from tests.gateway.support import VARIANTS, Client, Clock, Relayed

USED_UP = Failure(code="budget_exceeded", message="no more", retryable=False)


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
    assert made.outcomes[-1] == USED_UP
    assert client.received.count(b" word") * len(" word") + len("Hello") == made.attempt.output_chars
    assert b"budget_exceeded" in client.received


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
    assert made.outcomes == [None, None]
