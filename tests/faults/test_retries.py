"""Which target is tried next, and which cool down (U9 to U11, U59, U60); in real time, but with short times."""

import time

import pytest

from tests.faults.conftest import Starter
from tests.faults.gateway import Gateway
from tests.faults.scripts import ERROR_BODY, HELLO, SPARE_TEXT, TEXT, spare, whole
from tests.faults.support import begin_probe
from tests.faults.upstream import JSON, Gate, Script, for_ever, head, status
from tests.promptness import Late, in_time, prompt

both = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "unstreamed"])
FAILS = [status(500, JSON, ERROR_BODY)]

RETRY_AFTER = {
    "U9 seconds": ("20", 20),
    "U11 a day": ("86400", 300),
    "U11 no end": ("inf", 300),
    "U11 a date": ("Wed, 21 Oct 2037 07:28:00 GMT", 300),
}
NO_RETRY_AFTER = {
    "U11 garbage": "soon",
    "U11 not a number": "nan",
    "U11 empty": "",
    "U11 past": "-5",
    "U11 at once": "0",
    "U11 a date that is past": "Wed, 21 Oct 2015 07:28:00 GMT",
}


def busy(retry_after: str) -> Script:
    return [status(429, JSON | {"retry-after": retry_after}, ERROR_BODY)]


@both
@pytest.mark.parametrize(("retry_after", "seconds"), RETRY_AFTER.values(), ids=RETRY_AFTER)
def test_u59_a_busy_target_is_left_alone_as_long_as_it_asks(
    gateway: Gateway, retry_after: str, seconds: int, streamed: bool
) -> None:
    model = gateway.upstream.play(busy(retry_after))
    first = gateway.ask(f"main/{model}", stream=streamed)
    assert (first.status, first.headers["retry-after"]) == (429, retry_after)
    second = gateway.ask(f"main/{model}", stream=streamed)
    assert (second.status, second.error["code"]) == (429, "upstream_rate_limited")
    assert seconds - 10 <= int(second.headers["retry-after"]) <= seconds
    assert len(gateway.upstream.requests(model)) == 1
    assert gateway.call(second)["attempts"] == []


@pytest.mark.parametrize("retry_after", NO_RETRY_AFTER.values(), ids=NO_RETRY_AFTER)
def test_u11_what_cannot_be_read_is_not_obeyed(start: Starter, retry_after: str) -> None:
    gateway = start(retries={"cooldown_s": 0.1})
    model = gateway.upstream.play(busy(retry_after))
    assert gateway.ask(f"main/{model}", stream=False).status == 429
    gateway.upstream.play(whole(), model)
    deadline = time.monotonic() + 10
    while (response := gateway.ask(f"main/{model}", stream=False)).status != 200 and time.monotonic() < deadline:
        assert response.status in (429, 503)
        time.sleep(0.05)  # the cool-down has to pass
    assert response.text == TEXT


@prompt
@pytest.mark.parametrize("retry_after", NO_RETRY_AFTER.values(), ids=NO_RETRY_AFTER)
def test_u11_who_may_be_asked_at_once_is_left_alone_all_the_same(gateway: Gateway, retry_after: str) -> None:
    """The client gets it unchanged. A target that is busy, or fails five times in a row, cools down."""
    model = gateway.upstream.play(busy(retry_after))
    began = time.monotonic()
    first = gateway.ask(f"main/{model}", stream=False)
    assert (first.status, first.headers["retry-after"]) == (429, retry_after or "2")
    second = gateway.ask(f"main/{model}", stream=False)
    in_time(time.monotonic() - began, 0.9)  # the cool-down takes a second or longer
    assert second.error["code"] == "upstream_rate_limited"
    assert len(gateway.upstream.requests(model)) == 1
    model = gateway.upstream.play([status(503, JSON | {"retry-after": retry_after}, ERROR_BODY)])
    codes = [gateway.ask(f"main/{model}", stream=False).error["code"] for _ in range(7)]
    assert codes == ["upstream_error"] * 5 + ["no_healthy_target"] * 2


