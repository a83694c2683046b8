"""Unstreamed answers of the client's own API: what they become on the fast path and on the slow one.

`differences` is the property: however an answer arrives and ends, both paths record the same of it, and its client gets
the same answer. What is forwarded is forwarded byte for byte, but for the members that the gateway sets.
"""

import asyncio
import functools
import json
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from msgspec import structs

from penstock import Accumulator, Completion, StreamReader, StreamWriter
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.hub.failure import Failure
from penstock.gateway.billing.accounting import entry_of
from penstock.gateway.record.attempt import Attempt, AttemptControl
from penstock.gateway.record.call import Call
from penstock.gateway.record.entry import Entry
from penstock.gateway.record.timeouts import AttemptTimeouts
from penstock.gateway.relay.outcome import Outcome
from penstock.gateway.relay.relay import Relay
from penstock.http.upstream_connection import UpstreamError
from tests.gateway.support import Client, Clock, Connection
from tests.generated_answers import random_answer
from tests.invariants import SlowReader
from tests.mutation import mutated, split
from tests.streams import Json, read

DIALECTS = ("openai_chat", "anthropic_messages", "openai_responses")
"""Those that have typed decoders of unstreamed answers."""
_TIMEOUTS = AttemptTimeouts(first_event_s=60, gap_s=30, heartbeat_s=0, total_s=9000)
OVERRIDES: dict[str, Json] = {
    "openai_responses": {"id": "resp_kept", "previous_response_id": "resp_before", "store": True},
}
"""What the gateway sets in answers of a dialect."""
_STOPPED = Failure(code="budget_exceeded", message="no more", retryable=False)


class Arrival(NamedTuple):
    """How an answer arrives: its reads, whether the last one has the end of the body, and how it ends."""

    reads: list[bytes]
    ends_with_read: bool = True
    end: str = "whole"
    limit: int | None = None
    """The characters at which the budget stops the answer."""


class Became(NamedTuple):
    """What became of an answer."""

    entry: Entry
    attempt: dict[str, object]
    losses: list[object]
    outcomes: list[Outcome]
    body: bytes | None
    """What the client got; None if it got no answer."""
    forwarded: bool
    """Whether no reader has read it."""


class _WholeClient(Client):
    stream = False
    body: bytes | None = None

    def answer(self, body: bytes) -> None:
        self.body = body


@functools.cache
def _loop() -> Clock:
    return Clock()


def became(dialect: str, arrival: Arrival, *, fast: bool) -> Became:
    """What becomes of an answer that arrives in this way."""
    return _loop().run_until_complete(_relay(dialect, arrival, fast=fast))


async def _relay(dialect: str, arrival: Arrival, *, fast: bool) -> Became:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Clock)
    loop.now = 1000.0
    call = Call("req_1", "m", stream=False, started=loop.time(), dialect=dialect)
    attempt = Attempt("p", "m", dialect=dialect)
    call.progress.attempts.append(attempt)
    call.progress.control = control = AttemptControl(attempt)
    outcomes: list[Outcome] = []
    facts = AnswerFacts(call_id=call.id, model="m", created=1_794_902_400, overrides=OVERRIDES.get(dialect, {}))
    reader = (StreamReader if fast else SlowReader)(dialect, max_event=32_000_000)
    reader._whole = True
    client, writer = _WholeClient(), StreamWriter.for_call(dialect, facts)
    relay = Relay(call, client, reader, writer, _TIMEOUTS, outcomes.append)
    if arrival.limit is not None:
        control.limit = arrival.limit
        control.on_limit = lambda: relay.stop(_STOPPED)
    relay.attach(Connection())
    relay.on_head(200, {"content-type": "application/json"})
    for place, data in enumerate(arrival.reads):
        loop.now += 1.0
        relay.on_data(data, last=arrival.ends_with_read and place == len(arrival.reads) - 1)
    _ENDS[arrival.end](relay)
    losses: list[object] = [*call.progress.losses]
    facts_of = {name: getattr(attempt, name) for name in _RECORDED}
    entry = entry_of(call, lambda _, events, chars: events + 1000 * chars)
    return Became(entry, facts_of, losses, outcomes, client.body, client.body is not None and not reader.frames)


_RECORDED = (
    "response_id", "response_model", "finishes", "repairs", "output_chars", "frames", "audio_chars", "tier", "code",
    "answered",
)  # fmt: skip
_ENDS: dict[str, Callable[[Relay], None]] = {
    "whole": lambda relay: relay.on_end(),
    "cut": lambda relay: relay.on_error(UpstreamError("upstream_truncated", "it was closed")),
    "cancelled": lambda relay: relay.cancel(_STOPPED),
    "timed out": lambda relay: relay.time_out(_STOPPED),
}


def random_arrival(body: bytes, random: Random) -> Arrival:
    """A way in which an answer may arrive: mostly in one read, or in some."""
    reads = [body] if random.random() < 0.5 else split(body, random, bytewise=0.0)
    end = "whole" if random.random() < 0.8 else random.choice(list(_ENDS))
    limit = random.randrange(2 * len(body) + 1) if random.random() < 0.1 else None
    return Arrival([*filter(None, reads)], random.random() < 0.7, end, limit)


