"""Every recorded stream of Anthropic Messages: read as the oracle reads it, cut anywhere, written and read again."""

import json

import pytest

from penstock import (
    Completion,
    OpaquePart,
    ReasoningPart,
    Repair,
    StreamReader,
    StreamWriter,
    TextPart,
    ToolCall,
    Usage,
)
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.registry import upstream_dialect
from penstock.core.hub.usage import Tokens
from tests.core.anthropic.oracle import SentText, expect, payloads
from tests.corpus import CORPUS, captures, cuts_of, pieces_of
from tests.invariants import CountingReader, SlowReader, read_in_chunks
from tests.messages import DIALECT, completion, events_of, fold
from tests.streams import by_event, read

CAPTURES = captures("anthropic")
STREAMS = {capture.file: capture.data for capture in CAPTURES if capture.status == 200}
ERRORS = {capture.file: capture.data for capture in CAPTURES if capture.status != 200 and capture.data.startswith(b"{")}
FACTS = AnswerFacts(call_id="req_1", model="m", created=0)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CAPTURES, reason=f"there is no corpus in {CORPUS}; PENSTOCK_CORPUS may name another"),
]


def sent_text(answer: Completion) -> SentText:
    """A completion in the oracle's terms."""
    (choice,) = answer.choices
    kinds = {TextPart: "text", ReasoningPart: "thinking", ToolCall: "tool_use"}
    return SentText(
        ending=answer.ending or "",
        text=choice.text,
        thinking=choice.reasoning,
        signatures=[seal.value for part in choice.parts if isinstance(part, ReasoningPart) for seal in part.seals],
        calls=[(call.id or "", call.name, call.arguments) for call in choice.tool_calls],
        kinds=[part.type if isinstance(part, OpaquePart) else kinds[type(part)] for part in choice.parts],
        stop_reason=choice.native_finish_reason,
        stop_sequence=choice.stop_sequence,
        tokens=booked(answer.usage),
    )


def booked(usage: Usage | None) -> dict[str, dict[str, int]]:
    assert usage is not None
    reports = {"": usage} | {other.model: other.usage for other in usage.others}
    counts = {model: Tokens.of(report) for model, report in reports.items()}
    return {
        model: {
            "input": tokens.input,
            "cached": tokens.cached,
            "cache_write": tokens.cache_write,
            "output": tokens.output,
        }
        for model, tokens in counts.items()
    }


def alike(kinds: list[str]) -> list[str]:
    """Kinds of blocks without what the hub does not tell apart by kind."""
    calls = {"server_tool_use": "tool_use", "mcp_tool_use": "tool_use", "redacted_thinking": "thinking"}
    return [calls.get(kind, kind) for kind in kinds]


def test_every_stream_is_read_as_the_oracle_reads_it() -> None:
    for file, data in STREAMS.items():
        mine, wanted = sent_text(completion(data)), expect(data)
        assert mine.ending == wanted.ending, file
        if wanted.ending == "failed":
            continue  # two answers in one file
        assert completion(data).choices[0].finish_reason == wanted.finish, file
        for call, (id, name, given) in zip(mine.calls, wanted.calls, strict=True):
            assert call[:2] == (id, name), file
            assert call[2] == (given if isinstance(given, str) else json.dumps(given, separators=(",", ":"))), file
        wanted.calls = mine.calls
        wanted.kinds = alike(wanted.kinds)
        assert mine == wanted, file


def test_every_stream_says_the_same_however_it_is_split() -> None:
    for number, (file, data) in enumerate(STREAMS.items()):
        events = read(data, reader=SlowReader(DIALECT))
        assert events_of(data) == events, file
        assert events_of(*by_event(data)) == events, file
        assert events_of(*pieces_of(number, data)) == events, file
        assert read_in_chunks(by_event(data), StreamReader(DIALECT)) == events, file


def test_text_takes_the_fast_path() -> None:
    """Nearly all text and thinking deltas do, except those with an escape and the first of each block."""
    fast = plain = 0
    for data in STREAMS.values():
        reader = CountingReader(DIALECT)
        read(*by_event(data), reader=reader)
        fast += reader.frames - reader.slow_frames
        texts = [
            event["delta"].get("text") or event["delta"].get("thinking") or ""
            for event in payloads(data)
            if event["type"] == "content_block_delta"
        ]
        plain += sum(bool(text) and text.isprintable() and not {'"', "\\"} & set(text) for text in texts)
    assert fast > 0.75 * plain


def test_every_stream_is_the_same_when_it_was_written_and_read_again() -> None:
    for file, data in STREAMS.items():
        events = [event for event in events_of(data) if not isinstance(event, Repair)]
        writer = StreamWriter.for_call(DIALECT, FACTS)
        again = [event for event in events_of(writer.write(events)) if not isinstance(event, Repair)]
        assert writer.losses == [], file
        if fold(events).ending == "failed":
            continue  # the client gets the failure, but not the provider's events before it
        assert again == events, file


def test_every_answer_is_the_same_as_an_unstreamed_body() -> None:
    for file, data in STREAMS.items():
        answer = completion(data)
        if answer.ending != "completed" or any(repair.code == "tool-arguments-broken" for repair in answer.repairs):
            continue
        writer = StreamWriter.for_call(DIALECT, FACTS)
        again = completion(writer.write_body(answer))
        assert writer.losses == [], file
        assert again.repairs == (), file
        assert sent_text(again).calls == [(id, name, compact(given)) for id, name, given in sent_text(answer).calls], (
            file
        )
        for name in ("ending", "text", "thinking", "signatures", "kinds", "stop_reason", "stop_sequence", "tokens"):
            assert getattr(sent_text(again), name) == getattr(sent_text(answer), name), file
        assert (again.id, again.model, again.extras) == (answer.id, answer.model, extras(answer)), file


def compact(arguments: str) -> str:
    return json.dumps(json.loads(arguments), separators=(",", ":"), ensure_ascii=False)


def extras(answer: Completion) -> dict[str, object]:
    return answer.extras | answer.choices[0].extras


def test_a_stream_that_is_cut_is_completed_only_if_it_has_a_stop_reason() -> None:
    for number, (file, data) in enumerate(STREAMS.items()):
        events = by_event(data)
        for count in cuts_of(number, len(events)):
            cut = b"".join(events[:count])
            wanted = expect(cut).ending if b"message_start" in cut else "failed"
            assert completion(cut).ending == wanted, (file, count)


def test_every_error_is_read() -> None:
    upstream = upstream_dialect(DIALECT)
    for file, data in ERRORS.items():
        wanted = json.loads(data)["error"]["message"]
        assert upstream.read_error(data).message == wanted, file
        fault = completion(data).fault
        assert fault is not None, file
        assert (fault.code, fault.message) == ("provider-error", wanted), file
