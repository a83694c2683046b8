"""Scenarios of the pairs matrix: one answer in the words of every dialect, and what differs for clients of each.

The answers in dialects that only providers speak are in `provider_answers.py`.

`seen` is the answer itself, whichever provider gives it. `clients` names what a client of a dialect sees otherwise
if the provider speaks another one, and `losses` names what is declared as lost for it.
"""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from penstock import StreamWriter
from penstock.core.hub.usage import Tokens
from tests import gemini as gem
from tests import messages as ant
from tests import responses as res
from tests import streams as chat
from tests.translation.provider_answers import ANSWERS
from tests.translation.support import (
    BEDROCK,
    CHAT,
    COHERE,
    GEMINI,
    MESSAGES,
    OLLAMA,
    RESPONSES,
    Json,
    Lost,
    facts,
    folded,
)

CLIENTS = (CHAT, MESSAGES, RESPONSES, GEMINI, COHERE, BEDROCK)
PROVIDERS = (CHAT, MESSAGES, RESPONSES, GEMINI, OLLAMA, COHERE, BEDROCK)
USAGE: Json = {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11}
TIDE = '{"port":"Brest"}'
CORK = '{"port":"Cork"}'
CITED: Json = {
    "type": "char_location",
    "cited_text": "rises",
    "document_index": 0,
    "document_title": "D",
    "start_char_index": 3,
    "end_char_index": 8,
}
LOGPROB: Json = {"token": "So.", "logprob": -0.1, "bytes": None, "top_logprobs": []}


class Seen(NamedTuple):
    """What a client gets of an answer."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: tuple[tuple[str | None, str, str], ...] = ()
    finish: str | None = "stop"
    ending: str | None = "completed"
    tokens: Tokens | None = Tokens(input=7, output=4)
    sources: tuple[str, ...] = ()
    """The URLs that the text cites."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One answer, as far as the dialects can say it."""

    seen: Seen
    wires: dict[str, bytes] = field(default_factory=dict)
    """The streams of providers, by dialect."""
    bodies: dict[str, bytes] = field(default_factory=dict)
    """The unstreamed answers of providers; those that are not here, Penstock's own writers write."""
    clients: dict[str, Json] = field(default_factory=dict)
    losses: dict[str, Lost] = field(default_factory=dict)
    defects: tuple[str, ...] = ()
    """What is wrong with the answer, in every dialect: so it cannot be a whole body either."""
    without_defects: tuple[str, ...] = ()
    """The clients whose dialect cannot express these defects."""

    @property
    def is_whole(self) -> bool:
        """Whether the answer can be a whole body."""
        return self.seen.ending == "completed" and not self.defects

    def body(self, provider: str) -> bytes:
        """The unstreamed answer of a provider."""
        if provider in self.bodies:
            return self.bodies[provider]
        writer = StreamWriter.for_call(provider, facts(provider, provider))
        return writer.write_body(folded(provider, self.wires[provider]))

    def expected(self, client: str) -> tuple[Seen, Lost]:
        """What a client of another dialect than the provider's sees, and the losses."""
        return self.seen._replace(**self.clients.get(client, {})), self.losses.get(client, [])


def in_chat(*chunks: Json | str, finish: object = "stop", usage: Json = USAGE) -> bytes:
    return chat.sse(chat.begins(), *chunks, chat.finishes(finish), chat.bill(**usage), chat.DONE)


def in_messages(*events: Json | str, reason: str = "end_turn", **fields: Any) -> bytes:
    return ant.answer(*events, finish=ant.finishes(reason, **fields))


def chat_call(number: int, id: str, *pieces: str, name: str = "get_tide") -> list[Json]:
    begin = chat.calls(chat.piece(number, id, name, "") | {"type": "function"})
    return [begin, *(chat.calls(chat.piece(number, arguments=piece)) for piece in pieces)]


def refusal_in_responses(text: str) -> list[Json]:
    place: Json = {"content_index": 0}
    whole = {"type": "refusal", "refusal": text}
    return [
        res.added(0, res.message(status="in_progress")),
        res.of_item("content_part.added", 0, "msg_1", **place, part=whole | {"refusal": ""}),
        res.of_item("refusal.delta", 0, "msg_1", **place, delta=text),
        res.of_item("refusal.done", 0, "msg_1", **place, refusal=text),
        res.of_item("content_part.done", 0, "msg_1", **place, part=whole),
        res.done(0, res.message(whole)),
    ]


