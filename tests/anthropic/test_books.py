"""Calls of the Messages API in the ledger, budgets, log, metrics, traces, the live page and the playground."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import messages as ant
from tests.anthropic.support import (
    ANSWER,
    CHAT_ANSWER,
    TEXT,
    VERSION,
    MessagesGateway,
    answers,
    error,
    id_in,
    message_body,
    start,
    streams,
    text,
)
from tests.faults.client import RawClient, Response, body, post
from tests.faults.upstream import Gate, Upstream, chunk, hang, head, last_chunk
from tests.serve.collectors import Collector, attributes
from tests.serve.support import AdminClient
from tests.serve.support import events as admin_events

pytestmark = pytest.mark.slow

PRICES = """
[prices."claude/weir-2"]
input = 0.5
output = 4.0
[prices."claude/*"]
input = 1.0
output = 10.0
cached = 0.1
cache_write = 1.25
cache_write_1h = 2.0
"""
USAGE = {
    "input_tokens": 10,
    "cache_read_input_tokens": 1_000,
    "cache_creation_input_tokens": 300,
    "cache_creation": {"ephemeral_5m_input_tokens": 200, "ephemeral_1h_input_tokens": 100},
    "output_tokens": 50,
    "service_tier": "standard",
}
# In nanodollars.
COST = 10 * 1_000 + 1_000 * 100 + 200 * 1_250 + 100 * 2_000 + 50 * 10_000


@pytest.fixture(scope="module")
def priced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessagesGateway]:
    with Upstream() as upstream:
        with start(tmp_path_factory.mktemp("priced"), upstream, PRICES, admin={"content": True}) as gateway:
            yield gateway
        gateway.keeps_secrets()


def billed(**usage: object) -> bytes:
    return ant.answer(
        *ant.says_all("Hello"),
        begin=ant.begins(usage=USAGE | {"output_tokens": 1}),
        finish=ant.finishes(usage=USAGE | usage),
    )


def test_caches_are_booked_once_and_at_their_prices(priced: MessagesGateway) -> None:
    response = priced.message(f"claude/{priced.upstream.play(streams(billed()))}")
    entry = priced.book.entry(response.request_id)
    (attempt,) = entry.attempts
    tokens = attempt.tokens
    assert (entry.surface, attempt.measure, tokens.input, tokens.output) == ("messages", "reported", 1_310, 50)
    assert (tokens.cached, tokens.cache_write, tokens.cache_write_1h) == (1_000, 300, 100)
    assert (attempt.cost, attempt.approximate) == (COST, False)


def test_a_chat_client_pays_the_same_for_the_same_answer(priced: MessagesGateway) -> None:
    response = priced.ask(f"claude/{priced.upstream.play(streams(billed()))}", stream=True)
    assert (response.text, response.done) == ("Hello", True)
    entry = priced.book.entry(response.request_id)
    assert (entry.surface, entry.attempts[0].cost) == ("chat", COST)


def test_what_a_compaction_took_is_booked_too(priced: MessagesGateway) -> None:
    steps = [
        {"type": "compaction", "input_tokens": 60_000, "output_tokens": 500},
        {"type": "message", "input_tokens": 10, "output_tokens": 50},
        {"type": "advisor_message", "model": "claude-advisor", "input_tokens": 100, "output_tokens": 10},
    ]
    usage = {"input_tokens": 10, "output_tokens": 50, "iterations": steps}
    wire = ant.answer(*ant.says_all("Hello"), begin=ant.begins(usage={}), finish=ant.finishes(usage=usage))
    response = priced.message(f"claude/{priced.upstream.play(streams(wire))}")
    (attempt,) = priced.book.entry(response.request_id).attempts
    assert (attempt.tokens.input, attempt.tokens.output) == (60_110, 560)
    assert attempt.cost == 60_110 * 1_000 + 560 * 10_000
    assert not attempt.approximate


def fell_back() -> bytes:
    """The requested model declines after two tokens, and another one goes on."""
    declined = {"type": "message", "input_tokens": 5, "output_tokens": 2}
    served = {"type": "fallback_message", "model": "weir-2", "input_tokens": 9, "output_tokens": 6}
    report = {"input_tokens": 9, "output_tokens": 6, "iterations": [declined, served]}
    block = {"from": {"model": "weir-3"}, "to": {"model": "weir-2"}, "trigger": {"type": "refusal", "category": None}}
    blocks = [ant.opens(0), ant.says("Hel"), ant.closes(0), ant.opens(1, "fallback", **block), ant.closes(1)]
    rest = [ant.opens(2), ant.says("lo", 2), ant.closes(2)]
    return ant.answer(*blocks, *rest, begin=ant.begins(usage={}), finish=ant.finishes(usage=report))


def test_a_fallback_survives_and_each_hop_is_booked_at_the_price_of_its_model(priced: MessagesGateway) -> None:
    name, fallbacks = priced.upstream.play(streams(fell_back())), [{"model": "weir-2", "max_tokens": 50}]
    for model in (f"claude/{name}", f"claude/{name}"):
        response = priced.message(model, fallbacks=fallbacks, fallback_credit_token="tok")
        assert b'"type":"fallback","from":{"model":"weir-3"},"to":{"model":"weir-2"}' in response.body
        assert b'"type":"fallback_message"' in response.body
        (attempt,) = priced.book.entry(response.request_id).attempts
        assert (attempt.tokens.input, attempt.tokens.output) == (14, 8)
        assert attempt.cost == 9 * 500 + 6 * 4_000 + 5 * 1_000 + 2 * 10_000
        assert not attempt.approximate
    asked = json.loads(priced.upstream.requests(name)[-1].partition(b"\r\n\r\n")[2])
    assert (asked["fallbacks"], asked["fallback_credit_token"]) == (fallbacks, "tok")


def test_a_chat_client_gets_the_text_of_a_fallback_and_no_block(priced: MessagesGateway) -> None:
    response = priced.ask(f"claude/{priced.upstream.play(streams(fell_back()))}", stream=True)
    assert (response.text, response.done) == ("Hello", True)
    assert b"fallback" not in response.body
    (attempt,) = priced.book.entry(response.request_id).attempts
    assert attempt.cost == 9 * 500 + 6 * 4_000 + 5 * 1_000 + 2 * 10_000


def test_the_request_of_a_fallback_is_a_loss_elsewhere(priced: MessagesGateway) -> None:
    block = {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}, "trigger": None}
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [block, {"type": "text", "text": "So"}]},
    ]
    model = f"main/{priced.upstream.play(streams(CHAT_ANSWER))}"
    response = priced.message(
        model, messages=[*turns, {"role": "user", "content": "On"}], fallbacks="default", fallback_credit_token="tok"
    )
    assert response.status == 200
    assert priced.call(response)["losses"] == {"content-dropped": 1, "field-dropped": 2}
    (request,) = priced.upstream.requests(model.partition("/")[2])
    assert b"fallback" not in request.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize(
    "fallbacks",
    [
        b'[{"model": "weir-9", "model": "weir-2"}]',
        b'[{"model": "weir-9", "mod\\u0065l": "weir-2"}]',
        b'[], "fallbacks": [{"model": "weir-2"}]',
    ],
)
def test_fallbacks_have_one_reading(priced: MessagesGateway, fallbacks: bytes) -> None:
    """Else a provider could read another one than that which the key allows."""
    name = priced.upstream.play(streams(fell_back()))
    body = json.dumps({"model": f"claude/{name}", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]})
    refused = priced.send(post(body.encode()[:-1] + b', "fallbacks": ' + fallbacks + b"}", path="/v1/messages"))
    assert (refused.status, refused.json["error"]["type"]) == (400, "invalid_request_error")
    assert "twice" in refused.json["error"]["message"]
    assert priced.upstream.requests(name) == []


def test_a_key_must_allow_the_models_of_fallbacks(priced: MessagesGateway) -> None:
    name = priced.upstream.play(streams(ANSWER))
    headers = {"Authorization": f"Bearer {priced.create_key('--model', f'claude/{name}', '--model', 'claude/weir-2')}"}
    assert priced.message(f"claude/{name}", headers=headers, fallbacks=[{"model": "weir-2"}]).status == 200
    for fallbacks in ([{"model": "weir-2"}, {"model": "weir-9"}], "default"):
        refused = priced.message(f"claude/{name}", headers=headers, fallbacks=fallbacks)
        status, _, message = error(refused)
        assert status in (403, 404)
        assert "model_not_allowed" in message


def test_searches_that_are_billed_apiece_make_the_cost_approximate(priced: MessagesGateway) -> None:
    wire = billed(server_tool_use={"web_search_requests": 2})
    response = priced.message(f"claude/{priced.upstream.play(streams(wire))}")
    (attempt,) = priced.book.entry(response.request_id).attempts
    assert (attempt.cost, attempt.approximate) == (COST, True)


@pytest.mark.parametrize("provider", ["claude", "main"])
def test_a_budget_ends(priced: MessagesGateway, provider: str) -> None:
    secret = priced.create_key("--budget", "0.0015")
    headers = {"Authorization": f"Bearer {secret}"}
    wire = billed() if provider == "claude" else CHAT_ANSWER
    model = f"{provider}/{priced.upstream.play(streams(wire))}"
    first = priced.message(model, headers=headers)
    assert first.status == 200
    priced.book.entry(first.request_id)
    refused = priced.message(model, headers=headers, max_tokens=100_000)
    status, type, message = error(refused)
    assert (status, type) == (429, "rate_limit_error")
    assert "budget" in message


def test_a_limit_of_requests_says_when_to_come_again(priced: MessagesGateway) -> None:
    headers = {"Authorization": f"Bearer {priced.create_key('--rpm', '1')}"}
    model = f"claude/{priced.upstream.play(streams(ANSWER))}"
    assert priced.message(model, headers=headers).status == 200
    response = priced.message(model, headers=headers)
    assert error(response)[:2] == (429, "rate_limit_error")
    assert int(response.headers["retry-after"]) > 0


def test_log_and_metrics_know_the_call(priced: MessagesGateway) -> None:
    response = priced.message(f"main/{priced.upstream.play(streams(CHAT_ANSWER))}", context_management={})
    line = priced.call(response)
    assert (line["stream"], line["input"], line["output"]) == (True, 7, 4)
    assert line["losses"] == {"field-dropped": 1}
    priced.book.entry(response.request_id)
    admin = AdminClient(priced)
    (reported,) = [entry for entry in admin.get("/admin/entries")["entries"] if entry["id"] == response.request_id]
    assert (reported["surface"], reported["losses"]) == ("messages", {"field-dropped": 1})


def test_traces_name_the_path(tmp_path: Path) -> None:
    with Collector() as collector:
        telemetry = {"otlp": collector.url, "interval_s": 0.2}
        with Upstream() as upstream, start(tmp_path, upstream, telemetry=telemetry) as gateway:
            model = upstream.play(streams(ANSWER))
            assert gateway.message(f"claude/{model}").status == 200
            collector.until(lambda: len(collector.spans) >= 2)
        own, attempt = collector.spans
    assert (own.name, attempt.name) == ("POST /v1/messages", f"chat {model}")
    assert attributes(own.attributes)["http.route"] == "/v1/messages"
    assert attributes(attempt.attributes)["gen_ai.usage.input_tokens"] == 7


def test_thinking_and_tool_calls_are_on_the_live_page(priced: MessagesGateway) -> None:
    wire = ant.wire(
        ant.begins(),
        ant.opens(0, "thinking"),
        ant.thinks("Let me "),
        ant.thinks("see"),
        ant.signs("EqQB"),
        ant.closes(0),
        *ant.says_all("Look:", index=1),
        ant.calls(2, name="weather"),
        ant.passes('{"city"', 2),
        ant.passes(':"Wien"}', 2),
    )
    model = priced.upstream.play([head(), chunk(wire), hang()])
    admin = AdminClient(priced)
    with priced.start_message(f"claude/{model}") as client:
        id = id_in(client.read_until(b"Wien"))
        with admin_events(admin, f"/admin/calls/{id}/text") as reported:
            assert [reported.next() for _ in range(4)] == [
                ("joined", {"missed": 0}),
                ("text", {"text": "Let me see", "kind": "reasoning"}),
                ("text", {"text": "Look:", "kind": "text"}),
                ("text", {"text": 'weather{"city":"Wien"}', "kind": "tool"}),
            ]
            admin.ask("POST", f"/admin/calls/{id}/stop")
            assert reported.next()[0] == "over"
        last = client.read_until(b"event: error").rpartition(b"event: ")[2]
        assert last == b"error"


def played(priced: MessagesGateway, request: bytes, query: str = "") -> Response:
    """A call of the playground."""
    admin = AdminClient(priced)
    headers = {"Host": admin.place, "Authorization": f"Bearer {admin.token}"}
    with RawClient(admin.port) as client:
        client.send(post(request, headers, f"/admin/playground{query}"))
        return client.response()


def test_the_playground_reaches_every_provider(priced: MessagesGateway) -> None:
    model = priced.upstream.play(streams(ANSWER))
    response = played(priced, body(f"claude/{model}", stream=True))
    assert (response.status, response.text, response.done) == (200, TEXT, True)
    assert priced.book.entry(response.request_id).surface == "chat"


def test_the_playground_speaks_messages(priced: MessagesGateway) -> None:
    model = priced.upstream.play(streams(ANSWER))
    response = played(priced, message_body(f"claude/{model}", stream=True), "?api=messages")
    assert (response.status, ant.completion(response.body).text) == (200, TEXT)
    entry = priced.book.entry(response.request_id)
    assert (entry.surface, entry.tags) == ("messages", {"via": "playground"})
    assert response.headers["request-id"] == response.request_id


def test_an_unknown_api_of_the_playground_is_refused(priced: MessagesGateway) -> None:
    for query, param in (("?api=telegraph", "api"), ("?apis=messages", "apis")):
        refused = played(priced, b"{}", query)
        assert (refused.status, refused.error["param"]) == (400, param)
    assert played(priced, b"{}", "?api=telegraph").error["message"].startswith("api is one of chat, messages")


def test_the_apis_are_listed(priced: MessagesGateway) -> None:
    apis = AdminClient(priced).get("/admin/models")["apis"]
    assert {"name": "messages", "title": "Anthropic Messages"} in apis


def test_a_client_that_leaves_costs_what_was_sent(priced: MessagesGateway) -> None:
    gate = Gate()
    half = ant.wire(ant.begins(usage=USAGE), ant.opens(0), ant.says("Hello " * 40))
    model = priced.upstream.play([head(), chunk(half), gate, last_chunk()])
    with priced.start_message(f"claude/{model}") as client:
        id = id_in(client.read_until(b"Hello"))
        end = priced.end_of(client)
    priced.closes(end)
    gate.open()
    entry = priced.book.entry(id)
    assert (entry.outcome, entry.measure) == ("cancelled", "estimated")
    assert entry.tokens.output > 10


def test_an_unstreamed_answer_is_booked_the_same(priced: MessagesGateway) -> None:
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": USAGE,
    }
    model = priced.upstream.play(answers(json.dumps(message).encode()))
    response = priced.message(f"claude/{model}", stream=False)
    assert (response.json["usage"], text(response)) == (USAGE, "Hello")
    assert priced.book.entry(response.request_id).attempts[0].cost == COST
    assert VERSION["anthropic-version"] == "2023-06-01"
