"""The transcript keeps the text of an answer in order, on every path of the relay, within its limit."""

import sys

import pytest

from penstock.core.hub.events import Event, Extra, ReasoningDelta, RefusalDelta, TextDelta, ToolCallDelta, ToolCallStart
from penstock.gateway.record.attempt import Attempt, AttemptControl
from penstock.gateway.record.sent_text import SentText
from penstock.gateway.record.transcript import MAX_CHARS, TRIM_EVERY, Transcript, count_chars
from tests.gateway.support import VARIANTS, Clock, Relayed
from tests.streams import delta, says, sse

SENT_TEXT: list[Event] = [
    ReasoningDelta(0, "hm"),
    TextDelta(0, "one "),
    TextDelta(1, "eins "),
    Extra("chunk", {}),
    TextDelta(0, "two"),
    RefusalDelta(1, "zwei"),
    ToolCallStart(0, 0, None, "weather"),
    ToolCallDelta(0, 0, "{}"),
    TextDelta(0, ""),
    TextDelta(0, "three"),
    Extra("delta", {"audio": {"id": "a", "transcript": ""}}, 0),
    Extra("delta", {"audio": {"transcript": " and aloud"}}, 0),
    Extra("delta", {"audio": {"data": "AAAA"}}, 0),
    Extra("delta", {"audio": "AAAA", "annotations": []}, 0),
]


def reported(transcript: Transcript | SentText | None) -> list[tuple[str, str, int]]:
    assert transcript is not None
    return [(piece.text, piece.kind, piece.choice) for piece in transcript.parts()]


@pytest.mark.parametrize("size", [1, 2, len(SENT_TEXT)])
def test_what_choices_say_is_kept_apart_and_in_order(size: int) -> None:
    transcript = Transcript()
    received = [transcript.append(SENT_TEXT[start : start + size]) for start in range(0, len(SENT_TEXT), size)]
    assert sum(received) == count_chars(SENT_TEXT)
    assert reported(transcript) == [
        ("hm", "reasoning", 0),
        ("one two", "text", 0),
        ("eins zwei", "text", 1),
        ("weather{}", "tool", 0),
        ("three and aloud", "text", 0),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_path_is_taken_down(variant: str) -> None:
    loop = Clock()

    async def run() -> None:
        made = Relayed(loop, keep=True)
        for _ in range(3 * TRIM_EVERY // 5):
            made.in_variant(variant, 0.001)
        sent_text = made.attempt.output_chars
        kept = "".join(piece[0] for piece in reported(made.control.transcript))
        words = (sent_text - len("Hello")) // len(" word")
        assert kept == "Hello" + " word" * words
        assert len(kept) == sent_text
        if variant == "no parser":
            assert made.client.chunks >= 3 * TRIM_EVERY // 5 - 4  # it is made anew at each turn, and no more often
        made.end()
        assert made.control.transcript is None

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


def test_the_last_words_are_kept() -> None:
    attempt = Attempt("p", "m")
    control = AttemptControl(attempt)
    control.keep_transcript()
    words = [f"{number:07} " for number in range(40_000)]
    for word in words:
        attempt.output_chars += control.count_text([TextDelta(0, word)])
        if attempt.output_chars >= control.check_at:
            control.check()
            assert sum(len(text) for text, _, _ in reported(control.transcript)) <= MAX_CHARS
    kept = "".join(text for text, _, _ in reported(control.transcript))
    assert MAX_CHARS <= len(kept) <= MAX_CHARS + TRIM_EVERY
    assert "".join(words).endswith(kept)


def test_one_word_that_is_too_long_is_cut() -> None:
    transcript = Transcript()
    transcript.append([TextDelta(0, "a" * 10), TextDelta(0, "b" * (3 * MAX_CHARS) + "c")])
    transcript.trim()
    assert reported(transcript) == [("b" * (MAX_CHARS - 1) + "c", "text", 0)]


def test_a_stream_that_changes_its_mind_with_every_word_is_kept_small() -> None:
    transcript = Transcript()
    for number in range(20_000):
        transcript.append([TextDelta(number % 7, "x"), ReasoningDelta(number % 7, "y")])
    assert 100 < len(transcript.parts()) <= 256
    assert sum(map(sys.getsizeof, transcript.parts())) < 64_000


def test_a_limit_is_reached_beside_the_turns() -> None:
    attempt, reached = Attempt("p", "m"), 0
    control = AttemptControl(attempt)

    def on_limit() -> None:
        nonlocal reached
        reached = attempt.output_chars
        control.limit = attempt.output_chars + 2 * TRIM_EVERY

    control.on_limit, control.limit = on_limit, 100
    control.keep_transcript()
    seen = []
    for _ in range(5 * TRIM_EVERY):
        attempt.output_chars += control.count_text([TextDelta(0, "x")])
        if attempt.output_chars >= control.check_at:
            control.check()
            seen.append(reached)
    assert sorted(set(seen)) == [100, 100 + 2 * TRIM_EVERY, 100 + 4 * TRIM_EVERY]


def test_nothing_is_kept_unless_it_is_wanted() -> None:
    control = AttemptControl(Attempt("p", "m"))
    assert control.count_text([TextDelta(0, "x")]) == 1
    assert control.transcript is None
    control.keep_transcript()
    received = control.transcript
    control.count_text([TextDelta(0, "x")])
    control.drop_transcript()
    assert control.transcript is None
    assert reported(received) == []


def test_paths_that_take_turns_write_in_order() -> None:
    loop = Clock()
    word = sse(says(" word"))

    async def run() -> None:
        made = Relayed(loop, keep=True)
        for _ in range(5):
            if not made.connection.offer(word):
                made.after(0.001, word)
            made.after(0.001, sse(delta({"reasoning": "hm"})))
            made.after(0.001, sse(says(" back")))
        kept = "".join(text for text, _, _ in reported(made.control.transcript))
        assert kept == "Hello" + " wordhm back" * 5
        assert all(
            ("hm" in text) == (kind == "reasoning") for text, kind, _ in reported(made.control.transcript) if text
        )
        assert made.client.chunks >= 2
        made.end()

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
