"""The streams that the judges read, and what they are expected to see.

A case is a stream that `StreamWriter` wrote. It comes from bytes that `StreamReader` read (the seeds, our captures, a
sample of the corpus if that is available) or from events in this file. A judge reads the stream with an official SDK
and reports it as a `Seen`; `Case.expected` is the same, from our own `Completion`.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from penstock import (
    Accumulator,
    Choice,
    ChoiceStart,
    Completion,
    End,
    Event,
    Extra,
    Fault,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    Start,
    StreamReader,
    StreamWriter,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
    UsageReport,
)
from penstock.core.dialects.registry import DEFAULT_DIALECT

ROOT = Path(__file__).parents[2]
# As they were sent, by number.
RAW_SEEDS = {seed.name[:3]: seed.read_bytes() for seed in sorted((ROOT / "tests/seeds").glob("*.txt"))}
CAPTURES = sorted((ROOT / "tests/captures").glob("*.sse"))
CORPUS = Path(os.environ.get("PENSTOCK_CORPUS") or ROOT / "../shared/corpus")
NO_CORPUS = "no corpus: set PENSTOCK_CORPUS to the folder that holds its INDEX.jsonl"
# One capture in so many is read by the judges: enough of every provider, and done in seconds.
CORPUS_STEP = 10

# What the writer writes for fields that the provider did not send.
ID, MODEL, CREATED = "chatcmpl-minted", "minted-model", 1700000000


class SeenCall(Struct, frozen=True):
    """A call as a client sees it; a legacy `function_call` has no id."""

    kind: str
    id: str
    name: str
    arguments: str


class SeenChoice(Struct, frozen=True):
    """One of the answers as a client sees it."""

    role: str
    text: str
    reasoning: str
    refusal: str
    calls: list[SeenCall]
    finish: str | None


class Seen(Struct, frozen=True):
    """All that a client sees of an answer; `usage` is the whole object."""

    id: str
    model: str
    created: int
    choices: dict[int, SeenChoice]
    usage: dict[str, object] | None


NOTHING = Seen("", "", 0, {}, None)


class Case(Struct, frozen=True):
    """One stream for the judges: its bytes as we wrote them, and what they say by our own reading."""

    name: str
    wire: bytes
    completion: Completion
    includes_usage: bool

    @property
    def completed(self) -> bool:
        return self.completion.ending == "completed"

    @property
    def expected(self) -> Seen:
        """What a client should see of a completed stream."""
        completion = self.completion
        usage = completion.usage if self.includes_usage else None
        return Seen(
            id=completion.id or ID,
            model=completion.model or MODEL,
            created=completion.created or CREATED,
            choices={choice.index: _seen_choice(choice) for choice in completion.choices},
            usage=None if usage is None else usage.raw | _figures(usage),
        )

    def is_reported_in(self, message: str, code: str | None) -> bool:
        """Whether an error tells a client why the stream is not completed: in the provider's own words if it failed."""
        fault = self.completion.fault
        return fault.message in message if fault else code == self.completion.ending


def read_case(name: str, wire: bytes, *, include_usage: bool = True) -> Case:
    """A provider's bytes, read and written again."""
    reader = StreamReader()
    return _case(name, [reader.feed(wire), reader.close()], include_usage=include_usage)


def built_case(name: str, events: list[Event], *, include_usage: bool = True) -> Case:
    """Events, written."""
    return _case(name, [events], include_usage=include_usage)


def _case(name: str, batches: Iterable[list[Event]], *, include_usage: bool) -> Case:
    answer = Accumulator()
    writer = StreamWriter(source=DEFAULT_DIALECT, include_usage=include_usage, id=ID, model=MODEL, created=CREATED)
    wire = b""
    for events in batches:
        answer.extend(events)
        wire += writer.write(events)
    return Case(name, wire, answer.completion, include_usage)


def _seen_choice(choice: Choice) -> SeenChoice:
    return SeenChoice(
        role=choice.role,
        text=choice.text,
        reasoning=choice.reasoning,
        refusal=choice.refusal,
        calls=[
            SeenCall(
                kind=call.kind,
                id="" if call.kind == "function_call" else call.id or f"call_{ID}_{choice.index}_{number}",
                name=call.name,
                arguments=call.arguments,
            )
            for number, call in enumerate(choice.tool_calls)
        ],
        finish=choice.finish_reason,
    )


def _figures(usage: Usage) -> dict[str, object]:
    figures = {"prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": usage.total}
    return {name: count for name, count in figures.items() if count is not None}


_START = Start("chatcmpl-1", "gpt-4o-mini", 1772356322)
_USAGE = UsageReport(
    Usage(
        input=11,
        output=4,
        total=15,
        reasoning=2,
        raw={
            "prompt_tokens": 11,
            "completion_tokens": 4,
            "total_tokens": 15,
            "completion_tokens_details": {"reasoning_tokens": 2},
            "queue_time": 0.25,
        },
    )
)
_DONE = End("completed")


