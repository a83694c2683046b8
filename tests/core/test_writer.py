"""What `StreamWriter` writes: the shape that every client of the dialect relies on."""

import json
from pathlib import Path

import pytest

from penstock import (
    ChoiceStart,
    End,
    Event,
    Finish,
    Start,
    StreamReader,
    StreamWriter,
    TextDelta,
    Usage,
    UsageReport,
)
from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.core.hub.usage import Tokens
from tests.streams import DONE, begins, completion, finishes, fold, read, says, sse

FOLDER = Path(__file__).parent.parent
STREAMS = {path.stem: path.read_bytes() for path in sorted((*FOLDER.glob("seeds/*"), *FOLDER.glob("captures/*.sse")))}
COMPLETED = {name: wire for name, wire in STREAMS.items() if fold(read(wire)).ending == "completed"}
BROKEN = {name: wire for name, wire in STREAMS.items() if name not in COMPLETED}


def chunks(wire: bytes, *, include_usage: bool) -> list[dict[str, object]]:
    """What is written for a stream, as parsed JSON; its framing is checked on the way."""
    written = StreamWriter(source=DEFAULT_DIALECT, include_usage=include_usage).write(read(wire))
    *frames, last, rest = written.split(b"\n\n")
    assert rest == b""
    if not last.startswith(b"data: {"):
        assert last == b"data: [DONE]"
    else:
        frames.append(last)
    assert all(frame.startswith(b"data: {") and b"\n" not in frame and b"\r" not in frame for frame in frames)
    return [json.loads(frame.removeprefix(b"data: ")) for frame in frames]


@pytest.mark.parametrize("wire", COMPLETED.values(), ids=COMPLETED)
def test_a_completed_stream_has_the_shape_that_clients_rely_on(wire: bytes) -> None:
    written = chunks(wire, include_usage=False)
    assert all(chunk["object"] == "chat.completion.chunk" and "usage" not in chunk for chunk in written)
    assert len({(chunk["id"], chunk["model"], chunk["created"]) for chunk in written}) == 1
    choices = [choice for chunk in written for choice in chunk["choices"]]  # type: ignore[attr-defined]
    assert len(choices) == len(written), "a chunk without a choice, though no usage was asked for"
    indexes = {choice["index"] for choice in choices}
    assert sorted(choice["index"] for choice in choices if choice["delta"].get("role")) == sorted(indexes)
    assert sorted(choice["index"] for choice in choices if choice["finish_reason"]) == sorted(indexes)


@pytest.mark.parametrize("wire", COMPLETED.values(), ids=COMPLETED)
def test_usage_has_a_chunk_of_its_own_when_it_is_asked_for(wire: bytes) -> None:
    usage = fold(read(wire)).usage
    written = chunks(wire, include_usage=True)
    if usage is not None:
        last = written.pop()
        assert last["choices"] == []
        assert last["usage"] is not None
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in written)


@pytest.mark.parametrize("wire", COMPLETED.values(), ids=COMPLETED)
def test_done_is_last_after_a_completed_stream(wire: bytes) -> None:
    assert StreamWriter().write(read(wire)).endswith(b"}\n\ndata: [DONE]\n\n")


@pytest.mark.parametrize("wire", BROKEN.values(), ids=BROKEN)
def test_a_broken_stream_ends_in_one_error_and_never_in_done(wire: bytes) -> None:
    written = chunks(wire, include_usage=True)
    assert b"[DONE]" not in StreamWriter().write(read(wire))
    assert [chunk for chunk in written if "error" in chunk] == written[-1:]
    error = written[-1]["error"]
    assert isinstance(error, dict)
    assert isinstance(error["message"], str)
    assert error["message"]


def test_extras_ride_on_the_chunk_that_they_came_with() -> None:
    first = chunks(STREAMS["000_23a3805c028d9c36"], include_usage=False)[0]
    assert first["x_groq"] == {"id": "req_01kjfw7wstf62a77bs3qb0zysg", "seed": 1258209063}


def test_fields_of_the_provider_are_in_an_unstreamed_answer_and_its_padding_is_not() -> None:
    answer = completion(sse(begins(), says("x", service_tier="default", obfuscation="y"), finishes(), DONE))
    body = json.loads(StreamWriter(source=DEFAULT_DIALECT).write_body(answer))
    assert body["service_tier"] == "default"
    assert "obfuscation" not in body


def test_a_count_that_is_missing_is_the_rest_of_the_total() -> None:
    events: list[Event] = [Start("", "", None), ChoiceStart(0, "assistant"), TextDelta(0, "a"), Finish(0, "stop")]
    writer = StreamWriter(source="bedrock_converse", include_usage=True)
    again = fold(read(writer.write([*events, UsageReport(Usage(total=11)), End("completed")]))).usage
    assert again is not None
    assert Tokens.of(again) == Tokens.of(Usage(total=11))


def test_an_image_without_data_is_written_as_it_came() -> None:
    part = {"inlineData": {"mimeType": "image/png", "data": ""}}
    message = {"candidates": [{"content": {"parts": [part], "role": "model"}, "finishReason": "STOP", "index": 0}]}
    writer = StreamWriter("gemini", source="gemini")
    reader = StreamReader("gemini")
    written = writer.write([*reader.feed(b"data: %b\n\n" % json.dumps(message).encode()), *reader.close()])
    assert b'"inlineData":{"mimeType":"image/png","data":""}' in written
    assert writer.losses == []
