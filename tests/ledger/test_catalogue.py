"""What each fault leaves in the ledger: the measure of every attempt, and tokens exactly if something was consumed.

    void        nothing was generated, as far as is known: nothing is billed
    estimated   something was generated, or may have been: our own counts, marked as such
    reported    the provider's counts

The faults are those of the fault tests. For upstreams that break or have defects, those tests check the ledger too
(`tests/faults/test_upstream_broken.py` and `test_upstream_tolerated.py`). Clients that disconnect are in
`test_aborted.py`, budgets in `test_budget.py`, and gateways that are killed in `test_kill.py`.
"""

import signal
from collections.abc import Iterator

import pytest
from msgspec import structs
from openai import DefaultHttpxClient, InternalServerError, OpenAI

from penstock.gateway.record.entry import Entry, Measure
from tests.faults.client import CLIENT_KEY, Response, body, post
from tests.faults.conftest import Starter
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import ERROR_BODY, HELLO, REST, WORLD, spare, stream, whole
from tests.faults.unreachable import UNREACHABLE, Unreachable, World, started_world
from tests.faults.upstream import JSON, Connection, Gate, Script, Upstream, chunk, fin, hang, head, last_chunk, status
from tests.ledger.support import make_key, put_key, request
from tests.streams import DONE, bill, counts, delta, finishes, says, sse

both = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "unstreamed"])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Upstream() as upstream:
        gateway = Gateway(tmp_path_factory.mktemp("gateway"), upstream, settings(upstream.url, 20))
        with gateway:
            yield gateway
        gateway.book.check_sums()
        gateway.keeps_secrets()


@pytest.fixture
def gateway(shared: Gateway) -> Iterator[Gateway]:
    yield shared
    try:
        shared.quiet()
    except BaseException:
        shared.forget()
        raise


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with started_world(tmp_path_factory) as world:
        yield world


def booked(gateway: Gateway, response: Response) -> Entry:
    return gateway.book.entry(response.request_id)


def assert_measured(entry: Entry, expected: Measure, *, sent_text: bool = False) -> None:
    """The one attempt is measured so. That a void one has no tokens and no cost, `quiet` checks for all."""
    (attempt,) = entry.attempts
    assert attempt.measure == expected, attempt
    if expected == "reported":
        assert (attempt.tokens.input, attempt.tokens.output) == (5, 3)
    elif expected == "estimated":
        assert attempt.tokens.input > 0
        assert (attempt.tokens.output > 0) == sent_text


@both
@pytest.mark.parametrize("case", UNREACHABLE.values(), ids=UNREACHABLE)
def test_providers_that_cannot_be_reached(world: World, case: Unreachable, streamed: bool) -> None:
    response = world.gateway.ask(f"{case.name}/ledger-{streamed}", stream=streamed)
    assert_measured(booked(world.gateway, response), "void")


ABSURD = {
    "both": counts(-5, 10**12),
    "the input": counts(10**12, 3),
    "the output": counts(5, -3),
}


@both
@pytest.mark.parametrize("usage", ABSURD.values(), ids=ABSURD)
def test_u48_figures_that_cannot_be_true_are_nobodys_bill(
    gateway: Gateway, usage: dict[str, object], streamed: bool
) -> None:
    model = gateway.upstream.play(stream(HELLO, WORLD, sse(finishes(), bill(**usage), DONE)))
    entry = booked(gateway, gateway.ask(f"main/{model}", stream=streamed))
    assert_measured(entry, "estimated", sent_text=True)
    assert entry.tokens.input + entry.tokens.output < 100


def test_u18_a_figure_counts_although_the_answer_is_not_whole(gateway: Gateway) -> None:
    model = gateway.upstream.play(stream(HELLO, sse(bill(**counts(5, 3)), DONE)))
    entry = booked(gateway, gateway.ask(f"main/{model}", stream=True))
    assert entry.outcome == "truncated"
    assert_measured(entry, "reported")


def test_a_cut_in_an_unstreamed_body_is_no_silence(gateway: Gateway) -> None:
    """It was generated before its first byte was sent."""
    script = [head(200, JSON), chunk(b'{"id": "chatcmpl-1", "choices": [{"index": 0, "message": {"role":'), fin()]
    entry = booked(gateway, gateway.ask(f"main/{gateway.upstream.play(script)}", stream=False))
    assert_measured(entry, "estimated")


def test_u8_a_pooled_connection_that_died_makes_no_attempt_of_its_own(gateway: Gateway) -> None:
    class OnlyOnce:
        async def __call__(self, connection: Connection) -> None:
            if len(connection.requests) > 1:
                connection.rst()

    model = gateway.upstream.play([OnlyOnce(), *whole()])
    for _ in range(3):
        assert_measured(booked(gateway, gateway.ask(f"main/{model}", stream=True)), "reported")


