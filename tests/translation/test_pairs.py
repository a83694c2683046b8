"""Pairs of dialects: an answer of a provider, written for a client of the other dialect, is the same answer.

Each scenario is one answer in the words of both dialects. What the client reads must be what the provider's own stream
says, streamed or not, except for the differences that the scenario names; and the losses must be exactly those that it
names. So a silent loss fails.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from penstock import Accumulator, Completion, StreamReader, StreamWriter
from penstock.core.content import ReasoningPart, ReasoningSeal
from penstock.core.losses import LOSSES
from penstock.core.seals import unwrap
from penstock.core.usage import Tokens
from tests import messages as ant
from tests import streams as chat
from tests.translation.support import CHAT, ISSUER, MESSAGES, Json, Lost, facts, translated

USAGE: Json = {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11}
TIDE = '{"port":"Brest"}'


class Seen(NamedTuple):
    """What a client gets of an answer."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: tuple[tuple[str | None, str, str], ...] = ()
    finish: str | None = "stop"
    ending: str | None = "completed"
    tokens: Tokens | None = Tokens(input=7, output=4)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One answer in both dialects; `chat_client` and `messages_client` name what differs for such a client."""

    seen: Seen
    chat: bytes | None = None
    messages: bytes | None = None
    chat_client: Json = field(default_factory=dict)
    messages_client: Json = field(default_factory=dict)
    chat_losses: Lost = field(default_factory=list)
    messages_losses: Lost = field(default_factory=list)
    defects: tuple[str, ...] = ()
    """What is wrong with the answer, in either dialect: so it cannot be a whole body either."""

    def wire(self, provider: str) -> bytes:
        """The provider's stream."""
        wire = self.chat if provider == CHAT else self.messages
        assert wire is not None
        return wire


def in_chat(*chunks: Json | str, finish: object = "stop", usage: Json = USAGE) -> bytes:
    return chat.sse(chat.begins(), *chunks, chat.finishes(finish), chat.bill(**usage), chat.DONE)


def in_messages(*events: Json | str, reason: str = "end_turn", **fields: Any) -> bytes:
    return ant.answer(*events, finish=ant.finishes(reason, **fields))


def chat_call(number: int, id: str, *pieces: str, name: str = "get_tide") -> list[Json]:
    begin = chat.calls(chat.piece(number, id, name, "") | {"type": "function"})
    return [begin, *(chat.calls(chat.piece(number, arguments=piece)) for piece in pieces)]


