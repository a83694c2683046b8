"""Every injectable fault: how our own reader reads it, its syntax, and its effect on timing."""

import json
import re

import pytest

from penstock import BlockEnd, BlockStart, Completion, Event, ReasoningDelta, Seal, StreamReader, TextDelta
from penstock.core.dialects.registry import DIALECTS
from penstock.core.hub.repairs import FAULTS, REPAIRS
from penstock.errors import UnknownFaultError
from penstock.replay.faults import (
    INJECTABLE_FAULTS,
    InjectedFault,
    Piece,
    ScriptedResponse,
    inject,
    parse_fault,
    script,
    usage,
)
from penstock.replay.faults.content import FORMS
from penstock.replay.styles import write_in_style
from penstock.replay.styles.catalog import load_style, style_names
from tests.judges.cases import COMPLETED_EVENTS
from tests.seed_streams import CASES
from tests.streams import bytewise, fold, read
from tests.tables import share

# How each kind of argument is given here.
ARGUMENTS = {"=N": "=2", "=BYTES": "=400", "=STATUS": "=503", "=TIME": "=50ms"}
# The dialects, and a style of each in which the healthy streams are.
STYLES = {
    "openai_chat": "openai",
    "anthropic_messages": "anthropic",
    "openai_responses": "openai-responses",
    "gemini": "gemini",
    "ollama": "ollama",
    "cohere": "cohere",
    "bedrock_converse": "bedrock",
}
# The answers that are broken: words, of which some have characters of several bytes; the same, and calls of two tools;
# and thinking with its signature.
WORDS = COMPLETED_EVENTS["emoji"]
ANSWER = [*COMPLETED_EVENTS["emoji"][:-3], *COMPLETED_EVENTS["tools in parallel"][2:]]
THOUGHT: list[Event] = [
    *WORDS[:2],
    *(BlockStart(0, 0, "reasoning", type="thinking"), ReasoningDelta(0, "Why?"), Seal(0, 0, "anthropic", "c2VhbA==")),
    *(BlockEnd(0, 0), BlockStart(0, 1, "text", type="text"), TextDelta(0, "Because."), BlockEnd(0, 1), *WORDS[-3:]),
]
# The faults that only an answer with calls, or with thinking, can have.
SPECIAL = {"broken-arguments": ANSWER, "signature-late": THOUGHT}
# With an early finish, or everything in one event, a cut stream appears to be complete.
NOTHING_TO_CUT = {"early-finish", "unstreamed", "prompt-blocked"}
# What the streams of a dialect have anyway.
USUAL = {("gemini", "crlf")}
# The answer is another one.
OTHER_ANSWERS = {"broken-arguments", "prompt-blocked"}


def faults_of(dialect: str) -> list[str]:
    return [name for name, row in INJECTABLE_FAULTS.items() if row.form_for(dialect)]


every_fault = pytest.mark.parametrize(
    ("dialect", "name"), [(dialect, name) for dialect in STYLES for name in faults_of(dialect)]
)


def planned(name: str) -> InjectedFault:
    return parse_fault(name + ARGUMENTS.get(INJECTABLE_FAULTS[name].argument, ""))


def healthy(name: str = "openai", gap_s: float = 0.0, answer: list[Event] = ANSWER) -> ScriptedResponse:
    style = load_style(name)
    return script(write_in_style(answer, style), gap_s=gap_s, dialect=style.dialect)


def received(script: ScriptedResponse) -> Completion:
    return fold(read(*(piece.data for piece in script.pieces), reader=StreamReader(script.dialect)))


def result(dialect: str, name: str) -> str:
    form = INJECTABLE_FAULTS[name].form_for(dialect)
    assert form is not None
    return form.result


def content(answer: Completion) -> list[object]:
    """The content of each choice. Arguments count as JSON: an unstreamed message has them as an object."""
    return [
        (
            choice.text,
            choice.reasoning,
            choice.refusal,
            [(call.name, json.loads(call.arguments)) for call in choice.tool_calls],
        )
        for choice in answer.choices
    ]


def reported(answer: Completion) -> str:
    """The ending and the codes, as the table has them."""
    codes = [answer.fault.code] if answer.fault else []
    codes += [repair.code for repair in answer.repairs]
    return ", ".join([str(answer.ending), *(f"`{code}`" for code in codes)])


@pytest.mark.parametrize("style", STYLES.values())
@pytest.mark.parametrize("answer", [WORDS, ANSWER, THOUGHT], ids=["words", "calls", "thinking"])
def test_the_healthy_stream_is_healthy(style: str, answer: list[Event]) -> None:
    assert reported(received(healthy(style, answer=answer))) == "completed"
    assert received(healthy(style, answer=answer)).text == fold(answer).text


