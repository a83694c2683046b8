"""Pairs of dialects: an answer of a provider, written for a client of any dialect, is the same answer.

What the client reads must be what the provider's own stream says, streamed or not, except for the differences that the
scenario names; and the losses must be exactly those that it names. So a silent loss fails.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Completion, StreamWriter
from penstock.core.dialects.dialect import Destination
from penstock.core.dialects.gemini.signatures import unwrapped
from penstock.core.dialects.registry import DIALECTS
from penstock.core.hub.completion import Choice
from penstock.core.hub.content import ReasoningPart, ReasoningSeal, TextPart
from penstock.core.hub.losses import LOSSES
from penstock.core.hub.seals import unwrap
from penstock.core.hub.usage import Tokens
from tests import messages as ant
from tests import responses as res
from tests import streams as chat
from tests.translation.provider_answers import ANSWERS
from tests.translation.scenarios import CLIENTS, PROVIDERS, SCENARIOS, Scenario, Seen, in_chat
from tests.translation.support import (
    BEDROCK,
    CHAT,
    COHERE,
    GEMINI,
    ISSUER,
    MESSAGES,
    RESPONSES,
    Json,
    Lost,
    asked,
    facts,
    folded,
    sent,
    translated,
    translated_body,
)

PAIRS = [
    pytest.param(provider, client, scenario, id=f"{provider} for {client}: {name}")
    for name, scenario in SCENARIOS.items()
    for provider in scenario.wires
    for client in CLIENTS
]
WHOLE = [pair for pair in PAIRS if isinstance(scenario := pair.values[2], Scenario) and scenario.is_whole]


def seen(completion: Completion) -> Seen:
    choice = completion.choices[0]
    calls = tuple((call.id, call.name, call.arguments or "{}") for call in choice.tool_calls)
    tokens = Tokens.of(completion.usage) if completion.usage is not None else None
    finish, ending = choice.finish_reason, completion.ending
    return Seen(choice.text, choice.reasoning, choice.refusal, calls, finish, ending, tokens, sources(choice))


def sources(choice: Choice) -> tuple[str, ...]:
    """The URLs that the text cites."""
    citations = [citation for part in choice.parts if isinstance(part, TextPart) for citation in part.citations]
    return tuple(citation.url for citation in citations if citation.url)


def unnamed(losses: Lost) -> Lost:
    """The losses without the names of media: a stream tells the type of one only after it has begun."""
    return [(code, detail if code != "media-dropped" else "") for code, detail in losses]


def repaired(completion: Completion) -> tuple[str, ...]:
    """The defects of what a client reads. Gemini's own form of a blocked prompt is none."""
    return tuple(repair.code for repair in completion.repairs if repair.code != "prompt-blocked")


def test_every_api_is_in_the_matrix() -> None:
    assert set(CLIENTS) == {name for name, dialect in DIALECTS.items() if dialect.surface is not None}
    assert set(PROVIDERS) == {name for name, dialect in DIALECTS.items() if dialect.upstream is not None}
    assert ANSWERS.keys() <= SCENARIOS.keys()
    assert all(scenario.wires for scenario in SCENARIOS.values())


@pytest.mark.parametrize(("provider", "client", "scenario"), PAIRS)
def test_a_streamed_answer(provider: str, client: str, scenario: Scenario) -> None:
    wire = scenario.wires[provider]
    assert seen(folded(provider, wire)) == scenario.seen
    answer, losses = scenario.expected(client)
    for pieces in (0, 1):
        out, declared = translated(provider, client, wire, pieces=pieces)
        got = folded(client, out)
        assert seen(got) == answer
        assert unnamed(declared) == losses
        defects = scenario.defects if client not in scenario.without_defects else ()
        assert repaired(got) == defects
    assert {code for code, _ in losses} <= LOSSES.keys()


@pytest.mark.parametrize(("provider", "client", "scenario"), WHOLE)
def test_an_unstreamed_answer(provider: str, client: str, scenario: Scenario) -> None:
    body = scenario.body(provider)
    assert seen(folded(provider, body)) == scenario.seen
    answer, losses = scenario.expected(client)
    out, declared = translated_body(provider, client, body)
    got = folded(client, out)
    assert seen(got) == answer
    assert sorted(unnamed(declared)) == sorted(losses)
    assert repaired(got) == ()


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "unstreamed"])
def test_a_seal_reaches_a_chat_client_and_can_be_unwrapped(streamed: bool) -> None:
    wire = SCENARIOS["reasoning with a seal"].wires[MESSAGES]
    out, _ = translated(MESSAGES, CHAT, wire)
    if not streamed:
        out = StreamWriter.for_call(CHAT, facts(MESSAGES, CHAT)).write_body(folded(MESSAGES, wire))
    details: Any = folded(CHAT, out).choices[0].message_extras["reasoning_details"]
    assert [(item["type"], item["length"]) for item in details] == [("reasoning.encrypted", 9)]
    assert unwrap(details[0]["data"]) == (ReasoningSeal("anthropic", "EqQB"), ISSUER)


