"""What clients and providers do wrong on a WebSocket: each case leaves its call in the ledger, and nothing open."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from websockets.frames import CloseCode, Opcode

from tests import streams as chat
from tests.anthropic.support import CHAT_ANSWER, TEXT, streams
from tests.faults.upstream import Op, Upstream, chunk, fin, for_ever, hang, head, last_chunk, rst
from tests.responses_api.support import ResponsesGateway, start
from tests.sockets import Json, Socket, frame

CHAT_PIECES = [event + b"\n\n" for event in CHAT_ANSWER.split(b"\n\n")[:-1]]
BEGUN = chat.sse(chat.begins(), chat.says("Half"))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResponsesGateway]:
    limits = {"max_body": 20_000_000, "body_timeout_s": 1.0, "stalled_client_s": 1.0, "max_websockets": 40}
    folder = tmp_path_factory.mktemp("websocket")
    with Upstream() as upstream, start(folder, upstream, limits=limits) as gateway:
        yield gateway


@pytest.fixture
def gateway(shared: ResponsesGateway) -> Iterator[ResponsesGateway]:
    yield shared
    shared.quiet()


def asks(gateway: ResponsesGateway, client: Socket, script: list[Op], provider: str = "main") -> list[Json]:
    """Ask for an answer by this script, and read it."""
    gateway.expected += 1
    return client.respond(f"{provider}/{gateway.upstream.play(script)}")


def still_answers(gateway: ResponsesGateway, client: Socket) -> None:
    assert asks(gateway, client, streams(CHAT_ANSWER))[-1]["type"] == "response.completed"


# Providers.


@pytest.mark.parametrize("end", [fin, rst], ids=["closed", "reset"])
@pytest.mark.parametrize("place", range(len(CHAT_PIECES) - 2))
def test_a_stream_that_is_cut_before_its_finish_has_failed(gateway: ResponsesGateway, place: int, end: object) -> None:
    assert callable(end)
    with Socket(gateway.port) as client:
        messages = asks(gateway, client, [head(), *map(chunk, CHAT_PIECES[:place]), end()])
        says = b"Hello" in b"".join(CHAT_PIECES[:place])
        if says:
            assert messages[-1]["type"] == "response.failed"
            assert messages[-1]["response"]["error"]["message"]
        else:
            assert (messages[-1]["type"], messages[-1]["status"]) == ("error", 502)
        entry = gateway.book.entry(gateway.last_call()["request_id"])
        assert entry.outcome == "truncated" if says else entry.outcome in ("failed", "truncated")
        still_answers(gateway, client)


def test_a_provider_that_stalls_times_out(gateway: ResponsesGateway) -> None:
    with Socket(gateway.port) as client:
        messages = asks(gateway, client, [head(), chunk(BEGUN), hang()], "hasty-gap")
        assert messages[-1]["type"] == "response.failed"
        assert gateway.last_call()["code"] == "upstream_timeout_idle"
        messages = asks(gateway, client, [hang()], "hasty")
        assert (messages[-1]["type"], messages[-1]["status"]) == ("error", 504)
        still_answers(gateway, client)


# Clients.

ENDS = ("closes", "resets", "says goodbye", "half a frame")


@pytest.mark.parametrize("how", ENDS)
def test_a_client_that_vanishes_ends_its_call(gateway: ResponsesGateway, how: str) -> None:
    model = gateway.upstream.play([head(), chunk(BEGUN), hang()])
    with Socket(gateway.port) as client:
        gateway.expected += 1
        client.create(f"main/{model}")
        while client.receive()["type"] != "response.output_text.delta":
            pass
        raw = client.raw
        if how == "resets":
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        if how == "half a frame":
            raw.sendall(frame(b"x" * 500)[:100])
        if how == "says goodbye":
            client.connection.close()
        else:
            raw.shutdown(socket.SHUT_RDWR)
        call = gateway.last_call()
    assert (call["ending"], call["code"]) == ("cancelled", "client_gone")
    assert gateway.book.entry(call["request_id"]).outcome == "cancelled"


def test_a_client_that_does_not_read_pauses_the_provider_and_is_disconnected(gateway: ResponsesGateway) -> None:
    model = gateway.upstream.play([head(), chunk(BEGUN), for_ever(chat.sse(chat.says("x" * 4_000)))])
    with Socket(gateway.port, receive_buffer=4_096) as client:
        gateway.expected += 1
        # The library reads in a thread: it stops when its buffer is full.
        client.create(f"main/{model}")
        call = gateway.last_call()
    assert (call["ending"], call["code"]) == ("cancelled", "client_gone")
    (attempt,) = gateway.book.entry(call["request_id"]).attempts
    assert attempt.events < 5_000  # the sockets between the two have room for some megabytes


def test_a_message_of_20_mb_is_read_and_a_larger_one_is_not(gateway: ResponsesGateway) -> None:
    message = json.dumps({"type": "response.create", "model": "main/none", "input": 7, "more": ""})
    with Socket(gateway.port) as client:
        client.connection.send(message.replace('""', f'"{"x" * (20_000_000 - len(message))}"'))
        (answer,) = client.turn()
        assert (answer["status"], answer["error"]["param"]) == (400, "input")
        still_answers(gateway, client)
        client.raw.sendall(frame(b"x" * 20_000_001)[:20])
        assert client.closes()[0] == CloseCode.MESSAGE_TOO_BIG


WRONG = {
    "half a frame": (frame(b"x" * 500)[:100], CloseCode.POLICY_VIOLATION),
    "half a message": (frame(b"{", fin=False), CloseCode.POLICY_VIOLATION),
    "no mask": (frame(b"{}", masked=False), CloseCode.PROTOCOL_ERROR),
    "a wrong opcode": (frame(b"{}", 5), CloseCode.PROTOCOL_ERROR),
    "binary": (frame(b"{}", Opcode.BINARY), CloseCode.UNSUPPORTED_DATA),
    "invalid UTF-8": (frame(b'{"a": "\xff"}'), CloseCode.INVALID_DATA),
    "too many requests": (frame(b"{}") * 40, CloseCode.POLICY_VIOLATION),
    "a flood of pings": (frame(b"", Opcode.PING) * 50_000, CloseCode.POLICY_VIOLATION),
    "a flood of fragments": (
        frame(b"{", fin=False) + frame(b"", Opcode.CONT, fin=False) * 50_000,
        CloseCode.POLICY_VIOLATION,
    ),
    "a flood of requests": (frame(b"[]") * 50_000, CloseCode.POLICY_VIOLATION),
}


@pytest.mark.parametrize("running", [False, True], ids=["idle", "in a response"])
@pytest.mark.parametrize(("sent", "code"), WRONG.values(), ids=WRONG)
def test_wrong_frames_close_the_connection_and_end_its_call(
    gateway: ResponsesGateway, sent: bytes, code: CloseCode, running: bool
) -> None:
    with Socket(gateway.port) as client:
        if running:
            gateway.expected += 1
            client.create(f"main/{gateway.upstream.play([head(), chunk(BEGUN), hang()])}")
            while client.receive()["type"] != "response.output_text.delta":
                pass
        if not running and code == CloseCode.POLICY_VIOLATION and sent.startswith(frame(b"{}")[:2]):
            pytest.skip("without a response they are refused one after the other")
        client.raw.sendall(sent)
        assert client.closes()[0] == code
        if running:
            assert gateway.last_call()["code"] == "client_gone"


def test_pings_in_a_response_are_answered(gateway: ResponsesGateway) -> None:
    with Socket(gateway.port) as client:
        client.create("main/none", input=7)
        assert client.connection.ping().wait(30)
        assert client.turn()[0]["status"] == 400


def test_connections_that_say_nothing_are_bounded_and_others_served(gateway: ResponsesGateway) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(Socket(gateway.port)) for _ in range(40)]
        with pytest.raises(Exception, match="426"):
            stack.enter_context(Socket(gateway.port))
        still_answers(gateway, clients[7])
        model = gateway.upstream.play(streams(CHAT_ANSWER))
        assert gateway.respond(f"main/{model}").status == 200


def test_many_connections_are_served_at_the_same_time(tmp_path: Path) -> None:
    with Upstream() as upstream, start(tmp_path, upstream) as gateway, ExitStack() as stack:
        models = [upstream.play([head(), *map(chunk, CHAT_PIECES), last_chunk()]) for _ in range(60)]
        clients = [stack.enter_context(Socket(gateway.port)) for _ in models]
        for client, model in zip(clients, models, strict=True):
            gateway.expected += 1
            client.create(f"main/{model}", store=False, metadata={"model": model})
        for client, model in zip(clients, models, strict=True):
            last = client.turn()[-1]["response"]
            assert last["metadata"] == {"model": model}
            assert last["output"][0]["content"][0]["text"] == TEXT
        gateway.until(lambda: len(gateway.calls) == 60)
        assert {call["ending"] for call in gateway.calls} == {"completed"}
