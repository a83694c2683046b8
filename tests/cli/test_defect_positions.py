"""The exact bytes of every defect: of each repair, and of streams that are cut off anywhere."""

import json
import time
from pathlib import Path

import pytest

from penstock.cli.inspection.annotations import mark_defects
from penstock.core.hub.repairs import REPAIRS
from tests.cli.support import invoke
from tests.corpus import DEFECTS
from tests.promptness import cpu_s
from tests.streams import begins, calls, choice, chunk, delta, finishes, piece, says, sse

FOLDER = Path(__file__).resolve().parent.parent
CAPTURES = {path.stem: path.read_bytes() for path in sorted(FOLDER.glob("captures/*.sse"))}
# Defects that are marked as a whole line: they concern a whole event, or something earlier that it ends.
LINES = {
    "data-after-done",
    "empty-event",
    "ignored-after-fault",
    "object-missing",
    "tool-arguments-broken",
    "tool-id-missing",
    "unprefixed-continuation",
}
BYTES = {
    "bom": "\ufeff",
    "missing-blank-line": "data:",
    "blank-line-with-spaces": "  ",
    "json-on-next-line": "data:",
    "no-data-prefix": "{",
    "json-lines": "{",
    "json-array": "[",
    "array-unclosed": "",
    "no-final-blank-line": "",
    "no-final-newline": "",
    "field-misspelled": "Data:",
    "unknown-field": "latency-ms:",
    "error-field": "error:",
    "glued-events": "}{",
    "data-prefix-twice": "data:",
    "invalid-utf8": "\udce9",
    "raw-control-character": "\t",
    "non-finite-number": "-Infinity",
    "split-surrogate": r"\udea2",
    "lone-surrogate": r"\ud83d",
    "no-done": "",
    "done-misspelled": '"[DONE]"',
    "done-repeated": "[DONE]",
    "object-missing-no-choices": '"object":""',
    "choices-missing": '"choices":null',
    "choice-index-missing": '{"delta":{"role":"assistant","content":""},"finish_reason":null}',
    "delta-missing": '{"index":0,"finish_reason":null,"content_filter_offsets":{"start_offset":0,"end_offset":7}}',
    "envelope-incomplete": '"id":""',
    "envelope-mistyped": '"id":4711',
    "id-changed": '"id":"chatcmpl-w34b"',
    "model-changed": '"model":"weir-2-large"',
    "created-changed": '"created":1767225601',
    "role-missing": '"delta":{"content":"Who"}',
    "role-repeated": '"role":"assistant"',
    "content-parts": '"content":[{"type":"thinking","thinking":[{"type":"text","text":"A short one."}]}]',
    "logprobs-mistyped": '"logprobs":-0.25',
    "reasoning-differs": '"reasoning":"Adding."',
    "text-without-delta": '"text":"Old"',
    "message-beside-delta": '"message":{"role":"assistant","content":"Once is enough."}',
    "finish-mapped": '"finish_reason":"end_turn"',
    "finish-unknown": '"finish_reason":"vocabulary"',
    "finish-repeated": '"finish_reason":"stop"',
    "finish-changed": '"finish_reason":"length"',
    "finish-stop-with-tools": '"finish_reason":"stop"',
    "content-after-finish": '"delta":{"content":" thing."}',
    "tool-index-mistyped": '"index":"0"',
    "tool-index-reused": '"index":0',
    "tool-index-drifting": '"index":1',
    "tool-index-renumbered": '"index":1',
    "tool-id-repeated": '"id":"call_1"',
    "tool-id-changed": '"id":"call_9"',
    "tool-id-duplicate": '"id":"call_1"',
    "tool-name-repeated": '"name":"get_tide"',
    "tool-arguments-object": '"arguments":{"port":"Kiel","day":2}',
    "usage-placeholder": '"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}',
    "usage-mistyped": '"prompt_tokens":"12"',
    "usage-absurd": '"usage":{"prompt_tokens":-1,"completion_tokens":3,"total_tokens":2}',
    "usage-total-differs": '"total_tokens":400',
    "keepalive-event": '"type":"keepalive"',
}
# These are recognised by their first bytes.
BEGIN = {
    "tool-index-missing": '{"id":"call_1","type":"function"',
    "usage-reasoning-apart": '"usage":{"prompt_tokens":12,',
    "usage-details-apart": '"usage":{"prompt_tokens":12,',
    "usage-details-exceed": '"usage":{"prompt_tokens":12,',
}


def covered(data: bytes, code: str) -> list[tuple[str, int]]:
    """The bytes that are marked for a defect, and their line."""
    found = [mark for mark in mark_defects(data)[0] if mark.code == code]
    return [(_text(data[mark.offset : mark.offset + (mark.length or 0)]), mark.line) for mark in found]


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def test_every_repair_has_its_bytes() -> None:
    assert BYTES.keys() | BEGIN.keys() | LINES == REPAIRS.keys() & CAPTURES.keys()