MADE = {
    MESSAGES: ReasoningSeal("anthropic", "EqQB"),
    RESPONSES: ReasoningSeal("openai", "gAAA"),
    GEMINI: ReasoningSeal("gemini", "c2VhbA=="),
    BEDROCK: ReasoningSeal("bedrock", "c2ln"),
}


@pytest.mark.parametrize("provider", MADE)
@pytest.mark.parametrize("client", [MESSAGES, RESPONSES, GEMINI, BEDROCK])
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "unstreamed"])
def test_a_seal_reaches_clients_and_can_be_unwrapped(provider: str, client: str, streamed: bool) -> None:
    """Seals of Anthropic, Google and Amazon for clients of their own APIs are as they were: such clients may call them
    directly."""
    wire = SCENARIOS["reasoning with a seal"].wires[provider]
    out, _ = translated(provider, client, wire)
    if not streamed:
        out = StreamWriter.for_call(client, facts(provider, client)).write_body(folded(provider, wire))
    (part, *_) = folded(client, out).choices[0].parts
    assert isinstance(part, ReasoningPart)
    (seal,) = part.seals
    if provider == client and client in (MESSAGES, GEMINI, BEDROCK):
        assert seal == MADE[provider]
    else:
        wrapped = unwrapped(seal.value) if client == GEMINI else seal.value
        assert unwrap(wrapped) == (MADE[provider], ISSUER)


ASKS: Json = {"role": "user", "content": "Hi"}
ASKS_BEDROCK: Json = {"role": "user", "content": [{"text": "Hi"}]}
ASKS_GEMINI: Json = {"role": "user", "parts": [{"text": "Hi"}]}
# The next request of a client, with the answer that it got in an unstreamed body.
CONTINUED: dict[str, Callable[[Any], Json]] = {
    CHAT: lambda body: {"messages": [ASKS, body["choices"][0]["message"], ASKS], "max_tokens": 100},
    MESSAGES: lambda body: {"messages": [ASKS, {"role": "assistant", "content": body["content"]}, ASKS]},
    RESPONSES: lambda body: {"input": [ASKS, *body["output"], ASKS], "max_output_tokens": 100},
    GEMINI: lambda body: {
        "contents": [ASKS_GEMINI, body["candidates"][0]["content"], ASKS_GEMINI],
        "generationConfig": {"maxOutputTokens": 100},
    },
    BEDROCK: lambda body: {
        "messages": [ASKS_BEDROCK, body["output"]["message"], ASKS_BEDROCK],
        "inferenceConfig": {"maxTokens": 100},
    },
}


@pytest.mark.parametrize("provider", MADE)
@pytest.mark.parametrize("client", CONTINUED)
def test_a_seal_comes_back_to_its_issuer_only(provider: str, client: str) -> None:
    """A client of the provider's own API has its request forwarded, and may call it directly."""
    answer = folded(provider, SCENARIOS["reasoning with a seal"].wires[provider])
    body = json.loads(StreamWriter.for_call(client, facts(provider, client)).write_body(answer))
    fields = CONTINUED[client](body)
    own, losses = asked(client, provider, fields)
    assert MADE[provider].value in json.dumps(own)
    assert losses == []
    if provider != client:
        foreign, losses = sent(client, provider, fields, Destination(model="target", issuer="ffffffff"))
        assert MADE[provider].value not in json.dumps(foreign)
        assert losses in ([("reasoning-dropped", "")], [("seal-dropped", MADE[provider].scheme)])


def test_reasoning_without_a_seal_reaches_a_messages_client_unsigned() -> None:
    wire = SCENARIOS["reasoning"].wires[CHAT]
    out, _ = translated(CHAT, MESSAGES, wire)
    (part, *_) = folded(MESSAGES, out).choices[0].parts
    assert isinstance(part, ReasoningPart)
    assert (part.text, part.seals) == ("Hmm, well", ())


