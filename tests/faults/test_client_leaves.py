"""Clients that disconnect (C1, C3 to C8, C10), at every stage and in every way. The upstream notices within 50 ms."""

import time
from collections.abc import Callable

import pytest

from tests.faults.client import RawClient, body, post
from tests.faults.cloud_clients import WITH_CHAT_PROVIDERS
from tests.faults.dialects import CHAT, CHAT_ONLY, PAIRS, WITH_CHAT_CLIENTS, Pair, Provider, is_played
from tests.faults.gateway import Gateway
from tests.faults.scripts import ERROR_BODY, HELLO, spare
from tests.faults.upstream import JSON, Gate, Script, chunk, for_ever, hang, head, status
from tests.promptness import in_time, prompt

AT_ONCE_S = 0.05
both = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "unstreamed"])

WAYS: dict[str, Callable[[RawClient], None]] = {
    "C4 closes": RawClient.close,
    "C5 resets": RawClient.rst,
    "C10 closes one side": RawClient.half_close,
}
every_way = pytest.mark.parametrize("leave", WAYS.values(), ids=WAYS)


def stages(each: Provider) -> dict[str, tuple[Script, bytes]]:
    """What the upstream has done, and what a streaming client has received, when the client disconnects."""
    return {
        "C3 waiting for the head": ([hang()], b""),
        "C3 waiting for the first event": ([head(), hang()], b""),
        "C3 after the role": ([head(), chunk(each.begin), hang()], b""),
        "C4 in the middle": ([head(), chunk(each.hello), hang()], b"Hello"),
        "C4 in an event": ([head(), chunk(each.hello + each.world[:40]), hang()], b"Hello"),
        "C4 in full flow": ([head(), chunk(each.hello), for_ever(each.world, 0.001)], b"world"),
        "C6 just before the end": ([head(), chunk(each.hello + each.world + each.finish), hang()], b"world"),
    }


# Every way to leave is the same in every dialect.
LEFT = {
    f"{way}, {stage}, {pair}": (WAYS[way], stage, pair)
    for pair in (*PAIRS, *WITH_CHAT_CLIENTS, *WITH_CHAT_PROVIDERS)
    for way in (WAYS if pair == CHAT_ONLY else ["C4 closes"])
    for stage in stages(CHAT)
    if is_played(pair, sampled=stage in ("C3 after the role", "C4 in full flow"))
}


@pytest.mark.parametrize(("leave", "stage", "pair"), LEFT.values(), ids=LEFT)
@both
@prompt
def test_the_upstream_is_left_at_once(
    gateway: Gateway, stage: str, streamed: bool, leave: Callable[[RawClient], None], pair: Pair
) -> None:
    script, received = stages(pair.provider)[stage]
    model = gateway.upstream.play(script)
    client = gateway.begin(f"main{pair.provider.suffix}/{model}", pair.client, stream=streamed)
    connection = gateway.upstream.asked(model)
    if streamed and received:
        client.read_until(received)
    elif len(script) > 1:
        gateway.upstream.until(lambda: connection.sent)
    assert_left_at_once(gateway, model, client, leave)
    line = gateway.last_call()
    assert (line["ending"], line["code"], len(line["attempts"])) == ("cancelled", "client_gone", 1)
    assert line["status"] == (200 if streamed and received else 499)


def assert_left_at_once(gateway: Gateway, model: str, client: RawClient, leave: Callable[[RawClient], None]) -> None:
    connection = gateway.upstream.connection(model)
    assert not connection.closed_at, "it was left before the client left"
    left_at = time.monotonic()
    leave(client)
    gateway.upstream.until(lambda: connection.closed_at)
    took = connection.closed_at - left_at
    client.close()
    in_time(took, AT_ONCE_S)


REQUEST = post(body("main/left-before", stream=True))
UNFINISHED = {
    "connected": b"",
    "half a request line": REQUEST[:10],
    "half a header": REQUEST[:60],
    "a head": REQUEST[: REQUEST.index(b"\r\n\r\n") + 4],
    "half a body": REQUEST[:-20],
}


@every_way
@pytest.mark.parametrize("sent", UNFINISHED.values(), ids=UNFINISHED)
def test_c1_a_request_that_is_not_whole_makes_no_call(
    gateway: Gateway, sent: bytes, leave: Callable[[RawClient], None]
) -> None:
    client = gateway.client()
    client.send(sent)
    leave(client)
    client.close()
    gateway.quiet()
    assert not gateway.upstream.requests("left-before")


@both
def test_c8_a_client_that_leaves_between_two_targets_stops_the_second(gateway: Gateway, streamed: bool) -> None:
    """The client disconnects while the first target fails."""
    gate = Gate()
    route = gateway.pair([gate, status(500, JSON, ERROR_BODY)], spare())
    client = gateway.begin(route, stream=streamed)
    connection = gateway.upstream.asked(f"{route}-a")
    client.close()
    gateway.upstream.until(lambda: connection.closed_at)
    gate.open()
    line = gateway.last_call()
    assert (line["ending"], [attempt["target"] for attempt in line["attempts"]]) == ("cancelled", [f"main/{route}-a"])
    gateway.quiet()
    assert not gateway.upstream.requests(f"{route}-b")


@both
@prompt
def test_c8_a_client_that_leaves_the_second_target_is_noticed(gateway: Gateway, streamed: bool) -> None:
    route = gateway.pair([status(500, JSON, ERROR_BODY)], [hang()])
    client = gateway.begin(route, stream=streamed)
    gateway.upstream.asked(f"{route}-b")
    assert_left_at_once(gateway, f"{route}-b", client, RawClient.close)


@both
@prompt
def test_a_client_that_leaves_after_it_sent_more_is_noticed(gateway: Gateway, streamed: bool) -> None:
    """Pipelined bytes must not hide that the client has disconnected."""
    model = gateway.upstream.play([head(), hang()])
    client = gateway.begin(f"main/{model}", stream=streamed)
    gateway.upstream.asked(model)
    client.send(post(body("main/never-asked", stream=True)))
    assert_left_at_once(gateway, model, client, RawClient.close)


@both
def test_a_client_that_sends_much_ahead_and_leaves_is_noticed(gateway: Gateway, streamed: bool) -> None:
    model = gateway.upstream.play([head(), hang()])
    client = gateway.begin(f"main/{model}", stream=streamed)
    connection = gateway.upstream.asked(model)
    client.send(post(body("main/never-asked", stream=True, padding="x" * 150_000)))
    if connection.closed_at:  # the other correct reaction: to disconnect a client that pipelines too much
        client.close()
        return
    client.close()
    gateway.upstream.until(lambda: connection.closed_at)


@both
def test_clients_that_come_and_go_leave_nothing(gateway: Gateway, streamed: bool) -> None:
    model = gateway.upstream.play([head(), chunk(HELLO), hang()])
    for number in range(1, 41):
        client = gateway.begin(f"main/{model}", stream=streamed)
        gateway.upstream.asked(model, number)
        (client.rst if number % 2 else client.close)()
    gateway.quiet()
