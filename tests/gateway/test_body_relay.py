"""An answer of embeddings is complete and healthy, or its attempt has failed: once, with the reason."""

import asyncio
import json
from collections.abc import Callable

import pytest

from penstock.core.hub.failure import Failure
from penstock.core.hub.usage import Usage
from penstock.gateway.record.attempt import Attempt
from penstock.gateway.record.call import Call
from penstock.gateway.record.timeouts import AttemptTimeouts
from penstock.gateway.relay.body_relay import BodyRelay, WholeResponse
from penstock.gateway.relay.outcome import Committed, Failed, Outcome
from penstock.http.upstream_connection import Receiver, UpstreamError
from tests.gateway.support import Clock, Connection

BODY = json.dumps({"data": [{"embedding": [0.5]}], "usage": {"prompt_tokens": 3, "total_tokens": 4}}).encode()
STARTED = 1_000.0
FIRST_S, GAP_S, TOTAL_S = 60.0, 30.0, 100.0


class Noting(Connection):
    abandoned: Receiver | None = None

    def abandon(self, receiver: Receiver) -> None:
        self.abandoned = receiver


class Relayed:
    def __init__(self, loop: Clock) -> None:
        self.loop = loop
        self.outcomes: list[Outcome] = []
        self.answers: list[WholeResponse] = []
        self.connection = Noting()
        self.attempt = Attempt("p", "m", secrets=("sk-secret",))
        call = Call("req_1", "m", stream=False, started=STARTED)
        call.progress.attempts.append(self.attempt)
        timeouts = AttemptTimeouts(first_event_s=FIRST_S, gap_s=GAP_S, heartbeat_s=0, total_s=TOTAL_S)
        self.relay = BodyRelay(call, self, timeouts, self.outcomes.append)
        self.relay.attach(self.connection)

    def forward(self, whole: WholeResponse) -> None:
        assert self.outcomes == [Committed()]  # before the answer is sent
        self.answers.append(whole)

    async def after(self, seconds: float) -> None:
        self.loop.now += seconds
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    @property
    def became(self) -> tuple[str, str]:
        """The ending of the attempt, and the code of its failure, if it is the only outcome."""
        codes = [outcome.failure.code if isinstance(outcome, Failed) else "" for outcome in self.outcomes]
        assert len(codes) <= 1
        if codes:
            assert self.connection.abandoned is self.relay
            assert self.attempt.code == codes[0]
        return self.attempt.ending or "", codes[0] if codes else "none yet"


@pytest.fixture
def loop() -> Clock:
    return Clock()


def play(loop: Clock, steps: Callable[[Relayed], object]) -> Relayed:
    async def run() -> Relayed:
        relayed = Relayed(loop)
        done = steps(relayed)
        if asyncio.iscoroutine(done):
            await done
        return relayed

    try:
        return loop.run_until_complete(run())
    finally:
        loop.close()


@pytest.mark.parametrize("size", [1, 1_000])
def test_a_healthy_answer_is_forwarded_as_it_came(loop: Clock, size: int) -> None:
    def steps(relayed: Relayed) -> None:
        relayed.relay.on_head(200, {"content-type": "application/json"})
        for start in range(0, len(BODY), size):
            relayed.relay.on_data(BODY[start : start + size])
        loop.now += 2.0
        relayed.relay.on_end()
        relayed.relay.on_end()

    relayed = play(loop, steps)
    assert relayed.became == ("completed", "")
    (answer,) = relayed.answers
    assert (answer.body, answer.headers) == (BODY, {"content-type": "application/json"})
    attempt = relayed.attempt
    assert (attempt.sent, attempt.status, attempt.seconds) == (True, 200, 2.0)
    assert attempt.usage == Usage(input=3, output=0, total=4)


