"""Clients that disconnect (C3 to C7, C10, C11): with `cancel` an estimate is booked, with `drain` the reported usage.

`main` cancels, `received` drains, and `briefly` drains for at most 0.6 seconds.
"""

import signal
import time
from collections.abc import Iterator

import pytest

from penstock.gateway.record.entry import Entry
from tests.faults.client import RawClient
from tests.faults.conftest import Starter
from tests.faults.dialects import CHAT, CHAT_ONLY, PAIRS, PROVIDERS, Pair, Provider
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import HELLO, REST, WORLD, plain
from tests.faults.upstream import (
    JSON,
    Connection,
    Gate,
    Op,
    Script,
    Upstream,
    chunk,
    for_ever,
    hang,
    head,
    last_chunk,
    rst,
    status,
)
from tests.promptness import in_time, prompt
from tests.streams import bill, counts, finishes, says, sse

AT_ONCE_S = 0.05
DRAIN_S = 0.6
BILL = sse(bill(**counts(5, 3)))
FLOOD = sse(says("x" * 60_000))
both = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "unstreamed"])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Upstream() as upstream:
        configuration = settings(upstream.url, 4, PROVIDERS.values())
        yield from _run(Gateway(tmp_path_factory.mktemp("gateway"), upstream, configuration))


def _run(gateway: Gateway) -> Iterator[Gateway]:
    with gateway:
        yield gateway
        gateway.book.check_sums()


@pytest.fixture
def gateway(shared: Gateway) -> Iterator[Gateway]:
    yield shared
    try:
        shared.quiet()
    except BaseException:
        shared.forget()
        raise


def leave(
    gateway: Gateway, provider: str, script: Script, pair: Pair = CHAT_ONLY, *, streamed: bool, received: bytes = b""
) -> tuple[str, float]:
    """Make a call, read this much, and disconnect. Returns the model and the time, once the gateway has noticed it."""
    model = gateway.upstream.play(script)
    client = gateway.begin(f"{provider}{pair.provider.suffix}/{model}", pair.client, stream=streamed)
    connection = gateway.upstream.asked(model)
    if streamed and received:
        client.read_until(received)
    elif received:
        gateway.until(lambda: received in connection.last_sent and not connection.unread())
    end = gateway.end_of(client)
    left_at = time.monotonic()
    client.close()
    gateway.closes(end)
    return model, left_at


def stalls(gateway: Gateway, connection: Connection) -> None:
    """Wait until nothing goes out any more: all buffers on the way are full."""
    gateway.upstream.until(lambda: connection.blocked)
    while True:
        sent = connection.sent
        time.sleep(0.15)
        if sent == connection.sent:
            return


def booked(gateway: Gateway) -> Entry:
    """The entry of the last call. It must be cancelled for its client, whatever its provider did."""
    line = gateway.last_call()
    entry = gateway.book.entry(line["request_id"])
    assert (entry.outcome, entry.code) == ("cancelled", "client_gone")
    return entry


def stages(each: Provider) -> dict[str, tuple[list[Op], bytes]]:
    """What the provider has sent when the client disconnects, and what the client has received of it."""
    return {
        "before the head": ([], b""),
        "before the first event": ([head()], b""),
        "in the middle": ([head(), chunk(each.hello)], b"Hello"),
        "in full flow": ([head(), chunk(each.hello), *[chunk(each.world)] * 40], b"world"),
        "after the finish": ([head(), chunk(each.hello + each.world + each.finish)], b"world"),
    }


every_stage = pytest.mark.parametrize("stage", stages(CHAT))
every_pair = pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair.same], ids=str)


@both
@every_stage
@every_pair
@prompt
def test_cancel_leaves_at_once_and_books_an_estimate(gateway: Gateway, pair: Pair, stage: str, streamed: bool) -> None:
    """Unless the provider has reported all its figures already, as some do with the finish."""
    sent, received = stages(pair.provider)[stage]
    model, left_at = leave(gateway, "main", [*sent, hang()], pair, streamed=streamed, received=received)
    connection = gateway.upstream.connection(model)
    gateway.upstream.until(lambda: connection.closed_at)
    in_time(connection.closed_at - left_at, AT_ONCE_S)
    (attempt,) = booked(gateway).attempts
    reported = stage == "after the finish" and pair.provider.finish_is_last
    assert (attempt.measure, attempt.outcome) == ("reported" if reported else "estimated", "cancelled")
    assert attempt.tokens.input > 0
    assert (attempt.tokens.output > 0) == bool(received)


@both
@every_stage
@every_pair
def test_drain_reads_on_and_books_the_providers_figure(
    gateway: Gateway, pair: Pair, stage: str, streamed: bool
) -> None:
    gate, each = Gate(), pair.provider
    sent, received = stages(each)[stage]
    rest = chunk(each.rest) if received else chunk(each.hello + each.rest)
    script: list[Op] = [*sent, gate, *([] if sent else [head()]), rest, last_chunk()]
    model, _ = leave(gateway, "heard", script, pair, streamed=streamed, received=received)
    time.sleep(0.1)  # if it were left, it would be by now
    assert not gateway.upstream.connection(model).closed_at
    gate.open()
    (attempt,) = booked(gateway).attempts
    assert (attempt.measure, attempt.outcome) == ("reported", "completed")
    assert (attempt.tokens.input, attempt.tokens.output) == (5, 3)


def test_a_gap_in_which_the_client_leaves_is_counted_whole(gateway: Gateway) -> None:
    gate = Gate()
    model = gateway.upstream.play([head(), chunk(HELLO), gate, chunk(WORLD), chunk(REST), last_chunk()])
    with gateway.begin(f"heard/{model}", stream=True) as client:
        client.read_until(b"Hello")
        end = gateway.end_of(client)
        time.sleep(0.4)
    gateway.closes(end)
    time.sleep(0.4)
    gate.open()
    (attempt,) = booked(gateway).attempts
    assert attempt.longest_gap_ms >= 700