@both
def test_a_busy_target_is_passed_over(gateway: Gateway, streamed: bool) -> None:
    route = gateway.pair(busy("30"), spare())
    assert [gateway.ask(route, stream=streamed).text for _ in range(3)] == [SPARE_TEXT] * 3
    assert len(gateway.upstream.requests(f"{route}-a")) == 1
    assert len(gateway.upstream.requests(f"{route}-b")) == 3


def test_both_targets_fail_and_the_last_failure_is_reported(gateway: Gateway) -> None:
    route = gateway.pair(FAILS, busy("7"))
    response = gateway.ask(route, stream=True)
    assert (response.status, response.error["code"], response.headers["retry-after"]) == (
        429,
        "upstream_rate_limited",
        "7",
    )
    assert [attempt["status"] for attempt in gateway.call(response)["attempts"]] == [500, 429]


def test_u60_a_storm_of_failures_makes_few_retries(start: Starter) -> None:
    """If everything fails, a route with two targets makes hardly more attempts than there are calls."""
    gateway = start(retries={"budget": 0.15, "burst": 10, "cooldown_s": 0.001, "max_cooldown_s": 0.001})
    route = gateway.pair(FAILS, FAILS)
    calls = 150
    for _ in range(calls):
        assert gateway.ask(route, stream=False).status in (502, 503)
    asked = len(gateway.upstream.requests(f"{route}-a")) + len(gateway.upstream.requests(f"{route}-b"))
    assert asked <= 1.2 * calls + 10  # and a burst at the start
    gateway.quiet()


def test_u60_a_target_that_fails_is_left_alone(start: Starter) -> None:
    gateway = start(retries={"cooldown_s": 30.0})
    model = gateway.upstream.play(FAILS)
    statuses = [gateway.ask(f"main/{model}", stream=False).status for _ in range(20)]
    assert statuses == [502] * 5 + [503] * 15
    assert len(gateway.upstream.requests(model)) == 5
    gateway.quiet()


def test_u60_after_the_cool_down_one_call_is_the_probe(start: Starter) -> None:
    """Of many calls after a cool-down, one probes the target; the others do not wait for it."""
    gateway = start(retries={"cooldown_s": 0.3})
    model = gateway.upstream.play(FAILS)
    for _ in range(5):
        gateway.ask(f"main/{model}", stream=False)
    gate = Gate()
    gateway.upstream.play([gate, *FAILS], model)
    with begin_probe(gateway, f"main/{model}", model) as probe:
        assert [gateway.ask(f"main/{model}", stream=False).status for _ in range(9)] == [503] * 9
        gate.open()
        assert gateway.keep(probe.response()).status == 502
    assert len(gateway.upstream.requests(model)) == 6


SLOW = {"before anything was said": b": processing\n\n", "while it is said": HELLO}


@pytest.mark.parametrize("data", SLOW.values(), ids=SLOW)
def test_when_the_total_time_is_over_no_one_else_is_asked(start: Starter, data: bytes) -> None:
    """There is no time left for an answer: an attempt would only cost."""
    gateway = start(timeouts={"total_s": 0.4})
    route = gateway.pair([head(), for_ever(data, 0.02)], spare())
    response = gateway.ask(route, stream=False)
    assert (response.status, response.error["code"]) == (504, "upstream_timeout_total")
    assert not gateway.upstream.requests(f"{route}-b")
    gateway.quiet()


@prompt
def test_u27_an_answer_without_end_is_ended(gateway: Gateway) -> None:
    model = gateway.upstream.play([head(), for_ever(HELLO, 0.02)])
    response = gateway.ask(f"hasty-total/{model}", stream=True)
    assert response.complete
    if response.status == 504 or response.text == "Hello":
        raise Late("the total time was over before the answer had begun")
    assert response.text.startswith("HelloHello")
    assert not response.done
    assert response.error["code"] == "upstream_timeout_total"
    assert gateway.call(response)["ending"] == "timed_out"
