"""However the end of an answer arrives, the same is recorded about it."""

from contextlib import closing

import pytest
from msgspec import structs

from penstock import StreamReader, StreamWriter
from penstock.error_codes import ErrorCode
from penstock.gateway.billing.accounting import entry_of
from penstock.gateway.record.attempt import Attempt, AttemptControl
from penstock.gateway.record.call import Call
from penstock.gateway.record.entry import AttemptEntry
from penstock.gateway.record.timeouts import AttemptTimeouts
from penstock.gateway.relay.body_relay import BodyRelay, WholeResponse
from penstock.gateway.relay.outcome import Outcome
from penstock.gateway.relay.relay import Relay
from penstock.http.upstream_connection import UpstreamError
from tests import messages
from tests.gateway.support import Client, Clock, Connection, Relayed
from tests.streams import DONE, begins, bill, counts, finishes, says, sse

FINISH, DETAILS = sse(finishes("length")), {"prompt_tokens_details": {"cached_tokens": 2}}
BILL = sse(bill(**counts(3, 12), **DETAILS))
# The same end in one read and in several; and with something that takes the slow path.
ENDS = {
    "at once": [FINISH + BILL + sse(DONE)],
    "one by one": [FINISH, BILL, sse(DONE)],
    "with a comment": [FINISH, b": a comment\n\n" + BILL, sse(DONE)],
    "in halves": [FINISH[:20], FINISH[20:] + BILL[:40], BILL[40:] + sse(DONE)],
}


def ended(reads: list[bytes], *, chunked: bool, watched: bool = False) -> tuple[Call, AttemptEntry]:
    """What is recorded about an answer whose end arrives in this way: in HTTP chunks without the parser, or parsed."""
    loop = Clock()

    async def run() -> Call:
        made = Relayed(loop)
        for _ in range(3):
            made.after(0.5, sse(says(" word")))
        made.call.on_text = (lambda _: None) if watched else None
        for data in reads:
            loop.now += 0.5
            if not chunked or not made.connection.offer(data):
                made.connection.on_chunk = None
                made.relay.on_data(data)
        made.relay.on_end()
        return made.call

    try:
        call = loop.run_until_complete(run())
    finally:
        loop.close()
    return call, entry_of(call, lambda *_: 0).attempts[0]


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("reads", ENDS.values(), ids=ENDS)
def test_the_same_is_known_of_it(reads: list[bytes], watched: bool, chunked: bool) -> None:
    call, entry = ended(reads, chunked=chunked, watched=watched)
    assert (call.progress.ending, call.progress.attempts[0].finishes) == ("completed", ["length"])
    last = call.progress.attempts[-1]
    usage = last.tokens or last.usage
    assert usage is not None
    assert (usage.input, usage.output, usage.cached) == (3, 12, 2)
    assert (entry.outcome, entry.measure, entry.events) == ("completed", "reported", 8)
    assert (entry.tokens.input, entry.tokens.output, entry.tokens.cached) == (3, 12, 2)
    assert call.progress.attempts[0].gaps.total_s == pytest.approx(1.5 + 0.5 * len(reads))


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("behind", [[FINISH], [FINISH, BILL]])
def test_what_follows_an_end_is_seen(behind: list[bytes], chunked: bool) -> None:
    call, entry = ended([*behind, sse(says(" word")), sse(DONE)], chunked=chunked)
    assert call.progress.repairs == {"content-after-finish": 1}
    assert (entry.outcome, entry.events) == ("completed", 6 + len(behind) + 1)
    assert call.progress.attempts[0].output_chars == len("Hello" + " word" * 4)


FAILURES = {"an error": sse({"error": {"message": "no"}}), "bad JSON": b"data: {]\n\n"}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("before", [b"", sse(bill(**counts(3, 12)))], ids=["nothing", "usage"])
def test_what_stands_behind_a_failure_counts_for_nothing_however_it_comes(before: bytes, failure: bytes) -> None:
    behind = sse(says(" word")) + FINISH + sse(bill(**counts(7, 300)), DONE)
    apart, entry = ended([before, failure, behind] if before else [failure, behind], chunked=False)
    together, same = ended([before + failure + behind], chunked=False)
    assert structs.replace(entry, duration_ms=0, longest_gap_ms=0) == structs.replace(
        same, duration_ms=0, longest_gap_ms=0
    )
    assert together.progress.repairs == apart.progress.repairs == {}
    assert entry.events == 5 + bool(before) + 1
    assert entry.tokens.output == (12 if before else 0)


# What providers send after the first text of an answer.
LINES = [*(sse(says(" word")) for _ in range(3)), FINISH, BILL, sse(DONE)]
SLOW = [sse(says(" word")), b": a comment\n\n", sse(says(" word", padding="")), FINISH, BILL, sse(DONE)]
TWO = [
    sse(begins(1)),
    sse(says("a")),
    sse(says("b", index=1)),
    FINISH,
    sse(finishes(index=1)),
    sse(DONE),
]