def speaks(text: str, seconds: float) -> bytes:
    """Spoken output as it is streamed: the transcript, and this much audio."""
    sound = "A" * int(seconds * 64_000)
    pieces = [sound[start : start + 16_000] for start in range(0, len(sound), 16_000)]
    return sse(
        delta({"role": "assistant", "audio": {"id": "audio_1", "transcript": ""}}),
        *([delta({"audio": {"transcript": text}})] if text else []),
        *(delta({"audio": {"data": piece}}) for piece in pieces),
    )


RECEIVED = sse(delta({"audio": {"transcript": "heard so far"}}))
SPOKEN = "Nothing is said here that is not heard."
SOUNDS: dict[str, tuple[Script, Measure, int, int]] = {
    "cut off": ([head(), chunk(speaks(SPOKEN, 2.0)), fin()], "estimated", 40, 60),
    "cut off without a word": ([head(), chunk(speaks("", 2.0)), fin()], "estimated", 40, 60),
    "an error in it": (
        [head(), chunk(speaks(SPOKEN, 1.5) + sse({"error": {"message": "no"}})), fin()],
        "estimated",
        30,
        50,
    ),
    "no figures": (stream(speaks(SPOKEN, 1.0) + sse(finishes(), DONE)), "estimated", 20, 35),
    "only what was asked is reported": (
        [head(), chunk(speaks(SPOKEN, 1.0) + sse(bill(prompt_tokens=5, total_tokens=5))), fin()],
        "estimated",
        20,
        35,
    ),
    "its provider's figures": (
        stream(
            speaks(SPOKEN, 1.0)
            + sse(finishes(), bill(**counts(5, 31, completion_tokens_details={"audio_tokens": 22})), DONE)
        ),
        "reported",
        22,
        31,
    ),
}


@pytest.mark.parametrize(("script", "measure", "sound", "most"), SOUNDS.values(), ids=SOUNDS)
def test_sound_is_counted(gateway: Gateway, script: Script, measure: Measure, sound: int, most: int) -> None:
    response = gateway.ask(f"main/{gateway.upstream.play(script)}", stream=True)
    (attempt,) = booked(gateway, response).attempts
    assert attempt.measure == measure
    assert sound < attempt.tokens.output <= most
    assert attempt.tokens.input > 0


def test_sound_that_is_left_is_counted(gateway: Gateway) -> None:
    model = gateway.upstream.play([head(), chunk(speaks(SPOKEN, 1.0) + RECEIVED), hang()])
    with gateway.begin(f"main/{model}", stream=True) as client:
        client.read_until(b"heard so far")
    gateway.upstream.until(lambda: gateway.upstream.connection(model).closed_at)
    (attempt,) = gateway.book.entry(gateway.last_call()["request_id"]).attempts
    assert attempt.measure == "estimated"
    assert 20 < attempt.tokens.output <= 35


def test_sound_does_not_tell_how_long_written_tokens_are(gateway: Gateway) -> None:
    text = "four" * 100
    aloud = speaks(text, 5.0) + sse(
        finishes(), bill(**counts(5, 200, completion_tokens_details={"audio_tokens": 100})), DONE
    )
    model = gateway.upstream.play(stream(aloud))
    assert booked(gateway, gateway.ask(f"main/{model}", stream=True)).measure == "reported"
    gateway.upstream.play([head(), chunk(sse(says(text))), fin()], model)
    entry = booked(gateway, gateway.ask(f"main/{model}", stream=True))
    assert_measured(entry, "estimated", sent_text=True)
    assert entry.tokens.output == 100


PAIRS: dict[str, tuple[Script, list[Measure]]] = {
    "an error": ([status(500, JSON, ERROR_BODY)], ["void", "reported"]),
    "cut after some words, which nobody has seen": ([head(), chunk(HELLO), fin()], ["estimated", "reported"]),
}


@pytest.mark.parametrize(("first", "measures"), PAIRS.values(), ids=PAIRS)
def test_each_attempt_is_measured_by_itself(gateway: Gateway, first: Script, measures: list[Measure]) -> None:
    entry = booked(gateway, gateway.ask(gateway.pair(first, spare()), stream=False))
    assert [attempt.measure for attempt in entry.attempts] == measures
    assert entry.tokens.input == sum(attempt.tokens.input for attempt in entry.attempts)
    assert entry.cost == sum(attempt.cost or 0 for attempt in entry.attempts)


@both
def test_c8_only_what_was_begun_is_booked(gateway: Gateway, streamed: bool) -> None:
    gate = Gate()
    route = gateway.pair([gate, status(500, JSON, ERROR_BODY)], spare())
    client = gateway.begin(route, stream=streamed)
    connection = gateway.upstream.asked(f"{route}-a")
    client.close()
    gateway.upstream.until(lambda: connection.closed_at)
    assert_measured(gateway.book.entry(gateway.last_call()["request_id"]), "estimated")
    gate.open()


