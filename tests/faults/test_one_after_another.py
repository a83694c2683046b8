"""Sequences: a request after a request, an answer after a slow one, a client that catches up."""

import time

import pytest

from tests.faults.client import body, get, post
from tests.faults.conftest import Starter
from tests.faults.gateway import Gateway
from tests.faults.scripts import ERROR_BODY, HELLO, TEXT, unstreamed, whole
from tests.faults.upstream import JSON, Gate, chunk, fin, for_ever, hang, head, sleep, status
from tests.promptness import in_time, prompt
from tests.streams import says, sse

BIG = sse(says("x" * 900))
BEHIND = {"rubbish": b"\x00\x01\x02 rubbish\r\n\r\n", "too large a header": get("/health", {"X-A": "a" * 17_000})}


@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND)
def test_what_is_behind_a_request_in_one_read_does_not_break_its_answer(gateway: Gateway, behind: bytes) -> None:
    model = gateway.upstream.play(whole())
    response = gateway.send(post(body(f"main/{model}", stream=True)) + behind, calls=1)
    assert (response.status, response.text, response.done) == (200, TEXT, True)
    assert response.headers["connection"] == "close"
    gateway.quiet()


def test_no_go_ahead_is_given_before_the_answer_before(gateway: Gateway) -> None:
    model = gateway.upstream.play([sleep(0.1), *whole()])
    content = body(f"main/{model}", stream=True)
    waiting, _, _ = post(content, {"Expect": "100-continue"}).partition(b"\r\n\r\n")
    with gateway.client() as client:
        gateway.expected += 2
        client.send(post(content) + waiting + b"\r\n\r\n")
        assert gateway.keep(client.response()).status == 200
        client.send(content)
        assert gateway.keep(client.response()).done
    gateway.quiet()


@pytest.mark.parametrize("rest", [b"", b'{"mod'], ids=["a head", "a part of its body"])
def test_a_request_that_began_behind_another_has_no_more_time(start: Starter, rest: bytes) -> None:
    gateway = start(limits={"head_timeout_s": 0.4, "body_timeout_s": 0.4})
    model = gateway.upstream.play(whole())
    content = body(f"main/{model}", stream=True)
    head, _, _ = post(content).partition(b"\r\n\r\n")
    behind = head + b"\r\n\r\n" + rest if rest else head[:50]
    with gateway.client() as client:
        gateway.expected += 1
        client.send(post(content) + behind)
        assert gateway.keep(client.response()).done
        assert client.response().status == 408
    gateway.quiet()


def test_the_size_of_a_head_does_not_depend_on_how_it_is_sent(gateway: Gateway) -> None:
    request = get("/health", {f"X-{number:02}": "a" * 720 for number in range(90)})
    assert gateway.send(request).status == 431
    with gateway.client() as client:
        client.send(request[:-2])
        time.sleep(0.05)
        client.send(request[-2:])
        assert client.response().status == 431


def test_a_large_request_behind_a_slow_answer_waits_too(start: Starter) -> None:
    gateway = start()
    first = gateway.upstream.play(unstreamed("y" * 800_000))
    second = gateway.upstream.play([head(), chunk(HELLO), for_ever(BIG * 50)])
    with gateway.client(receive_buffer=4096) as client:
        gateway.expected += 2
        client.send(post(body(f"main/{first}", stream=False)))
        gateway.until(lambda: len(gateway.calls) >= 1)
        client.send(post(body(f"main/{second}", stream=True, metadata={"a": "z" * 300_000})))
        gateway.upstream.asked(second)
        gateway.upstream.until(lambda: gateway.upstream.connection(second).blocked)
        assert gateway.upstream.connection(second).sent < 20_000_000
    gateway.quiet()


def test_a_gap_is_noticed_after_the_client_has_caught_up(start: Starter) -> None:
    gateway = start(server={"heartbeat_s": 30.0}, timeouts={"gap_s": 1.0, "total_s": 600.0})
    model = gateway.upstream.play([head(), chunk(HELLO), *[chunk(BIG)] * 6_000, hang()])
    with gateway.begin(f"main/{model}", stream=True, receive_buffer=4096) as client:
        gateway.upstream.until(lambda: bool(gateway.upstream.requests(model)))
        gateway.upstream.until(lambda: gateway.upstream.connection(model).blocked)
        time.sleep(1.2)  # the timer fires while the client is slow
        response = gateway.keep(client.response())
    assert response.error["code"] == "upstream_timeout_idle"
    gateway.quiet()


def test_who_leaves_an_answer_does_not_let_a_second_probe_through(start: Starter) -> None:
    gateway = start(retries={"budget": 0.0, "cooldown_s": 0.3, "max_cooldown_s": 0.3})
    gate, name = Gate(), "probed"
    gateway.upstream.play([head(), chunk(HELLO), for_ever(BIG, 0.01)], name)
    left = gateway.begin(f"main/{name}", stream=True)
    left.read_until(b"Hello")
    gateway.upstream.play([status(503, JSON, ERROR_BODY)], name)
    while gateway.ask(f"main/{name}", stream=False).error["code"] != "no_healthy_target":
        pass
    time.sleep(0.4)  # the cool-down
    gateway.upstream.play([gate, status(503, JSON, ERROR_BODY)], name)
    asked = len(gateway.upstream.requests(name))
    with gateway.begin(f"main/{name}", stream=True) as probe:
        gateway.upstream.asked(name, asked + 1)
        left.close()
        gateway.until(lambda: any(call["ending"] == "cancelled" for call in gateway.calls))
        assert gateway.ask(f"main/{name}", stream=False).error["code"] == "no_healthy_target"
        gate.open()
        gateway.keep(probe.response())
    assert len(gateway.upstream.requests(name)) == asked + 1
    gateway.quiet()


@prompt
def test_a_client_that_is_slow_but_takes_something_gets_it_all(start: Starter) -> None:
    gateway = start(limits={"stalled_client_s": 1.0})
    text = "y" * 3_000_000
    model = gateway.upstream.play(unstreamed(text))
    taken = 0
    with gateway.begin(f"main/{model}", stream=False, receive_buffer=4096) as client:
        began = read_at = time.monotonic()
        while taken < len(text):
            piece = client.read_some()
            read_at, before = time.monotonic(), read_at
            in_time(read_at - before, 0.8)  # else it was stalled itself
            assert piece, f"cut off after {taken} bytes"
            taken += len(piece)
            time.sleep(len(piece) / 1_500_000)  # two seconds in all, and never long without taking anything
        assert time.monotonic() - began > 1.5
    gateway.last_call()
    gateway.quiet()


def test_a_kept_connection_that_ends_late_has_seen_the_request(gateway: Gateway) -> None:
    model = gateway.upstream.play(whole())
    assert gateway.ask(f"main/{model}", stream=True).done
    late = gateway.upstream.play([sleep(0.7), fin()])
    response = gateway.ask(f"main/{late}", stream=True)
    assert (response.status, response.error["code"]) == (502, "upstream_truncated")
    assert len(gateway.upstream.requests(late)) == 1
    gateway.quiet()