@pytest.mark.parametrize("code", [*BYTES, *BEGIN])
def test_a_repair_is_marked_exactly(code: str) -> None:
    text, line = covered(CAPTURES[code], code)[0]
    assert text == BYTES.get(code, text)
    assert text.startswith(BEGIN.get(code, ""))
    assert text in _text(CAPTURES[code]).split("\n")[line - 1]


@pytest.mark.parametrize("code", sorted(LINES))
def test_of_the_others_the_line_is_marked(code: str) -> None:
    text, line = covered(CAPTURES[code], code)[0]
    assert text == CAPTURES[code].decode().split("\n")[line - 1]


def test_a_seed_is_marked_where_it_is_wrong() -> None:
    data = next(FOLDER.glob("seeds/001*")).read_bytes()
    assert {text for text, _ in covered(data, "missing-blank-line")} == {"data:"}
    alone = [number for number, line in enumerate(data.split(b"\n"), 1) if line == b"data:"]
    assert covered(data, "json-on-next-line") == [("data:", number) for number in alone]
    ((text, _),) = covered(data, "usage-placeholder")
    usage = json.loads(f"{{{text}}}")["usage"]
    assert usage["total_tokens"] == 0
    assert covered(data, "no-final-newline") == [("", data.count(b"\n") + 1)]


WIRES: dict[str, tuple[bytes, str, list[str]]] = {
    "with objects that `data:` glues": (
        sse(begins(), says("a")).replace(b"\n\n", b"", 1) + sse(finishes(), "[DONE]"),
        "glued-events",
        ["}data: {"],
    ),
    "of the choice that it is about": (
        sse(begins(), begins(1), chunk(choice({}, finish="stop"), choice({}, index=1, finish="eos")), "[DONE]"),
        "finish-mapped",
        ['"finish_reason":"eos"'],
    ),
    "of the tool call that it is about": (
        sse(
            begins(),
            calls(piece(0, "a", "one", "{}"), piece(1, "b", "two", "")),
            calls(piece(0, arguments=" "), piece(1, "b", arguments="{}")),
            finishes("tool_calls"),
            "[DONE]",
        ),
        "tool-id-repeated",
        ['"id":"b"'],
    ),
    "and not in what the model says": (
        sse(begins(), says('"finish_reason":"eos"'), finishes("eos"), "[DONE]"),
        "finish-mapped",
        ['"finish_reason":"eos"'],
    ),
    "past a pair that is whole": (
        sse(begins())
        + b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d\\ude00\\ud83d"}}]}\n\n'
        + sse(finishes()),
        "lone-surrogate",
        [r"\ud83d"],
    ),
}


@pytest.mark.parametrize(("wire", "code", "expected"), WIRES.values(), ids=WIRES)
def test_it_is_found(wire: bytes, code: str, expected: list[str]) -> None:
    assert [text for text, _ in covered(wire, code)] == expected


def test_it_is_found_in_the_right_place_of_alike_ones() -> None:
    wire = sse(begins(), says('"finish_reason":"eos"'), finishes("eos"), "[DONE]")
    (mark,) = mark_defects(wire)[0]
    assert mark.offset == wire.rindex(b'"finish_reason":"eos"')


def test_of_halves_that_follow_each_other_each_is_marked() -> None:
    event = b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n'
    wire = sse(begins()) + 3 * event + sse(says("a"), finishes(), "[DONE]")
    assert [line for _, line in covered(wire, "lone-surrogate")] == [3, 5, 7]


@pytest.mark.parametrize("code", CAPTURES)
def test_wherever_a_stream_breaks_off_its_marks_lie_within_it(code: str) -> None:
    data = CAPTURES[code]
    for size in range(0, len(data), 7):
        for mark in mark_defects(data[:size])[0]:
            assert 0 <= mark.offset <= mark.offset + (mark.length or 0) <= size
            assert mark.line >= 1


@pytest.mark.skipif(not DEFECTS.exists(), reason=f"there are no streams in {DEFECTS}, beside the corpus")
def test_small_defects_have_small_marks() -> None:
    for path in DEFECTS.glob("*.sse"):
        data = path.read_bytes()
        for mark in mark_defects(data)[0]:
            if mark.code in REPAIRS and mark.code not in LINES:
                assert (mark.length or 0) < 100, (path.name, mark)


def test_many_defects_in_one_event_take_no_time() -> None:
    pieces = [piece(number, f"id{number}", "f", {"n": number}) for number in range(300)]
    wire = sse(begins(), delta({"tool_calls": pieces}), finishes("tool_calls"), "[DONE]")
    began = time.process_time()
    found, left_off = mark_defects(wire)
    assert time.process_time() - began < cpu_s(8)
    assert len(found) + left_off >= 300


def test_where_a_stream_is_too_large_to_keep_its_events_are_reported(tmp_path: Path) -> None:
    words = sse(*[says("x" * 10_000) for _ in range(520)])
    head = sse(begins(), says("a")).replace(b"\n\n", b"\n", 1)
    (tmp_path / "large.sse").write_bytes(head + words + sse(finishes(), "[DONE]"))
    reported = json.loads(invoke("inspect", "--json", str(tmp_path / "large.sse")).stdout)
    assert [(repair["line"], repair["length"]) for repair in reported["repairs"]] == [(2, None)]