@every_fault
def test_our_reader_says_what_the_table_says(dialect: str, name: str) -> None:
    broken = inject(healthy(STYLES[dialect], answer=SPECIAL.get(name, WORDS)), [planned(name)])
    assert reported(received(broken)) == result(dialect, name)
    assert broken.data == b"" or received(broken.with_pieces(Piece(0.0, byte) for byte in bytewise(broken.data))) == (
        received(broken)
    )


@every_fault
def test_something_is_broken(dialect: str, name: str) -> None:
    whole = healthy(STYLES[dialect], answer=SPECIAL.get(name, ANSWER))
    assert (inject(whole, [planned(name)]) == whole) == ((dialect, name) in USUAL)


@every_fault
def test_no_style_makes_a_broken_answer_whole(dialect: str, name: str) -> None:
    for provider in style_names(dialect):
        whole = received(healthy(provider))
        answer = received(inject(healthy(provider), [planned(name)]))
        expected = result(dialect, name).split(",")[0]
        assert answer.ending == expected, provider
        if answer.ending == "completed" and name not in OTHER_ANSWERS:
            assert content(answer) == content(whole), provider
        else:
            assert all(part.text.startswith(answer.choices[0].text) for part in whole.choices if answer.choices)


# Which faults are combined does not depend on the dialect: of all dialects but one, a usual run combines a share.
@pytest.mark.parametrize(
    ("dialect", "name"),
    [(dialect, name) for number, dialect in enumerate(STYLES) for name in share(number, faults_of(dialect))],
)
def test_any_two_can_be_combined_in_any_order(dialect: str, name: str) -> None:
    whole, others = healthy(STYLES[dialect]), faults_of(dialect)
    at = others.index(name)
    for other in (others + others)[at : at + len(others) // 2 + 1]:  # those before it are combined with it
        faults = [planned(name), planned(other)]
        broken = inject(whole, faults)
        assert broken == inject(whole, reversed(faults)), other
        endings = {result(dialect, fault.name).split(",")[0] for fault in faults}
        healed = received(broken).ending == "completed" and endings != {"completed"}
        assert not healed or {name, other} & NOTHING_TO_CUT, other


def test_a_fault_of_another_dialect_is_refused() -> None:
    with pytest.raises(UnknownFaultError, match="streams of openai_chat cannot have the fault 'block-unclosed'"):
        inject(healthy(), [parse_fault("block-unclosed")])


def test_every_form_belongs_to_a_row_and_every_row_has_a_form() -> None:
    assert {name for forms in FORMS.values() for name in forms} <= INJECTABLE_FAULTS.keys()
    assert all(row.any or row.forms for row in INJECTABLE_FAULTS.values())
    assert FORMS.keys() == STYLES.keys() <= DIALECTS.keys()


@pytest.mark.parametrize("seed", CASES)
@pytest.mark.parametrize("size", [1, 100, 10_000])
def test_events_of_a_recording_are_found_however_it_was_read(seed: str, size: int) -> None:
    wire = CASES[seed].wire
    pieces = tuple(Piece(0.5, wire[start : start + size]) for start in range(0, len(wire), size))
    by_event = ScriptedResponse(pieces).by_event()
    assert by_event.data == wire
    assert len(by_event.pieces) == len(re.findall(rb"(?m)^data:", wire))
    assert sum(piece.after_s for piece in by_event.pieces) == pytest.approx(0.5 * len(pieces))
    assert ScriptedResponse(pieces).by_event().by_event() == by_event
    cut = inject(ScriptedResponse(pieces), [parse_fault("cut-after=3")])
    assert len(re.findall(rb"(?m)^data:", cut.data)) == 3
    assert wire.startswith(cut.data)


def test_a_seed_is_another_style_with_two_faults() -> None:
    events = [event for event in read(CASES["002"].wire) if not hasattr(event, "line")]  # without its repairs
    clean = script(write_in_style(events, load_style("openai-2025")))
    assert clean.data.endswith(b"data: [DONE]\n\n")
    broken = inject(clean, [parse_fault("no-blank-lines"), parse_fault("no-done")])
    assert broken.data == CASES["002"].wire


# What each fault leaves of the script: how many events, how it ends, and after how long.
SENT: list[tuple[list[str], int, str, float]] = [
    ([], 14, "end", 1.3),
    (["cut-after=0"], 0, "end", 0.0),
    (["cut-after=5"], 5, "end", 0.4),
    (["cut-after=99"], 14, "end", 1.3),
    (["reset"], 7, "reset", 0.6),
    (["reset=2"], 2, "reset", 0.1),
    (["reset", "cut-after=5"], 5, "reset", 0.4),
    (["stall"], 7, "stall", 0.6),
    (["stall=3s"], 14, "end", 4.3),
    (["stall=250ms@1"], 14, "end", 1.55),
    (["stall=1m@0"], 14, "end", 61.3),
    (["stall=forever@2"], 2, "stall", 0.1),
    (["stall=2", "cut-after=5"], 5, "end", 0.4),
    (["slow=50ms"], 14, "end", 0.7),
    (["one-read"], 14, "end", 1.3),
    (["drip"], 14, "end", 1.3),
    (["error-event"], 8, "end", 0.6),
    (["error-event=3"], 4, "end", 0.2),
    (["error-event=3", "reset"], 4, "reset", 0.2),
    (["html"], 1, "end", 0.0),
]


@pytest.mark.parametrize(("faults", "events", "ending", "seconds"), SENT, ids=str)
def test_so_much_is_sent_and_so_late(faults: list[str], events: int, ending: str, seconds: float) -> None:
    broken = inject(healthy(gap_s=0.1), map(parse_fault, faults))
    sent = broken.by_event().pieces
    assert (len(sent), broken.ending) == (events, ending)
    assert sum(piece.after_s for piece in broken.pieces) == pytest.approx(seconds)


def test_what_comes_in_place_of_the_stream() -> None:
    page, error, limited = (inject(healthy(), [parse_fault(name)]) for name in ("html", "status=500", "status=429"))
    assert (page.status, page.headers) == (200, {"content-type": "text/html"})
    assert (error.status, error.headers) == (500, {"content-type": "application/json"})
    assert (limited.status, limited.headers["retry-after"]) == (429, "1")
    assert inject(healthy(), [parse_fault("empty")]).pieces == ()


def test_no_other_event_is_touched() -> None:
    before, after = (
        part.by_event().pieces for part in (healthy("reseller"), inject(healthy("reseller"), [planned("no-finish")]))
    )
    changed = [number for number, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    assert [b'"finish_reason": "' in before[number].data for number in changed] == [True]
    assert after[changed[0]].data == before[changed[0]].data.replace(
        b'"finish_reason": "tool_calls"', b'"finish_reason": null'
    )


def test_split_characters_are_really_split() -> None:
    pieces = inject(healthy(), [parse_fault("split-utf8")]).pieces
    assert sum(piece.data[:1] >= b"\x80" for piece in pieces) > 10


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("cut-after=5", InjectedFault("cut-after", 5)),
        (" drip ", InjectedFault("drip")),
        ("stall", InjectedFault("stall")),
        ("stall=1.5s@3", InjectedFault("stall", 3, 1.5)),
        ("stall=forever@3", InjectedFault("stall", 3)),
        ("slow=20ms", InjectedFault("slow", seconds=0.02)),
        ("status=429", InjectedFault("status", 429)),
        ("error-event=0", InjectedFault("error-event", 0)),
    ],
)
def test_is_asked_for_so(text: str, fault: InjectedFault) -> None:
    assert parse_fault(text) == fault


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cut-afer=5", "there is no fault 'cut-afer'; did you mean 'cut-after'?"),
        ("No_Done", "there is no fault 'No_Done'; did you mean 'no-done'?"),
        ("", f"there is no fault ''; choose one of {', '.join(INJECTABLE_FAULTS)}"),
        ("cut-after", "'cut-after' is no such fault: write cut-after=5"),
        ("cut-after=", "'cut-after=' is no such fault: write cut-after=5"),
        ("cut-after=-1", "'cut-after=-1' is no such fault: write cut-after=5"),
        ("cut-after=٣", "'cut-after=٣' is no such fault: write cut-after=5"),
        ("cut-bytes=1e3", "'cut-bytes=1e3' is no such fault: write cut-bytes=1000"),
        ("status=200", "'status=200' is no such fault: write status=429"),
        ("drip=3", "'drip=3' is no such fault: write drip"),
        ("slow=fast", "'slow=fast' is no such fault: write slow=50ms"),
        ("stall=3s@", "'stall=3s@' is no such fault: write stall, stall=3s, stall=3s@5 or stall=forever@5"),
        ("bad-json=x", "'bad-json=x' is no such fault: write bad-json or bad-json=5"),
    ],
)
def test_what_is_asked_for_wrongly_is_reported_rightly(text: str, message: str) -> None:
    with pytest.raises(UnknownFaultError) as raised:
        parse_fault(text)
    assert str(raised.value) == message


@every_fault
def test_every_row_is_whole(dialect: str, name: str) -> None:
    assert re.fullmatch("[A-Z`].*\\.", INJECTABLE_FAULTS[name].description)
    assert re.fullmatch("[a-z][a-z0-9-]+", name)
    assert set(re.findall("`([a-z0-9-]+)`", result(dialect, name))) <= REPAIRS.keys() | FAULTS.keys()
    assert usage(name).startswith(name)


def test_there_are_more_than_twenty() -> None:
    assert len(INJECTABLE_FAULTS) > 20