def differences(dialect: str, arrival: Arrival) -> tuple[list[str], str]:
    """How the two paths differ for an answer; and which of them it took."""
    fast, slow = became(dialect, arrival, fast=True), became(dialect, arrival, fast=False)
    taken = "fast" if fast.forwarded else "slow"
    if taken == "slow":  # the reader may get it at the end of the body, and so find what is in it later
        fast, slow = (each._replace(entry=_without_times(each.entry)) for each in (fast, slow))
    wrong = [
        f"{name}: {ours!r} on the fast path, {theirs!r} on the slow one"
        for name, ours, theirs in zip(Became._fields[:-2], fast, slow, strict=False)
        if ours != theirs
    ]
    if fast.body is None or slow.body is None:
        return wrong + ["only one is an answer"] * (fast.body is not slow.body), taken
    if taken == "slow":
        return wrong + [f"{fast.body!r} is neither {slow.body!r} nor as it came"] * (fast.body != slow.body), taken
    ours, theirs = _read(dialect, fast.body), _read(dialect, slow.body)
    if ours != theirs:
        wrong.append(f"clients read {ours!r}, and on the slow path {theirs!r}")
    stated, written = _stated(json.loads(fast.body)), _stated(json.loads(slow.body))
    if stated != written:
        wrong.append(f"it says {stated!r}, and on the slow path {written!r}")
    return wrong, taken


def _without_times(entry: Entry) -> Entry:
    attempts = tuple(
        structs.replace(each, duration_ms=0, longest_gap_ms=0, stalls=(), first_event_ms=None)
        for each in entry.attempts
    )
    return structs.replace(entry, attempts=attempts)


def _read(dialect: str, body: bytes) -> Completion:
    answer = Accumulator(dialect)
    answer.extend(read(body, reader=StreamReader(dialect, whole=True)))
    return answer.completion


def _stated(value: Any) -> Any:
    """A JSON value without members that say nothing, and without the places of calls in their list."""
    if isinstance(value, list):
        return [_stated(each) for each in value]
    if not isinstance(value, dict):
        return value
    stated = {name: _stated(each) for name, each in value.items()}
    if "function" in stated:
        stated.pop("index", None)
    return {name: each for name, each in stated.items() if each not in (None, "", [], {})}


# Answers to begin with.


def _chat(message: Json, finish: str = "stop", **members: object) -> Json:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "logprobs": None, "finish_reason": finish}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "sluice-1",
        "choices": [choice],
        "usage": {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21},
        **members,
    }


def _message(*content: Json, stop: str = "end_turn", **members: object) -> Json:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "sluice-1",
        "content": [*content],
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 12},
        **members,
    }


def _response(*output: Json, **members: object) -> Json:
    settings: Json = {
        "background": False,
        "completed_at": 1_700_000_009,
        "error": None,
        "frequency_penalty": 0.0,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "presence_penalty": 0.0,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1,
        "truncation": "disabled",
        "user": None,
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": "completed",
        "model": "sluice-1",
        "output": [*output],
        "usage": _RESPONSE_USAGE,
        **settings,
        **members,
    }


def _says(*parts: Json, number: int = 1, **members: object) -> Json:
    whole = {"id": f"msg_{number}", "type": "message", "status": "completed", "role": "assistant", "content": [*parts]}
    return {**whole, **members}


def _calls(number: int, arguments: str) -> Json:
    ids = {"id": f"fc_{number}", "call_id": f"call_{number}"}
    return {**ids, "type": "function_call", "status": "completed", "name": "tide", "arguments": arguments}


def _call(number: int, arguments: str, **members: object) -> Json:
    return {"id": f"call_{number}", "type": "function", "function": {"name": "tide", "arguments": arguments}, **members}


