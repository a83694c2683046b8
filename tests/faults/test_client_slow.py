"""Clients that are slow, or send or read nothing (C11, C12, C14 to C18, U29): time and memory are bounded."""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.faults.client import RawClient, body, get, post
from tests.faults.conftest import Starter
from tests.faults.dialects import CHAT_CLIENT, MESSAGES_CLIENT, RESPONSES_CLIENT, Client
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import HELLO, REST, TEXT, plain, whole
from tests.faults.upstream import JSON, Upstream, chunk, for_ever, hang, head, last_chunk, status
from tests.promptness import in_time, prompt
from tests.streams import begins, says, sse

SHORT = {"head_timeout_s": 0.4, "body_timeout_s": 0.4, "keep_alive_s": 0.4, "stalled_client_s": 0.5}
REQUEST = post(body("main/too-slow", stream=True))
FLOOD = sse(says("x" * 1000)) * 30
# The bytes that can be under way to a client that does not read: the kernel's buffers on four sockets, and our own.
MAX_UNDER_WAY = 12_000_000
MAX_MEMORY = 4_000_000


@pytest.fixture(scope="module")
def shared_hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Upstream() as upstream:
        text = settings(upstream.url, 0, limits=SHORT)
        with Gateway(tmp_path_factory.mktemp("hurried"), upstream, text) as gateway:
            yield gateway


@pytest.fixture
def hurried(shared_hurried: Gateway) -> Iterator[Gateway]:
    """A gateway that waits for clients for a short time."""
    yield shared_hurried
    try:
        shared_hurried.quiet()
    except BaseException:
        shared_hurried.forget()
        raise


SLOW = {
    "C17 says nothing": (b"", None),
    "C15 half a request line": (REQUEST[:10], 408),
    "C15 half a header": (REQUEST[:60], 408),
    "C15 all but the last byte of the head": (REQUEST[: REQUEST.index(b"\r\n\r\n") + 3], 408),
    "C16 no body": (REQUEST[: REQUEST.index(b"\r\n\r\n") + 4], 408),
    "C16 half a body": (REQUEST[:-20], 408),
    "C14 a second request that never comes": (get("/health"), 200),
}


@pytest.mark.parametrize(("sent", "answer"), SLOW.values(), ids=SLOW)
@prompt
def test_who_does_not_send_is_cut_off(hurried: Gateway, sent: bytes, answer: int | None) -> None:
    began = time.monotonic()
    with hurried.client() as client:
        client.send(sent)
        in_time(time.monotonic() - began, 0.2)  # else the time for the head may be over
        if answer is not None:
            assert client.response().status == answer
        client.ends()
        took = time.monotonic() - began
    hurried.quiet()
    assert took > 0.3
    in_time(took, 2.0)


def test_what_is_too_slow_has_a_request_id_too(hurried: Gateway) -> None:
    with hurried.client() as client:
        client.send(REQUEST[:60])
        assert client.response().headers.get("x-request-id")


DRIPPED = {
    "C15 the head": (b"", REQUEST),
    "C16 the body": (REQUEST[: REQUEST.index(b"\r\n\r\n") + 4], b" " * 1000),
    "C15 the head of a second request": (get("/health"), REQUEST),
    "C16 the body of a request sent ahead": (get("/health") + REQUEST[: REQUEST.index(b"\r\n\r\n") + 4], b" " * 1000),
    "C15 blank lines": (b"", b"\r\n" * 500),
    "C16 empty-handed chunks": (
        REQUEST[: REQUEST.index(b"Content-Length")] + b"Transfer-Encoding: chunked\r\n\r\n",
        b"1\r\nx\r\n" * 500,
    ),
}


@pytest.mark.parametrize(("first", "dripped"), DRIPPED.values(), ids=DRIPPED)
@prompt
def test_who_drips_is_cut_off(hurried: Gateway, first: bytes, dripped: bytes) -> None:
    """Single bytes now and then do not extend the deadline."""
    with hurried.client() as client:
        began = time.monotonic()
        client.send(first)
        for start in range(len(dripped)):
            client.send(dripped[start : start + 1])
            time.sleep(0.02)
            if _has_ended(client):
                break
            in_time(time.monotonic() - began, 3.0)
    hurried.quiet()


def _has_ended(client: RawClient) -> bool:
    client._socket.setblocking(False)
    try:
        while client.read_some():
            pass
    except BlockingIOError:
        return False
    finally:
        client._socket.setblocking(True)
    return True


@pytest.mark.parametrize(
    ("reads", "client_api"),
    [(False, CHAT_CLIENT), (True, CHAT_CLIENT), (False, MESSAGES_CLIENT), (False, RESPONSES_CLIENT)],
    ids=["C11 not at all", "C12 a few bytes now and then", "C11 not at all, Messages", "C11 not at all, Responses"],
)
def test_who_does_not_read_pushes_back_and_is_cut_off(hurried: Gateway, reads: bool, client_api: Client) -> None:
    model = hurried.upstream.play([head(), chunk(HELLO), for_ever(FLOOD)])
    before = hurried.memory()
    with hurried.begin(f"main/{model}", client_api, stream=True, receive_buffer=4096) as client:
        connection = hurried.upstream.asked(model)
        hurried.upstream.until(lambda: connection.blocked)
        deadline = time.monotonic() + 10.0
        while not connection.closed_at and time.monotonic() < deadline:
            if reads:
                client._socket.recv(10)
            time.sleep(0.02)
        assert connection.closed_at, "it is still being served"
        assert connection.sent < MAX_UNDER_WAY
        assert hurried.memory() - before < MAX_MEMORY
    assert hurried.last_call()["ending"] == "cancelled"
    hurried.quiet()


