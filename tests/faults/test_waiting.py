"""Heartbeats for waiting clients: those of the client's dialect, between events, and never instead of an answer."""

import re
import time
from collections.abc import Iterator

import pytest

from tests.faults.client import Response, body, post
from tests.faults.cloud_clients import BEDROCK_CLIENT, WITH_CHAT_PROVIDERS
from tests.faults.conftest import Starter
from tests.faults.dialects import (
    CHAT,
    PAIRS,
    PROVIDERS,
    RESPONSES_CLIENT,
    WITH_CHAT_CLIENTS,
    Pair,
    Provider,
    is_played,
    same_or_translated,
)
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import HELLO, REST, SPARE_TEXT, TEXT, WORLD, plain, spare, unstreamed
from tests.faults.support import in_time_for_its_head
from tests.faults.upstream import JSON, Gate, Script, Upstream, chunk, drip, hang, head, last_chunk, send, sleep
from tests.promptness import Late, prompt

BEAT = b": penstock\n\n"
every_pair = pytest.mark.parametrize("pair", [*filter(same_or_translated, PAIRS)], ids=str)


def stages(each: Provider) -> dict[str, tuple[Script, Script]]:
    """What a provider sends before the client has waited, and after it."""
    hello, world, rest = each.hello, each.world, each.rest
    return {
        "before the head": ([], [head(), chunk(each.wire), last_chunk()]),
        "before the first event": ([head()], [chunk(each.wire), last_chunk()]),
        "between events": ([head(), chunk(hello)], [chunk(world + rest), last_chunk()]),
        "in an event": ([head(), chunk(hello + world[:40])], [chunk(world[40:] + rest), last_chunk()]),
        "in a line end": ([head(), chunk(hello + world[:-1])], [chunk(world[-1:] + rest), last_chunk()]),
    }


@pytest.fixture(scope="module")
def beating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Upstream() as upstream:
        text = settings(upstream.url, 4, PROVIDERS.values(), server={"heartbeat_s": 0.1})
        with Gateway(tmp_path_factory.mktemp("beating"), upstream, text) as gateway:
            yield gateway


WAITED = {
    f"{pair}-{stage}": (pair, stage)
    for pair in (*PAIRS, *WITH_CHAT_CLIENTS, *(pair for pair in WITH_CHAT_PROVIDERS if pair.client != BEDROCK_CLIENT))
    for stage in stages(CHAT)
    if is_played(pair, sampled=stage in ("before the first event", "in an event"))
}


@pytest.mark.parametrize(("pair", "stage"), WAITED.values(), ids=WAITED)
def test_u23_a_client_that_waits_gets_heartbeats_between_events(beating: Gateway, stage: str, pair: Pair) -> None:
    gate, beat = Gate(), pair.client.heartbeat
    before, after = stages(pair.provider)[stage]
    model = beating.upstream.play([*before, gate, *after])
    with beating.begin(f"main{pair.provider.suffix}/{model}", pair.client, stream=True) as client:
        client.read_until(re.compile(beat.pattern + rb"\r\n[0-9a-f]+\r\n" + beat.pattern))  # and another one
        gate.open()
        response = beating.keep(pair.client.read(client.response()))
    assert (response.text, response.finish, response.done) == (TEXT, "stop", True)
    assert len(beat.findall(response.body)) >= 2
    if pair.client != RESPONSES_CLIENT:  # whose heartbeats have numbers
        response.body = beat.sub(b"", response.body)
        assert (response.text, response.done) == (TEXT, True)
    beating.quiet()


def test_an_unstreamed_client_gets_no_comments(beating: Gateway) -> None:
    gate = Gate()
    model = beating.upstream.play([head(), gate, chunk(HELLO + WORLD + REST), last_chunk()])
    with beating.begin(f"main/{model}", stream=False) as client:
        beating.upstream.asked(model)
        time.sleep(0.3)  # three heartbeats of which none may come
        gate.open()
        response = beating.keep(client.response())
    assert response.text == TEXT
    beating.quiet()


def in_time_for_a_heartbeat(beating: Gateway, response: Response, pair: Pair) -> None:
    """A heartbeat was sent before the time for the first event was over."""
    if not pair.client.heartbeat.search(response.body):
        beating.quiet()
        raise Late("the time for the first event was over before a heartbeat was due")