_DETAILS = {
    "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 3,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}
_RESPONSE_USAGE = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
    "output_tokens": 12,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 21,
}
_OUTPUT_TEXT: Json = {"type": "output_text", "annotations": [], "logprobs": [], "text": 'High 🌊 " water'}
_SUMMARY: Json = {"type": "summary_text", "text": "Tides turn."}
_SCHEMA: Json = {"type": "object", "properties": {"port": {"type": "string"}}}
_COUNTS = {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21}
_CHAT: dict[str, Any] = _chat({"content": "High water at 6."})
_TEXT: Json = {"type": "text", "text": 'High 🌊 " water'}
_LOOKS: Json = {"type": "tool_use", "id": "toolu_1", "name": "tide", "input": {"port": "Brest", "days": [1, 2.50, 1e2]}}
HEALTHY: dict[str, dict[str, Json]] = {
    "anthropic_messages": {
        "text": _message(_TEXT),
        "every member": _message(
            _TEXT | {"citations": None},
            stop="stop_sequence",
            stop_sequence="\n",
            stop_details=None,
            container=None,
            context_management=None,
            usage={
                "input_tokens": 9,
                "cache_creation_input_tokens": 7,
                "cache_read_input_tokens": 4,
                "cache_creation": {"ephemeral_5m_input_tokens": 4, "ephemeral_1h_input_tokens": 3},
                "output_tokens": 12,
                "service_tier": "priority",
                "inference_geo": "eu",
            },
        ),
        "thinking and calls": _message(
            {"type": "thinking", "thinking": "Tides turn.", "signature": "c2VhbA=="},
            {"type": "redacted_thinking", "data": "c2VhbA=="},
            _TEXT,
            _LOOKS,
            _LOOKS | {"id": "toolu_2", "input": {}, "caller": {"type": "direct"}},
            stop="tool_use",
        ),
        "two texts, cut off": _message(_TEXT, _TEXT, stop="max_tokens"),
    },
    "openai_responses": {
        "text": _response(_says(_OUTPUT_TEXT)),
        "usage without what was written to a cache": _response(
            _says(_OUTPUT_TEXT), usage=_RESPONSE_USAGE | {"input_tokens_details": {"cached_tokens": 4}}
        ),
        "reasoning, texts and calls": _response(
            {"id": "rs_1", "type": "reasoning", "summary": [_SUMMARY, _SUMMARY]},
            _says(_OUTPUT_TEXT, _OUTPUT_TEXT, phase="commentary"),
            {"id": "rs_2", "type": "reasoning", "summary": [], "content": None, "encrypted_content": None},
            _calls(1, '{"port":"Brest"}'),
            _calls(2, "{}"),
        ),
        "a refusal": _response(_says({"type": "refusal", "refusal": "No."}), _says(_OUTPUT_TEXT, number=2)),
        "settings": _response(
            _says(_OUTPUT_TEXT),
            instructions="Be brief.",
            max_output_tokens=100,
            metadata={"a": "b"},
            reasoning={"effort": "low", "summary": "auto"},
            service_tier="priority",
            text={
                "format": {
                    "type": "json_schema",
                    "name": "tide",
                    "description": None,
                    "schema": _SCHEMA,
                    "strict": True,
                },
                "verbosity": "low",
            },
            tool_choice={"type": "function", "name": "tide"},
            tools=[
                {"type": "function", "name": "tide", "description": None, "parameters": _SCHEMA, "strict": False},
                {"type": "function", "name": "wind", "description": "Wind", "parameters": None, "strict": None},
            ],
            tool_usage={"web_search": {"num_requests": 0}},
            moderation=None,
            prompt_cache_retention="24h",
        ),
    },
    "openai_chat": {
        "text": _CHAT,
        "every member": _chat(
            {"content": 'High 🌊 " water', "refusal": None, "annotations": []},
            service_tier="priority",
            system_fingerprint="fp_1",
            usage=_COUNTS | _DETAILS,
        ),
        "a call": _chat({"content": None, "tool_calls": [_call(1, '{"port":"Brest"}')]}, "tool_calls"),
        "two calls": _chat(
            {"content": "Let me see.", "tool_calls": [_call(1, "{}", index=0), _call(2, '{"a":[1]}', index=1)]},
            "tool_calls",
        ),
        "a call without arguments": _chat({"content": "", "tool_calls": [_call(1, "")]}, "tool_calls"),
        "a refusal": _chat({"content": None, "refusal": "No."}, "content_filter"),
        "reasoning": _chat({"content": "6.", "reasoning_content": "Tides turn."}, "length"),
        "reasoning, other name": _chat({"content": "6.", "reasoning": "Tides turn."}, usage=None),
        "without usage": {name: value for name, value in _CHAT.items() if name != "usage"},
        "other usage": _chat(
            {"content": "6."},
            usage=_COUNTS | {"queue_time": 0.1, "prompt_cache_hit_tokens": 4, "service_tier": "flex", "cost": 1.5e-05},
            x_groq={"id": "req_1"},
        ),
        "two choices": _CHAT
        | {"choices": [_CHAT["choices"][0], _CHAT["choices"][0] | {"index": 1, "finish_reason": "length"}]},
        "many nulls": _chat(
            {"content": "6.", "tool_calls": [], "function_call": None, "audio": None, "reasoning_content": None},
            prompt_logprobs=None,
            kv_transfer_params=None,
        ),
    },
}


@functools.cache
def bodies(dialect: str) -> list[bytes]:
    """The healthy answers of a dialect, in each form in which JSON is written."""
    values = HEALTHY[dialect].values()
    return [
        *(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() for value in values),
        *(json.dumps(value).encode() + b"\n" for value in values),
        *(json.dumps(value, indent=2).encode() for value in values),
    ]


def random_body(dialect: str, random: Random) -> bytes:
    """An answer of a dialect: healthy, or as its types allow, either of them perhaps broken."""
    if random.random() < 0.2:
        generated = random_answer(random, dialect, streamed=False, unknown=random.choice((0, 0.1)))
        body = generated.wire(generated.values)
    else:
        body = random.choice(bodies(dialect))
    return mutated(body, random.choice(bodies(dialect)), random) if random.random() < 0.6 else body


def body_of(dialect: str, stream: bytes) -> bytes:
    """The body that the answer in a stream would have."""
    writer = StreamWriter(dialect, source=dialect, model="m", created=1_794_902_400)
    return writer.write_body(_read(dialect, stream))
