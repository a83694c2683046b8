"""One small capture per defect. Each has that defect, if possible no other, and is read as expected.

`tests/captures/<code>.sse` belongs to the row `<code>` of `core/hub/repairs.py`. Captures of a dialect other than chat
completions are in a folder with its name. The table below leaves out what a healthy answer has: it is completed, its
finish reason is `stop`, it has no tool calls, no usage and no fault.
"""

from pathlib import Path

import pytest

from penstock.core.hub.repairs import FAULTS, REPAIRS
from tests.expected import Call, Expected, called, emitted, failed, repaired
from tests.streams import DONE, begins, bytewise, completion, dumps, finishes, fold, read, says, sse

CAPTURES = Path(__file__).parent.parent / "captures"
# Streams that would be too large as files.
GENERATED: dict[str, bytes] = {
    "event-too-large": sse(begins(), says("So far so good."), says("!" * 1_000_000), finishes(), DONE),
    "event-too-complex": sse(begins(), says("So far so good."), "{}" * 2_000, finishes(), DONE),
}


def tide(port: str, id: str | None = "call_1") -> Call:
    return (id, "get_tide", f'{{"port":"{port}"}}')


def wind(port: str, id: str | None = "call_2") -> Call:
    return (id, "get_wind", f'{{"port":"{port}"}}')


BROKEN_EVENT = dumps(says(" a word.") | {"id": "chatcmpl-w68", "created": 1767225600, "model": "weir-2-mini"})

EXPECTED: dict[str, Expected] = dict(
    (
        # Framing
        repaired("bom", 1, 1, "Good morning."),
        repaired("missing-blank-line", 4, 2, "The gate is open."),
        repaired("blank-line-with-spaces", 2, 4, "Two locks ahead."),
        repaired("json-on-next-line", 1, 4, "Water finds its level."),
        repaired("unprefixed-continuation", 1, 4, "Mind the step."),
        repaired("no-data-prefix", 1, 5, "Rain by noon."),
        repaired("json-lines", 1, 2, "One line each."),
        repaired("json-array", 1, 1, "All in one list."),
        (  # the one is a kind of the other
            "array-unclosed",
            Expected(text="Nobody closed it.", repairs={"json-array": (1, 1), "array-unclosed": (1, 6)}),
        ),
        repaired("no-final-blank-line", 1, 9, "Short ending."),
        repaired("no-final-newline", 1, 9, "Shorter ending."),
        repaired("field-misspelled", 2, 3, "Loud and clear."),
        repaired("unknown-field", 1, 3, "Forty milliseconds."),
        repaired(
            "error-field",
            1,
            7,
            "The river runs",
            finish=None,
            ending="failed",
            fault=("provider-error", 7, "failed to find a memory slot for a batch of 64"),
        ),
        repaired("glued-events", 1, 3, "Side by side."),
        repaired("data-prefix-twice", 1, 3, "Said twice?"),
        repaired("empty-event", 2, 3, "Hold the line."),
        repaired("invalid-utf8", 1, 3, "Caf\N{REPLACEMENT CHARACTER} au lait."),
        repaired("raw-control-character", 1, 3, "Name\tDepth in metres."),
        repaired("non-finite-number", 1, 3, "Yes."),
        repaired("split-surrogate", 1, 5, "Ahoy \N{SHIP}!"),
        repaired("lone-surrogate", 1, 3, "Ahoy \N{REPLACEMENT CHARACTER}!"),
        # The end of the stream
        repaired("no-done", 1, 7, "That is all."),
        repaired("done-misspelled", 1, 9, "Nearly done."),
        repaired("done-repeated", 1, 11, "Done and dusted."),
        repaired("data-after-done", 1, 11, "The bill comes late.", usage=(9, 5, 14)),
        # Chunks and choices
        repaired("keepalive-event", 2, 3, "Still here."),
        repaired("choices-missing", 1, 3, "Nothing chosen."),
        repaired("choice-index-missing", 4, 1, "Unnumbered but whole."),
        repaired("delta-missing", 1, 5, "Checked and safe."),
        repaired("object-missing", 2, 3, "Known by its shape."),
        repaired("object-missing-no-choices", 1, 1, "Filtered first."),
        repaired("envelope-incomplete", 1, 1, "Nameless again."),
        repaired("envelope-mistyped", 1, 1, "Any type will do."),
        repaired("id-changed", 2, 5, "New name, same river."),
        repaired("model-changed", 1, 5, "Who speaks?"),
        repaired("created-changed", 1, 5, "A second later."),
        repaired("role-missing", 1, 1, "Who else?"),
        repaired("role-repeated", 2, 3, "Me, again."),
        repaired("content-parts", 2, 3, "In parts.", reasoning="A short one."),
        repaired("logprobs-mistyped", 1, 3, "Quite likely."),
        repaired("reasoning-differs", 1, 3, "Four.", reasoning="Two and two."),
        repaired("text-without-delta", 2, 3, "Old school."),
        repaired("message-beside-delta", 1, 7, "Once is enough."),
        repaired("finish-mapped", 1, 7, "The end of turn.", native_finish="end_turn"),
        repaired("finish-unknown", 1, 7, "Out of words.", finish="vocabulary"),
        repaired("finish-repeated", 1, 9, "Over and out.", usage=(7, 3, 10)),
        repaired("finish-changed", 1, 9, "Once upon a", finish="length"),
        called("finish-stop-with-tools", 1, 7, tide("Brest", "call_tide"), native_finish="stop"),
        repaired("content-after-finish", 1, 7, "One more thing."),
        # Tool calls
        called("tool-index-missing", 2, 3, tide("Brest"), wind("Brest")),
        called("tool-index-mistyped", 2, 3, tide("Cork")),
        called("tool-index-reused", 1, 5, tide("Cork"), wind("Cork")),
        called("tool-index-drifting", 2, 5, tide("Faro")),
        called("tool-index-renumbered", 2, 3, tide("Faro"), wind("Faro")),
        called("tool-id-missing", 1, 7, tide("Oban", None)),
        called("tool-id-repeated", 2, 5, tide("Oban")),
        called("tool-id-changed", 1, 5, tide("Oban")),
        called("tool-id-duplicate", 1, 5, tide("Kiel"), wind("Kiel", "call_1")),
        called("tool-name-repeated", 2, 5, tide("Kiel")),
        called("tool-arguments-object", 1, 3, ("call_1", "get_tide", '{"port": "Kiel", "day": 2}')),
        called("tool-arguments-broken", 1, 7, ("call_1", "get_tide", '{"port":"Ki'), finish="length"),
        # Usage
        repaired("usage-placeholder", 1, 9, "Paid in full.", usage=(12, 3, 15)),
        repaired("usage-mistyped", 2, 9, "Paid in full.", usage=(12, 3, 15)),
        repaired("usage-absurd", 1, 9, "Paid in full.", usage=(-1, 3, 2)),
        repaired("usage-total-differs", 1, 9, "Paid in full.", usage=(12, 3, 400)),
        repaired("usage-reasoning-apart", 1, 9, "Paid in full.", usage=(12, 3, 115)),
        repaired("usage-details-apart", 1, 9, "Paid in full.", usage=(12, 3, 79)),
        repaired("usage-details-exceed", 1, 9, "Paid in full.", usage=(12, 3, 15)),
        repaired(
            "ignored-after-fault",
            1,
            7,
            "The lock",
            finish=None,
            ending="failed",
            usage=(6, 4, 10),
            fault=("provider-error", 5, "The model is overloaded."),
        ),
        # Faults
        failed("provider-error", 7, "Upstream timed out after 30 s.", "The mill stream"),
        failed("bad-json", 5, BROKEN_EVENT[:-25], "Half"),
        failed("bad-shape", 5, "content is not text: 42", "The answer is"),
        failed(
            "not-a-stream",
            1,
            "upstream connect error or disconnect/reset before headers. reset reason: connection timeout",
        ),
        failed("html-page", 1, "502 Bad Gateway 502 Bad Gateway The sluice is shut."),
        failed("binary", 1, "the bytes are gzip-compressed; decompress them first"),
        failed("event-too-large", 5, "an event exceeds 1000000 bytes", "So far so good."),
        failed(
            "event-too-complex",
            5,
            "an event holds more values, or more pieces of an answer, than are read",
            "So far so good.",
            repairs={"ignored-after-fault": (1, 7)},
        ),
        failed("empty-stream", 5, "the stream ended without an answer"),
        failed("other-dialect", 1, "these are events of the Anthropic Messages dialect"),
        failed(
            "tool-call-ambiguous",
            7,
            'a piece without id could belong to several calls: ":\\"Kiel\\"}"',
            calls=(("call_1", "get_tide", '{"port"'), ("call_2", "get_wind", '{"port"')),
            repairs={"tool-index-reused": (1, 5)},
        ),
        failed("tool-call-unnamed", 9, 'tool call 0 has no name: "{\\"port\\":\\"Kiel\\"}"'),
    )
)
# They depend on the answer before, and no stream alone has them: `tests/serve/test_continuing.py`.
OF_CONTINUATIONS = {"continuation-echo", "continuation-overlap"}
STORED = [code for code in EXPECTED if code not in GENERATED]


