"""One small capture per defect of Anthropic Messages, like those of `tests/core/test_captures.py`."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from penstock import Completion
from penstock.cli.inspection.annotations import mark_defects
from penstock.core.hub.repairs import NOTICES, REPAIRS
from tests.expected import Call, Expected, Row, called, emitted, failed, repaired
from tests.messages import DIALECT, completion, events_of
from tests.streams import bytewise

CAPTURES = Path(__file__).parents[2] / "captures" / DIALECT
TIDE: Call = ("toolu_1", "get_tide", '{"port":"Brest"}')
BILL = (7, 4, 11)


def row(code: str, count: int, line: int, text: str = "", **expected: Any) -> Row:
    return repaired(code, count, line, text, **({"usage": BILL} | expected))


def call(code: str, count: int, line: int, *calls: Call, **expected: Any) -> Row:
    return called(code, count, line, *calls, **({"usage": BILL} | expected))


def fails(code: str, line: int, words: str, text: str = "", **expected: Any) -> Row:
    return failed(code, line, words, text, **({"usage": BILL} | expected))


EXPECTED: dict[str, Expected] = dict(
    (
        row("missing-blank-line", 6, 4, "The gate is open."),
        row("no-done", 1, 16, "That is all."),
        row("done-repeated", 1, 22, "Done and dusted."),
        row("done-unexpected", 1, 22, "Done twice."),
        row("data-after-done", 1, 22, "The bill comes late.", usage=(7, 5, 12)),
        row("keepalive-event", 1, 4, "Still here."),
        (  # the one is a part of the other
            "message-start-missing",
            Expected(
                text="No preface.",
                usage=BILL,
                repairs={"message-start-missing": (1, 1), "envelope-incomplete": (1, 1)},
            ),
        ),
        row("message-start-repeated", 1, 4, "Once more."),
        row("message-appended", 1, 22, "Once is enough."),
        row("event-name-missing", 1, 1, "No names."),
        row("envelope-incomplete", 1, 1, "Nameless again."),
        row("block-index-missing", 4, 4, "Unnumbered but whole."),
        row("block-start-missing", 1, 4, "Straight in."),
        row("block-restarted", 1, 10, "First. Second."),
        row("block-unclosed", 1, 10, "At noon.", reasoning="High water?"),
        row("block-stop-repeated", 1, 16, "Stop, I said."),
        row("block-text-repeated", 1, 7, "Said once."),
        row("delta-in-wrong-block", 2, 7, "Four.", reasoning="Two and two."),
        row("delta-unknown", 1, 10, "Plain words."),
        row("event-unknown", 1, 4, "Still the same."),
        row("signature-late", 1, 19, "Four.", reasoning="Two and two."),
        row("finish-unknown", 1, 16, "Out of words.", finish="vocabulary"),
        row("finish-changed", 1, 19, "Once upon a", finish="length"),
        call("tool-id-missing", 1, 4, (None, *TIDE[1:])),
        call("tool-id-repeated", 1, 13, TIDE),
        call("tool-arguments-broken", 1, 13, ("toolu_1", "get_tide", '{"port":"Bre'), finish="length"),
        row("usage-placeholder", 1, 1, "Paid in full.", usage=(12, 3, 15)),
        row("usage-mistyped", 1, 16, "Paid in full.", usage=(7, 3, 10)),
        fails("provider-error", 10, "Overloaded", "The mill", usage=(7, 0, 0)),
        (
            "ignored-after-fault",
            Expected(
                text="The lock",
                finish=None,
                usage=(7, 0, 0),
                ending="failed",
                fault=("provider-error", 10, "Overloaded"),
                repairs={"ignored-after-fault": (1, 13)},
            ),
        ),
        fails(
            "bad-json",
            10,
            '{"type":"content_block_delta","index":0,"del',
            "Half",
            repairs={"ignored-after-fault": (2, 13)},
        ),
        fails(
            "bad-shape",
            13,
            "a second message starts in the same stream",
            "One.",
            repairs={"ignored-after-fault": (4, 16)},
        ),
        fails(
            "tool-call-unnamed",
            4,
            "arguments came without the start of their call",
            repairs={"ignored-after-fault": (1, 7)},
        ),
        failed(
            "other-dialect",
            1,
            'this is no event of the Anthropic Messages dialect: {"id": "chatcmpl-w1", '
            '"object": "chat.completion.chunk", "created": 1767225600, ',
        ),
    )
)
# What is marked of each repair.
MARKED = {
    "missing-blank-line": "data:",
    "no-done": "",
    "done-repeated": "event: message_stop",
    "done-unexpected": "event: data",
    "data-after-done": '"type":"message_delta"',
    "keepalive-event": "event: keepalive",
    "message-start-missing": '"type":"content_block_start"',
    "message-start-repeated": '"id":"msg_w1"',
    "message-appended": '"type":"message"',
    "event-name-missing": '"type":"message_start"',
    "envelope-incomplete": '"message":{"id":"",',
    "block-index-missing": '"type":"content_block_start"',
    "block-start-missing": '"index":0',
    "block-restarted": '"index":0',
    "block-unclosed": '"type":"content_block_start"',
    "block-stop-repeated": '"index":0',
    "block-text-repeated": '"text":"Said"',
    "delta-in-wrong-block": '"type":"thinking_delta"',
    "delta-unknown": '"type":"mood_delta"',
    "event-unknown": '"type":"tide_report"',
    "signature-late": '"index":0',
    "finish-unknown": '"stop_reason":"vocabulary"',
    "finish-changed": '"stop_reason":"max_tokens"',
    "tool-id-missing": '"id":""',
    "tool-id-repeated": '"id":"toolu_1"',
    "tool-arguments-broken": '"type":"message_delta"',
    "usage-placeholder": '"usage":{"input_tokens":0,"output_tokens":0}',
    "usage-mistyped": '"output_tokens":"3"',
    "ignored-after-fault": '"type":"content_block_delta"',
}


def wire_of(code: str) -> bytes:
    return (CAPTURES / f"{code}.sse").read_bytes()


def test_every_capture_has_its_row() -> None:
    assert {path.stem for path in CAPTURES.glob("*.sse")} == EXPECTED.keys()
    assert MARKED.keys() == EXPECTED.keys() & REPAIRS.keys()


@pytest.mark.parametrize("code", EXPECTED)
def test_a_capture_is_read_as_it_should_be(code: str) -> None:
    assert structs.replace(emitted(completion(wire_of(code))), native_finish=None) == EXPECTED[code]


@pytest.mark.parametrize("code", EXPECTED)
def test_a_capture_is_small_and_read_the_same_one_byte_at_a_time(code: str) -> None:
    wire = wire_of(code)
    assert len(wire) < 2_000
    assert events_of(*bytewise(wire)) == events_of(wire)


@pytest.mark.parametrize("code", MARKED)
def test_the_bytes_of_a_repair_are_marked(code: str) -> None:
    wire = wire_of(code)
    mark = next(mark for mark in mark_defects(wire, DIALECT)[0] if mark.code == code)
    text = wire[mark.offset : mark.offset + (mark.length or 0)].decode()
    assert text.startswith(MARKED[code])
    assert bool(text) == bool(MARKED[code])
    assert text in wire.decode().split("\n")[mark.line - 1]


def by_the_book(wire: bytes) -> tuple[str, object, object]:
    """Text, stop reason and output tokens, for a client that knows events by their names and ignores unknown ones."""
    text, reason, output = "", None, None
    for event in wire.decode().split("\n\n")[:-1]:
        name, data = event.split("\n")
        match name.removeprefix("event: "):
            case "content_block_delta":
                delta = json.loads(data.removeprefix("data: "))["delta"]
                text += delta["text"] if delta["type"] == "text_delta" else ""
            case "message_delta":
                reported = json.loads(data.removeprefix("data: "))
                reason, output = reported["delta"]["stop_reason"], reported["usage"]["output_tokens"]
            case "message_stop":
                break
            case _:
                pass
    return text, reason, output


def by_penstock(answer: Completion) -> tuple[str, object, object]:
    return answer.text, answer.choices[0].native_finish_reason, answer.usage and answer.usage.output


@pytest.mark.parametrize("code", sorted(EXPECTED.keys() & NOTICES))
def test_a_stream_with_a_notice_reads_the_same_by_the_book(code: str) -> None:
    wire = wire_of(code)
    assert by_the_book(wire) == by_penstock(completion(wire))
