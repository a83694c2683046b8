"""Responses over WebSocket, on real sockets: events, continuations, prewarming, refusals, and how connections end."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from websockets.frames import CloseCode

from tests import responses as res
from tests import streams as chat
from tests.anthropic.support import ANSWER, CHAT_ANSWER, TEXT, sent, streams
from tests.faults.upstream import Gate, Op, Upstream, chunk, head, last_chunk, status
from tests.responses_api.support import ResponsesGateway, start
from tests.serve.support import AdminClient
from tests.sockets import Json, Socket, refusal

pytestmark = pytest.mark.slow

RESPONSES = res.answer(*res.says_all("Hello", ", world"))
PROVIDERS = {"main": CHAT_ANSWER, "claude": ANSWER, "openai": RESPONSES}
CALL = chat.sse(chat.begins(), chat.calls(chat.piece(0, "call_1", "f", "{}")), chat.finishes("tool_calls"), chat.DONE)
REFUSAL = b'{"error": {"message": "no", "type": "invalid_request_error", "param": null, "code": null}}'
JSON = {"content-type": "application/json"}


def text_of(messages: list[Json]) -> str:
    """The text of a response, which must be complete."""
    assert [message["sequence_number"] for message in messages] == list(range(len(messages)))
    last = messages[-1]
    assert last["type"] == "response.completed"
    found = "".join(part["text"] for item in last["response"]["output"] for part in item.get("content") or ())
    deltas = [message["delta"] for message in messages if message["type"] == "response.output_text.delta"]
    assert "".join(deltas) == found
    return found


def error_of(messages: list[Json]) -> tuple[int, str]:
    """The status and code of an error, which is the only message."""
    (message,) = messages
    assert message["type"] == "error"
    assert message["error"]["message"]
    assert message["headers"]["x-request-id"] == message["error"]["request_id"]
    return message["status"], message["error"]["code"]


class Turns:
    """A client on a WebSocket, whose requests are counted as calls."""

    def __init__(self, gateway: ResponsesGateway, client: Socket) -> None:
        self.gateway = gateway
        self.client = client

    def respond(self, model: str, *, calls: int = 1, **fields: object) -> list[Json]:
        self.gateway.expected += calls
        return self.client.respond(model, **fields)


def pieces(wire: bytes) -> list[bytes]:
    return [event + b"\n\n" for event in wire.split(b"\n\n")[:-1]]


def inputs(gateway: ResponsesGateway, model: str) -> list[Any]:
    """The messages of the last request to a chat provider."""
    found: list[Any] = json.loads(sent(gateway, model)[2])["messages"]
    return found


# Answers.


@pytest.mark.parametrize("provider", PROVIDERS)
def test_each_event_is_a_message(gateway: ResponsesGateway, provider: str) -> None:
    model = gateway.upstream.play(streams(*pieces(PROVIDERS[provider])))
    over_http = gateway.respond(f"{provider}/{model}")
    with Socket(gateway.port) as client:
        messages = Turns(gateway, client).respond(f"{provider}/{model}")
    assert text_of(messages) == TEXT
    events = [json.loads(block.split("data: ")[1]) for block in over_http.body.decode().split("\n\n") if "{" in block]
    assert [event["type"] for event in events] == [message["type"] for message in messages]
    assert [set(event) for event in events] == [set(message) for message in messages]
    entry = gateway.book.entry(gateway.last_call()["request_id"])
    assert (entry.surface, entry.outcome, entry.tags) == ("responses", "completed", {"via": "websocket"})
    booked = [(each.tokens, each.cost, each.outcome) for each in entry.attempts]
    over = gateway.book.entry(over_http.request_id).attempts
    assert booked == [(each.tokens, each.cost, each.outcome) for each in over]


def test_responses_follow_one_another_on_one_connection(gateway: ResponsesGateway) -> None:
    first, second = gateway.upstream.play(streams(CHAT_ANSWER)), gateway.upstream.play(streams(ANSWER))
    with Socket(gateway.port) as client:
        gateway.expected += 3
        for model in (f"main/{first}", f"claude/{second}", f"main/{first}"):  # before the first one is answered
            client.create(model)
        assert [text_of(client.turn()) for _ in range(3)] == [TEXT] * 3


def test_a_client_may_send_the_members_of_http(gateway: ResponsesGateway) -> None:
    model = gateway.upstream.play(streams(RESPONSES))
    with Socket(gateway.port) as client:
        turns = Turns(gateway, client)
        assert text_of(turns.respond(f"openai/{model}", stream=False, generate=True, new=[1])) == TEXT
        body = json.loads(sent(gateway, model)[2])
        assert (body["stream"], body["new"], "type" in body, "generate" in body) == (True, [1], False, False)
        assert error_of(turns.respond(f"openai/{model}", background=True, calls=0)) == (400, "invalid_request")


def test_a_large_request_is_read_and_answered(gateway: ResponsesGateway) -> None:
    model = gateway.upstream.play(streams(CHAT_ANSWER))
    text = "y" * 280_000
    with Socket(gateway.port) as client:
        assert text_of(Turns(gateway, client).respond(f"main/{model}", input=text)) == TEXT
    assert inputs(gateway, model) == [{"role": "user", "content": text}]


def test_a_client_that_waits_gets_events_that_say_so(tmp_path: Path) -> None:
    gate = Gate()
    first, *rest = pieces(CHAT_ANSWER)
    script: list[Op] = [head(), chunk(first), gate, *map(chunk, rest), last_chunk()]
    with Upstream() as upstream, start(tmp_path, upstream, server={"heartbeat_s": 0.1}) as gateway:
        model = upstream.play(script)
        with Socket(gateway.port) as client:
            gateway.expected += 1
            client.create(f"main/{model}")
            waited = [client.receive() for _ in range(4)]
            gate.open()
            messages = waited + client.turn()
    assert [message["type"] for message in waited[1:]] == ["response.in_progress"] * 3
    assert text_of(messages) == TEXT


def test_a_client_learns_what_its_call_has_cost_if_it_asks(gateway: ResponsesGateway) -> None:
    model = gateway.upstream.play(streams(CHAT_ANSWER))
    with Socket(gateway.port, headers={"x-penstock-report": "1"}) as client:
        *messages, report, last = Turns(gateway, client).respond(f"main/{model}")
    assert text_of([*messages, last]) == TEXT
    assert (report["type"], report["report"]["outcome"]) == ("penstock.report", "completed")
    assert report["report"]["id"] == gateway.last_call()["request_id"]


# Continuations.


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_response_that_is_not_kept_is_continued_on_its_connection_alone(
    gateway: ResponsesGateway, provider: str
) -> None:
    model = f"{provider}/{gateway.upstream.play(streams(PROVIDERS[provider]))}"
    with Socket(gateway.port) as client, Socket(gateway.port) as other:
        turns = Turns(gateway, client)
        first = turns.respond(model, store=False)[-1]["response"]
        assert first["store"] is False
        second = turns.respond(model, store=False, input="And now?", previous_response_id=first["id"])
        assert (text_of(second), second[-1]["response"]["previous_response_id"]) == (TEXT, first["id"])
        third = turns.respond(model, store=False, input="Well?", previous_response_id=second[-1]["response"]["id"])
        assert text_of(third) == TEXT
        body = json.loads(sent(gateway, model.partition("/")[2])[2])
        given = body.get("messages") or body["input"]
        texts = [json.dumps(message, ensure_ascii=False) for message in given]
        assert len(texts) == 5
        for text, words in zip(texts, ("Say hello.", TEXT, "And now?", TEXT, "Well?"), strict=True):
            assert words in text
        lost = Turns(gateway, other).respond(model, calls=0, store=False, previous_response_id=first["id"])
        assert error_of(lost) == (400, "previous_response_not_found")
        assert lost[0]["error"]["param"] == "previous_response_id"


def test_a_response_that_is_kept_is_continued_anywhere(gateway: ResponsesGateway) -> None:
    model = f"main/{gateway.upstream.play(streams(CHAT_ANSWER))}"
    with Socket(gateway.port) as client, Socket(gateway.port) as other:
        first = Turns(gateway, client).respond(model)[-1]["response"]
        assert first["store"] is True
        assert text_of(Turns(gateway, other).respond(model, previous_response_id=first["id"])) == TEXT
    assert gateway.respond(model, previous_response_id=first["id"]).status == 200


def test_a_continuation_that_fails_cannot_be_tried_again(gateway: ResponsesGateway) -> None:
    model = f"main/{gateway.upstream.play(streams(CHAT_ANSWER))}"
    refused = f"main/{gateway.upstream.play([status(400, JSON, REFUSAL)])}"
    with Socket(gateway.port) as client:
        turns = Turns(gateway, client)
        for asked, fields in ((refused, {}), (model, {"input": 7})):
            first = turns.respond(model, store=False)[-1]["response"]["id"]
            failed = turns.respond(
                asked, calls=int(asked == refused), store=False, previous_response_id=first, **fields
            )
            assert failed[-1]["type"] == "error"
            again = turns.respond(model, calls=0, store=False, previous_response_id=first)
            assert error_of(again) == (400, "previous_response_not_found")


def test_the_output_of_a_call_that_was_not_made_is_refused(gateway: ResponsesGateway) -> None:
    calls, says = gateway.upstream.play(streams(CALL)), gateway.upstream.play(streams(CHAT_ANSWER))
    output = {"type": "function_call_output", "call_id": "call_1", "output": "7"}
    with Socket(gateway.port) as client:
        turns = Turns(gateway, client)
        first = turns.respond(f"main/{calls}", store=False)[-1]["response"]["id"]
        done = turns.respond(f"main/{says}", store=False, input=[output], previous_response_id=first)
        assert text_of(done) == TEXT
        assert inputs(gateway, says)[-1] == {"role": "tool", "tool_call_id": "call_1", "content": "7"}
        wrong = [output | {"call_id": "call_2"}]
        failed = turns.respond(
            f"main/{says}", calls=0, store=False, input=wrong, previous_response_id=done[-1]["response"]["id"]
        )
        assert error_of(failed) == (400, "invalid_request")
        assert "call_2" in failed[0]["error"]["message"]


def test_the_memory_of_a_connection_is_bounded(tmp_path: Path) -> None:
    with Upstream() as upstream, start(tmp_path, upstream, limits={"websocket_memory": 60_000}) as gateway:
        model = f"main/{upstream.play(streams(CHAT_ANSWER))}"
        with Socket(gateway.port) as client, Socket(gateway.port) as large:
            turns = Turns(gateway, client)
            ids = [turns.respond(model, store=False)[-1]["response"]["id"] for _ in range(6)]
            found = [turns.respond(model, calls=0, store=False, previous_response_id=ids[at])[0] for at in (0, 1)]
            assert [message["error"]["code"] for message in found] == ["previous_response_not_found"] * 2
            assert text_of(turns.respond(model, store=False, previous_response_id=ids[2])) == TEXT
            others = Turns(gateway, large)
            lost = others.respond(model, store=False, input="x" * 70_000)[-1]["response"]["id"]
            failed = others.respond(model, calls=0, store=False, previous_response_id=lost)
            assert error_of(failed) == (400, "previous_response_not_found")
            assert text_of(turns.respond(model, store=False, previous_response_id=ids[5])) == TEXT


# Prewarming.


@pytest.mark.parametrize("store", [True, False])
def test_a_request_is_announced_and_then_continued(gateway: ResponsesGateway, store: bool) -> None:
    model = gateway.upstream.play(streams(CHAT_ANSWER))
    with Socket(gateway.port) as client:
        turns = Turns(gateway, client)
        warm = turns.respond(f"main/{model}", generate=False, store=store, instructions="Be brief.")
        assert [message["type"] for message in warm][0::2] == ["response.created", "response.completed"]
        response = warm[-1]["response"]
        assert (response["output"], response["status"], response["store"]) == ([], "completed", store)
        assert (response["usage"]["total_tokens"], response["instructions"]) == (0, "Be brief.")
        call = gateway.last_call()
        assert (call["attempts"], call["ending"]) == ([], "completed")
        entry = gateway.book.entry(call["request_id"])
        assert (entry.outcome, entry.attempts) == ("completed", ())
        assert gateway.upstream.requests(model) == []
        messages = turns.respond(f"main/{model}", store=store, input=[], previous_response_id=response["id"])
        assert text_of(messages) == TEXT
        assert inputs(gateway, model) == [{"role": "user", "content": "Say hello."}]


def test_an_announcement_is_refused_as_the_request_would_be(gateway: ResponsesGateway) -> None:
    with Socket(gateway.port) as client:
        turns = Turns(gateway, client)
        assert error_of(turns.respond("elsewhere/model", generate=False)) == (404, "model_not_found")
        assert error_of(turns.respond("main/x", generate=False, input=7, calls=0)) == (400, "invalid_request")
        assert error_of(turns.respond("main/x", generate="no", calls=0)) == (400, "invalid_request")


# Failures.


MESSAGES: dict[str, tuple[object, str]] = {
    "another type": ({"type": "session.update"}, "invalid_request"),
    "no type": ({"model": "main/x", "input": "Hi"}, "invalid_request"),
    "no object": ([1], "invalid_json"),
    "no model": ({"type": "response.create", "input": "Hi"}, "invalid_request"),
    "no such model": ({"type": "response.create", "input": "Hi", "model": "elsewhere/x"}, "model_not_found"),
    "no input": ({"type": "response.create", "model": "main/x"}, "invalid_request"),
}


@pytest.mark.parametrize(("message", "code"), MESSAGES.values(), ids=MESSAGES)
def test_a_request_that_is_refused_leaves_the_connection_open(
    gateway: ResponsesGateway, message: object, code: str
) -> None:
    model = gateway.upstream.play(streams(CHAT_ANSWER))
    with Socket(gateway.port) as client:
        gateway.expected += code == "model_not_found"
        client.send(message)
        assert error_of(client.turn())[1] == code
        client.connection.send('{"type": "response.create", "type": "x"}')
        assert error_of(client.turn()) == (400, "duplicate_key")
        client.connection.send("{")
        assert error_of(client.turn()) == (400, "invalid_json")
        assert text_of(Turns(gateway, client).respond(f"main/{model}")) == TEXT


def test_the_error_of_a_provider_is_one_message(gateway: ResponsesGateway) -> None:
    limited = gateway.upstream.play([status(429, JSON | {"retry-after": "7"}, REFUSAL)])
    with Socket(gateway.port) as client:
        failed = Turns(gateway, client).respond(f"hasty/{limited}")
        assert error_of(failed)[0] == 429
        assert failed[0]["headers"]["retry-after"] == "7"


# The offer.


def test_an_offer_is_refused_without_a_key_and_with_a_wrong_one(gateway: ResponsesGateway) -> None:
    for key in ("", "wrong"):
        refused = refusal(gateway.port, key=key)
        assert refused.status_code == 401
        assert json.loads(refused.body or b"")["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/messages", "/v1/embeddings", "/v1/responses/input_tokens"]
)
def test_other_apis_are_not_offered_over_websocket(gateway: ResponsesGateway, path: str) -> None:
    assert refusal(gateway.port, path).status_code == 426


def test_the_operator_turns_it_off_or_bounds_it(tmp_path: Path) -> None:
    with Upstream() as upstream:
        (off := tmp_path / "off").mkdir()
        with start(off, upstream, server={"websocket": False}) as gateway:
            refused = refusal(gateway.port)
            assert (refused.status_code, refused.headers["upgrade"]) == (426, "HTTP/1.1")
        with start(tmp_path, upstream, limits={"max_websockets": 2}) as gateway:
            with Socket(gateway.port), Socket(gateway.port):
                refused = refusal(gateway.port)
                assert (refused.status_code, b"max_websockets" in (refused.body or b"")) == (426, True)
            with Socket(gateway.port) as client:
                model = upstream.play(streams(CHAT_ANSWER))
                assert text_of(Turns(gateway, client).respond(f"main/{model}")) == TEXT


ORIGINS = {
    "http://evil.example": 403,
    "null": 403,
    "http://10.0.0.1": 403,
    "http://localhost:3000": 101,
    "http://127.0.0.1": 101,
    "vscode-webview://x": 101,
}


def test_without_a_key_pages_and_hosts_of_others_are_refused(tmp_path: Path) -> None:
    with Upstream() as upstream, start(tmp_path, upstream, server={"keys": []}) as gateway:
        for origin, status in ORIGINS.items():
            if status == 101:
                with Socket(gateway.port, key="", headers={"Origin": origin}) as client:
                    model = upstream.play(streams(CHAT_ANSWER))
                    assert text_of(Turns(gateway, client).respond(f"main/{model}")) == TEXT
            else:
                refused = refusal(gateway.port, key="", headers={"Origin": origin})
                assert (origin, refused.status_code) == (origin, status)
        with gateway.client() as raw:
            raw.send(
                b"GET /v1/responses HTTP/1.1\r\nHost: evil.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
            assert gateway.keep(raw.response("GET")).status == 403


# The end of a connection.


def test_a_connection_without_requests_is_closed(tmp_path: Path) -> None:
    with (
        Upstream() as upstream,
        start(tmp_path, upstream, limits={"websocket_idle_s": 0.5}) as gateway,
        Socket(gateway.port) as client,
    ):
        assert client.closes() == (CloseCode.NORMAL_CLOSURE, "the connection was idle")


def test_a_shutdown_lets_the_current_response_end(tmp_path: Path) -> None:
    gate = Gate()
    first, *rest = pieces(CHAT_ANSWER)
    script: list[Op] = [head(), chunk(first + rest[0]), gate, *map(chunk, rest[1:]), last_chunk()]
    with Upstream() as upstream, start(tmp_path, upstream, server={"drain_s": 20.0}) as gateway:
        model = upstream.play(script)
        with Socket(gateway.port) as client, Socket(gateway.port) as idle:
            gateway.expected += 1
            client.create(f"main/{model}")
            begun = [client.receive() for _ in range(5)]
            gateway.signal(signal.SIGTERM)
            assert idle.closes() == (CloseCode.GOING_AWAY, "the gateway is restarting")
            gate.open()
            assert text_of(begun + client.turn()) == TEXT
            assert client.closes() == (CloseCode.GOING_AWAY, "the gateway is restarting")
        gateway.wait()


def test_a_shutdown_that_takes_too_long_ends_the_response_with_an_error(tmp_path: Path) -> None:
    first, *rest = pieces(CHAT_ANSWER)
    with Upstream() as upstream, start(tmp_path, upstream, server={"drain_s": 0.2}) as gateway:
        model = upstream.play([head(), chunk(first + rest[0]), Gate()])
        with Socket(gateway.port) as client:
            gateway.expected += 1
            client.create(f"main/{model}")
            begun = [client.receive() for _ in range(5)]
            gateway.signal(signal.SIGTERM)
            messages = begun + client.turn()
            assert messages[-1]["type"] == "response.failed"
            assert client.closes()[0] == CloseCode.GOING_AWAY
        gateway.wait()


def test_a_connection_that_is_too_old_is_closed_after_its_response(tmp_path: Path) -> None:
    gate = Gate()
    first, *rest = pieces(CHAT_ANSWER)
    script: list[Op] = [head(), chunk(first + rest[0]), gate, *map(chunk, rest[1:]), last_chunk()]
    with Upstream() as upstream, start(tmp_path, upstream, limits={"websocket_max_age_s": 0.5}) as gateway:
        model = upstream.play(script)
        with Socket(gateway.port) as client, Socket(gateway.port) as idle:
            gateway.expected += 1
            client.create(f"main/{model}")
            begun = [client.receive() for _ in range(5)]
            for each in (idle, client):
                assert error_of(each.turn()) == (400, "websocket_connection_limit_reached")
                assert each.closes() == (CloseCode.NORMAL_CLOSURE, "the connection has reached its maximum age")
                if each is idle:
                    gate.open()
                    assert text_of(begun + client.turn()) == TEXT


def test_a_key_that_is_revoked_is_refused_on_an_open_connection(tmp_path: Path) -> None:
    """The key is checked for each request, not only for the offer."""
    with Upstream() as upstream, start(tmp_path, upstream) as gateway:
        admin = AdminClient(gateway)
        secret, key = admin.make(name="leaver")
        model = upstream.play(streams(CHAT_ANSWER))
        with Socket(gateway.port, key=secret) as client:
            turns = Turns(gateway, client)
            assert text_of(turns.respond(f"main/{model}")) == TEXT
            assert admin.ask("POST", f"/admin/keys/{key['id']}/revoke")[0] == 200
            gateway.until(lambda: turns.respond("main/x", input=7, calls=0)[0]["status"] == 401)
            assert error_of(turns.respond(f"main/{model}", calls=0)) == (401, "invalid_api_key")