@prompt
@every_pair
def test_u23_after_a_heartbeat_the_next_target_may_still_answer(beating: Gateway, pair: Pair) -> None:
    route = beating.pair([head(), hang()], spare(), prefix="hasty-", provider=pair.provider)
    response = beating.ask(route, pair.client, stream=True)
    in_time_for_its_head(beating, response)
    in_time_for_a_heartbeat(beating, response, pair)
    assert (response.status, response.text, response.done) == (200, SPARE_TEXT, True)
    assert pair.client.heartbeat.search(response.body.partition(b"delta")[0])
    assert [attempt["code"] for attempt in beating.call(response)["attempts"]] == ["upstream_timeout_idle", ""]
    beating.quiet()


@prompt
@every_pair
def test_u23_after_a_heartbeat_a_failure_is_a_frame(beating: Gateway, pair: Pair) -> None:
    model = beating.upstream.play([head(), hang()])
    response = beating.ask(f"hasty{pair.provider.suffix}/{model}", pair.client, stream=True)
    in_time_for_its_head(beating, response)
    in_time_for_a_heartbeat(beating, response, pair)
    assert (response.status, response.error["code"], response.done) == (200, "upstream_timeout_idle", False)
    assert response.complete
    line = beating.call(response)
    assert (line["status"], line["ending"], line["code"]) == (200, "timed_out", "upstream_timeout_idle")
    beating.quiet()


@pytest.mark.parametrize("stream", [True, False])
def test_a_gap_is_noticed_although_the_first_event_may_take_long(start: Starter, stream: bool) -> None:
    gateway = start(server={"heartbeat_s": 30.0}, timeouts={"first_event_s": 30.0, "gap_s": 0.2})
    model = gateway.upstream.play([head(), chunk(HELLO), hang()])
    response = gateway.ask(f"main/{model}", stream=stream)  # which waits for ten seconds at most
    assert response.error["code"] == "upstream_timeout_idle"
    gateway.quiet()


@prompt
def test_a_regular_stream_has_no_heartbeats(beating: Gateway) -> None:
    model = beating.upstream.play([head(), drip(HELLO + WORLD + REST, 0.001, 40), last_chunk()])
    response = beating.ask(f"main/{model}", stream=True)
    assert response.text == TEXT
    beating.quiet()
    if BEAT in response.body:
        raise Late("the upstream was silent for the time of a heartbeat")


def test_each_event_is_passed_on_at_once(gateway: Gateway) -> None:
    first, second = Gate(), Gate()
    model = gateway.upstream.play([head(), chunk(HELLO), first, chunk(WORLD), second, chunk(REST), last_chunk()])
    with gateway.begin(f"main/{model}", stream=True) as client:
        client.read_until(b"Hello")
        first.open()
        client.read_until(b", world")
        second.open()
        gateway.keep(client.response())


def test_two_answers_on_one_connection(gateway: Gateway) -> None:
    model = gateway.upstream.play([head(), chunk(HELLO + WORLD + REST), last_chunk()])
    with gateway.client() as client:
        for streamed in (True, False, True):
            client.send(post(body(f"main/{model}", stream=streamed)))
            assert gateway.keep(client.response()).text == TEXT
            gateway.expected += 1


def test_a_hundred_streams_at_once(gateway: Gateway) -> None:
    """No client gets the answer of another."""
    gate = Gate()
    models = [
        gateway.upstream.play(
            [head(), chunk(HELLO), gate, send(b""), chunk(WORLD.replace(b"world", b"%03d" % n) + REST), last_chunk()]
        )
        for n in range(100)
    ]
    clients = [gateway.begin(f"main/{model}", stream=True) for model in models]
    for client in clients:
        client.read_until(b"Hello")
    gate.open()
    for number, client in enumerate(clients):
        response = gateway.keep(client.response())
        client.close()
        assert (response.text, response.done) == (f"Hello, {number:03}", True)


# Whole answers that take longer than the time for the first event; and the same without an end, for a stream.
LATE: dict[str, tuple[Script, Script]] = {
    "all at once": ([sleep(0.4), *unstreamed()], [hang()]),
    "a little at a time": (
        [head(200, JSON), drip(plain(), 0.01, size=5), last_chunk()],
        [head(200, JSON), drip(plain()[:60], 0.01, size=5), hang()],
    ),
}


@pytest.mark.parametrize(("script", "endless"), LATE.values(), ids=LATE)
def test_an_answer_that_is_not_streamed_has_its_own_time(start: Starter, script: Script, endless: Script) -> None:
    """Most providers send nothing until an unstreamed answer is complete, so silence is no failure."""
    gateway = start(timeouts={"first_event_s": 0.2, "answer_s": 30.0})
    assert gateway.ask(f"main/{gateway.upstream.play(script)}", stream=False).text == TEXT
    response = gateway.ask(f"main/{gateway.upstream.play(endless)}", stream=True)
    assert response.error["code"].startswith("upstream_timeout")
