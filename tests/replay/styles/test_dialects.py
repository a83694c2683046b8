"""Answers of one dialect in the style of another: the same text, reasoning, calls, finish and usage, at the same times.

The seeds, the healthy streams of each dialect and a sample of the corpus are written in every style.
"""

import json
from collections.abc import Iterator
from itertools import accumulate

import pytest

from penstock import Completion, Event, StreamReader
from penstock.capture import Capture, CaptureEnd, CaptureHeader, Read
from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.core.hub.usage import Tokens
from penstock.replay.playback import PlaybackOptions, playback_of
from penstock.replay.styles import write_in_style
from penstock.replay.styles.catalog import load_style, style_names
from tests.corpus import captures
from tests.judges.cases import BROKEN_EVENTS, COMPLETED_EVENTS
from tests.legal import violations
from tests.messages import DIALECT as MESSAGES
from tests.messages import HEALTHY, answer, begins, error, fold, opens, says, wire
from tests.provider_streams import HEALTHY as PROVIDERS
from tests.responses import DIALECT as RESPONSES
from tests.seed_streams import CASES
from tests.streams import DONE, bill, counts, read, sse
from tests.streams import begins as begins_chat
from tests.streams import finishes as finishes_chat
from tests.streams import says as says_chat

MESSAGES_STYLE = "anthropic"
# The corpus's names of the APIs, and one capture in how many is tried.
APIS = {
    DEFAULT_DIALECT: "chat",
    MESSAGES: "anthropic",
    RESPONSES: "responses",
    "ollama": "ollama",
    "cohere": "cohere",
}
CORPUS_STEP = 40
# The dialects that have arguments as an object.
WHOLE_ARGUMENTS = ("gemini", "ollama")
# What the translation cannot express: more than one choice, and kinds of calls that only chat has.
ONLY_CHAT = {"two choices", "a legacy call", "a custom tool", "several choices"}


def read_as(dialect: str, *data: bytes) -> list[Event]:
    return read(*data, reader=StreamReader(dialect))


def again(events: list[Event], name: str, recorded_as: str) -> Completion:
    """The answer, written in a style and read again."""
    style = load_style(name)
    events = read_as(style.dialect, *write_in_style(events, style, recorded_as=recorded_as))
    assert violations(events) == []
    return fold(events)


def compacted(arguments: str) -> str:
    """The arguments without white space between their values."""
    return json.dumps(json.loads(arguments or "{}"), separators=(",", ":"))


def facts(answer: Completion, dialect: str = "") -> object:
    """What a translation into a dialect keeps: the first choice, without the provider's own tools; and the usage, if it
    is known.

    A refusal of chat is a text with a finish reason of its own in Messages, and arguments are never empty there.
    """
    compact = dialect in WHOLE_ARGUMENTS
    tokens = Tokens.of(answer.usage) if answer.usage is not None else Tokens()
    choices = [
        (
            choice.text + choice.refusal,
            choice.reasoning,
            [
                (call.id, call.name, compacted(call.arguments) if compact else call.arguments or "{}")
                for call in choice.tool_calls
                if not call.server
            ],
            choice.finish_reason
            if answer.ending == "completed" and choice.finish_reason != "content_filter"
            else "stop",
        )
        for choice in answer.choices[:1]
    ]
    return choices, answer.ending, (tokens.input, tokens.output)


def recorded() -> Iterator[tuple[str, str, bytes]]:
    """Streams by name, dialect and bytes."""
    for number, seed in CASES.items():
        yield f"seed {number}", DEFAULT_DIALECT, seed.wire
    for name, data in HEALTHY.items():
        yield name, MESSAGES, data
    for dialect, streams in PROVIDERS.items():
        for name, data in streams.items():
            yield f"{dialect}, {name}", dialect, data


RECORDED = {name: (dialect, data) for name, dialect, data in recorded()}


@pytest.mark.parametrize("style", style_names())
@pytest.mark.parametrize(("dialect", "data"), RECORDED.values(), ids=RECORDED)
def test_a_recording_says_the_same_in_every_style(dialect: str, data: bytes, style: str) -> None:
    events = read_as(dialect, data)
    written = load_style(style).dialect
    assert facts(again(events, style, dialect), written) == facts(fold(events), written)


@pytest.mark.parametrize("name", [name for name in COMPLETED_EVENTS if name not in ONLY_CHAT])
def test_every_kind_of_answer_becomes_a_message(name: str) -> None:
    events = COMPLETED_EVENTS[name]
    before, after = fold(events), again(events, MESSAGES_STYLE, DEFAULT_DIALECT)
    assert after.ending == "completed"
    assert after.id.startswith("msg_01")
    for number, call in enumerate(after.choices[0].tool_calls):
        old = before.choices[0].tool_calls[number]
        assert (call.name, call.arguments) == (old.name, old.arguments or "{}")
        assert call.id == old.id or (old.id is None and str(call.id).startswith("toolu_01"))
    assert after.text == before.text + before.choices[0].refusal