def test_who_reads_slowly_gets_it_all(start: Starter) -> None:
    gateway = start(limits={"stalled_client_s": 5.0})
    pieces = [chunk(FLOOD) for _ in range(300)]
    model = gateway.upstream.play([head(), chunk(sse(begins())), *pieces, chunk(REST), last_chunk()])
    before = gateway.memory()
    with gateway.begin(f"main/{model}", stream=True, receive_buffer=65_536) as client:
        connection = gateway.upstream.asked(model)
        gateway.upstream.until(lambda: connection.blocked)
        assert gateway.memory() - before < MAX_MEMORY
        response = gateway.keep(client.response())
    assert (len(response.text), response.done) == (300 * 30 * 1000, True)
    gateway.quiet()


@prompt
def test_who_does_not_read_does_not_hold_up_others(gateway: Gateway) -> None:
    model = gateway.upstream.play([head(), chunk(HELLO), for_ever(FLOOD)])
    other = gateway.upstream.play(whole())
    with gateway.begin(f"main/{model}", stream=True, receive_buffer=4096):
        connection = gateway.upstream.asked(model)
        gateway.upstream.until(lambda: connection.blocked)
        for _ in range(20):
            began = time.monotonic()
            assert gateway.ask(f"main/{other}", stream=True).text == TEXT
            in_time(time.monotonic() - began, 0.5)


def test_c11_a_stream_behind_an_answer_that_is_not_read_pushes_back_too(hurried: Gateway) -> None:
    """The first answer fills the buffers. The pipelined stream after it must not fill the memory."""
    first = hurried.upstream.play([status(200, JSON, plain("x" * 3_000_000))])
    second = hurried.upstream.play([head(), chunk(HELLO), for_ever(FLOOD)])
    before = hurried.memory()
    with hurried.client(receive_buffer=4096) as client:
        hurried.expected += 1
        client.send(post(body(f"main/{first}", stream=False)) + post(body(f"main/{second}", stream=True)))
        hurried.upstream.asked(first)
        hurried.closes(hurried.end_of(client))  # it is disconnected, whether the second answer has begun or not
        asked = len(hurried.upstream.requests(second))
        hurried.expected += asked
        if asked:
            assert hurried.upstream.connection(second).sent < MAX_UNDER_WAY
        assert hurried.memory() - before < 30_000_000
        client.close()
    hurried.quiet()


@pytest.mark.parametrize("close", [True, False], ids=["closing", "kept alive"])
def test_c11_an_answer_that_no_one_fetches_is_given_up(hurried: Gateway, close: bool) -> None:
    """Whether its bytes wait in the kernel's buffers or in ours."""
    with ExitStack() as stack:
        for size in range(100_000, 900_000, 40_000):
            model = hurried.upstream.play([status(200, JSON, plain("x" * size))])
            client = stack.enter_context(hurried.client(receive_buffer=4096))
            hurried.expected += 1
            headers = {"Connection": "close"} if close else {}
            client.send(post(body(f"main/{model}", stream=False), headers))
        hurried.quiet()


def test_u29_a_burst_of_tiny_events(gateway: Gateway) -> None:
    before = gateway.memory()
    data = sse(says("x")) * 500
    model = gateway.upstream.play([head(), chunk(sse(begins())), *[chunk(data)] * 60, chunk(REST), last_chunk()])
    response = gateway.ask(f"main/{model}", stream=True)
    assert (len(response.text), response.done) == (30_000, True)
    assert gateway.memory() - before < 2 * MAX_MEMORY


def test_c18_connections_beyond_the_limit_are_turned_away(start: Starter) -> None:
    gateway = start(limits={"max_connections": 20})
    model = gateway.upstream.play([head(), chunk(HELLO), hang()])
    with ExitStack() as stack:
        stream = stack.enter_context(gateway.begin(f"main/{model}", stream=True))
        stream.read_until(b"Hello")
        idle = [stack.enter_context(gateway.client()) for _ in range(60)]
        time.sleep(0.2)  # for the gateway to have taken or refused them
        assert gateway.files() < gateway.files_at_start + 25
        stream.close()
        for client in idle:
            client.close()
    gateway.quiet()
    assert gateway.send(get("/health")).status == 200


@prompt
def test_c18_five_hundred_idle_connections_do_no_harm(gateway: Gateway) -> None:
    model = gateway.upstream.play(whole())
    with ExitStack() as stack:
        for _ in range(500):
            stack.enter_context(gateway.client())
        began = time.monotonic()
        assert gateway.ask(f"main/{model}", stream=True).text == TEXT
        in_time(time.monotonic() - began, 1.0)


def test_the_gap_is_watched_again_after_a_pause(start: Starter) -> None:
    """A provider that goes silent must still time out, although its client was slow before."""
    gateway = start(server={"heartbeat_s": 60}, timeouts={"gap_s": 1.0})
    pieces = [chunk(FLOOD) for _ in range(200)]
    model = gateway.upstream.play([head(), chunk(sse(begins())), *pieces, hang()])
    with gateway.begin(f"main/{model}", stream=True, receive_buffer=65_536) as client:
        connection = gateway.upstream.asked(model)
        gateway.upstream.until(lambda: connection.blocked)
        response = gateway.keep(client.response())
    assert response.error["code"] == "upstream_timeout_idle"
    gateway.quiet()
