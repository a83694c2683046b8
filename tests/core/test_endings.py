"""Endings: only a complete answer is `completed`; `truncated` and `failed` are different endings."""

import json

import pytest

from penstock import (
    Accumulator,
    ChoiceStart,
    ClosedReaderError,
    Completion,
    End,
    Ending,
    StreamReader,
    TextDelta,
    UnknownDialectError,
)
from tests.streams import (
    DONE,
    ENVELOPE,
    Json,
    begins,
    bill,
    bytewise,
    calls,
    choice,
    chunk,
    completion,
    counts,
    delta,
    finishes,
    fold,
    piece,
    read,
    repairs,
    says,
    sse,
    tool_calls,
)

HI = [begins(), says("Hi")]

ENDINGS: dict[str, tuple[bytes, Ending]] = {
    # Completed
    "finish, usage and [DONE]": (sse(*HI, finishes(), bill(**counts(1, 1)), DONE), "completed"),
    "finish and [DONE]": (sse(*HI, finishes(), DONE), "completed"),
    "finish only": (sse(*HI, finishes()), "completed"),
    "finish without its blank line": (sse(*HI, finishes())[:-1], "completed"),
    "finish without its newline": (sse(*HI, finishes())[:-2], "completed"),
    "both choices finished": (sse(begins(0), begins(1), finishes(index=1), finishes(), DONE), "completed"),
    "a choice that never began": (sse(*HI, chunk(choice({}, index=1)), finishes(), DONE), "completed"),
    "no text at all": (sse(begins(), finishes(), DONE), "completed"),
    "finish without role": (sse(finishes(), DONE), "completed"),
    "a comment cut": (sse(*HI, finishes()) + b": keep-al", "completed"),
    "blank lines behind": (sse(*HI, finishes(), DONE) + b"\n\r\n\n", "completed"),
    "JSON lines": (sse(*HI, finishes(), prefix="", end="\n"), "completed"),
    "a JSON array not closed": (json.dumps([*HI, finishes()]).encode()[:-1], "completed"),
    # Truncated
    "no finish": (sse(*HI), "truncated"),
    "no finish, but [DONE]": (sse(*HI, DONE), "truncated"),
    "no finish, but usage and [DONE]": (sse(*HI, bill(**counts(1, 1)), DONE), "truncated"),
    "role only": (sse(begins()), "truncated"),
    "one of two choices unfinished": (sse(begins(0), begins(1), finishes(), DONE), "truncated"),
    "a choice that begins after the other's finish": (sse(*HI, finishes(), begins(1), DONE), "truncated"),
    "arguments cut": (sse(begins(), calls(piece(0, "a", "tide", '{"x":'))), "truncated"),
    "cut in the first event": (sse(begins())[:40], "truncated"),
    "cut in a later event": (sse(*HI, finishes())[:-20], "truncated"),
    "cut in the usage": (sse(*HI, finishes(), bill(**counts(1, 1)))[:-20], "truncated"),
    "cut in [DONE]": (sse(*HI, finishes(), DONE)[:-4], "truncated"),
    "cut behind data:": (sse(*HI, finishes()) + b"data: ", "truncated"),
    "cut in data:": (sse(*HI, finishes()) + b"dat", "truncated"),
    "cut in a character": (sse(begins(), says("\N{SNOWMAN}"))[:-54], "truncated"),
    "JSON lines cut": (sse(*HI, finishes(), prefix="", end="\n")[:-5], "truncated"),
    "a JSON array cut": (json.dumps([*HI, finishes()]).encode()[:-5], "truncated"),
    "a JSON array cut between elements": (json.dumps(HI).encode()[:-1], "truncated"),
    "an unstreamed body cut": (json.dumps(ENVELOPE | {"choices": []}, indent=2).encode()[:-10], "truncated"),
    # Failed
    "an error": (sse(*HI, {"error": {"message": "boom"}}), "failed"),
    "an error behind the finish": (sse(*HI, finishes(), {"error": {"message": "boom"}}, DONE), "failed"),
    "damage": (sse(*HI, '{"choices":[', finishes(), DONE), "failed"),
    "a page": (b"<html></html>", "failed"),
    "plain text": (b"Bad Gateway", "failed"),
    "gzip": (b"\x1f\x8b\x08", "failed"),
    "nothing": (b"", "failed"),
    "blank lines": (b"\n\n\r\n", "failed"),
    "a byte order mark": (b"\xef\xbb\xbf", "failed"),
    "comments": (b": PROCESSING\n\n: PROCESSING\n\n", "failed"),
    "comments and fields": (b"retry: 5\n\n: ping\n\nevent: ping\n\nid: 1\n\n", "failed"),
    "[DONE]": (sse(DONE), "failed"),
    "usage and [DONE]": (sse(bill(**counts(1, 1)), DONE), "failed"),
    "heartbeats": (sse({"type": "ping"}, {}), "failed"),
    "empty events": (sse("", "null"), "failed"),
    "an empty array": (b"[]", "failed"),
    "an empty object": (b"{}", "failed"),
    "no choices": (sse(chunk(), chunk()), "failed"),
    "[DONE] on a line of its own": (b"[DONE]\n", "failed"),
}


@pytest.mark.parametrize(("wire", "ending"), ENDINGS.values(), ids=ENDINGS)
def test_every_ending_is_the_truth(wire: bytes, ending: Ending) -> None:
    answer = completion(wire)
    assert answer.ending == ending, answer
    assert (answer.fault is not None) == (ending == "failed")
    assert bool(answer.ending_detail) == (ending != "completed")
    assert read(*bytewise(wire)) == read(wire)