class Listener(Client):
    """A client that keeps what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.received = b""

    def write(self, data: bytes, /) -> None:
        self.received += data

    def end(self, data: bytes) -> None:
        self.received += data

    def _write_chunk(self, data: bytes) -> None:
        self.received += data.split(b"\r\n")[1]


def cut(loop: Clock, lines: list[bytes], at: int, *, chunked: bool) -> tuple[Call, bytes]:
    """A body that HTTP framing ends at this byte, and what its client gets."""
    listener = Listener()

    async def run() -> Call:
        made = Relayed(loop, client=listener)
        left = at
        for line in lines:
            data, left = line[:left], max(left - len(line), 0)
            if data and not (chunked and made.connection.offer(data)):
                made.connection.on_chunk = None
                made.connection.aligned_chunks = (data,)
                made.relay.on_data(data)
        made.relay.on_end()
        return made.call

    return loop.run_until_complete(run()), listener.received


@pytest.mark.slow
@pytest.mark.parametrize("chunked", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("lines", [LINES, SLOW, TWO], ids=["usual", "slow path", "two choices"])
def test_a_finish_reason_means_that_the_call_is_completed(lines: list[bytes], chunked: bool) -> None:
    """Wherever a body ends: a client that stops at the finish reason must not take a cut answer for a complete one."""
    with closing(Clock()) as loop:
        ends = [cut(loop, lines, at, chunked=chunked) for at in range(sum(map(len, lines)) + 1)]
    for at, (call, received) in enumerate(ends):
        finished = b'"finish_reason":"' in received.replace(b" ", b"")
        assert finished == (call.progress.ending == "completed"), f"the body ends at byte {at}"


@pytest.mark.parametrize(
    ("type", "body", "measure"),
    [
        ("application/x-ndjson", b"", "void"),
        ("application/x-ndjson", b'{"model":', "void"),
        ("text/event-stream", b"", "void"),
        ("application/json", b"", "void"),
        ("application/json; charset=utf-8", b'{"id":', "estimated"),
    ],
)
def test_an_attempt_that_sent_nothing_is_void(type: str, body: bytes, measure: str) -> None:
    """An unstreamed answer is complete before its first byte is sent, so a part of it is billed."""
    assert failed(type, body).measure == measure


@pytest.mark.parametrize(("reason", "measure"), [("malformed_function_call", "reported"), ("error", "void")])
def test_a_finish_that_the_model_made_is_billed(reason: str, measure: str) -> None:
    """It has generated something, unlike a provider that fails of its own accord."""
    entry = failed("text/event-stream", sse(finishes(reason) | {"usage": counts(3, 12)}))
    assert (entry.measure, entry.tokens.output) == (measure, 12 if measure == "reported" else 0)


def test_what_a_provider_reports_before_its_connection_fails_is_not_its_bill() -> None:
    """It has generated nothing. An answer that may have been cut off is billed."""
    begun = messages.wire(messages.begins(usage={"input_tokens": 1000, "output_tokens": 1}))
    measures = {
        code: failed("text/event-stream", begun, dialect=messages.DIALECT, code=code).measure
        for code in ("upstream_bad_response", "upstream_truncated")
    }
    assert measures == {"upstream_bad_response": "void", "upstream_truncated": "reported"}


@pytest.mark.parametrize("is_reset", [False, True], ids=["the body ends", "the connection fails"])
def test_text_without_its_last_newline_is_delivered_and_counted(is_reset: bool) -> None:
    loop, listener = Clock(), Listener()

    async def run() -> Call:
        made = Relayed(loop, client=listener)
        made.relay.on_data(sse(says(" world")).rstrip(b"\n"))
        if is_reset:
            made.relay.on_error(UpstreamError("upstream_reset", "the connection failed"))
        else:
            made.relay.on_end()
        return made.call

    with closing(loop):
        call = loop.run_until_complete(run())
    assert b" world" in listener.received
    assert (call.progress.ending, call.progress.attempts[0].output_chars) == ("truncated", len("Hello world"))


@pytest.mark.parametrize("sized", [True, False])
def test_embeddings_that_are_cut_off_are_truncated(sized: bool) -> None:
    """If the provider has sent a length, the connection reports it; else the body does not parse."""
    loop, outcomes = Clock(), list[Outcome]()

    class Forwarding:
        def forward(self, whole: WholeResponse) -> None:
            pytest.fail(f"a part of an answer is no answer: {whole}")

    async def run() -> Attempt:
        call = Call("req_1", "m", stream=False, started=loop.time())
        call.progress.attempts.append(attempt := Attempt("p", "m"))
        timeouts = AttemptTimeouts(first_event_s=60, gap_s=300, heartbeat_s=0, total_s=9000)
        relay = BodyRelay(call, Forwarding(), timeouts, outcomes.append)
        relay.on_head(200, {"content-type": "application/json"})
        relay.on_data(b'{"data":[{"embedding":[0.1')
        if sized:
            relay.on_error(UpstreamError("upstream_truncated", "the connection was closed"))
        else:
            relay.on_end()
        return attempt

    with closing(loop):
        attempt = loop.run_until_complete(run())
    assert (attempt.ending, attempt.code, len(outcomes)) == ("truncated", "upstream_truncated", 1)


def failed(
    type: str, body: bytes, *, dialect: str = "openai_chat", code: ErrorCode = "upstream_truncated"
) -> AttemptEntry:
    """What is recorded about an attempt whose connection is cut, or fails in another way, after this body."""
    loop = Clock()

    async def run() -> Call:
        call = Call("req_1", "m", stream=False, started=loop.time(), input_estimate=9)
        call.progress.attempts.append(Attempt("p", "m"))
        call.progress.control = AttemptControl(call.progress.attempts[0])
        client = Client()
        client.stream = False
        timeouts = AttemptTimeouts(first_event_s=60, gap_s=300, heartbeat_s=0, total_s=9000)
        relay = Relay(call, client, StreamReader(dialect), StreamWriter(), timeouts, lambda _: None)
        relay.attach(Connection())
        relay.on_head(200, {"content-type": type})
        if body:
            relay.on_data(body)
        relay.on_error(UpstreamError(code, "the connection was closed"))
        return call

    with closing(loop):
        return entry_of(loop.run_until_complete(run()), lambda *_: 0).attempts[0]