TWO_CALLS = Seen(
    text="Let me look.",
    calls=(("call_1", "get_tide", TIDE), ("call_2", "get_tide", '{"port":"Cork"}')),
    finish="tool_calls",
)
SCENARIOS: dict[str, Scenario] = {
    "text": Scenario(
        seen=Seen(text="High tide, low tide"),
        chat=in_chat(chat.says("High tide"), chat.says(", low tide")),
        messages=in_messages(*ant.says_all("High tide", ", low tide")),
    ),
    "reasoning": Scenario(
        seen=Seen(text="So.", reasoning="Hmm, well"),
        chat=in_chat(
            chat.delta({"reasoning_content": "Hmm"}), chat.delta({"reasoning_content": ", well"}), chat.says("So.")
        ),
        messages=in_messages(
            ant.opens(0, "thinking"),
            ant.thinks("Hmm"),
            ant.thinks(", well"),
            ant.signs("EqQB"),
            ant.closes(0),
            *ant.says_all("So.", index=1),
        ),
    ),
    "two parallel calls": Scenario(
        seen=TWO_CALLS,
        chat=in_chat(
            chat.says("Let me look."),
            *chat_call(0, "call_1", '{"port":', '"Brest"}'),
            *chat_call(1, "call_2", '{"port":"Cork"}'),
            finish="tool_calls",
        ),
        messages=in_messages(
            *ant.says_all("Let me look."),
            *ant.calls_all(TIDE, index=1, id="call_1"),
            *ant.calls_all('{"port":"Cork"}', index=2, id="call_2"),
            reason="tool_use",
        ),
    ),
    "parallel calls that interleave": Scenario(
        seen=TWO_CALLS,
        chat=in_chat(
            chat.says("Let me look."),
            *chat_call(0, "call_1", '{"port":'),
            *chat_call(1, "call_2", '{"port":'),
            chat.calls(chat.piece(0, arguments='"Brest"}')),
            chat.calls(chat.piece(1, arguments='"Cork"}')),
            finish="tool_calls",
        ),
    ),
    "a call without arguments": Scenario(
        seen=Seen(calls=(("call_1", "now", "{}"),), finish="tool_calls"),
        chat=in_chat(*chat_call(0, "call_1", name="now"), finish="tool_calls"),
        messages=in_messages(ant.calls(0, id="call_1", name="now"), ant.passes(""), ant.closes(0), reason="tool_use"),
    ),
    "an empty list of calls beside text": Scenario(
        seen=Seen(text="So."),
        chat=in_chat(chat.delta({"content": "So.", "tool_calls": []}), chat.delta({"tool_calls": []})),
    ),
    "a refusal": Scenario(
        seen=Seen(refusal="I cannot."),
        chat=in_chat(chat.delta({"refusal": "I cannot."})),
        messages_client={"text": "I cannot.", "refusal": "", "finish": "content_filter"},
    ),
    "a refusal of Claude": Scenario(
        seen=Seen(text="I cannot", finish="content_filter"),
        messages=in_messages(
            *ant.says_all("I cannot"), reason="refusal", stop_details={"type": "refusal", "category": "cyber"}
        ),
        chat_losses=[("field-dropped", "stop_details")],
    ),
    "the limit on the output": Scenario(
        seen=Seen(text="Once upon", finish="length"),
        chat=in_chat(chat.says("Once upon"), finish="length"),
        messages=in_messages(*ant.says_all("Once upon"), reason="max_tokens"),
    ),
    "a call that the limit cuts off": Scenario(
        defects=("tool-arguments-broken",),
        seen=Seen(calls=(("call_1", "get_tide", '{"port":"Br'),), finish="length"),
        chat=in_chat(*chat_call(0, "call_1", '{"port":"Br'), finish="length"),
        messages=in_messages(ant.calls(0, id="call_1"), ant.passes('{"port":"Br'), ant.closes(0), reason="max_tokens"),
    ),
    "a stop sequence": Scenario(
        seen=Seen(text="Once"),
        chat=in_chat(chat.says("Once")),
        messages=in_messages(*ant.says_all("Once"), reason="stop_sequence", stop_sequence="END"),
    ),
    "cached input and reasoning": Scenario(
        seen=Seen(text="So.", tokens=Tokens(input=100, output=9, cached=60, reasoning=5)),
        chat=in_chat(
            chat.says("So."),
            usage={
                "prompt_tokens": 100,
                "completion_tokens": 9,
                "total_tokens": 109,
                "prompt_tokens_details": {"cached_tokens": 60},
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
        ),
        messages=in_messages(
            *ant.says_all("So."),
            usage={
                "input_tokens": 40,
                "cache_read_input_tokens": 60,
                "output_tokens": 9,
                "output_tokens_details": {"thinking_tokens": 5},
            },
        ),
    ),
    "writes into the cache": Scenario(
        seen=Seen(text="So.", tokens=Tokens(input=100, output=9, cached=60, cache_write=30, cache_write_1h=10)),
        messages=in_messages(
            *ant.says_all("So."),
            usage={
                "input_tokens": 10,
                "cache_read_input_tokens": 60,
                "cache_creation_input_tokens": 30,
                "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 10},
                "output_tokens": 9,
            },
        ),
        chat_client={"tokens": Tokens(input=100, output=9, cached=60)},
    ),
    "heartbeats": Scenario(
        seen=Seen(text="So."),
        chat=in_chat(": ping\n\n", chat.says("So.")).replace(b"data: : ping\n\n\n\n", b": ping\n\n"),
        messages=in_messages(ant.PING, *ant.says_all("So."), ant.PING),
    ),
    "a fault in mid-stream": Scenario(
        seen=Seen(text="Half", finish=None, ending="failed", tokens=None),
        chat=chat.sse(chat.begins(), chat.says("Half"), {"error": {"message": "Overloaded", "type": "server_error"}}),
        messages=ant.wire(ant.begins(usage={}), ant.opens(0), ant.says("Half"), ant.error()),
        messages_client={"tokens": Tokens(input=5)},  # the estimate that stands in `message_start`
    ),
    "a stream that is cut off": Scenario(
        seen=Seen(text="Half", finish=None, ending="truncated", tokens=None),
        chat=chat.sse(chat.begins(), chat.says("Half")),
        messages=ant.wire(ant.begins(usage={}), ant.opens(0), ant.says("Half")),
        chat_client={"ending": "failed"},
        messages_client={"ending": "failed", "tokens": Tokens(input=5)},
    ),
    "two choices": Scenario(
        seen=Seen(text="One"),
        chat=chat.sse(
            chat.begins(),
            chat.says("One"),
            chat.begins(1),
            chat.says("Two", index=1),
            chat.finishes(),
            chat.finishes(index=1),
            chat.bill(**USAGE),
            chat.DONE,
        ),
        messages_losses=[("choices-dropped", "")],
    ),
    "a tool of the provider's own, and a citation": Scenario(
        seen=Seen(text="It rises."),
        messages=in_messages(
            ant.opens(0, "server_tool_use", id="srvtoolu_1", name="web_search", input={}),
            ant.passes('{"query":"tide"}'),
            ant.closes(0),
            ant.opens(1, "web_search_tool_result", tool_use_id="srvtoolu_1", content=[]),
            ant.closes(1),
            ant.opens(2),
            ant.says("It rises.", 2),
            ant.delta(2, "citations_delta", citation={"type": "char_location", "document_title": "D"}),
            ant.closes(2),
        ),
        chat_losses=[
            ("server-activity-hidden", "web_search"),
            ("server-activity-hidden", "web_search_tool_result"),
            ("citation-dropped", "D"),
        ],
    ),
    "a pause": Scenario(
        seen=Seen(text="So", finish="pause"),
        messages=in_messages(*ant.says_all("So"), reason="pause_turn"),
        chat_client={"finish": "stop"},
        chat_losses=[("pause-unknown", "pause_turn")],
    ),
}
PAIRS = [
    pytest.param(provider, client, scenario, id=f"{provider} for {client}: {name}")
    for name, scenario in SCENARIOS.items()
    for provider, client in ((CHAT, MESSAGES), (MESSAGES, CHAT))
    if (scenario.chat if provider == CHAT else scenario.messages) is not None
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


def expected(scenario: Scenario, client: str) -> tuple[Seen, Lost]:
    differs = scenario.chat_client if client == CHAT else scenario.messages_client
    losses = scenario.chat_losses if client == CHAT else scenario.messages_losses
    return scenario.seen._replace(**differs), losses


@pytest.mark.parametrize(("provider", "client", "scenario"), PAIRS)
def test_a_streamed_answer(provider: str, client: str, scenario: Scenario) -> None:
    wire = scenario.wire(provider)
    assert seen(folded(provider, wire)) == scenario.seen
    answer, losses = expected(scenario, client)
    for pieces in (0, 1):
        out, lost = translated(provider, client, wire, pieces=pieces)
        got = folded(client, out)
        assert seen(got) == answer
        assert lost == losses
        assert tuple(repair.code for repair in got.repairs) == scenario.defects
    assert {code for code, _ in losses} <= LOSSES.keys()


@pytest.mark.parametrize(("provider", "client", "scenario"), WHOLE)
def test_an_unstreamed_answer(provider: str, client: str, scenario: Scenario) -> None:
    wire = scenario.wire(provider)
    body = StreamWriter.for_call(provider, facts(provider, provider)).write_body(folded(provider, wire))
    whole = folded(provider, body)
    assert seen(whole) == scenario.seen
    answer, losses = expected(scenario, client)
    writer = StreamWriter.for_call(client, facts(provider, client))
    got = folded(client, writer.write_body(whole))
    assert seen(got) == answer
    assert sorted((loss.code, loss.detail) for loss in writer.losses) == sorted(losses)
    assert got.repairs == ()


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "unstreamed"])
def test_a_seal_reaches_a_chat_client_and_can_be_unwrapped(streamed: bool) -> None:
    wire = SCENARIOS["reasoning"].wire(MESSAGES)
    out, _ = translated(MESSAGES, CHAT, wire)
    if not streamed:
        out = StreamWriter.for_call(CHAT, facts(MESSAGES, CHAT)).write_body(folded(MESSAGES, wire))
    details: Any = folded(CHAT, out).choices[0].message_extras["reasoning_details"]
    assert [(item["type"], item["length"]) for item in details] == [("reasoning.encrypted", 9)]
    assert unwrap(details[0]["data"]) == (ReasoningSeal("anthropic", "EqQB"), ISSUER)


def test_reasoning_without_a_seal_reaches_a_messages_client_unsigned() -> None:
    wire = SCENARIOS["reasoning"].wire(CHAT)
    out, _ = translated(CHAT, MESSAGES, wire)
    (part, *_) = folded(MESSAGES, out).choices[0].parts
    assert isinstance(part, ReasoningPart)
    assert (part.text, part.seals) == ("Hmm, well", ())


def test_usage_of_another_dialect_has_openai_s_fields_only() -> None:
    wire = SCENARIOS["cached input and reasoning"].wire(MESSAGES)
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
    wire = SCENARIOS["cached input and reasoning"].wire(CHAT)
    out, _ = translated(CHAT, MESSAGES, wire)
    usage = folded(MESSAGES, out).usage
    assert usage is not None
    counts = {"input_tokens": 40, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 0, "output_tokens": 9}
    assert {name: usage.raw[name] for name in counts} == counts