USAGES: dict[str, tuple[bytes, Usage | None]] = {
    "none": (b'{"data": []}', None),
    "at the beginning": (
        b'{"usage": {"total_tokens": 7}, "data": [' + b"0," * 9_000 + b"0]}",
        Usage(output=0, total=7),
    ),
    "in the middle": (
        b'{"a": [' + b"0," * 9_000 + b'0], "usage": {"total_tokens": 7}, "b": [' + b"0," * 9_000 + b"0]}",
        None,
    ),
    "of another form": (b'{"data": [], "usage": {"prompt_tokens": "three"}}', None),
}


@pytest.mark.parametrize(("body", "usage"), USAGES.values(), ids=USAGES)
def test_the_usage_is_looked_for_at_both_ends(loop: Clock, body: bytes, usage: Usage | None) -> None:
    def steps(relayed: Relayed) -> None:
        relayed.relay.on_head(200, {})
        relayed.relay.on_data(body)
        relayed.relay.on_end()

    relayed = play(loop, steps)
    assert (relayed.became, relayed.attempt.usage) == (("completed", ""), usage)


def test_an_error_of_the_provider_is_its_failure_without_secrets(loop: Clock) -> None:
    def steps(relayed: Relayed) -> None:
        relayed.relay.on_head(429, {})
        relayed.relay.on_data(b'{"error": {"message": "too many for sk-secret"}}')
        relayed.relay.on_end()

    relayed = play(loop, steps)
    assert relayed.became == ("failed", "upstream_rate_limited")
    assert "sk-secret" not in repr(relayed.outcomes)


def test_a_body_that_ends_too_early_is_truncated(loop: Clock) -> None:
    def steps(relayed: Relayed) -> None:
        relayed.relay.on_head(200, {})
        relayed.relay.on_data(BODY[:-5])
        relayed.relay.on_end()

    relayed = play(loop, steps)
    assert relayed.became == ("truncated", "upstream_truncated")
    assert relayed.answers == []


ERRORS: dict[str, tuple[UpstreamError, str]] = {
    "truncated": (UpstreamError("upstream_truncated", "the body was cut"), "truncated"),
    "a connection that failed": (UpstreamError("upstream_connect_failed", "refused"), "failed"),
}


@pytest.mark.parametrize(("error", "ending"), ERRORS.values(), ids=ERRORS)
def test_a_connection_that_fails_ends_the_attempt(loop: Clock, error: UpstreamError, ending: str) -> None:
    relayed = play(loop, lambda relayed: relayed.relay.on_error(error))
    assert relayed.became == (ending, error.code)


def test_a_client_that_leaves_ends_the_attempt(loop: Clock) -> None:
    def steps(relayed: Relayed) -> None:
        assert not relayed.relay.drain(lambda: None)
        relayed.relay.cancel(Failure(code="client_gone", message="it left", retryable=False))
        relayed.relay.on_end()

    relayed = play(loop, steps)
    assert (relayed.became, relayed.answers) == (("cancelled", "client_gone"), [])


def test_a_provider_that_sends_nothing_is_timed_out(loop: Clock) -> None:
    async def steps(relayed: Relayed) -> None:
        await relayed.after(FIRST_S - 1)
        assert relayed.became == ("", "none yet")
        await relayed.after(2)

    assert play(loop, steps).became == ("timed_out", "upstream_timeout_idle")


def test_each_piece_of_the_body_gives_it_more_time_but_not_in_all(loop: Clock) -> None:
    async def steps(relayed: Relayed) -> None:
        relayed.relay.on_head(200, {})
        for _ in range(4):
            await relayed.after(GAP_S - 6)
            assert relayed.became == ("", "none yet")
            relayed.relay.on_data(b" ")
        await relayed.after(TOTAL_S - 4 * (GAP_S - 6) - 1)
        assert relayed.became == ("", "none yet")
        await relayed.after(2)

    assert play(loop, steps).became == ("timed_out", "upstream_timeout_total")


def test_a_pause_in_the_body_is_timed_out(loop: Clock) -> None:
    async def steps(relayed: Relayed) -> None:
        relayed.relay.on_head(200, {})
        relayed.relay.on_data(b" ")
        await relayed.after(GAP_S + 1)

    assert play(loop, steps).became == ("timed_out", "upstream_timeout_idle")