def test_usage_of_another_dialect_has_openai_s_fields_only() -> None:
    wire = SCENARIOS["cached input and reasoning"].wires[MESSAGES]
    out, _ = translated(MESSAGES, CHAT, wire)
    usage = folded(CHAT, out).usage
    assert usage is not None
    assert usage.raw == {
        "prompt_tokens": 100,
        "completion_tokens": 9,
        "total_tokens": 109,
        "prompt_tokens_details": {"cached_tokens": 60},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }


# The APIs whose answers do not name the model.
UNNAMED = (COHERE, BEDROCK)
FALLBACK: Json = {
    "from": {"model": "weir-3"},
    "to": {"model": "weir-2"},
    "trigger": {"type": "refusal", "category": None, "explanation": None},
}


@pytest.mark.parametrize("client", CLIENTS)
def test_an_answer_is_that_of_the_model_which_served_it(client: str) -> None:
    """As Anthropic's SDK relabels its message: the requested model declined, and another one went on."""
    fell_back = [ant.opens(0, "fallback", **FALLBACK), ant.closes(0), ant.opens(1), ant.says("So.", 1), ant.closes(1)]
    wire = ant.answer(*fell_back)
    answer = folded(MESSAGES, wire)
    assert (answer.model, answer.repairs) == ("weir-2", ())
    whole = folded(client, StreamWriter.for_call(client, facts(MESSAGES, client)).write_body(answer))
    out, _ = translated(MESSAGES, client, wire)
    if client in UNNAMED:
        assert b"weir-" not in out
        return
    last = out[out.rindex(b"weir-") :]
    assert (whole.model, last[:6]) == ("weir-2", b"weir-2")


@pytest.mark.parametrize("client", CLIENTS)
def test_the_cache_counters_of_deepseek_are_cached_input(client: str) -> None:
    """https://api-docs.deepseek.com/guides/kv_cache (2026-11): hits and misses, beside the tokens of the prompt."""
    counters = {"prompt_cache_hit_tokens": 60, "prompt_cache_miss_tokens": 40}
    usage = {"prompt_tokens": 100, "completion_tokens": 9, "total_tokens": 109} | counters
    wire = in_chat(chat.says("So."), usage=usage)
    out, _ = translated(CHAT, client, wire)
    body = StreamWriter.for_call(client, facts(CHAT, client)).write_body(folded(CHAT, wire))
    for got in (folded(client, out).usage, folded(client, body).usage):
        assert got is not None
        assert Tokens.of(got) == Tokens(input=100, output=9, cached=60)
        assert client != CHAT or counters.items() <= got.raw.items()


SAYS_SO = res.says_all("So.")
INCOMPLETE = {
    "no reason": (RESPONSES, res.answer(*SAYS_SO, finish=res.stops(None, *res.items_of(SAYS_SO))), None, []),
    "a reason of its own": (
        RESPONSES,
        res.answer(*SAYS_SO, finish=res.stops("steered", *res.items_of(SAYS_SO))),
        {"reason": "steered"},
        [],
    ),
    "a reason of another API": (
        CHAT,
        in_chat(chat.says("So."), finish="weary"),
        None,
        [("field-dropped", "finish_reason weary")],
    ),
}


@pytest.mark.parametrize(("provider", "wire", "details", "losses"), INCOMPLETE.values(), ids=INCOMPLETE)
def test_no_reason_is_invented_for_an_incomplete_response(
    provider: str, wire: bytes, details: Json | None, losses: Lost
) -> None:
    """OpenAI's types have four reasons. A response without one stays without."""
    out, declared = translated(provider, RESPONSES, wire)
    final = json.loads(out.rpartition(b"data: ")[2])
    body = json.loads(StreamWriter.for_call(RESPONSES, facts(provider, RESPONSES)).write_body(folded(provider, wire)))
    assert final["type"] == "response.incomplete"
    for response in (body, final["response"]):
        assert (response["status"], response["incomplete_details"]) == ("incomplete", details)
    assert declared == losses


def test_a_messages_client_gets_input_tokens_without_the_cache() -> None:
    wire = SCENARIOS["cached input and reasoning"].wires[CHAT]
    out, _ = translated(CHAT, MESSAGES, wire)
    usage = folded(MESSAGES, out).usage
    assert usage is not None
    counts = {"input_tokens": 40, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 0, "output_tokens": 9}
    assert {name: usage.raw[name] for name in counts} == counts
