"""Pairs of dialects: an answer of a provider, written for a client of any dialect, is the same answer.

What the client reads must be what the provider's own stream says, streamed or not, except for the differences that the
scenario names; and the losses must be exactly those that it names. So a silent loss fails.
"""

from typing import Any

import pytest

from penstock import Accumulator, Completion, StreamReader, StreamWriter
from penstock.core.content import ReasoningPart, ReasoningSeal
from penstock.core.dialects.gemini.signatures import unwrapped
from penstock.core.losses import LOSSES
from penstock.core.seals import unwrap
from penstock.core.usage import Tokens
from tests.translation.scenarios import DIALECTS, SCENARIOS, Scenario, Seen
from tests.translation.support import CHAT, GEMINI, ISSUER, MESSAGES, RESPONSES, Lost, facts, translated

PAIRS = [
    pytest.param(provider, client, scenario, id=f"{provider} for {client}: {name}")
    for name, scenario in SCENARIOS.items()
    for provider in scenario.wires
    for client in DIALECTS
]
WHOLE = [
    pair
    for pair in PAIRS
    if isinstance(scenario := pair.values[2], Scenario) and scenario.seen.ending == "completed" and not scenario.defects
]


def seen(completion: Completion) -> Seen:
    choice = completion.choices[0]
    calls = tuple((call.id, call.name, call.arguments or "{}") for call in choice.tool_calls)
    tokens = Tokens.of(completion.usage) if completion.usage is not None else None
    return Seen(choice.text, choice.reasoning, choice.refusal, calls, choice.finish_reason, completion.ending, tokens)


def folded(dialect: str, wire: bytes) -> Completion:
    reader, answer = StreamReader(dialect), Accumulator(dialect)
    answer.extend([*reader.feed(wire), *reader.close()])
    return answer.completion


def unnamed(losses: Lost) -> Lost:
    """The losses without the names of media: a stream tells the type of one only after it has begun."""
    return [(code, detail if code != "media-dropped" else "") for code, detail in losses]


def repaired(completion: Completion) -> tuple[str, ...]:
    """The defects of what a client reads. Gemini's own form of a blocked prompt is none."""
    return tuple(repair.code for repair in completion.repairs if repair.code != "prompt-blocked")


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
    wire = scenario.wires[provider]
    body = StreamWriter.for_call(provider, facts(provider, provider)).write_body(folded(provider, wire))
    whole = folded(provider, body)
    assert seen(whole) == scenario.seen
    answer, losses = scenario.expected(client)
    writer = StreamWriter.for_call(client, facts(provider, client))
    got = folded(client, writer.write_body(whole))
    assert seen(got) == answer
    assert sorted(unnamed([(loss.code, loss.detail) for loss in writer.losses])) == sorted(losses)
    assert repaired(got) == ()


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "unstreamed"])
def test_a_seal_reaches_a_chat_client_and_can_be_unwrapped(streamed: bool) -> None:
    wire = SCENARIOS["reasoning"].wires[MESSAGES]
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
}


@pytest.mark.parametrize("provider", MADE)
@pytest.mark.parametrize("client", MADE)
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "unstreamed"])
def test_a_seal_reaches_clients_and_can_be_unwrapped(provider: str, client: str, streamed: bool) -> None:
    """Anthropic's and Google's seals for clients of their own APIs are as they were: such clients may call them
    directly."""
    wire = SCENARIOS["reasoning"].wires[provider]
    out, _ = translated(provider, client, wire)
    if not streamed:
        out = StreamWriter.for_call(client, facts(provider, client)).write_body(folded(provider, wire))
    (part, *_) = folded(client, out).choices[0].parts
    assert isinstance(part, ReasoningPart)
    (seal,) = part.seals
    if provider == client and client in (MESSAGES, GEMINI):
        assert seal == MADE[provider]
    else:
        wrapped = unwrapped(seal.value) if client == GEMINI else seal.value
        assert unwrap(wrapped) == (MADE[provider], ISSUER)


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


def test_a_messages_client_gets_input_tokens_without_the_cache() -> None:
    wire = SCENARIOS["cached input and reasoning"].wires[CHAT]
    out, _ = translated(CHAT, MESSAGES, wire)
    usage = folded(MESSAGES, out).usage
    assert usage is not None
    counts = {"input_tokens": 40, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 0, "output_tokens": 9}
    assert {name: usage.raw[name] for name in counts} == counts