EMPTY = [name for name, (_, ending) in ENDINGS.items() if ending == "failed"]


@pytest.mark.parametrize("name", EMPTY[EMPTY.index("nothing") :])
def test_a_provider_that_says_nothing_has_not_answered(name: str) -> None:
    fault = completion(ENDINGS[name][0]).fault
    assert fault is not None
    assert fault.code == "empty-stream"


STREAMS: dict[str, bytes] = {
    "text": sse(*HI, says("!"), finishes(), bill(**counts(2, 2)), DONE),
    "text and finish in one": sse(delta({"role": "assistant", "content": "Hi"}, finish="stop"), DONE),
    "two choices": sse(begins(0), begins(1), says("a"), finishes(), says("b", index=1), finishes(index=1), DONE),
    "calls": sse(
        begins(), calls(piece(0, "a", "tide", '{"x"')), calls(piece(0, arguments=":1}")), finishes("tool_calls"), DONE
    ),
    "no blank lines": sse(*HI, finishes(), bill(**counts(2, 2)), DONE, end="\n"),
    "JSON lines": sse(*HI, finishes(), bill(**counts(2, 2)), prefix="", end="\n"),
    "an array": json.dumps([*HI, finishes(), bill(**counts(2, 2))]).encode(),
}


@pytest.mark.parametrize("wire", STREAMS.values(), ids=STREAMS)
def test_a_cut_stream_is_never_completed_before_its_last_finish(wire: bytes) -> None:
    whole = completion(wire)
    last_finish = wire.index(b"}", wire.rindex(b'"finish_reason": "' if b'": "' in wire else b'"finish_reason":"'))
    for length in range(len(wire)):
        cut = completion(wire[:length])
        assert cut.ending != "completed" or length > last_finish, f"cut at {length}"
        assert is_beginning(cut, whole), f"cut at {length}: {cut}"


def is_beginning(cut: Completion, whole: Completion) -> bool:
    """Whether a cut answer is the beginning of the whole one, in text and tool calls."""
    return all(
        theirs.text.startswith(ours.text)
        and all(
            (mine.id, mine.name) == (full.id, full.name) and full.arguments.startswith(mine.arguments)
            for mine, full in zip(ours.tool_calls, theirs.tool_calls, strict=False)
        )
        for ours, theirs in zip(cut.choices, whole.choices, strict=False)
    )


BODY: Json = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1_700_000_000,
    "model": "sluice-1",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hi", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": counts(8, 18),
    "service_tier": "default",
}


def test_an_unstreamed_body_is_read_into_the_same_events() -> None:
    streamed = read(sse(begins(), says("Hi"), finishes(usage=counts(8, 18), service_tier="default"), DONE))
    for wire in (
        json.dumps(BODY).encode() + b"\n",
        json.dumps(BODY, indent=2).encode() + b"\n",
        b"\n\n" + sse(BODY, prefix=""),
    ):
        assert repairs(read(wire)) == {}
        assert sorted(map(str, read(wire))) == sorted(map(str, streamed))
        assert read(*bytewise(wire)) == read(wire)


def test_an_unstreamed_body_without_a_newline_is_healthy() -> None:
    assert read(json.dumps(BODY).encode()) == read(json.dumps(BODY).encode() + b"\n")


def test_an_unstreamed_body_with_calls_and_choices() -> None:
    messages: list[Json] = [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [piece(None, "a", "tide", "{}"), piece(None, "b", "wind", "{}")],
        },
        {"role": "assistant", "content": "Yo", "reasoning_content": "Hm."},
    ]
    reasons = ["tool_calls", "length"]
    body = BODY | {
        "choices": [
            {"index": i, "message": message, "finish_reason": reason}
            for i, (message, reason) in enumerate(zip(messages, reasons, strict=True))
        ]
    }
    answer = completion(json.dumps(body).encode())
    assert answer.ending == "completed"
    assert tool_calls(answer) == [("a", "tide", "{}"), ("b", "wind", "{}")]
    assert (answer.choices[1].text, answer.choices[1].reasoning) == ("Yo", "Hm.")
    assert [choice.finish_reason for choice in answer.choices] == reasons


def test_end_is_always_the_last_event_and_comes_once() -> None:
    for wire, _ in ENDINGS.values():
        events = read(wire)
        assert [event for event in events if isinstance(event, End)] == events[-1:]


def test_a_stream_that_still_runs_has_no_ending() -> None:
    reader, answer = StreamReader(), Accumulator()
    answer.extend(reader.feed(sse(*HI, finishes(), DONE)))
    assert reader.done
    assert (answer.completion.ending, answer.completion.text) == (None, "Hi")
    answer.extend(reader.close())
    assert answer.completion.ending == "completed"


def test_a_closed_reader_takes_no_more_bytes() -> None:
    reader = StreamReader()
    assert reader.close()
    assert reader.close() == []
    with pytest.raises(ClosedReaderError):
        reader.feed(b"data: {}\n\n")


def test_an_unknown_dialect_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownDialectError, match="openai_chat"):
        StreamReader("morse")


def test_feeding_nothing_changes_nothing() -> None:
    wire = sse(*HI, finishes(), DONE)
    assert read(b"", wire[:50], b"", b"", wire[50:], b"") == read(wire)


def test_the_fold_needs_no_more_than_the_events() -> None:
    assert fold([ChoiceStart(0, "assistant"), TextDelta(0, "Hi"), End("cancelled")]).ending == "cancelled"