def test_drain_waits_for_an_unstreamed_answer(gateway: Gateway) -> None:
    gate = Gate()
    leave(gateway, "heard", [gate, status(200, JSON, plain())], streamed=False)
    gate.open()
    (attempt,) = booked(gateway).attempts
    assert (attempt.measure, attempt.tokens.input, attempt.tokens.output) == ("reported", 5, 3)


def test_c6_cancel_keeps_a_figure_that_was_there_already(gateway: Gateway) -> None:
    leave(
        gateway,
        "main",
        [head(), chunk(HELLO + WORLD + sse(finishes()) + BILL), hang()],
        streamed=True,
        received=b"world",
    )
    (attempt,) = booked(gateway).attempts
    assert (attempt.measure, attempt.tokens.input, attempt.tokens.output) == ("reported", 5, 3)


ENDLESS: dict[str, tuple[Script, bytes]] = {
    "silent": ([hang()], b""),
    "silent after the head": ([head(), hang()], b""),
    "silent in the middle": ([head(), chunk(HELLO), hang()], b"Hello"),
    "talking for ever": ([head(), chunk(HELLO), for_ever(WORLD, 0.005)], b"world"),
}


@both
@pytest.mark.parametrize(("script", "received"), ENDLESS.values(), ids=ENDLESS)
@prompt
def test_drain_ends_in_its_time_and_then_it_is_estimated(
    gateway: Gateway, script: Script, received: bytes, streamed: bool
) -> None:
    model, left_at = leave(gateway, "briefly", script, streamed=streamed, received=received)
    connection = gateway.upstream.connection(model)
    gateway.upstream.until(lambda: connection.closed_at)
    took = connection.closed_at - left_at
    assert took > DRAIN_S - 0.05
    in_time(took, DRAIN_S + 0.5)
    (attempt,) = booked(gateway).attempts
    assert (attempt.measure, attempt.outcome) == ("estimated", "timed_out")
    assert attempt.tokens.input > 0
    assert (attempt.tokens.output > 0) == bool(received)


def test_drain_of_a_provider_that_breaks_books_what_was_sent(gateway: Gateway) -> None:
    gate = Gate()
    leave(gateway, "heard", [head(), chunk(HELLO), gate, rst()], streamed=True, received=b"Hello")
    gate.open()
    (attempt,) = booked(gateway).attempts
    assert (attempt.measure, attempt.outcome, attempt.code) == ("estimated", "truncated", "upstream_reset")


@pytest.mark.parametrize("provider", ["main", "heard"])
def test_c11_a_client_that_was_slow_and_leaves(gateway: Gateway, provider: str) -> None:
    """Its provider is paused when the client disconnects; with `drain` the answer is read to its end."""
    pieces = [chunk(FLOOD)] * 250
    model = gateway.upstream.play([head(), chunk(HELLO), *pieces, chunk(REST), last_chunk()])
    with gateway.begin(f"{provider}/{model}", stream=True, receive_buffer=4096) as client:
        connection = gateway.upstream.asked(model)
        stalls(gateway, connection)
        client.rst()
    (attempt,) = booked(gateway).attempts
    expected = ("reported", "completed") if provider == "heard" else ("estimated", "cancelled")
    assert (attempt.measure, attempt.outcome) == expected


def test_a_second_target_is_not_tried_without_a_client(gateway: Gateway) -> None:
    gate = Gate()
    leave(gateway, "heard", [gate, status(500, JSON, b"{}")], streamed=True)
    gate.open()
    (attempt,) = booked(gateway).attempts
    assert (attempt.measure, attempt.status) == ("void", 500)


@both
@prompt
def test_sigterm_while_a_provider_is_read_to_its_end(start: Starter, streamed: bool) -> None:
    """It may continue for the gateway's drain window; then it is ended, and booked as cancelled."""
    gateway = start(server={"drain_s": 0.2})
    model, _ = leave(gateway, "heard", [head(), chunk(HELLO), hang()], streamed=streamed, received=b"Hello")
    time.sleep(0.1)
    assert not gateway.upstream.connection(model).closed_at
    began = time.monotonic()
    assert gateway.stop() == 0
    in_time(time.monotonic() - began, 2.0)
    (attempt,) = booked(gateway).attempts
    assert (attempt.measure, attempt.outcome) == ("estimated", "cancelled")
    assert attempt.tokens.output > 0
    assert not gateway.book.journals()


def test_sigterm_lets_a_provider_be_read_to_its_end(start: Starter) -> None:
    gateway = start(server={"drain_s": 5.0})
    gate = Gate()
    leave(gateway, "heard", [head(), chunk(HELLO), gate, chunk(REST), last_chunk()], streamed=True, received=b"Hello")
    gateway.signal(signal.SIGTERM)
    time.sleep(0.1)  # if it were left, it would be by now
    gate.open()
    assert gateway.wait() == 0
    (attempt,) = booked(gateway).attempts
    assert (attempt.measure, attempt.tokens.output) == ("reported", 3)


def test_clients_that_come_and_go_are_all_booked(gateway: Gateway) -> None:
    model = gateway.upstream.play([head(), chunk(HELLO), chunk(REST), last_chunk()])
    for number in range(40):
        client: RawClient = gateway.begin(f"{'heard' if number % 2 else 'main'}/{model}", stream=True)
        (client.rst if number % 3 else client.close)()
    gateway.quiet()
