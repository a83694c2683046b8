"""One small capture per defect of OpenAI Responses, like those of `tests/core/test_captures.py`."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from penstock import Completion, StreamReader
from penstock.cli.inspection.annotations import mark_defects
from penstock.core.hub.repairs import NOTICES, REPAIRS
from tests.expected import Call, Expected, Row, called, emitted, failed, repaired
from tests.responses import DIALECT, TIDE, completion, events_of
from tests.streams import bytewise, fold

CAPTURES = Path(__file__).parents[2] / "captures" / DIALECT
CALL: Call = ("call_1", "get_tide", TIDE)
BILL = (7, 4, 11)


def row(code: str, count: int, line: int, text: str = "", **expected: Any) -> Row:
    return repaired(code, count, line, text, **({"usage": BILL} | expected))


def call(code: str, count: int, line: int, *calls: Call, **expected: Any) -> Row:
    return called(code, count, line, *calls, **({"usage": BILL} | expected))


EXPECTED: dict[str, Expected] = dict(
    (
        row("missing-blank-line", 5, 4, "The gate is open."),
        row("event-name-missing", 1, 1, "No names."),
        row("sequence-missing", 1, 1, "No numbers."),
        row("sequence-gap", 1, 10, "Mind the gap."),
        call("item-id-changed", 1, 7, CALL),
        row("items-overlap", 1, 10, "High at noon."),
        row("deltas-missing", 1, 10, "Some is missing."),
        row("text-differs", 1, 13, "Said so."),
        row("output-missing", 1, 16, "Still here."),
        row("done-repeated", 1, 19, "Twice."),
        row("done-unexpected", 1, 16, "Done twice."),
        (  # an event that is not known, too
            "data-after-done",
            Expected(text="That is all.", usage=BILL, repairs={"data-after-done": (1, 19), "event-unknown": (1, 19)}),
        ),
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
        row("message-appended", 1, 16, "Once"),
        row("envelope-incomplete", 1, 1, "Nameless."),
        row("id-changed", 1, 16, "Same answer."),
        row("block-index-missing", 4, 4, "Unnumbered but whole."),
        row("block-start-missing", 1, 4, "Straight in."),
        row("block-restarted", 1, 10, "First. Second."),
        row("block-unclosed", 1, 13, "Never closed."),
        row("block-stop-repeated", 1, 16, "Stop, I said."),
        row("delta-in-wrong-block", 1, 10, "Four.", reasoning="Two and two."),
        row("delta-unknown", 1, 10, "Plain words."),
        row("event-unknown", 1, 4, "Still the same."),
        row("finish-unknown", 1, 16, "Out of words.", finish="vocabulary"),
        call("tool-id-missing", 1, 4, (None, *CALL[1:])),
        call("tool-arguments-object", 1, 10, CALL),
        call("tool-arguments-broken", 1, 10, ("call_1", "get_tide", '{"port":"Bre'), finish="length"),
        row("usage-incomplete", 1, 16, "Paid in full."),
        row("usage-placeholder", 1, 16, "No bill.", usage=None),
        row("usage-mistyped", 1, 16, "Paid in full."),
        failed("provider-error", 10, "Overloaded", "The mill"),
        (
            "ignored-after-fault",
            Expected(
                text="The lock",
                finish=None,
                ending="failed",
                fault=("provider-error", 10, "Overloaded"),
                repairs={"ignored-after-fault": (1, 13)},
            ),
        ),
        failed(
            "bad-json",
            10,
            '{"type":"response.output_text.delta","item_id":"msg_1","del',
            "Half",
            repairs={"ignored-after-fault": (1, 13)},
        ),
        failed(
            "delta-lost",
            13,
            "a delta of the text is missing: the whole text is another one",
            "Said so.",
            usage=BILL,
            repairs={"sequence-gap": (1, 10), "ignored-after-fault": (2, 13)},
        ),
        failed("bad-shape", 13, "a second response starts in the same stream", "One."),
        failed(
            "tool-call-unnamed",
            7,
            "arguments came without their call",
            usage=BILL,
            repairs={"block-start-missing": (1, 4), "ignored-after-fault": (1, 7)},
        ),
        failed(
            "other-dialect",
            1,
            'this is no event of the OpenAI Responses dialect: {"id": "chatcmpl-w1", '
            '"object": "chat.completion.chunk", "created": 1767225600, ',
        ),
    )
)
# What is marked of each repair.
MARKED = {
    "missing-blank-line": "data:",
    "event-name-missing": '"type":"response.created"',
    "sequence-missing": '"type":"response.created"',
    "sequence-gap": '"sequence_number":5',
    "item-id-changed": '"item_id":"fc_2"',
    "items-overlap": '"output_index":1',
    "deltas-missing": '"text":"Some is missing."',
    "text-differs": '"content":[{',
    "output-missing": '"output":[]',
    "done-repeated": "event: response.completed",
    "done-unexpected": "data: [DONE]",
    "data-after-done": '"type":"response.tide_chart.drawn"',
    "keepalive-event": '"type":"keepalive"',
    "message-start-missing": '"type":"response.output_item.added"',
    "message-start-repeated": '"id":"resp_w1"',
    "message-appended": '"object":"response"',
    "envelope-incomplete": '"response":{',
    "id-changed": '"id":"resp_w2"',
    "block-index-missing": '"type":"response.output_item.added"',
    "block-start-missing": '"output_index":0',
    "block-restarted": '"output_index":0',
    "block-unclosed": '"type":"response.completed"',
    "block-stop-repeated": '"output_index":0',
    "delta-in-wrong-block": '"type":"response.output_text.delta"',
    "delta-unknown": '"annotation":"calm"',
    "event-unknown": '"type":"response.tide_report"',
    "finish-unknown": '"incomplete_details":{"reason":"vocabulary"}',
    "tool-id-missing": '"call_id":""',
    "tool-arguments-object": '"arguments":{"port":"Brest"}',
    "tool-arguments-broken": '"arguments":"',
    "usage-incomplete": '"usage":{"input_tokens":7,"output_tokens":4}',
    "usage-placeholder": '"usage":{"input_tokens":0',
    "usage-mistyped": '"output_tokens":"4"',
    "ignored-after-fault": '"type":"response.output_text.delta"',
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
    assert text in wire.decode().split("\n")[mark.line - 1]


def by_the_book(wire: bytes) -> tuple[str, object, object]:
    """Text, status and output tokens, for a client that knows events by their types and ignores unknown ones."""
    text, status, output = "", None, None
    for line in wire.decode().splitlines():
        if not line.startswith("data: {"):
            continue
        event = json.loads(line.removeprefix("data: "))
        match event["type"]:
            case "response.output_text.delta":
                text += event["delta"]
            case "response.completed":
                status, output = event["response"]["status"], event["response"]["usage"]["output_tokens"]
            case _:
                pass
    return text, status, output


def by_penstock(answer: Completion) -> tuple[str, object, object]:
    return answer.text, answer.choices[0].native_finish_reason, answer.usage and answer.usage.output


@pytest.mark.parametrize("code", sorted(EXPECTED.keys() & NOTICES))
def test_a_stream_with_a_notice_reads_the_same_by_the_book(code: str) -> None:
    wire = wire_of(code)
    assert by_the_book(wire) == by_penstock(completion(wire))


def test_an_answer_that_is_not_streamed_gets_the_text_that_was_lost() -> None:
    reader = StreamReader(DIALECT, whole=True)
    answer = fold([*reader.feed(wire_of("delta-lost")), *reader.close()])
    assert (answer.ending, answer.text) == ("completed", "Said it so.")
    assert {repair.code for repair in answer.repairs} == {"sequence-gap", "deltas-missing"}


def test_what_follows_a_gap_is_kept_if_no_whole_text_comes() -> None:
    events = [event for event in wire_of("delta-lost").split(b"\n\n") if b"output_item.done" not in event]
    wire = b"\n\n".join(events).replace(b'"output":[{', b'"others":[{')
    reader = StreamReader(DIALECT, whole=True)
    answer = fold([*reader.feed(wire), *reader.close()])
    assert (answer.ending, answer.text) == ("completed", "Said so.")
