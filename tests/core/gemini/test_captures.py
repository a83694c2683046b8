"""One small capture per defect of Gemini, like those of `tests/core/test_captures.py`."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from penstock.cli.inspection.annotations import mark_defects
from penstock.core.hub.repairs import REPAIRS
from tests.expected import Call, Expected, Row, called, emitted, failed, repaired
from tests.gemini import DIALECT, completion, events_of
from tests.streams import bytewise

CAPTURES = Path(__file__).parents[2] / "captures" / DIALECT
TIDE: Call = (None, "get_tide", '{"port":"Brest"}')
BILL = (7, 4, 11)


def row(code: str, count: int, line: int, text: str = "", **expected: Any) -> Row:
    return repaired(code, count, line, text, **({"usage": BILL} | expected))


def call(code: str, count: int, line: int, *calls: Call, **expected: Any) -> Row:
    return called(code, count, line, *calls, **({"usage": BILL} | expected))


def fails(code: str, line: int, words: str, text: str = "", **expected: Any) -> Row:
    return failed(code, line, words, text, **({"usage": BILL} | expected))


EXPECTED: dict[str, Expected] = dict(
    (
        row("missing-blank-line", 2, 2, "The gate is open."),
        row("json-array", 1, 1, "All in one list."),
        row("split-surrogate", 1, 3, "Ahoy \N{SHIP}!"),
        row("empty-event", 1, 3, "Hold the line."),
        row("keepalive-event", 1, 3, "Still here."),
        row("done-unexpected", 1, 5, "Done twice."),
        row("event-unknown", 1, 3, "Still the same."),
        row("envelope-incomplete", 1, 1, "Nameless again."),
        row("id-changed", 1, 3, "New name, same river."),
        row("model-changed", 1, 3, "Who speaks?"),
        row("choice-index-missing", 1, 1, "Unnumbered but whole."),
        row("prompt-blocked", 1, 1, finish="content_filter", usage=(7, 0, 7)),
        row("finish-mapped", 1, 3, "By its number."),
        row("finish-unknown", 1, 3, "Out of words.", finish="VOCABULARY"),
        row("finish-repeated", 1, 5, "Over and out."),
        row("finish-changed", 1, 5, "Once upon a", finish="length"),
        row("content-after-finish", 1, 5, "One more thing."),
        (  # the one is a kind of the other
            "finish-stop-with-tools",
            Expected(
                calls=(TIDE,),
                finish="tool_calls",
                usage=BILL,
                repairs={"content-after-finish": (2, 3), "finish-stop-with-tools": (1, 1)},
            ),
        ),
        call("block-unclosed", 1, 5, TIDE, text="Let me see."),
        call("block-stop-repeated", 1, 3, TIDE),
        call("tool-arguments-broken", 1, 5, (None, "get_tide", '{"port":"Bre'), finish="length"),
        call(
            "tool-id-duplicate",
            1,
            3,
            ("call_1", "get_tide", '{"port":"Brest"}'),
            (None, "get_tide", '{"port":"Dover"}'),
        ),
        row("usage-placeholder", 1, 1, "Paid in full.", usage=(12, 3, 15)),
        row("usage-mistyped", 2, 3, "Paid in full.", usage=(12, 3, 15)),
        row("usage-total-differs", 1, 3, "Paid in full.", usage=(12, 3, 400)),
        fails("provider-error", 3, "The model is overloaded.", "The mill", usage=None),
        (
            "ignored-after-fault",
            Expected(
                text="The lock",
                finish=None,
                usage=BILL,
                ending="failed",
                fault=("provider-error", 3, "Internal error."),
                repairs={"ignored-after-fault": (1, 5)},
            ),
        ),
        fails("bad-json", 3, '{"candidates": [{"content":', "Half", repairs={"ignored-after-fault": (1, 5)}),
        fails("bad-shape", 3, "text is not text: 42", "The answer is", repairs={"ignored-after-fault": (1, 5)}),
        fails(
            "tool-call-unnamed",
            3,
            'a function call has no name: {"args": {"port": "Brest"}}',
            "Let me see.",
            repairs={"ignored-after-fault": (1, 5)},
        ),
        failed(
            "other-dialect",
            1,
            'this is no message of the Gemini dialect: {"id": "c1", "object": "chat.completion.chunk", '
            '"choices": [{"index": 0, "delta"',
        ),
    )
)
# What is marked of each repair, where its place in the JSON is known.
MARKED = {
    "choice-index-missing": '{"content": {"parts": [{"text": "Unnumbered but"',
    "prompt-blocked": '"blockReason": "PROHIBITED_CONTENT"',
    "id-changed": '"responseId": "gem_w2"',
    "model-changed": '"modelVersion": "weir-4"',
    "finish-mapped": '"finishReason": 1',
    "finish-unknown": '"finishReason": "VOCABULARY"',
    "finish-repeated": '"finishReason": "STOP"',
    "finish-changed": '"finishReason": "MAX_TOKENS"',
    "content-after-finish": '"parts": [{"text": " more thing."}]',
    "finish-stop-with-tools": '"finishReason": "STOP"',
    "block-stop-repeated": '"functionCall": {}',
    "tool-arguments-broken": '"functionCall": {}',
    "usage-placeholder": '"usageMetadata": {"promptTokenCount": 0',
    "usage-mistyped": '"promptTokenCount": "12"',
    "usage-total-differs": '"usageMetadata": {"promptTokenCount": 12',
}


def wire_of(code: str) -> bytes:
    return (CAPTURES / f"{code}.sse").read_bytes()


def test_every_capture_has_its_row() -> None:
    assert {path.stem for path in CAPTURES.glob("*.sse")} == EXPECTED.keys()
    assert MARKED.keys() <= EXPECTED.keys() & REPAIRS.keys()


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
