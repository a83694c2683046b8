"""The fast path and the slow path of the relay give a client the same completion."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock import Completion, StreamReader
from tests import gemini, messages, responses
from tests.corpus import CORPUS, captures
from tests.invariants import SlowReader, relayed, sent_text
from tests.streams import DONE, begins, by_event, finishes, fold, read, says, sse

FOLDER = Path(__file__).parent.parent
OURS = {path.stem: path.read_bytes() for path in sorted((*FOLDER.glob("seeds/*"), *FOLDER.glob("captures/*.sse")))}
CAPTURES = captures()
VENDORS = sorted({capture.vendor for capture in CAPTURES})


def same(first: Completion, second: Completion) -> bool:
    usages = [completion.usage.counts() if completion.usage else None for completion in (first, second)]
    finishes = [[choice.finish_reason for choice in completion.choices] for completion in (first, second)]
    return sent_text(first) == sent_text(second) and usages[0] == usages[1] and finishes[0] == finishes[1]


def check(wire: bytes) -> int:
    """Both paths agree with each other and with the stream itself; returns how many events took the fast one."""
    fast, untouched = relayed(by_event(wire), StreamReader())
    slow, none = relayed(by_event(wire), SlowReader())
    assert none == 0
    first, second, source = fold(read(fast)), fold(read(slow)), fold(read(wire))
    assert same(first, second)
    if source.ending == "completed":
        assert (first.ending, second.ending) == ("completed", "completed")
        assert same(first, source)
    else:
        assert "completed" not in (first.ending, second.ending)
    return untouched


@pytest.mark.parametrize("wire", OURS.values(), ids=OURS)
def test_both_paths_give_the_same_completion(wire: bytes) -> None:
    check(wire)


def test_healthy_text_takes_the_fast_path() -> None:
    assert check(OURS["003_11f14e5984ba4222"]) == 4  # four words


@pytest.mark.slow
@pytest.mark.skipif(not CAPTURES, reason=f"there is no corpus in {CORPUS}; PENSTOCK_CORPUS may name another")
@pytest.mark.parametrize("vendor", VENDORS or ["nobody"])
def test_both_paths_give_the_same_completion_of_recorded_streams(vendor: str) -> None:
    for capture in CAPTURES:
        if capture.vendor == vendor:
            check(capture.data)


@pytest.mark.parametrize("changed", [{"id": "other"}, {"model": "other"}, {"created": 5}])
def test_a_stream_that_changes_its_name_goes_out_under_one(changed: dict[str, Any]) -> None:
    words = [says(f" word{number}", **changed) for number in range(20)]
    wire = sse(begins(), says("Hello"), says("!"), *words, finishes(), DONE)
    out, untouched = relayed(by_event(wire), StreamReader())
    chunks = [json.loads(event.removeprefix(b"data: ")) for event in out.split(b"\n\n")[:-2]]
    assert untouched == 2
    assert {(chunk["id"], chunk["model"], chunk["created"]) for chunk in chunks} == {
        ("chatcmpl-1", "sluice-1", 1_700_000_000)
    }


def data_of(dialect: str) -> list[bytes]:
    """The events of a healthy stream of a dialect, with enough text for the fast path."""
    words = [f"word{number} " for number in range(6)]
    streams = {
        "openai_chat": sse(begins(), *map(says, words), finishes(), DONE),
        "anthropic_messages": messages.answer(*messages.says_all(*words)),
        "openai_responses": responses.answer(*responses.says_all(*words)),
        "gemini": gemini.HEALTHY["text with usage, lines end with LF"],
    }
    return by_event(streams[dialect])


@pytest.mark.parametrize("stray", [b"event: ping\n\n", b"id: 7\n\n", b"retry: 10\n\n", b"event: ping\nid: 7\n\n\n"])
@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic_messages", "openai_responses", "gemini"])
def test_an_event_without_data_is_never_forwarded(dialect: str, stray: bytes) -> None:
    events = data_of(dialect)
    for place in range(1, len(events)):
        before, after = events[:place], events[place:]
        for pieces in (
            [*before, stray, *after],
            [*before, stray + after[0], *after[1:]],
            [*before[:-1], before[-1] + stray, *after],
            [*before, after[0] + stray + b"".join(after[1:])],
        ):
            reader = StreamReader(dialect)
            out, _ = relayed(pieces, reader)
            trailer = reader.trailer
            out += trailer.raw if trailer is not None else b""
            blocks = [block for block in out.replace(b"\r", b"").split(b"\n\n") if block.strip()]
            assert all(b"data:" in block for block in blocks), (place, pieces)
