"""A notice is harmless: a client that follows the standard, and knows nothing of notices, reads the same answer.

Such a client reads server-sent events as the standard says, one JSON object each until `[DONE]`. It concatenates text
and arguments, and uses the last finish reason and the last usage.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock import Completion, Repair, RepairCount
from penstock.core.hub.repairs import FINDINGS, NOTICES, REPAIRS, by_level
from tests.corpus import CORPUS, captures
from tests.streams import completion

CAPTURES = Path(__file__).parent.parent / "captures"
RECORDED = captures()


def by_the_book(wire: bytes) -> dict[int, tuple[str, object, list[list[str]]]]:
    """Text, finish reason and tool calls of each choice; the usage, as the text of choice -1."""
    sent_text: dict[int, Any] = {}
    for event in wire.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n").split("\n\n"):
        data = "\n".join(line[5:].removeprefix(" ") for line in event.split("\n") if line.startswith("data:"))
        if data == "[DONE]":
            break
        if not data:
            continue
        chunk = json.loads(data)
        if chunk.get("usage"):
            sent_text[-1] = (str(chunk["usage"].get("completion_tokens")), None, [])
        for choice in chunk["choices"]:
            text, finish, calls = sent_text.get(choice["index"], ("", None, []))
            for call in choice["delta"].get("tool_calls") or ():
                calls += [["", ""] for _ in range(call["index"] + 1 - len(calls))]
                calls[call["index"]][0] += call["function"].get("name") or ""
                calls[call["index"]][1] += call["function"].get("arguments") or ""
            text += choice["delta"].get("content") or ""
            sent_text[choice["index"]] = (text, choice.get("finish_reason") or finish, calls)
    return sent_text


def by_penstock(answer: Completion) -> dict[int, tuple[str, object, list[list[str]]]]:
    """The same, as Penstock reads it."""
    usage: dict[int, Any] = {} if answer.usage is None else {-1: (str(answer.usage.output), None, [])}
    calls = {choice.index: [[call.name, call.arguments] for call in choice.tool_calls] for choice in answer.choices}
    return usage | {choice.index: (choice.text, choice.finish_reason, calls[choice.index]) for choice in answer.choices}


def test_there_are_notices_and_repairs() -> None:
    assert sorted(NOTICES) == [
        "block-stop-repeated",
        "bom",
        "created-changed",
        "delta-unknown",
        "done-repeated",
        "done-unexpected",
        "event-unknown",
        "finish-repeated",
        "items-overlap",
        "object-missing-no-choices",
        "role-repeated",
        "sequence-gap",
        "sequence-missing",
    ]
    assert {row.level for code, row in REPAIRS.items() if code not in NOTICES | FINDINGS} == {"repair"}


def test_what_is_not_repaired_is_a_finding() -> None:
    assert sorted(FINDINGS) == [
        "finish-unknown",
        "ignored-after-fault",
        "text-differs",
        "tool-arguments-broken",
        "tool-arguments-text",
        "unknown-field",
        "usage-details-apart",
        "usage-reasoning-apart",
    ]


@pytest.mark.parametrize("code", sorted(code for code in NOTICES if (CAPTURES / f"{code}.sse").exists()))
def test_a_stream_with_a_notice_reads_the_same_by_the_book(code: str) -> None:
    wire = (CAPTURES / f"{code}.sse").read_bytes()
    answer = completion(wire)
    assert {repair.code for repair in answer.repairs} == {code}
    assert by_the_book(wire) == by_penstock(answer)


@pytest.mark.slow
@pytest.mark.skipif(not RECORDED, reason=f"there is no corpus in {CORPUS}; PENSTOCK_CORPUS may name another")
def test_recorded_streams_with_notices_alone_read_the_same_by_the_book() -> None:
    met = 0
    for capture in RECORDED:
        answer = completion(capture.data)
        if answer.repairs and answer.fault is None and {repair.code for repair in answer.repairs} <= NOTICES:
            assert by_the_book(capture.data) == by_penstock(answer), capture.file
            met += 1
    assert met > 100


@pytest.mark.parametrize("code", ["missing-blank-line", "no-data-prefix", "done-misspelled", "choices-missing"])
def test_a_stream_that_was_repaired_does_not(code: str) -> None:
    wire = (CAPTURES / f"{code}.sse").read_bytes()
    try:
        book = by_the_book(wire)
    except (ValueError, KeyError, TypeError, AttributeError):
        return  # such a client cannot read it at all
    assert book != by_penstock(completion(wire))


def test_levels_are_reported() -> None:
    assert Repair("created-changed", 0, 1).level == RepairCount("created-changed", 2, 0, 1).level == "notice"
    assert Repair("no-done", 0, 1).level == "repair"
    counts = {"no-done": 2, "bom": 1, "tool-arguments-broken": 1, "of-a-later-version": 1}
    assert by_level(counts) == ({"no-done": 2, "of-a-later-version": 1}, {"tool-arguments-broken": 1}, {"bom": 1})