def test_u59_and_u60_what_no_one_was_asked_has_no_attempt(gateway: Gateway) -> None:
    model = gateway.upstream.play([status(429, JSON | {"retry-after": "60"}, ERROR_BODY)])
    assert_measured(booked(gateway, gateway.ask(f"main/{model}", stream=True)), "void")
    entry = booked(gateway, gateway.ask(f"main/{model}", stream=True))
    assert (entry.outcome, entry.code, entry.attempts, entry.cost) == ("refused", "upstream_rate_limited", (), 0)


def test_c1_and_c34_what_makes_no_call_leaves_no_entry(gateway: Gateway) -> None:
    before = len(gateway.book.entries())
    content = body(f"main/{gateway.upstream.play(whole())}", stream=True)
    assert gateway.send(post(content, {"Authorization": "Bearer wrong"})).status == 401
    with gateway.client() as client:
        client.send(post(content)[:-10])
    assert gateway.send(post(b"{")).status == 400
    gateway.quiet()
    assert len(gateway.book.entries()) == before


def test_c35_a_key_that_is_revoked_may_finish_what_it_began(start: Starter) -> None:
    gateway = start()
    gate = Gate()
    model = gateway.upstream.play([head(), chunk(HELLO), gate, chunk(WORLD + REST), last_chunk()])
    key, secret = make_key(gateway)
    with gateway.client() as client:
        client.send(request(secret, f"main/{model}", stream=True))
        client.read_until(b"Hello")
        put_key(gateway.book.folder, structs.replace(key, revoked_ms=1))
        while gateway.send(request(secret, "nobody/x", stream=True)).status != 401:
            gateway.expected += 1
        gate.open()
        assert_measured(booked(gateway, client.response()), "reported")
    gateway.expected += 1
    gateway.quiet()


def test_c35_a_key_that_is_revoked_opens_nothing_on_its_connection_either(start: Starter) -> None:
    gateway = start()
    model = gateway.upstream.play(whole())
    key, secret = make_key(gateway)
    with gateway.client() as client:
        for _ in range(2):
            client.send(request(secret, f"main/{model}", stream=True))
            assert_measured(booked(gateway, client.response()), "reported")
        gateway.expected += 2
        put_key(gateway.book.folder, structs.replace(key, revoked_ms=1))
        while gateway.send(request(secret, "nobody/x", stream=True)).status != 401:
            gateway.expected += 1
        client.send(request(secret, f"main/{model}", stream=True))
        assert client.response().error["message"].startswith("this key was revoked")
    gateway.quiet()


def test_c39_each_try_of_an_sdk_is_a_call(gateway: Gateway) -> None:
    model = gateway.upstream.play([status(500, JSON, ERROR_BODY)])
    with OpenAI(
        base_url=f"http://127.0.0.1:{gateway.port}/v1",
        api_key=CLIENT_KEY,
        max_retries=1,
        http_client=DefaultHttpxClient(trust_env=False),
    ) as sdk:
        gateway.expected += 2
        with pytest.raises(InternalServerError):
            sdk.chat.completions.create(model=f"main/{model}", messages=[{"role": "user", "content": "Hi"}])
    gateway.quiet()
    entries = [entry for entry in gateway.book.entries() if entry.model == f"main/{model}"]
    assert [entry.outcome for entry in entries] == ["failed"] * 2
    for entry in entries:
        assert_measured(entry, "void")


def test_g1_and_g2_what_a_going_gateway_cuts_off_is_estimated(start: Starter) -> None:
    gateway = start(server={"drain_s": 0.2})
    spoken = gateway.upstream.play([head(), chunk(HELLO), hang()])
    silent = gateway.upstream.play([hang()])
    with gateway.begin(f"main/{spoken}", stream=True) as first, gateway.begin(f"main/{silent}", stream=True) as second:
        first.read_until(b"Hello")
        gateway.upstream.asked(silent)
        assert gateway.stop() == 0
        second.response()
    entries = {entry.model: entry for entry in gateway.book.entries()}
    assert len(entries) == 2
    assert_measured(entries[f"main/{spoken}"], "estimated", sent_text=True)
    assert_measured(entries[f"main/{silent}"], "estimated")
    assert {entry.code for entry in entries.values()} == {"gateway_draining"}
    assert not gateway.book.journals()


def test_g3_what_a_killed_gateway_leaves_is_orphaned_and_estimated(start: Starter) -> None:
    """With the output at the last progress record, some two seconds before."""
    gateway = start()
    model = gateway.upstream.play([head(), chunk(HELLO), hang()])
    with gateway.begin(f"main/{model}", stream=True) as client:
        client.read_until(b"Hello")
        gateway.stop(signal.SIGKILL)
    assert gateway.book.open_calls()
    gateway.output.clear()
    gateway.start()
    gateway.says("takes over 1 call ")
    (entry,) = gateway.book.entries()
    assert (entry.outcome, entry.code) == ("orphaned", "gateway_died")
    assert_measured(entry, "estimated")
    assert entry.attempts[0].cost