def wire_of(code: str) -> bytes:
    return GENERATED[code] if code in GENERATED else (CAPTURES / f"{code}.sse").read_bytes()


def test_every_defect_has_a_capture_and_every_capture_a_defect() -> None:
    captures = {path.stem for path in CAPTURES.glob("*.sse")} | GENERATED.keys()
    of_other_dialects = {path.stem for path in CAPTURES.glob("*/*.sse")}
    assert captures | of_other_dialects | OF_CONTINUATIONS == REPAIRS.keys() | FAULTS.keys()
    assert captures == EXPECTED.keys()


@pytest.mark.parametrize("code", EXPECTED)
def test_a_capture_is_read_as_it_should_be(code: str) -> None:
    assert emitted(completion(wire_of(code))) == EXPECTED[code]


@pytest.mark.parametrize("code", STORED)
def test_a_capture_is_read_the_same_one_byte_at_a_time(code: str) -> None:
    wire = wire_of(code)
    assert read(*bytewise(wire)) == read(wire)


@pytest.mark.parametrize("code", STORED)
def test_a_capture_is_small(code: str) -> None:
    assert len(wire_of(code)) < 2_000


def test_a_generated_capture_is_read_the_same_in_pieces() -> None:
    for wire in GENERATED.values():
        assert read(*(wire[i : i + 1460] for i in range(0, len(wire), 1460))) == read(wire)


@pytest.mark.parametrize("code", [code for code in EXPECTED if code in REPAIRS])
def test_a_repair_says_where_it_stands(code: str) -> None:
    wire = wire_of(code)
    for repair in fold(read(wire)).repairs:
        assert 0 <= repair.offset <= len(wire)
        assert repair.line == 1 + wire.count(b"\n", 0, repair.offset)
