"""Half of a surrogate pair whose other half never comes is text that was sent: every reader replaces it and says so."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Accumulator, StreamReader
from tests import bedrock, cohere, gemini, messages, ollama, responses, streams
from tests.event_streams import message

HALF = "\ud83c"
TEXT = f"a{HALF}"
ARGUMENTS = '{"a":"' + HALF


def escaped(wire: Callable[..., bytes], *events: Any) -> bytes:
    """The events as a stream, with halves as escapes: no encoder writes them otherwise."""
    marked = json.loads(json.dumps(events).replace(r"\ud83c", "HALF"))
    return wire(*marked).replace(b"HALF", rb"\ud83c")


def of_bedrock(*events: tuple[str, dict[str, Any]]) -> bytes:
    """Its messages have a checksum, so that the escapes cannot be put in later."""
    return b"".join(message(json.dumps(body).encode(), event_type=name) for name, body in events)


# The dialect, and a stream whose last text or arguments end with half of a pair: with its usual end, and cut before.
TEXTS: dict[str, tuple[str, bytes, bytes]] = {
    "chat": (
        "openai_chat",
        escaped(streams.sse, streams.begins(), streams.says(TEXT)),
        streams.sse(streams.finishes(), streams.DONE),
    ),
    "messages": (
        messages.DIALECT,
        escaped(messages.wire, messages.begins(), messages.opens(), messages.says(TEXT)),
        messages.wire(messages.closes(), messages.finishes(), messages.STOPS),
    ),
    "gemini": (gemini.DIALECT, escaped(gemini.wire, gemini.says(TEXT)), gemini.wire(gemini.finishes())),
    "responses": (
        responses.DIALECT,
        escaped(responses.wire, *responses.begins(), responses.added(0, responses.message()), responses.says(TEXT)),
        responses.wire(responses.completes()),
    ),
    "responses, repeated as a whole": (
        responses.DIALECT,
        escaped(responses.wire, *responses.begins(), *responses.says_all(TEXT)[:-1]),
        responses.wire(responses.completes()),
    ),
    "cohere": (
        cohere.DIALECT,
        escaped(cohere.wire, cohere.BEGIN, *cohere.says_all(TEXT)[:-1]),
        cohere.wire(cohere.closes(), cohere.ends()),
    ),
    "ollama": (
        ollama.DIALECT,
        escaped(ollama.wire, ollama.message(TEXT)),
        ollama.wire(ollama.message() | ollama.ends()),
    ),
    "bedrock": (
        bedrock.DIALECT,
        bedrock.BEGIN + of_bedrock(("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": TEXT}})),
        bedrock.block("Stop") + bedrock.stops() + bedrock.bill(),
    ),
}
BROKEN: dict[str, tuple[str, bytes, bytes]] = {
    "bedrock, the next block begins": (
        bedrock.DIALECT,
        TEXTS["bedrock"][1],
        bedrock.says_all("b", index=1) + bedrock.stops() + bedrock.bill(),
    ),
    "messages, the next block begins": (
        messages.DIALECT,
        TEXTS["messages"][1],
        messages.wire(messages.opens(1), messages.says("b", 1), messages.finishes(), messages.STOPS),
    ),
}
CALLS: dict[str, tuple[str, bytes, bytes]] = {
    "chat": (
        "openai_chat",
        escaped(streams.sse, streams.begins(), streams.calls(streams.piece(0, "c", "f", ARGUMENTS))),
        streams.sse(streams.finishes("tool_calls"), streams.DONE),
    ),
    "messages": (
        messages.DIALECT,
        escaped(messages.wire, messages.begins(), messages.calls(), messages.passes(ARGUMENTS)),
        messages.wire(messages.closes(), messages.finishes("tool_use"), messages.STOPS),
    ),
    "gemini": (
        gemini.DIALECT,
        escaped(
            gemini.wire, gemini.passes({"jsonPath": "$.a", "stringValue": HALF, "willContinue": True}, name="get_tide")
        ),
        gemini.wire(gemini.finishes()),
    ),
    "responses": (
        responses.DIALECT,
        escaped(
            responses.wire, *responses.begins(), responses.added(0, responses.function("")), responses.passes(ARGUMENTS)
        ),
        responses.wire(responses.completes()),
    ),
    "cohere": (
        cohere.DIALECT,
        escaped(cohere.wire, cohere.BEGIN, *cohere.calls_all("c", ARGUMENTS)[:-1]),
        cohere.wire(cohere.closes(kind="tool-call"), cohere.ends("TOOL_CALL")),
    ),
    "bedrock": (
        bedrock.DIALECT,
        bedrock.BEGIN
        + bedrock.block("Start", start=bedrock.call("c"))
        + of_bedrock(("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"toolUse": {"input": ARGUMENTS}}})),
        bedrock.block("Stop") + bedrock.stops("tool_use") + bedrock.bill(),
    ),
}


def folded(dialect: str, wire: bytes) -> Accumulator:
    reader, answer = StreamReader(dialect), Accumulator(dialect)
    answer.extend(reader.feed(wire))
    answer.extend(reader.close())
    return answer


@pytest.mark.parametrize("cut", [False, True], ids=["ended", "cut"])
@pytest.mark.parametrize(("dialect", "wire", "end"), TEXTS.values(), ids=TEXTS)
def test_half_a_pair_at_the_end_of_a_text_is_replaced_and_reported(
    dialect: str, wire: bytes, end: bytes, cut: bool
) -> None:
    completion = folded(dialect, wire if cut else wire + end).completion
    assert completion.text == "a\N{REPLACEMENT CHARACTER}"
    assert "lone-surrogate" in {repair.code for repair in completion.repairs}
    assert "deltas-missing" not in {repair.code for repair in completion.repairs}


@pytest.mark.parametrize(("dialect", "wire", "end"), BROKEN.values(), ids=BROKEN)
def test_half_a_pair_in_a_block_that_was_not_ended_stands_before_the_next_block(
    dialect: str, wire: bytes, end: bytes
) -> None:
    completion = folded(dialect, wire + end).completion
    assert completion.text == "a\N{REPLACEMENT CHARACTER}b"
    assert completion.ending == "completed"
    assert {repair.code for repair in completion.repairs} >= {"block-unclosed", "lone-surrogate"}


@pytest.mark.parametrize(("dialect", "wire", "end"), CALLS.values(), ids=CALLS)
def test_half_a_pair_at_the_end_of_arguments_is_replaced_and_reported(dialect: str, wire: bytes, end: bytes) -> None:
    completion = folded(dialect, wire + end).completion
    (call,) = completion.choices[0].tool_calls
    assert call.arguments == '{"a":"\N{REPLACEMENT CHARACTER}'
    assert "lone-surrogate" in {repair.code for repair in completion.repairs}