def cut_short(*events: Json, reason: str = "max_output_tokens") -> bytes:
    return res.answer(*events, finish=res.stops(reason, *res.items_of(events)))


def usage_in_responses(input: int, output: int, cached: int = 0, reasoning: int = 0, **details: int) -> Json:
    return {
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": cached} | details,
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": input + output,
    }


def gemini_call(id: str, arguments: Json | None = None, name: str = "get_tide") -> Json:
    return {"functionCall": {"name": name, "id": id} | ({"args": arguments} if arguments is not None else {})}


def both(*clients: str, losses: Lost) -> dict[str, Lost]:
    return {client: [*losses] for client in clients}


WEB_PAGE = {
    "type": "url_citation",
    "url_citation": {"url": "https://tides.example", "title": "Tides", "start_index": 0, "end_index": 4},
}
FILTERED: Lost = [("field-dropped", "finish reason content_filter")]
TWO_CALLS = Seen(
    text="Let me look.",
    calls=(("call_1", "get_tide", TIDE), ("call_2", "get_tide", CORK)),
    finish="tool_calls",
)
_SCENARIOS: dict[str, Scenario] = {
    "text": Scenario(
        seen=Seen(text="High tide, low tide"),
        wires={
            CHAT: in_chat(chat.says("High tide"), chat.says(", low tide")),
            MESSAGES: in_messages(*ant.says_all("High tide", ", low tide")),
            RESPONSES: res.answer(*res.says_all("High tide", ", low tide")),
            GEMINI: gem.answer(gem.says("High tide"), gem.says(", low tide")),
        },
    ),
    "reasoning": Scenario(
        seen=Seen(text="So.", reasoning="Hmm, well"),
        wires={
            CHAT: in_chat(
                chat.delta({"reasoning_content": "Hmm"}), chat.delta({"reasoning_content": ", well"}), chat.says("So.")
            ),
        },
    ),
    "reasoning with a seal": Scenario(
        seen=Seen(text="So.", reasoning="Hmm, well"),
        wires={
            MESSAGES: in_messages(
                ant.opens(0, "thinking"),
                ant.thinks("Hmm"),
                ant.thinks(", well"),
                ant.signs("EqQB"),
                ant.closes(0),
                *ant.says_all("So.", index=1),
            ),
            RESPONSES: res.answer(*res.thinks_all(["Hmm", ", well"], seal="gAAA"), *res.says_all("So.", index=1)),
            GEMINI: gem.answer(gem.thinks("Hmm"), gem.thinks(", well", thoughtSignature="c2VhbA=="), gem.says("So.")),
        },
        losses=both(COHERE, losses=[("seal-dropped", "")]),
    ),
    "two parallel calls": Scenario(
        seen=TWO_CALLS,
        wires={
            CHAT: in_chat(
                chat.says("Let me look."),
                *chat_call(0, "call_1", '{"port":', '"Brest"}'),
                *chat_call(1, "call_2", CORK),
                finish="tool_calls",
            ),
            MESSAGES: in_messages(
                *ant.says_all("Let me look."),
                *ant.calls_all(TIDE, index=1, id="call_1"),
                *ant.calls_all(CORK, index=2, id="call_2"),
                reason="tool_use",
            ),
            RESPONSES: res.answer(
                *res.says_all("Let me look."),
                *res.calls_all(TIDE, index=1),
                *res.calls_all(CORK, index=2, id="fc_2", call_id="call_2"),
            ),
            GEMINI: gem.answer(
                gem.says("Let me look."),
                gem.message(gemini_call("call_1", {"port": "Brest"}), gemini_call("call_2", {"port": "Cork"})),
            ),
        },
    ),
    "parallel calls that interleave": Scenario(
        seen=TWO_CALLS,
        wires={
            CHAT: in_chat(
                chat.says("Let me look."),
                *chat_call(0, "call_1", '{"port":'),
                *chat_call(1, "call_2", '{"port":'),
                chat.calls(chat.piece(0, arguments='"Brest"}')),
                chat.calls(chat.piece(1, arguments='"Cork"}')),
                finish="tool_calls",
            ),
        },
    ),
    "a call without arguments": Scenario(
        seen=Seen(calls=(("call_1", "now", "{}"),), finish="tool_calls"),
        wires={
            CHAT: in_chat(*chat_call(0, "call_1", name="now"), finish="tool_calls"),
            MESSAGES: in_messages(
                ant.calls(0, id="call_1", name="now"), ant.passes(""), ant.closes(0), reason="tool_use"
            ),
            RESPONSES: res.answer(*res.calls_all("{}", name="now")),
            GEMINI: gem.answer(gem.message(gemini_call("call_1", name="now"))),
        },
    ),
    "a plan before a call": Scenario(
        seen=Seen(reasoning="I will look it up.", calls=(("call_1", "get_tide", TIDE),), finish="tool_calls"),
    ),
    "log probabilities": Scenario(
        seen=Seen(text="So."),
        wires={
            CHAT: in_chat(chat.chunk(chat.choice({"content": "So."}, logprobs={"content": [LOGPROB]}))),
        },
        losses=both(MESSAGES, GEMINI, COHERE, BEDROCK, losses=[("field-dropped", "logprobs")]),
    ),
    "an empty list of calls beside text": Scenario(
        seen=Seen(text="So."),
        wires={CHAT: in_chat(chat.delta({"content": "So.", "tool_calls": []}), chat.delta({"tool_calls": []}))},
    ),
    "a refusal": Scenario(
        seen=Seen(refusal="I cannot."),
        wires={
            CHAT: in_chat(chat.delta({"refusal": "I cannot."})),
            RESPONSES: res.answer(*refusal_in_responses("I cannot.")),
        },
        clients={
            client: {"text": "I cannot.", "refusal": "", "finish": "content_filter"} for client in (MESSAGES, GEMINI)
        }
        | {client: {"text": "I cannot.", "refusal": ""} for client in (COHERE, BEDROCK)},
    ),
    "a refusal of Claude": Scenario(
        seen=Seen(text="I cannot", finish="content_filter"),
        wires={
            MESSAGES: in_messages(
                *ant.says_all("I cannot"), reason="refusal", stop_details={"type": "refusal", "category": "cyber"}
            ),
        },
        clients={COHERE: {"finish": "stop"}},
        losses=both(CHAT, RESPONSES, GEMINI, BEDROCK, losses=[("field-dropped", "stop_details")])
        | {COHERE: [("field-dropped", "stop_details"), *FILTERED]},
    ),
    "a content filter": Scenario(
        seen=Seen(text="How to", finish="content_filter"),
        wires={
            CHAT: in_chat(chat.says("How to"), finish="content_filter"),
            RESPONSES: cut_short(*res.says_all("How to"), reason="content_filter"),
            GEMINI: gem.answer(gem.says("How to"), finish=gem.finishes("SAFETY")),
        },
        clients={COHERE: {"finish": "stop"}},
        losses={COHERE: FILTERED},
    ),
    "the limit on the output": Scenario(
        seen=Seen(text="Once upon", finish="length"),
        wires={
            CHAT: in_chat(chat.says("Once upon"), finish="length"),
            MESSAGES: in_messages(*ant.says_all("Once upon"), reason="max_tokens"),
            RESPONSES: cut_short(*res.says_all("Once upon")),
            GEMINI: gem.answer(gem.says("Once upon"), finish=gem.finishes("MAX_TOKENS")),
        },
    ),
    "a call that the limit cuts off": Scenario(
        defects=("tool-arguments-broken",),
        seen=Seen(calls=(("call_1", "get_tide", '{"port":"Br'),), finish="length"),
        wires={
            CHAT: in_chat(*chat_call(0, "call_1", '{"port":"Br'), finish="length"),
            MESSAGES: in_messages(
                ant.calls(0, id="call_1"), ant.passes('{"port":"Br'), ant.closes(0), reason="max_tokens"
            ),
            RESPONSES: cut_short(*res.calls_all('{"port":"Br')),
            GEMINI: gem.answer(
                gem.passes(
                    {"jsonPath": "$.port", "stringValue": "Br", "willContinue": True}, name="get_tide", id="call_1"
                ),
                finish=gem.finishes("MAX_TOKENS"),
            ),
        },
        clients={GEMINI: {"calls": (("call_1", "get_tide", '{"input":"{\\"port\\":\\"Br"}'),)}},
        losses={GEMINI: [("arguments-as-text", "get_tide")]},
        without_defects=(GEMINI,),
    ),
    "a stop sequence": Scenario(seen=Seen(text="Once"), wires={CHAT: in_chat(chat.says("Once"))}),
    "a stop sequence that is named": Scenario(
        seen=Seen(text="Once"),
        wires={
            MESSAGES: in_messages(*ant.says_all("Once"), reason="stop_sequence", stop_sequence="END"),
        },
        losses=both(CHAT, RESPONSES, GEMINI, COHERE, losses=[("field-dropped", "stop_sequence")]),
    ),
    "cached input": Scenario(
        seen=Seen(text="So.", tokens=Tokens(input=100, output=9, cached=60)),
        wires={
            CHAT: in_chat(chat.says("So."), usage=chat.counts(100, 9, prompt_tokens_details={"cached_tokens": 60})),
            MESSAGES: in_messages(
                *ant.says_all("So."),
                usage={"input_tokens": 40, "cache_read_input_tokens": 60, "output_tokens": 9},
            ),
            RESPONSES: res.answer(
                *res.says_all("So."),
                finish=res.completes(res.message(res.part("So.")), usage=usage_in_responses(100, 9, 60)),
            ),
            GEMINI: gem.answer(
                gem.says("So."),
                finish=gem.finishes(
                    usage={
                        "promptTokenCount": 100,
                        "cachedContentTokenCount": 60,
                        "candidatesTokenCount": 9,
                        "totalTokenCount": 109,
                    }
                ),
            ),
        },
    ),
    "cached input and reasoning": Scenario(
        seen=Seen(text="So.", tokens=Tokens(input=100, output=9, cached=60, reasoning=5)),
        wires={
            CHAT: in_chat(
                chat.says("So."),
                usage={
                    "prompt_tokens": 100,
                    "completion_tokens": 9,
                    "total_tokens": 109,
                    "prompt_tokens_details": {"cached_tokens": 60},
                    "completion_tokens_details": {"reasoning_tokens": 5},
                },
            ),
            MESSAGES: in_messages(
                *ant.says_all("So."),
                usage={
                    "input_tokens": 40,
                    "cache_read_input_tokens": 60,
                    "output_tokens": 9,
                    "output_tokens_details": {"thinking_tokens": 5},
                },
            ),
            RESPONSES: res.answer(
                *res.says_all("So."),
                finish=res.completes(res.message(res.part("So.")), usage=usage_in_responses(100, 9, 60, 5)),
            ),
            GEMINI: gem.answer(
                gem.says("So."),
                finish=gem.finishes(
                    usage={
                        "promptTokenCount": 100,
                        "cachedContentTokenCount": 60,
                        "candidatesTokenCount": 4,
                        "thoughtsTokenCount": 5,
                        "totalTokenCount": 109,
                    }
                ),
            ),
        },
        clients={BEDROCK: {"tokens": Tokens(input=100, output=9, cached=60)}},
        losses={BEDROCK: [("field-dropped", "usage.reasoning")]},
    ),
    "writes into the cache": Scenario(
        seen=Seen(text="So.", tokens=Tokens(input=100, output=9, cached=60, cache_write=30)),
        wires={
            MESSAGES: in_messages(
                *ant.says_all("So."),
                usage={
                    "input_tokens": 10,
                    "cache_read_input_tokens": 60,
                    "cache_creation_input_tokens": 30,
                    "output_tokens": 9,
                },
            ),
            RESPONSES: res.answer(
                *res.says_all("So."),
                finish=res.completes(
                    res.message(res.part("So.")), usage=usage_in_responses(100, 9, 60, cache_write_tokens=30)
                ),
            ),
        },
        clients={client: {"tokens": Tokens(input=100, output=9, cached=60)} for client in (GEMINI, COHERE)},
        losses=both(GEMINI, COHERE, losses=[("field-dropped", "usage.cache_write")]),
    ),
    "a credit in the usage": Scenario(
        seen=Seen(text="So."),
        wires={
            MESSAGES: in_messages(
                *ant.says_all("So."),
                usage={"input_tokens": 7, "output_tokens": 4, "fallback_credit": {"status": "applied", "tokens": 9}},
            )
        },
        losses=both(
            CHAT, RESPONSES, GEMINI, COHERE, BEDROCK, losses=[("field-dropped", "usage.fallback_credit.tokens")]
        ),
    ),
    "heartbeats": Scenario(
        seen=Seen(text="So."),
        wires={
            CHAT: in_chat(": ping\n\n", chat.says("So.")).replace(b"data: : ping\n\n\n\n", b": ping\n\n"),
            MESSAGES: in_messages(ant.PING, *ant.says_all("So."), ant.PING),
            RESPONSES: res.answer(res.begins()[1], *res.says_all("So."), res.begins()[1]),
            GEMINI: gem.answer(gem.BEAT, gem.says("So."), gem.BEAT),
        },
    ),
    "a fault in mid-stream": Scenario(
        seen=Seen(text="Half", finish=None, ending="failed", tokens=None),
        wires={
            CHAT: chat.sse(
                chat.begins(), chat.says("Half"), {"error": {"message": "Overloaded", "type": "server_error"}}
            ),
            MESSAGES: ant.wire(ant.begins(usage={}), ant.opens(0), ant.says("Half"), ant.error()),
            RESPONSES: res.wire(*res.begins(), *res.says_all("Half")[:3], res.error(), res.fails()),
            GEMINI: gem.wire(gem.says("Half"), {"error": {"code": 503, "message": "Overloaded"}}),
        },
        clients={MESSAGES: {"tokens": Tokens(input=5)}},  # the estimate that stands in `message_start`
    ),
    "a stream that is cut off": Scenario(
        seen=Seen(text="Half", finish=None, ending="truncated", tokens=None),
        wires={
            CHAT: chat.sse(chat.begins(), chat.says("Half")),
            MESSAGES: ant.wire(ant.begins(usage={}), ant.opens(0), ant.says("Half")),
            RESPONSES: res.wire(*res.begins(), *res.says_all("Half")[:3]),
            GEMINI: gem.wire(gem.says("Half")),
        },
        clients={client: {"ending": "failed"} for client in CLIENTS}
        | {MESSAGES: {"ending": "failed", "tokens": Tokens(input=5)}},
    ),
    "two choices": Scenario(
        seen=Seen(text="One"),
        wires={
            CHAT: chat.sse(
                chat.begins(),
                chat.says("One"),
                chat.begins(1),
                chat.says("Two", index=1),
                chat.finishes(),
                chat.finishes(index=1),
                chat.bill(**USAGE),
                chat.DONE,
            ),
            GEMINI: gem.answer(gem.says("One"), gem.says("Two", index=1), gem.finishes(index=1)),
        },
        losses=both(MESSAGES, RESPONSES, COHERE, BEDROCK, losses=[("choices-dropped", "")]),
    ),
    "a tool of Anthropic's own, and a citation": Scenario(
        seen=Seen(text="It rises."),
        wires={
            MESSAGES: in_messages(
                ant.opens(0, "server_tool_use", id="srvtoolu_1", name="web_search", input={}),
                ant.passes('{"query":"tide"}'),
                ant.closes(0),
                ant.opens(1, "web_search_tool_result", tool_use_id="srvtoolu_1", content=[]),
                ant.closes(1),
                ant.opens(2),
                ant.says("It rises.", 2),
                ant.delta(2, "citations_delta", citation=CITED),
                ant.closes(2),
            ),
        },
        losses=both(
            CHAT,
            RESPONSES,
            GEMINI,
            BEDROCK,
            losses=[
                ("server-activity-hidden", "web_search"),
                ("server-activity-hidden", "web_search_tool_result"),
                ("citation-dropped", "D"),
            ],
        )
        | {
            COHERE: [
                ("server-activity-hidden", "web_search"),
                ("server-activity-hidden", "web_search_tool_result"),
            ]
        },
    ),
    "a tool of OpenAI's own": Scenario(
        seen=Seen(text="It rises."),
        wires={RESPONSES: res.answer(*res.SEARCHES, *res.says_all("It rises.", index=1, id="msg_2"))},
        losses=both(CHAT, MESSAGES, GEMINI, COHERE, BEDROCK, losses=[("server-activity-hidden", "web_search_call")]),
    ),
    "code that Gemini executes": Scenario(
        seen=Seen(text="It is 2."),
        wires={GEMINI: gem.answer(gem.message(gem.CODE), gem.message(gem.RESULT), gem.says("It is 2."))},
        losses=both(
            CHAT,
            MESSAGES,
            RESPONSES,
            COHERE,
            BEDROCK,
            losses=[("server-activity-hidden", "executableCode"), ("server-activity-hidden", "codeExecutionResult")],
        ),
    ),
    "a tool of Amazon's own": Scenario(
        seen=Seen(text="It rises."),
        losses=both(
            *(client for client in CLIENTS if client != BEDROCK),
            losses=[("server-activity-hidden", "nova_grounding"), ("server-activity-hidden", "toolResult")],
        ),
    ),
    "a source on the web": Scenario(
        seen=Seen(text="High at noon", sources=("https://tides.example",)),
        wires={
            GEMINI: gem.answer(gem.says("High at noon"), finish=gem.finishes(**gem.GROUNDING)),
            CHAT: in_chat(chat.says("High at noon"), chat.delta({"annotations": [WEB_PAGE]})),
        },
    ),
    "a source beside its text, and one of another kind": Scenario(
        seen=Seen(text="High at noon", sources=("https://tides.example",)),
        wires={CHAT: in_chat(chat.delta({"content": "High at noon", "annotations": [WEB_PAGE, {"type": "file"}]}))},
        losses=both(MESSAGES, RESPONSES, GEMINI, COHERE, BEDROCK, losses=[("citation-dropped", "annotations")]),
    ),
    "audio, and its transcript": Scenario(
        seen=Seen(),
        wires={
            CHAT: in_chat(
                chat.delta({"audio": {"id": "audio_1", "transcript": "High "}}),
                chat.delta({"audio": {"data": "c291bmQ=", "transcript": "at noon", "expires_at": 9}}),
            )
        },
        clients={client: {"text": "High at noon"} for client in CLIENTS if client != CHAT},
        losses=both(*(client for client in CLIENTS if client != CHAT), losses=[("media-dropped", "")]),
    ),
    "a citation of a document": Scenario(
        seen=Seen(text="High at noon"),
        losses=both(CHAT, MESSAGES, RESPONSES, GEMINI, BEDROCK, losses=[("citation-dropped", "D")]),
    ),
    "a citation of a place in a document": Scenario(
        seen=Seen(text="High at noon"),
        losses=both(CHAT, MESSAGES, RESPONSES, GEMINI, losses=[("citation-dropped", "D")]),
    ),
    "a blocked prompt": Scenario(
        seen=Seen(finish="content_filter", tokens=Tokens(input=7)),
        wires={GEMINI: gem.HEALTHY["a blocked prompt"]},
        clients={COHERE: {"finish": "stop"}},
        losses={COHERE: FILTERED},
    ),
    "an image": Scenario(
        seen=Seen(text="Here."),
        wires={
            RESPONSES: res.answer(
                res.added(0, res.IMAGE | {"status": "in_progress"}),
                res.done(0, res.IMAGE | {"result": "d2hvbGU="}),
                *res.says_all("Here.", index=1),
            ),
            GEMINI: gem.answer(gem.message(gem.IMAGE, {"text": "Here."})),
        },
        losses=both(CHAT, MESSAGES, COHERE, losses=[("media-dropped", "")]),
    ),
    "a pause": Scenario(
        seen=Seen(text="So", finish="pause"),
        wires={MESSAGES: in_messages(*ant.says_all("So"), reason="pause_turn")},
        clients={client: {"finish": "stop"} for client in CLIENTS if client != MESSAGES},
        losses=both(*(client for client in CLIENTS if client != MESSAGES), losses=[("pause-unknown", "pause_turn")]),
    ),
}
SCENARIOS = {
    name: replace(
        scenario,
        wires=scenario.wires | {dialect: answer.stream for dialect, answer in ANSWERS.get(name, {}).items()},
        bodies={dialect: answer.body for dialect, answer in ANSWERS.get(name, {}).items() if answer.body},
    )
    for name, scenario in _SCENARIOS.items()
}