def _answer(*sent_text: Event, finish: str = "stop") -> list[Event]:
    return [_START, ChoiceStart(0, "assistant"), *sent_text, Finish(0, finish), _USAGE, _DONE]


def _cited(url: str) -> dict[str, object]:
    return {"type": "url_citation", "url_citation": {"url": url, "start_index": 0}}


COMPLETED_EVENTS: dict[str, list[Event]] = {
    "text": _answer(TextDelta(0, "Hello"), TextDelta(0, ", "), TextDelta(0, "world!")),
    "an empty answer": _answer(),
    "length": _answer(TextDelta(0, "Once upon a"), finish="length"),
    "content filter": _answer(TextDelta(0, "How to"), finish="content_filter"),
    "a finish reason of its own": _answer(TextDelta(0, "Hi"), finish="sensitive_topic"),
    "refusal": _answer(RefusalDelta(0, "I cannot "), RefusalDelta(0, "do that.")),
    "reasoning": _answer(ReasoningDelta(0, "Let me "), ReasoningDelta(0, "see."), TextDelta(0, "42")),
    "reasoning in another field": _answer(
        ReasoningDelta(0, "Let me ", "reasoning"), ReasoningDelta(0, "see.", "reasoning"), TextDelta(0, "42")
    ),
    "line ends to some": _answer(
        TextDelta(0, "a\u2028b\u2029c\x85d\ve\ff\x1cg\r\nh\ti"), TextDelta(0, "\n\n"), finish="stop"
    ),
    "text that looks like framing": _answer(
        TextDelta(0, "data: [DONE]\n\ndata: {}\r\n: "), TextDelta(0, "event: error")
    ),
    "emoji": _answer(TextDelta(0, "👩‍👩‍👧‍👦"), TextDelta(0, "🇵🇹 e\u0301 𓀀"), TextDelta(0, '\\ud83d " \\ \x00')),
    "tools in parallel": _answer(
        TextDelta(0, "I shall look."),
        ToolCallStart(0, 0, "call_a", "weather"),
        ToolCallDelta(0, 0, '{"city": '),
        ToolCallStart(0, 1, "call_b", "time"),
        ToolCallDelta(0, 1, '{"zone": "WET'),
        ToolCallDelta(0, 0, '"Lisbon 🌞"}'),
        ToolCallDelta(0, 1, '"}'),
        finish="tool_calls",
    ),
    "a tool without arguments": _answer(ToolCallStart(0, 0, "call_a", "now"), finish="tool_calls"),
    "a tool without id": _answer(
        ToolCallStart(0, 0, None, "now"),
        ToolCallDelta(0, 0, "{}"),
        ToolCallStart(0, 1, None, "now"),
        finish="tool_calls",
    ),
    "a tool with fields of its own": _answer(
        ToolCallStart(0, 0, "call_a", "now"),
        Extra("tool", {"extra_content": {"google": {"thought_signature": "c2ln"}}}, 0, 0),
        ToolCallDelta(0, 0, "{}"),
        finish="tool_calls",
    ),
    "a custom tool": _answer(
        ToolCallStart(0, 0, "call_a", "shell", "custom"),
        ToolCallDelta(0, 0, "ls "),
        ToolCallDelta(0, 0, "-l"),
        finish="tool_calls",
    ),
    "a legacy function call": _answer(
        ToolCallStart(0, 0, None, "weather", "function_call"),
        ToolCallDelta(0, 0, '{"city": '),
        ToolCallDelta(0, 0, '"Lisbon"}'),
        finish="function_call",
    ),
    "three choices, interleaved": [
        _START,
        *(ChoiceStart(choice, "assistant") for choice in range(3)),
        TextDelta(0, "One"),
        TextDelta(2, "Three"),
        TextDelta(1, "Two"),
        ToolCallStart(2, 0, "call_c", "now"),
        TextDelta(0, " and a half"),
        ToolCallDelta(2, 0, "{}"),
        Finish(0, "stop"),
        Finish(1, "length"),
        Finish(2, "tool_calls"),
        _USAGE,
        _DONE,
    ],
    "the second choice first": [
        _START,
        ChoiceStart(1, "assistant"),
        TextDelta(1, "Two"),
        ChoiceStart(0, "assistant"),
        TextDelta(0, "One"),
        Finish(1, "stop"),
        Finish(0, "stop"),
        _DONE,
    ],
    "no envelope": [
        Start("", "", None),
        ChoiceStart(0, "assistant"),
        TextDelta(0, "Hi"),
        Finish(0, "stop"),
        _DONE,
    ],
    "no usage": [_START, ChoiceStart(0, "assistant"), TextDelta(0, "Hi"), Finish(0, "stop"), _DONE],
    "fields of its own, everywhere": [
        _START,
        Extra("chunk", {"prompt_filter_results": [{"prompt_index": 0}], "system_fingerprint": "fp_1"}),
        ChoiceStart(0, "assistant"),
        Extra("choice", {"content_filter_results": {"hate": {"filtered": False}}}, 0),
        Extra("delta", {"annotations": [_cited("https://example.org/1"), _cited("https://example.org/2")]}, 0),
        TextDelta(0, "Hi"),
        Extra("chunk", {"x_groq": {"id": "req_1"}}),
        Finish(0, "stop", "eos"),
        _USAGE,
        _DONE,
    ],
    "a list of its own, in two pieces": _answer(
        Extra("delta", {"annotations": [_cited("https://example.org/1")]}, 0),
        TextDelta(0, "Hi"),
        Extra("delta", {"annotations": [_cited("https://example.org/2")]}, 0),
        TextDelta(0, " there"),
    ),
}

