"""RepairingReader: what it corrects, what it holds meanwhile, and that nothing is lost."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Completion, End, Event, Fault, Repair, StreamReader, StreamWriter, TextDelta, ToolCallDelta
from penstock.core.hub.content import ToolCall
from penstock.core.hub.repairs import REPAIRS
from penstock.core.hub.request import Request, ResponseFormat, Tool, ToolChoice
from penstock.core.hub.tool_map import ToolMap
from penstock.core.repairing_reader import AnswerSchemas, RepairingReader
from tests import messages
from tests.cpu import calls_of
from tests.expected import Expected, Row, called, emitted
from tests.legal import violations
from tests.streams import DONE, begins, by_event, bytewise, calls, finishes, fold, piece, says, sse

CAPTURES = Path(__file__).parent.parent / "captures" / "model"
TIDE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "port": {"type": "string"},
        "days": {"type": "array", "items": {"type": "integer"}},
        "high": {"type": "boolean"},
    },
    "required": ["port"],
    "additionalProperties": False,
}
TOOLS = (Tool(name="get_tide", schema=TIDE), Tool(name="get_wind", schema=TIDE))
SCHEMAS = AnswerSchemas.of(Request(tools=TOOLS), {})
BREST = '{"port": "Brest"}'
PLAIN = '{"port":"Brest"}'


def tide(arguments: str, id: str | None = "call_1") -> tuple[str | None, str, str]:
    return (id, "get_tide", arguments)


def found(code: str, *calls: tuple[str | None, str, str], **expected: Any) -> Row:
    return called(code, 1, 1, *calls, native_finish="stop", **expected)


EXPECTED: dict[str, Expected] = dict(
    (
        called("model-json-tokens", 1, 1, tide(PLAIN)),
        called("model-json-fenced", 1, 1, tide(PLAIN)),
        called("model-json-escaped", 1, 1, tide(PLAIN)),
        called("model-json-python", 1, 1, tide('{"port": "L\'Aber", "high": true}')),
        called("model-json-commas", 1, 1, tide('{"port":"Brest","days":[1,2]}')),
        called("model-json-unclosed", 1, 1, tide('{"port":"Brest","days":[1,2]}')),
        found("model-call-tagged", tide(BREST, None), text="Let me look.\n"),
        found("model-call-listed", tide(BREST, None), tide('{"port": "Cork"}', None)),
        found("model-call-python-tag", tide(BREST, None)),
        found("model-call-function-tag", tide(BREST, None)),
        found("model-call-fenced", tide(BREST, None)),
    )
)


def events_of(*data: bytes, schemas: AnswerSchemas = SCHEMAS, dialect: str = "openai_chat") -> list[Event]:
    reader = RepairingReader(StreamReader(dialect), schemas)
    return [event for part in data for event in reader.feed(part)] + reader.close()


def answered(*data: bytes, **options: Any) -> Completion:
    return fold(events_of(*data, **options))


def codes(events: Iterable[Event]) -> list[str]:
    return [event.code for event in events if isinstance(event, Repair)]


def called_with(*arguments: str, finish: str = "tool_calls") -> bytes:
    start, *rest = arguments
    pieces = [calls(piece(0, "call_1", "get_tide", start)), *(calls(piece(0, arguments=each)) for each in rest)]
    return sse(begins(), *pieces, finishes(finish), DONE)


def text_answer(*texts: str, finish: str = "stop") -> bytes:
    return sse(begins(), *map(says, texts), finishes(finish), DONE)


def text_of(answer: Completion) -> str:
    return answer.choices[0].text


def calls_of_answer(answer: Completion) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in answer.choices[0].tool_calls]


# Captures.


def test_every_repair_of_the_model_has_a_capture() -> None:
    assert {path.stem for path in CAPTURES.glob("*.sse")} == EXPECTED.keys()
    assert EXPECTED.keys() == {code for code, row in REPAIRS.items() if row.seen}


@pytest.mark.parametrize("code", EXPECTED)
def test_a_capture_is_read_as_it_should_be(code: str) -> None:
    wire = (CAPTURES / f"{code}.sse").read_bytes()
    assert emitted(answered(wire)) == EXPECTED[code]
    (repair,) = {event for event in events_of(wire) if isinstance(event, Repair)}
    assert " is read as " in repair.detail


@pytest.mark.parametrize("code", EXPECTED)
def test_a_capture_is_read_the_same_in_any_pieces(code: str) -> None:
    wire = (CAPTURES / f"{code}.sse").read_bytes()
    for parts in (bytewise(wire), by_event(wire)):
        answer = answered(*parts)
        assert answer.choices == answered(wire).choices
        assert [repair.code for repair in answer.repairs] == [code]
        assert all(repair.line == 1 + wire.count(b"\n", 0, repair.offset) for repair in answer.repairs)
        assert violations(events_of(*parts)) == []


@pytest.mark.parametrize("code", EXPECTED)
def test_without_schemas_nothing_is_changed(code: str) -> None:
    wire = (CAPTURES / f"{code}.sse").read_bytes()
    assert answered(wire, schemas=AnswerSchemas({})) == fold([*(reader := StreamReader()).feed(wire), *reader.close()])


# Arguments.


def test_healthy_arguments_are_not_changed() -> None:
    plain = called_with('{"port"', ': "Brest" ', "}")
    assert answered(*by_event(plain)) == fold([*(reader := StreamReader()).feed(plain), *reader.close()])
    other = called_with('{"harbour": "Brest"}')  # JSON, but not by the schema: that is for the client to see
    assert calls_of_answer(answered(other)) == [("get_tide", '{"harbour": "Brest"}')]
    assert codes(events_of(other)) == []


def test_corrected_arguments_are_one_delta() -> None:
    parts = by_event(called_with('{"port":', '"Brest', '"', "<|im_end|>"))
    reader = RepairingReader(StreamReader(), SCHEMAS)
    before = [event for part in parts for event in reader.feed(part)]
    assert not any(isinstance(event, ToolCallDelta) for event in before)
    deltas = [event.arguments for event in reader.close() if isinstance(event, ToolCallDelta)]
    assert deltas == [PLAIN]


def test_each_event_that_waits_is_progress() -> None:
    reader = RepairingReader(StreamReader(), SCHEMAS)
    seen = []
    for part in by_event(called_with('{"port":', '"Bre', 'st"', "}")):
        reader.feed(part)
        seen.append(reader.withheld)
    assert seen == sorted(seen)
    assert seen[2] < seen[3] < seen[4]


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_arguments_that_were_cut_are_not_completed(finish: str) -> None:
    wire = called_with('{"port":"Bre', finish=finish)
    assert calls_of_answer(answered(wire)) == [("get_tide", '{"port":"Bre')]
    assert codes(events_of(wire)) == ["tool-arguments-broken"]


def test_ambiguous_arguments_stay_and_are_a_finding() -> None:
    wire = called_with('{"port":"Brest}')
    assert calls_of_answer(answered(wire)) == [("get_tide", '{"port":"Brest}')]
    assert codes(events_of(wire)) == ["tool-arguments-broken"]


def test_of_two_broken_calls_the_one_that_stays_is_a_finding() -> None:
    wire = sse(
        begins(),
        calls(piece(0, "call_1", "get_tide", '{"port":"Brest}')),
        calls(piece(1, "call_2", "get_wind", '{"port":"Cork",}')),
        finishes("tool_calls"),
        DONE,
    )
    assert sorted(codes(events_of(wire))) == ["model-json-commas", "tool-arguments-broken"]
    assert calls_of_answer(answered(wire)) == [("get_tide", '{"port":"Brest}'), ("get_wind", '{"port":"Cork"}')]


def test_a_call_of_an_unknown_tool_is_not_repaired() -> None:
    wire = sse(begins(), calls(piece(0, "call_1", "get_moon", '{"port":"Brest",}')), finishes("tool_calls"), DONE)
    assert calls_of_answer(answered(wire)) == [("get_moon", '{"port":"Brest",}')]


def test_a_healthy_call_is_released_where_the_next_one_starts() -> None:
    reader = RepairingReader(StreamReader(), SCHEMAS)
    reader.feed(sse(begins(), calls(piece(0, "call_1", "get_tide", PLAIN))))
    events = reader.feed(sse(calls(piece(1, "call_2", "get_wind", '{"port"'))))
    assert [event.arguments for event in events if isinstance(event, ToolCallDelta)] == [PLAIN]


def test_a_custom_tool_that_is_written_as_a_function_is_repaired_as_one() -> None:
    tools = (Tool(name="shell", kind="custom"), Tool(name="get tide", schema=TIDE))
    renamed = ToolMap(tools).changed()
    schemas = AnswerSchemas.of(Request(tools=tools), renamed)
    assert schemas.tools.keys() == renamed.keys()
    wire = sse(begins(), calls(piece(0, "call_1", "shell", '{"input": "ls"')), finishes("tool_calls"), DONE)
    assert calls_of_answer(answered(wire, schemas=schemas)) == [("shell", '{"input": "ls"}')]


# Text.


@pytest.mark.parametrize(
    "text",
    [
        "A <b>tide</b> & [TOOLS] `code` <tool_call",
        "```python\nprint(1)\n```",
        '```json\n{"port": "Brest"}\n```',
        "<tool_call>no JSON</tool_call>",
        '<tool_call>{"name": "get_moon", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "get_tide", "arguments": {"harbour": "Brest"}}</tool_call>',
        '<tool_call>{"name": "get_tide"}</tool_call>',
        '<tool_call>{"name": 1, "arguments": {}}</tool_call>',
        '[TOOL_CALLS] [{"name": "get_tide", "arguments": {"port": "Brest"}}, {"name": "get_moon", "arguments": {}}]',
        "[TOOL_CALLS] []",
        '<|python_tag|>get_tide.call(port="Brest")',
        "<function=get_moon>{}</function>",
        '<function=get_tide>{"port": "Brest", "port": 1}</function>',
        '```json\n{"name": "Brest", "depth": 3}\n```',
        '<tool_call>{"name": "get_tide", "arguments": {"port": "Brest}}</tool_call>',
        "<<<<<<tool_call>",
        "<tool_call><tool_call>",
    ],
)
def test_text_that_is_no_call_stays(text: str) -> None:
    for parts in ([text], [*text], [text[:7], text[7:]]):
        wire = text_answer(*parts)
        assert text_of(answered(wire)) == text
        assert answered(wire).choices[0].finish_reason == "stop"
        assert codes(events_of(*by_event(wire))) == []


@pytest.mark.parametrize(
    ("text", "waiting"),
    [
        ("The tide is high", ""),
        ("a < b", ""),
        ("a <", "<"),
        ("```py", ""),
        ('```json\n{"port', ""),
        ("<tool_call>x", ""),
    ],
)
def test_text_that_cannot_begin_a_call_passes_at_once(text: str, waiting: str) -> None:
    reader = RepairingReader(StreamReader(), SCHEMAS)
    events = [event for part in by_event(sse(begins(), *map(says, text))) for event in reader.feed(part)]
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == text.removesuffix(waiting)


@pytest.mark.parametrize(
    ("text", "kept", "ports"),
    [
        ("<tool_call>{0}</tool_call>\n<tool_call>{0}</tool_call>", "", 2),
        ("One. <tool_call>{0}</tool_call> Two.", "One.  Two.", 1),
        ("<tool_call>{0}", "", 1),
        ("<tool_call>{0}</tool_call> <tool_call>x", " <tool_call>x", 1),
        ("[TOOL_CALLS]{0}</s>", "", 1),
        ("```json\n[{0},{0}]\n```", "", 2),
        ("<tool_call>{{'name': 'get_tide', 'arguments': {{'port': 'Brest',}}}}</tool_call>", "", 1),
        ('<tool_call>{{"type": "function", "function": {0}}}</tool_call>', "", 1),
        ('<tool_call>{{"name": "get_tide", "arguments": "{{\\"port\\": \\"Brest\\"}}"}}</tool_call>', "", 1),
    ],
)
def test_calls_in_a_text(text: str, kept: str, ports: int) -> None:
    written = text.format('{"name": "get_tide", "arguments": {"port": "Brest"}}')
    for parts in ([written], [*written]):
        answer = answered(*by_event(text_answer(*parts)))
        assert text_of(answer) == kept
        assert [(name, json.loads(each)) for name, each in calls_of_answer(answer)] == [
            ("get_tide", {"port": "Brest"})
        ] * ports
        assert answer.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("choice", [ToolChoice("none"), ToolChoice("tool", ("get_wind",))])
def test_a_tool_that_must_not_be_called_is_not_called_by_a_text(choice: ToolChoice) -> None:
    """Such as that of a summary, which quotes a call of the conversation."""
    schemas = AnswerSchemas.of(Request(tools=TOOLS, tool_choice=choice), {})
    text = f'<tool_call>{{"name": "get_tide", "arguments": {PLAIN}}}</tool_call>'
    assert calls_of_answer(answered(text_answer(text))) == [("get_tide", PLAIN)]
    answer = answered(text_answer(text), schemas=schemas)
    assert (text_of(answer), calls_of_answer(answer)) == (text, [])


def test_a_call_in_the_text_follows_those_of_the_provider() -> None:
    wire = sse(
        begins(),
        says('<tool_call>{"name": "get_wind", "arguments": {"port": "Cork"}}</tool_call>'),
        calls(piece(0, "call_1", "get_tide", PLAIN)),
        finishes("tool_calls"),
        DONE,
    )
    assert calls_of_answer(answered(wire)) == [("get_tide", PLAIN), ("get_wind", '{"port": "Cork"}')]


# Structured output.


FORMAT = AnswerSchemas.of(Request(format=ResponseFormat("schema", schema=TIDE)), {})


@pytest.mark.parametrize(
    ("texts", "read"),
    [
        (['{"port":', '"Brest"}'], PLAIN),
        (["```json\n", PLAIN, "\n```"], PLAIN),
        ([PLAIN, "<|im_end|>"], PLAIN),
        (['{"port":"Brest}'], '{"port":"Brest}'),
        (["I cannot say."], "I cannot say."),
    ],
)
def test_the_text_of_an_answer_follows_its_schema(texts: list[str], read: str) -> None:
    assert text_of(answered(*by_event(text_answer(*texts)), schemas=FORMAT)) == read
    assert text_of(answered(text_answer(*texts, finish="length"), schemas=FORMAT)) == "".join(texts)


def test_any_object_is_json_output() -> None:
    schemas = AnswerSchemas.of(Request(format=ResponseFormat("json")), {})
    assert text_of(answered(text_answer('```json\n{"a": 1}\n```'), schemas=schemas)) == '{"a": 1}'


@pytest.mark.parametrize("schema", [{}, {"type": ["string", "object"]}, {"anyOf": [{"type": "string"}, TIDE]}])
def test_an_answer_that_is_a_string_by_its_schema_stays(schema: dict[str, Any]) -> None:
    schemas = AnswerSchemas.of(Request(format=ResponseFormat("schema", schema=schema)), {})
    text = json.dumps(PLAIN)
    answer = answered(text_answer(text), schemas=schemas)
    assert (text_of(answer), answer.repairs) == (text, answered(text_answer(text), schemas=AnswerSchemas({})).repairs)


# Blocks.


def test_a_block_that_was_a_call_is_left_out() -> None:
    text = f'<tool_call>{{"name": "get_tide", "arguments": {BREST}}}</tool_call>'
    wire = messages.answer(*messages.says_all("Let me look."), *messages.says_all(text, index=1))
    events = events_of(*by_event(wire), dialect="anthropic_messages")
    assert violations(events) == []
    answer = fold(events)
    assert text_of(answer) == "Let me look."
    assert calls_of_answer(answer) == [("get_tide", BREST)]
    writer = StreamWriter("anthropic_messages", source="anthropic_messages")
    blocks = [json.loads(line[6:]) for line in writer.write(events).split(b"\n") if line.startswith(b"data: ")]
    starts = [block["content_block"]["type"] for block in blocks if block["type"] == "content_block_start"]
    assert starts == ["text", "tool_use"]


def test_arguments_of_a_block_are_corrected_before_its_end() -> None:
    wire = messages.answer(*messages.calls_all('{"port": "Brest"'), finish=messages.finishes("tool_use"))
    events = events_of(*by_event(wire), dialect="anthropic_messages")
    assert violations(events) == []
    assert calls_of_answer(fold(events)) == [("get_tide", BREST)]
    assert codes(events) == ["model-json-unclosed"]
    cut = messages.answer(*messages.calls_all('{"port": "Brest"'), finish=messages.finishes("max_tokens"))
    assert calls_of_answer(fold(events_of(cut, dialect="anthropic_messages"))) == [("get_tide", '{"port": "Brest"')]


# Nothing is lost.


BROKEN = (
    called_with('{"port":"Brest', '"', "<|im_end|>"),
    text_answer("Look: ", '<tool_call>{"name": "get_', 'tide", "arguments": {"port": "Brest"'),
    text_answer("One <", "b> two ", "```json", '\n{"name"', ': "x"'),
)


def pieces_of(events: list[Event]) -> tuple[str, str]:
    texts = [event.text for event in events if isinstance(event, TextDelta)]
    return "".join(texts), "".join(event.arguments for event in events if isinstance(event, ToolCallDelta))


@pytest.mark.parametrize("wire", BROKEN)
def test_of_a_cut_stream_the_pieces_go_out_as_they_came(wire: bytes) -> None:
    for end in range(len(wire) - len(sse(finishes("stop"), DONE)) - 5):
        plain = [*(reader := StreamReader()).feed(wire[:end]), *reader.close()]
        events = events_of(*by_event(wire[:end]))
        assert pieces_of(events) == pieces_of(plain)
        assert events[-1] == plain[-1]
        assert violations(events) == []


@pytest.mark.parametrize("wire", BROKEN)
def test_before_a_fault_the_pieces_go_out_as_they_came(wire: bytes) -> None:
    cut = wire[: wire.index(b'"finish_reason":"')].rpartition(b"data: ")[0] + b'data: {"error": {"message": "no"}}\n\n'
    events = events_of(*by_event(cut))
    plain = [*(reader := StreamReader()).feed(cut), *reader.close()]
    assert pieces_of(events) == pieces_of(plain)
    assert [type(event) for event in events[-2:]] == [Fault, End]


@pytest.mark.parametrize("wire", BROKEN)
def test_what_waits_is_released_on_demand(wire: bytes) -> None:
    *parts, _finish, _done, _rest = by_event(wire)
    reader, plain = RepairingReader(StreamReader(), SCHEMAS), StreamReader()
    events = [event for part in parts for event in reader.feed(part)] + reader.release()
    assert pieces_of(events) == pieces_of([event for part in parts for event in plain.feed(part)])
    assert reader.release() == []


def test_what_waits_is_bounded() -> None:
    reader = RepairingReader(StreamReader(), SCHEMAS)
    reader.feed(sse(begins(), calls(piece(0, "call_1", "get_tide", '{"port":"'))))
    part = sse(calls(piece(0, arguments="x" * 10_000)))
    given = [
        sum(len(event.arguments) for event in reader.feed(part) if isinstance(event, ToolCallDelta)) for _ in range(200)
    ]
    first = given.index(next(filter(None, given)))
    assert 90 < first <= 100
    assert sum(given) == 200 * 10_000 + len('{"port":"')
    assert set(given[first + 1 :]) == {10_000}


@pytest.mark.parametrize(
    "unit", ["<", "`", "<tool_call>", "[TOOL_CALLS]", '<tool_call>{"name', "```json\n{", "</tool_call>", "x"]
)
def test_text_takes_linear_work(unit: str) -> None:
    def work(count: int) -> int:
        wire = [sse(says(unit)) for _ in range(count)]
        reader = RepairingReader(StreamReader(), SCHEMAS)
        reader.feed(sse(begins()))
        return calls_of(lambda: [reader.feed(part) for part in wire])

    assert work(2_000) < 12 * work(200)


CALL = '{"name": "get_tide", "arguments": '


@pytest.mark.parametrize(
    "unit", ["<tool_call>x", '<tool_call>{"name"</tool_call>', "<", "```json{x```", "[TOOL_CALLS]"]
)
def test_a_large_text_takes_bounded_work(unit: str) -> None:
    text = unit * (900_000 // len(unit))
    reader = RepairingReader(StreamReader(), SCHEMAS)
    events: list[Event] = []
    assert calls_of(lambda: events.extend(reader.feed(sse(begins(), says(text))))) < 100_000
    assert pieces_of([*events, *reader.release()]) == (text, "")


def test_many_broken_calls_take_bounded_work() -> None:
    broken = [calls(piece(number, f"c{number}", "get_tide", "{'port':'Brest',")) for number in range(999)]
    wire = sse(begins(), *broken, finishes("tool_calls"), DONE)
    assert calls_of(lambda: events_of(wire)) < 3 * calls_of(
        lambda: [*(plain := StreamReader()).feed(wire), *plain.close()]
    )


WORDS = ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "```json", "```", CALL, PLAIN, "}", " ", "\n", "a", "<", "`"]


@given(st.lists(st.sampled_from(WORDS), max_size=12), st.sampled_from(["stop", "length"]), st.randoms())
def test_text_is_kept_or_becomes_calls(words: list[str], finish: str, chance: Any) -> None:
    text = "".join(words)
    cuts = sorted(chance.randrange(len(text) + 1) for _ in range(3)) if text else []
    parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    events = events_of(*by_event(text_answer(*parts, finish=finish)))
    assert violations(events) == []
    answer = fold(events)
    choice = answer.choices[0]
    if not choice.tool_calls:
        assert choice.text == text
        assert codes(events) == []
    else:
        assert len(choice.text) < len(text)
        assert {code for code in codes(events) if code.startswith("model-call")}
        assert all(call == ToolCall(call.id, "get_tide", PLAIN) for call in choice.tool_calls)
