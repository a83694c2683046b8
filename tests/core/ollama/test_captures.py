"""One small capture per defect of Ollama, like those of `tests/core/test_captures.py`; and healthy lines."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from penstock.cli.inspection.annotations import mark_defects
from penstock.core.dialects.detect import detect
from penstock.core.dialects.registry import upstream_dialect
from penstock.core.hub.repairs import REPAIRS
from tests.dialect_reading import DialectReading
from tests.expected import Call, Expected, Row, called, emitted, failed, repaired
from tests.streams import bytewise

OLLAMA = DialectReading("ollama")
CAPTURES = Path(__file__).parents[2] / "captures" / OLLAMA.dialect
TIDE: Call = ("call_1", "get_tide", '{"port":"Brest"}')
BILL = (7, 4, 11)
IGNORED = {"ignored-after-fault": (1, 3)}


def row(code: str, count: int, line: int, text: str = "", **expected: Any) -> Row:
    return repaired(code, count, line, text, **({"usage": BILL} | expected))


def fails(code: str, line: int, words: str, text: str = "", **expected: Any) -> Row:
    return failed(code, line, words, text, **({"usage": BILL, "repairs": IGNORED} | expected))


EXPECTED: dict[str, Expected] = dict(
    (
        row("data-after-done", 1, 3, "Over and out."),
        row("done-unexpected", 1, 2, "Done twice."),
        row("finish-mapped", 1, 2, "An old mill."),
        row("finish-unknown", 1, 2, "Out of words.", finish="vocabulary"),
        called("tool-arguments-text", 1, 1, TIDE, usage=BILL),
        called("tool-arguments-broken", 1, 1, (*TIDE[:2], '{"port":"Bre'), usage=BILL,
               repairs={"tool-arguments-text": (1, 1), "tool-arguments-broken": (1, 1)}),
        called("tool-id-duplicate", 1, 2, TIDE, (None, *TIDE[1:]), usage=BILL),
        row("model-changed", 1, 2, "Who speaks?"),
        row("usage-mistyped", 1, 2, "Paid in full."),
        row("keepalive-event", 1, 2, "Still here."),
        row("event-unknown", 1, 2, "Still the same."),
        row("envelope-incomplete", 1, 1, "Nameless again."),
        row("split-surrogate", 1, 2, "Ahoy \N{SHIP}!"),
        fails("tool-call-unnamed", 2, 'a tool call has no name: {"id": "call_1", "function": {"arguments": {}}}',
              "Let me see."),
        fails("bad-json", 2, '{"model":"weir-3:4b","message":{"role":,}}', "Half"),
        fails("bad-shape", 2, "`content` is not text: 42", "The answer is"),
        fails("provider-error", 2, "an error was encountered while running the model: unexpected EOF", "The mill",
              usage=None, repairs={}),
        failed(
            "other-dialect",
            1,
            'this is no event of the Ollama dialect: {"id": "c1", "object": "chat.completion.chunk", '
            '"choices": [{"index": 0, "delta"',
        ),
        (
            "ignored-after-fault",
            Expected(
                text="The lock",
                finish=None,
                usage=BILL,
                ending="failed",
                fault=("provider-error", 2, "model runner has unexpectedly stopped"),
                repairs={"ignored-after-fault": (2, 3)},
            ),
        ),
    )
)  # fmt: skip
# What is marked of each repair, where its place in the JSON is known.
MARKED = {
    "finish-mapped": '"done": true',
    "finish-unknown": '"done_reason": "vocabulary"',
    "tool-arguments-text": '"arguments": "{',
    "model-changed": '"model": "weir-4:8b"',
    "usage-mistyped": '"prompt_eval_count": "7"',
}


def wire_of(code: str) -> bytes:
    return (CAPTURES / f"{code}.sse").read_bytes()


def test_every_capture_has_its_row() -> None:
    assert {path.stem for path in CAPTURES.glob("*.sse")} == EXPECTED.keys()
    assert MARKED.keys() <= EXPECTED.keys() & REPAIRS.keys()


@pytest.mark.parametrize("code", EXPECTED)
def test_a_capture_is_read_as_it_should_be(code: str) -> None:
    wire = wire_of(code)
    assert structs.replace(emitted(OLLAMA.completion(wire)), native_finish=None) == EXPECTED[code]
    assert len(wire) < 2_000
    assert OLLAMA.events(*bytewise(wire)) == OLLAMA.events(wire)


@pytest.mark.parametrize("code", MARKED)
def test_the_bytes_of_a_repair_are_marked(code: str) -> None:
    wire = wire_of(code)
    mark = next(mark for mark in mark_defects(wire, OLLAMA.dialect)[0] if mark.code == code)
    assert wire[mark.offset : mark.offset + (mark.length or 0)].decode().startswith(MARKED[code])


def line(content: str = "", **fields: object) -> dict[str, object]:
    message = {"role": "assistant", "content": content}
    return {"model": "m", "created_at": "2026-11-17T08:00:00.123456789Z", "message": message, "done": False} | fields


def wire(*lines: dict[str, object]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in lines)


LAST = line(done=True, done_reason="stop", prompt_eval_count=7, eval_count=4)


def test_an_answer_is_read_with_its_thinking_calls_and_time() -> None:
    thinks = line(message={"role": "assistant", "content": "", "thinking": "Hm."})
    call = {"function": {"name": "get_tide", "arguments": {"port": "Brest", "at": [1.5, None]}}}
    calls = line(message={"role": "assistant", "content": "Let me see.", "tool_calls": [call, call]})
    answer = OLLAMA.completion(wire(thinks, calls, LAST))
    assert (answer.ending, answer.model, answer.created, answer.repairs) == ("completed", "m", 1_794_902_400, ())
    choice = answer.choices[0]
    assert (choice.reasoning, choice.text, choice.finish_reason) == ("Hm.", "Let me see.", "tool_calls")
    assert [(call.id, call.arguments) for call in choice.tool_calls] == [(None, '{"port":"Brest","at":[1.5,null]}')] * 2


def test_log_probabilities_are_those_of_the_choice() -> None:
    entry = {"token": "Hi", "logprob": -0.5, "top_logprobs": []}
    answer = OLLAMA.completion(wire(line("Hi", logprobs=[entry]), LAST))
    assert answer.choices[0].extras == {"logprobs": {"content": [entry]}}


def test_a_count_that_is_missing_is_unknown() -> None:
    last = {name: value for name, value in LAST.items() if name != "prompt_eval_count"}
    usage = OLLAMA.completion(wire(line("Hi"), last)).usage
    assert usage is not None
    assert (usage.input, usage.output) == (None, 4)


def test_an_unstreamed_answer_is_read_as_one_line_and_when_it_is_indented() -> None:
    whole = line("All at once.", done=True, done_reason="stop")
    for data in (json.dumps(whole), json.dumps(whole, indent=2)):
        answer = OLLAMA.completion(data.encode())
        assert (answer.ending, answer.text, answer.repairs) == ("completed", "All at once.", ())


def test_a_stream_that_is_cut_anywhere_is_never_completed() -> None:
    data = wire(line("One"), line(" two"), LAST)
    for length in range(len(data) - 2):
        assert OLLAMA.completion(data[:length]).ending in ("truncated", "failed"), length
    assert OLLAMA.completion(data[:-1]).ending == "completed"


def test_a_stream_of_server_sent_events_is_read_too() -> None:
    data = b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in (line("Behind a proxy."), LAST))
    answer = OLLAMA.completion(data)
    assert (answer.ending, answer.text, answer.repairs) == ("completed", "Behind a proxy.", ())


def test_it_is_detected_by_its_lines_or_its_path() -> None:
    assert detect([wire(line("Hi"))]).by == "events"
    assert detect([b""], path="/api/chat").dialect == "ollama"
    assert detect([wire({"error": "no"})]).dialect == "openai_chat"


def test_an_error_body_is_read() -> None:
    body = b'{"error":"model \'weir\' not found"}'
    assert upstream_dialect("ollama").read_error(body).message == "model 'weir' not found"
    assert upstream_dialect("ollama").read_error(b"[]").message == ""