_OVERLOADED: dict[str, object] = {"message": "The server is overloaded; try again", "type": "overloaded", "code": 529}
BROKEN_EVENTS: dict[str, list[Event]] = {
    "failed in the middle": [
        *_answer(TextDelta(0, "Once upon"))[:3],
        Fault("provider-error", "The server is overloaded; try again", 900, 9, _OVERLOADED),
        End("failed", "The server is overloaded; try again"),
    ],
    "failed at once": [Fault("provider-error", "no such model: gtp-4", 0, 1), End("failed", "no such model: gtp-4")],
    "failed, its words in another field": [
        Fault("provider-error", "quota used up", 0, 1, {"message": None, "detail": "quota used up"}),
        End("failed", "quota used up"),
    ],
    "failed, its words an object": [
        Fault("provider-error", "quota used up", 0, 1, {"message": {"detail": "quota used up"}}),
        End("failed", "quota used up"),
    ],
    "a page": [Fault("html-page", "502 Bad Gateway nginx", 0, 1), End("failed", "502 Bad Gateway nginx")],
    "truncated before its first word": [_START, ChoiceStart(0, "assistant"), End("truncated", "no finish reason")],
    "truncated": [*_answer(TextDelta(0, "Once upon"))[:3], _USAGE, End("truncated", "no finish reason for choice 0")],
    "timed out": [*_answer(TextDelta(0, "Once upon"))[:3], End("timed_out")],
    "cancelled": [*_answer(TextDelta(0, "Once upon"))[:3], End("cancelled")],
    "one of two choices truncated": [
        _START,
        ChoiceStart(0, "assistant"),
        ChoiceStart(1, "assistant"),
        TextDelta(0, "One"),
        Finish(0, "stop"),
        End("truncated", "no finish reason for choice 1"),
    ],
}


# Defects of providers that have broken an SDK though we had read them.
READ_WIRES: dict[str, bytes] = {
    "logprobs that are a number": (
        b'data: {"id":"gen-1","object":"chat.completion.chunk","created":1762105041,"model":"qwen3","choices":'
        b'[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}\n\n'
        b'data: {"id":"gen-1","object":"chat.completion.chunk","created":1762105041,"model":"qwen3","choices":'
        b'[{"index":0,"delta":{"content":"Hi"},"logprobs":-0.0000017881393,"finish_reason":"stop"}]}\n\n'
        b"data: [DONE]\n\n"
    ),
}


def written_cases() -> list[Case]:
    """What stands above, written."""
    built = [built_case(name, events) for name, events in (COMPLETED_EVENTS | BROKEN_EVENTS).items()]
    return built + [read_case(name, wire) for name, wire in READ_WIRES.items()]


def seed_cases() -> list[Case]:
    """The seeds, each with usage and without, and each cut off in the middle."""
    cases = []
    for number, wire in RAW_SEEDS.items():
        cases += [
            read_case(f"seed {number}", wire),
            read_case(f"seed {number}, usage not asked for", wire, include_usage=False),
            read_case(f"seed {number}, cut off", wire[: len(wire) // 2]),
        ]
    return cases


def capture_cases() -> list[Case]:
    """Our captures."""
    return [read_case(capture.stem, capture.read_bytes()) for capture in CAPTURES]


def corpus_cases() -> list[Case]:
    """A sample of the corpus's chat streams; empty where the corpus is not at hand."""
    index = CORPUS / "INDEX.jsonl"
    if not index.exists():
        return []
    rows = [json.loads(line) for line in index.read_text().splitlines()]
    files = [row["file"] for row in rows if row["api"] == "chat" and row["kind"] == "stream"]
    return [read_case(file, (CORPUS / file).read_bytes()) for file in files[::CORPUS_STEP]]
