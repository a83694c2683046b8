"""One small capture per defect of Cohere, like those of `tests/core/test_captures.py`; and healthy answers."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from penstock import TextPart
from penstock.cli.inspection.annotations import mark_defects
from penstock.core.dialects.detect import detect
from penstock.core.hub.repairs import REPAIRS
from tests.dialect_reading import DialectReading
from tests.expected import Expected, Row, emitted, failed, repaired
from tests.provider_streams import COHERE as HEALTHY
from tests.provider_streams import TEXT, THOUGHT
from tests.streams import bytewise

COHERE = DialectReading("cohere")
CAPTURES = Path(__file__).parents[2] / "captures" / COHERE.dialect
BILL = (7, 4, 11)


def row(code: str, count: int, line: int, text: str = "", **expected: Any) -> Row:
    return repaired(code, count, line, text, **({"usage": BILL} | expected))


def fails(code: str, line: int, words: str, text: str = "", **expected: Any) -> Row:
    return failed(code, line, words, text, **({"usage": BILL} | expected))


EXPECTED: dict[str, Expected] = dict(
    (
        (  # without the start there is no id
            "message-start-missing",
            Expected(
                text="No preface.",
                usage=BILL,
                repairs={"message-start-missing": (1, 1), "envelope-incomplete": (1, 1)},
            ),
        ),
        row("message-start-repeated", 1, 4, "Once."),
        row("block-start-missing", 1, 4, "Straight in."),
        row("block-unclosed", 1, 10, "Open end."),
        row("block-stop-repeated", 1, 13, "Shut."),
        row("finish-unknown", 1, 13, "Out of words.", finish="VOCABULARY"),
        row("usage-mistyped", 1, 13, "Paid in full."),
        row("data-after-done", 1, 16, "Over."),
        row("done-repeated", 1, 18, "Done twice."),
        row("event-unknown", 1, 10, "Still here."),
        row("keepalive-event", 1, 10, "Still alive."),
        row("envelope-incomplete", 1, 1, "Nameless."),
        row("split-surrogate", 1, 10, "Ahoy \N{SHIP}!"),
        row("tool-arguments-broken", 1, 7, calls=(("tide_1", "get_tide", '{"port":"Bre'),), finish="length"),
        fails(
            "tool-call-unnamed",
            4,
            'a tool call has no name: {"id": "tide_1", "type": "function", "function": {"name": "", "arguments": ""}}',
            repairs={"ignored-after-fault": (1, 7)},
        ),
        fails(
            "bad-shape",
            4,
            'arguments of a tool call that was not started: {"function": {"arguments": "{}"}}',
            repairs={"ignored-after-fault": (1, 7)},
        ),
        fails("bad-json", 10, '{"type": "content-delta", "delta":}', "Half",
              repairs={"ignored-after-fault": (2, 13), "block-unclosed": (1, 13)}),
        fails("provider-error", 10, "the server responded with an internal error", "The mill",
              repairs={"block-unclosed": (1, 10)}),
        failed(
            "other-dialect",
            1,
            'this is an event of version 1 of Cohere\'s API: {"is_finished": false, "event_type": "stream-start", '
            '"generation_id": "g1"}',
        ),
        (
            "ignored-after-fault",
            Expected(
                text="The lock",
                finish=None,
                usage=BILL,
                ending="failed",
                fault=("provider-error", 10, "too many requests"),
                repairs={"ignored-after-fault": (3, 12), "block-unclosed": (1, 15)},
            ),
        ),
    )
)  # fmt: skip
# What is marked of each repair, where its place in the JSON is known.
MARKED = {
    "message-start-repeated": '"id": "co_w1"',
    "block-start-missing": '"index": 0',
    "finish-unknown": '"finish_reason": "VOCABULARY"',
    "usage-mistyped": '"tokens": {"input_tokens": "7"',
}


def wire_of(code: str) -> bytes:
    return (CAPTURES / f"{code}.sse").read_bytes()


def test_every_capture_has_its_row() -> None:
    assert {path.stem for path in CAPTURES.glob("*.sse")} == EXPECTED.keys()
    assert MARKED.keys() <= EXPECTED.keys() & REPAIRS.keys()


@pytest.mark.parametrize("code", EXPECTED)
def test_a_capture_is_read_as_it_should_be(code: str) -> None:
    wire = wire_of(code)
    assert structs.replace(emitted(COHERE.completion(wire)), native_finish=None) == EXPECTED[code]
    assert len(wire) < 2_000
    assert COHERE.events(*bytewise(wire)) == COHERE.events(wire)


@pytest.mark.parametrize("code", MARKED)
def test_the_bytes_of_a_repair_are_marked(code: str) -> None:
    wire = wire_of(code)
    mark = next(mark for mark in mark_defects(wire, COHERE.dialect)[0] if mark.code == code)
    assert wire[mark.offset : mark.offset + (mark.length or 0)].decode().startswith(MARKED[code])


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_answer_is_read_without_repairs_and_never_completed_when_it_is_cut(name: str) -> None:
    wire = HEALTHY[name]
    answer = COHERE.completion(wire)
    assert (answer.ending, answer.text, answer.repairs) == ("completed", TEXT, ())
    assert detect([wire]).dialect == "cohere"
    end = wire.find(b"event: message-end")
    for length in range(0, end if end >= 0 else len(wire) - 1, 3):
        assert COHERE.completion(wire[:length]).ending in ("truncated", "failed"), length


def test_thinking_plans_calls_and_citations_are_read_streamed_and_unstreamed() -> None:
    for name in ("thinking and a call", "unstreamed"):
        choice = COHERE.completion(HEALTHY[name]).choices[0]
        assert choice.reasoning == THOUGHT
        (part,) = [part for part in choice.parts if isinstance(part, TextPart)]
        (citation,) = part.citations
        assert (citation.url, citation.title, citation.quote, citation.start, citation.end) == (
            "https://tides.example/brest", "Tides", "at 6", 11, 15,
        )  # fmt: skip
        assert [(call.id, json.loads(call.arguments)["port"]) for call in choice.tool_calls] == [("tide_1", "Brest")]


def test_both_counts_of_usage_are_kept() -> None:
    usage = COHERE.completion(HEALTHY["text"]).usage
    assert usage is not None
    assert (usage.input, usage.output, usage.cached) == (7, 4, 2)
    assert usage.raw["billed_units"] == {"input_tokens": 5, "output_tokens": 4}