@pytest.mark.parametrize("name", BROKEN_EVENTS)
def test_what_is_not_completed_is_not_completed(name: str) -> None:
    before = fold(BROKEN_EVENTS[name])
    after = again(BROKEN_EVENTS[name], MESSAGES_STYLE, DEFAULT_DIALECT)
    assert after.ending != "completed"
    assert (after.text, after.fault is not None) == (before.text, before.fault is not None or not before.choices)


def test_an_error_of_one_dialect_is_an_error_of_the_other() -> None:
    cut = wire(begins(), opens(), says("At noon"), error("Overloaded"))
    after = again(read_as(MESSAGES, cut), "openai", MESSAGES)
    assert (after.text, after.ending) == ("At noon", "failed")
    assert after.fault is not None
    assert "Overloaded" in after.fault.message


def test_a_stream_that_just_stops_has_no_end_in_any_dialect() -> None:
    cut = wire(begins(), opens(), says("At noon"))
    written = b"".join(write_in_style(read_as(MESSAGES, cut), load_style("openai"), recorded_as=MESSAGES))
    assert b"error" not in written
    assert b"[DONE]" not in written
    assert fold(read_as(DEFAULT_DIALECT, written)).ending == "truncated"


def test_signatures_survive_in_their_own_dialect_only() -> None:
    events = read_as(MESSAGES, HEALTHY["thinking"])
    own = b"".join(write_in_style(events, load_style(MESSAGES_STYLE), recorded_as=MESSAGES))
    assert b'"signature":"c2VhbA=="' in own
    assert b"c2VhbA" not in b"".join(write_in_style(events, load_style("openai"), recorded_as=MESSAGES))


def test_reasoning_that_is_counted_separately_is_output_of_a_message() -> None:
    usage = bill(**counts(28, 8) | {"total_tokens": 327, "completion_tokens_details": {"reasoning_tokens": 291}})
    after = again(
        read(sse(begins_chat(), says_chat("Hi"), finishes_chat(), usage, DONE)), MESSAGES_STYLE, DEFAULT_DIALECT
    )
    assert after.usage is not None
    assert (after.usage.input, after.usage.output, after.usage.reasoning) == (28, 299, 291)


@pytest.mark.parametrize("style", [MESSAGES_STYLE, "openai-responses", "groq"])
@pytest.mark.parametrize("dialect", APIS)
@pytest.mark.slow
def test_captures_of_others_say_the_same(dialect: str, style: str) -> None:
    wrong = []
    for capture in captures(APIS[dialect])[::CORPUS_STEP]:
        events = read_as(dialect, capture.data)
        before = fold(events)
        # Without a choice there is no answer; a fault of our own reader was never sent, and the rest may be missing.
        if not before.choices or before.fault is not None or len(before.choices) > 1:
            continue
        if facts(again(events, style, dialect)) != facts(before):
            wrong.append(capture.file)
    assert wrong == []


# Timing, headers and errors.

READS = (wire(begins(), opens(), says("Hel")), wire(says("lo")), answer(says(", world"))[len(wire(begins())) :])
SPOKEN = Capture(
    CaptureHeader(status=200), tuple(Read(float(number + 1), data) for number, data in enumerate(READS)), None
)


def test_each_event_leaves_when_its_words_were_sent() -> None:
    playback = playback_of(SPOKEN, PlaybackOptions(style=load_style("openai")), recorded_as=MESSAGES)
    times = list(accumulate(piece.after_s for piece in playback.pieces))
    for words, at_s in ((b'"Hel"', 1.0), (b'"lo"', 2.0), (b", world", 3.0), (b"[DONE]", 3.0)):
        assert next(at for at, piece in zip(times, playback.pieces, strict=True) if words in piece.data) == at_s


def error_response(body: bytes, status: int = 429) -> Capture:
    return Capture(CaptureHeader(status=status), (Read(1.0, body),), CaptureEnd(1.0, "complete"))


def test_an_error_response_is_in_the_words_of_the_dialect() -> None:
    options = PlaybackOptions(style=load_style(MESSAGES_STYLE))
    refused = error_response(b'{"error": {"message": "slow down", "type": "rate_limit"}}')
    playback = playback_of(refused, options, recorded_as=DEFAULT_DIALECT)
    (body,) = playback.pieces
    assert (playback.status, body.after_s, playback.headers["content-type"]) == (429, 1.0, "application/json")
    assert b'"type":"rate_limit_error","message":"slow down' in body.data


def test_an_error_that_cannot_be_read_is_played_as_it_is() -> None:
    options = PlaybackOptions(style=load_style(MESSAGES_STYLE))
    for data in (b"<html>busy</html>", b""):
        playback = playback_of(error_response(data, 502), options, recorded_as=DEFAULT_DIALECT)
        assert b"".join(piece.data for piece in playback.pieces) == data
