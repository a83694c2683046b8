"""Tool calls: which call a piece belongs to, for all known deviations of providers, and the ambiguous cases."""

import pytest

from penstock import Accumulator, Extra, StreamReader, ToolCallDelta, ToolCallStart
from tests.invariants import relayed
from tests.streams import (
    DONE,
    Json,
    begins,
    bytewise,
    calls,
    chunk,
    completion,
    delta,
    dumps,
    finishes,
    piece,
    read,
    repairs,
    sse,
    tool_calls,
)

Call = tuple[str | None, str, str]

ONE: list[Call] = [("a", "tide", '{"x":1}')]
WHOLE: list[Json] = [piece(None, "a", "tide", '{"x":1}'), piece(None, "b", "wind", '{"y":2}')]
TWO: list[Call] = [("a", "tide", '{"x":1}'), ("b", "wind", '{"y":2}')]


def args(text: str, index: object = 0) -> Json:
    """A piece that has nothing but more arguments."""
    return piece(index, arguments=text)


def stream(*deltas: Json | list[Json], finish: str = "tool_calls") -> bytes:
    """A stream of these pieces, a chunk for each, or for each list of them."""
    chunks = (calls(*pieces) if isinstance(pieces, list) else calls(pieces) for pieces in deltas)
    return sse(begins(), *chunks, finishes(finish), DONE)


UNDERSTOOD: dict[str, tuple[bytes, list[Call], dict[str, int]]] = {
    # Healthy
    "the free-form input of two custom tools, interleaved": (
        stream(
            {"index": 0, "id": "a", "type": "custom", "custom": {"name": "tide", "input": "{}"}},
            {"index": 1, "id": "b", "type": "custom", "custom": {"name": "wind", "input": "{"}},
            {"index": 0, "custom": {"input": "{}"}},
        ),
        [("a", "tide", "{}{}"), ("b", "wind", "{")],
        {},
    ),
    "more than one JSON value, after the free-form input of a custom tool": (
        stream(
            {"index": 0, "id": "a", "type": "custom", "custom": {"name": "tide", "input": "{"}},
            piece(1, "b", "wind", "{}"),
            args("0", 1),
        ),
        [("a", "tide", "{"), ("b", "wind", "{}0")],
        {"tool-arguments-broken": 1},
    ),
    "in pieces": (stream(piece(0, "a", "tide", ""), args('{"x"'), args(":1}")), ONE, {}),
    "whole in one chunk": (stream(piece(0, "a", "tide", '{"x":1}')), ONE, {}),
    "two, one after the other": (
        stream(piece(0, "a", "tide", ""), args('{"x":1}'), piece(1, "b", "wind"), args('{"y":2}', 1)),
        TWO,
        {},
    ),
    "two, interleaved": (
        stream(
            piece(0, "a", "tide", ""),
            piece(1, "b", "wind", ""),
            *(args('{"x"'), args('{"y"', 1), args(":2}", 1), args(":1}")),
        ),
        TWO,
        {},
    ),
    "two in one chunk": (stream([piece(0, "a", "tide", '{"x":1}'), piece(1, "b", "wind", '{"y":2}')]), TWO, {}),
    "no arguments": (stream(piece(0, "a", "tide", "")), [("a", "tide", "")], {}),
    "arguments null, then text": (
        stream(piece(0, "a", "tide") | {"function": {"name": "tide", "arguments": None}}, args('{"x":1}')),
        ONE,
        {},
    ),
    "id and name null or empty later": (
        stream(
            piece(0, "a", "tide", '{"x"'),
            {"index": 0, "id": None, "type": None, "function": {"name": None, "arguments": ":1"}},
            {"index": 0, "id": "", "type": "function", "function": {"name": "", "arguments": "}"}},
        ),
        ONE,
        {},
    ),
    "the id comes late": (stream(piece(0, None, "tide", '{"x"'), piece(0, "a", None, ":1}")), ONE, {}),
    "the name comes late": (stream(piece(0, "a"), piece(0, None, "tide"), args('{"x":1}')), ONE, {}),
    # The index
    "index missing, whole calls": (
        stream(piece(None, "a", "tide", '{"x":1}'), piece(None, "b", "wind", '{"y":2}')),
        TWO,
        {"tool-index-missing": 2},
    ),
    "index missing, in pieces": (
        stream(
            piece(None, "a", "tide", '{"x"'), args(":1}", None), piece(None, "b", "wind", '{"y"'), args(":2}", None)
        ),
        TWO,
        {"tool-index-missing": 4},
    ),
    "index missing, ids interleaved": (
        stream(
            *(piece(None, "a", "tide", '{"x"'), piece(None, "b", "wind", '{"y"')),
            *(piece(None, "a", None, ":1}"), piece(None, "b", None, ":2}")),
        ),
        TWO,
        {"tool-index-missing": 4, "tool-id-repeated": 2},
    ),
    "index and id missing": (
        stream(piece(None, None, "tide", '{"x":1}'), piece(None, None, "wind", '{"y"'), args(":2}", None)),
        [(None, "tide", '{"x":1}'), (None, "wind", '{"y":2}')],
        {"tool-index-missing": 3, "tool-id-missing": 2},
    ),
    "the same tool twice, index and id missing": (
        stream(piece(None, None, "tide", '{"x":1}'), piece(None, None, "tide", '{"x":2}')),
        [(None, "tide", '{"x":1}'), (None, "tide", '{"x":2}')],
        {"tool-index-missing": 2, "tool-id-missing": 2},
    ),
    "always index 0, whole calls": (
        stream(piece(0, "a", "tide", '{"x":1}'), piece(0, "b", "wind", '{"y":2}')),
        TWO,
        {"tool-index-reused": 1},
    ),
    "always index 0, in one chunk": (
        stream([piece(0, "a", "tide", '{"x":1}'), piece(0, "b", "wind", '{"y":2}')]),
        TWO,
        {"tool-index-reused": 1},
    ),
    "always index 0, in pieces": (
        stream(piece(0, "a", "tide", '{"x"'), args(":1}"), piece(0, "b", "wind", ""), args('{"y":2}')),
        TWO,
        {"tool-index-reused": 1},
    ),
    "always index 0, no id": (
        stream(piece(0, None, "tide", '{"x":1}'), piece(0, None, "tide", '{"x":2}')),
        [(None, "tide", '{"x":1}'), (None, "tide", '{"x":2}')],
        {"tool-index-reused": 1, "tool-id-missing": 2},
    ),
    "always index 0, interleaved, ids in every piece": (
        stream(
            *(piece(0, "a", "tide", '{"x"'), piece(0, "b", "wind", '{"y"')),
            *(piece(0, "a", None, ":1}"), piece(0, "b", None, ":2}")),
        ),
        TWO,
        {"tool-index-reused": 1, "tool-id-repeated": 2},
    ),
    "drifting": (
        stream(piece(0, "a", "tide", '{"x"'), args(":1", 1), args("}", 2)),
        ONE,
        {"tool-index-drifting": 2},
    ),
    "drifting, with the id": (
        stream(piece(0, "a", "tide", '{"x"'), piece(1, "a", None, ":1}")),
        ONE,
        {"tool-index-drifting": 1, "tool-id-repeated": 1},
    ),
    "counted from 1": (
        stream(piece(1, "a", "tide", '{"x":1}'), piece(2, "b", "wind", '{"y"'), args(":2}", 2)),
        TWO,
        {"tool-index-renumbered": 2},
    ),
    "with gaps": (
        stream(piece(0, "a", "tide", '{"x":1}'), piece(5, "b", "wind", '{"y":2}')),
        TWO,
        {"tool-index-renumbered": 1},
    ),
    "strings": (
        stream(piece("0", "a", "tide", '{"x":1}'), piece("1", "b", "wind", '{"y"'), args(":2}", "1")),
        TWO,
        {"tool-index-mistyped": 3},
    ),
    "fractions": (stream(piece(0.0, "a", "tide", '{"x"'), args(":1}", 0.0)), ONE, {"tool-index-mistyped": 2}),
    # Ids and names
    "id and name in every piece": (
        stream(piece(0, "a", "tide", '{"x"'), piece(0, "a", "tide", ":1}"), piece(0, "a", "tide", "")),
        ONE,
        {"tool-id-repeated": 2, "tool-name-repeated": 2},
    ),
    "name in every piece": (
        stream(piece(0, "a", "tide", '{"x"'), piece(0, None, "tide", ":1}")),
        ONE,
        {"tool-name-repeated": 1},
    ),
    "name in parts, with the id": (
        stream(piece(0, "a", "ti"), piece(0, "a", "de"), args('{"x":1}')),
        ONE,
        {"tool-id-repeated": 1, "tool-name-repeated": 1},
    ),
    "no id at all": (
        stream(piece(0, None, "tide", ""), args('{"x":1}')),
        [(None, "tide", '{"x":1}')],
        {"tool-id-missing": 1},
    ),
    "another id in every piece": (
        stream(piece(0, "a", "tide", ""), piece(0, "b", None, '{"x"'), piece(0, "c", None, ":1}")),
        ONE,
        {"tool-id-changed": 2},
    ),
    "one id for two calls": (
        stream(piece(0, "a", "tide", '{"x":1}'), piece(1, "a", "wind", '{"y":2}')),
        [("a", "tide", '{"x":1}'), ("a", "wind", '{"y":2}')],
        {"tool-id-duplicate": 1},
    ),
    "the whole call said again": (
        stream(piece(0, "a", "tide", '{"x":1}'), piece(0, "a", "tide", '{"x":1}')),
        ONE,
        {"tool-id-repeated": 1},
    ),
    # Arguments
    "an object": (
        stream(piece(0, "a", "tide", {"x": 1})),
        [("a", "tide", '{"x": 1}')],
        {"tool-arguments-object": 1},
    ),
    "an empty object": (stream(piece(0, "a", "tide", {})), [("a", "tide", "{}")], {"tool-arguments-object": 1}),
    "cut at the length": (
        stream(piece(0, "a", "tide", '{"x":'), finish="length"),
        [("a", "tide", '{"x":')],
        {"tool-arguments-broken": 1},
    ),
    "cut although finished": (
        stream(piece(0, "a", "tide", '{"x":"y')),
        [("a", "tide", '{"x":"y')],
        {"tool-arguments-broken": 1},
    ),
    "two objects in one": (
        stream(piece(0, "a", "tide", "{}"), args('{"x":1}')),
        [("a", "tide", '{}{"x":1}')],
        {"tool-arguments-broken": 1},
    ),
    "not JSON": (stream(piece(0, "a", "tide", "x=1")), [("a", "tide", "x=1")], {"tool-arguments-broken": 1}),
    "a value missing": (
        stream(piece(0, "a", "tide", '{"x":}')),
        [("a", "tide", '{"x":}')],
        {"tool-arguments-broken": 1},
    ),
    "a bracket too many": (
        stream(piece(0, "a", "tide", '{"x":1}}')),
        [("a", "tide", '{"x":1}}')],
        {"tool-arguments-broken": 1},
    ),
    "white space behind": (stream(piece(0, "a", "tide", "{}"), args(" \n")), [("a", "tide", "{} \n")], {}),
    "brackets in strings": (
        stream(piece(0, "a", "tide", '{"x":"}{\\"'), args(']["}')),
        [("a", "tide", '{"x":"}{\\"]["}')],
        {},
    ),
    # Finishes
    "finished with stop": (stream(piece(0, "a", "tide", '{"x":1}'), finish="stop"), ONE, {"finish-stop-with-tools": 1}),
    "finished with another API's stop": (
        stream(piece(0, "a", "tide", '{"x":1}'), finish="end_turn"),
        ONE,
        {"finish-mapped": 1, "finish-stop-with-tools": 1},
    ),
    "each call with a finish of its own": (
        sse(
            begins(),
            delta({"tool_calls": [piece(0, "a", "tide", '{"x":1}')]}, finish="tool_calls"),
            delta({"tool_calls": [piece(0, "b", "wind", '{"y":2}')]}, finish="tool_calls"),
            finishes("stop"),
            DONE,
        ),
        TWO,
        {
            "content-after-finish": 2,
            "tool-index-reused": 1,
            "finish-repeated": 1,
            "finish-changed": 1,
            "finish-stop-with-tools": 1,
        },
    ),
    "with the finish": (
        sse(begins(), delta({"tool_calls": [piece(0, "a", "tide", '{"x":1}')]}, finish="tool_calls"), DONE),
        ONE,
        {},
    ),
    # Where they stand
    "a single call, not in a list": (
        sse(begins(), delta({"tool_calls": piece(0, "a", "tide", '{"x":1}')}), finishes("tool_calls"), DONE),
        ONE,
        {},
    ),
    "in a whole message": (
        sse(
            chunk({"index": 0, "message": {"role": "assistant", "tool_calls": WHOLE}, "finish_reason": "tool_calls"}),
            DONE,
        ),
        TWO,
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("wire", "expected", "tolerated"), UNDERSTOOD.values(), ids=UNDERSTOOD)
def test_every_piece_finds_its_call(wire: bytes, expected: list[Call], tolerated: dict[str, int]) -> None:
    answer = completion(wire)
    assert answer.ending == "completed", answer
    assert tool_calls(answer) == expected
    assert repairs(read(wire)) == tolerated
    assert read(*bytewise(wire)) == read(wire)


REFUSED: dict[str, tuple[bytes, str]] = {
    "two unfinished calls on one index": (
        stream(piece(0, "a", "tide", '{"x"'), piece(0, "b", "wind", '{"y"'), args(":1}")),
        "tool-call-ambiguous",
    ),
    "two calls without arguments on one index": (
        stream(piece(0, "a", "tide", ""), piece(0, "b", "wind", ""), args('{"x":1}')),
        "tool-call-ambiguous",
    ),
    "two unfinished calls, index missing": (
        stream(piece(None, "a", "tide", '{"x"'), piece(None, "b", "wind", '{"y"'), args(":1}", None)),
        "tool-call-ambiguous",
    ),
    "two calls without arguments, index missing": (
        stream(piece(None, "a", "tide", ""), piece(None, "b", "wind", ""), args('{"x":1}', None)),
        "tool-call-ambiguous",
    ),
    "two unfinished calls, index drifting": (
        stream(piece(0, "a", "tide", '{"x"'), piece(1, "b", "wind", '{"y"'), args(":1}", 2)),
        "tool-call-ambiguous",
    ),
    "more arguments for a whole call, index missing": (
        stream(piece(None, "a", "tide", '{"x":1}'), args('{"y":2}', None)),
        "tool-call-ambiguous",
    ),
    "more arguments for a whole call, index drifting": (
        stream(piece(0, "a", "tide", '{"x":1}'), args('{"y":2}', 1)),
        "tool-call-ambiguous",
    ),
    "more arguments for a whole call, after another": (
        stream(piece(0, "a", "tide", "{}"), piece(1, "b", "wind", "{}"), args('{"x":1}')),
        "tool-call-ambiguous",
    ),
    "a name that never comes": (stream(piece(0, "a", None, '{"x":1}')), "tool-call-unnamed"),
    "arguments without any call": (stream(args('{"x":1}')), "tool-call-unnamed"),
    "name and arguments beside the function": (
        stream({"index": 0, "id": "a", "name": "tide", "arguments": "{}"}),
        "tool-call-unnamed",
    ),
    "arguments a list": (stream(piece(0, "a", "tide", [1])), "bad-shape"),
    "arguments a number": (stream(piece(0, "a", "tide", 1)), "bad-shape"),
    "the function a string": (stream({"index": 0, "id": "a", "function": "tide()"}), "bad-shape"),
}


@pytest.mark.parametrize(("wire", "code"), REFUSED.values(), ids=REFUSED)
def test_a_piece_without_an_owner_is_refused(wire: bytes, code: str) -> None:
    answer = completion(wire)
    assert answer.fault is not None, tool_calls(answer)
    assert (answer.ending, answer.fault.code) == ("failed", code)
    assert read(*bytewise(wire)) == read(wire)


# Seen at gateways that translate other APIs into this one. Two calls instead of one would run the tool twice.
SENT_AGAIN: dict[str, bytes] = {
    "whole, after its pieces": stream(
        piece(0, "a", "tide", ""), args('{"x"'), args(":1}"), piece(0, "a", "tide", '{"x":1}')
    ),
    "whole, at another index": stream(piece(0, "a", "tide", '{"x":1}'), piece(1, "a", "tide", '{"x":1}')),
    "with another id in every piece": stream(piece(0, "a", "tide", '{"x"'), piece(0, "b", "tide", ":1}")),
    "in the legacy field as well": sse(
        begins(),
        delta({
            "tool_calls": [piece(0, "a", "tide", '{"x":1}')],
            "function_call": {"name": "tide", "arguments": '{"x":1}'},
        }),
        finishes("tool_calls"),
        DONE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("wire", SENT_AGAIN.values(), ids=SENT_AGAIN)
def test_one_call_sent_twice_is_one_call_or_refused(wire: bytes) -> None:
    answer = completion(wire)
    assert answer.ending == "failed" or tool_calls(answer) == ONE


NAMES_IN_PARTS: dict[str, bytes] = {
    "no id with the second": stream(piece(0, "a", "ti"), piece(0, None, "de"), args('{"x":1}')),
    "arguments with the first": stream(piece(0, "a", "ti", '{"x"'), piece(0, "a", "de", ":1}")),
}


@pytest.mark.parametrize("wire", NAMES_IN_PARTS.values(), ids=NAMES_IN_PARTS)
def test_a_name_in_parts_never_calls_another_tool(wire: bytes) -> None:
    answer = completion(wire)
    assert answer.ending == "failed" or tool_calls(answer) == ONE


def test_choices_do_not_share_their_calls() -> None:
    wire = sse(
        begins(0),
        begins(1),
        calls(piece(0, "a", "tide", '{"x"')),
        calls(piece(0, "b", "wind", '{"y"'), index=1),
        calls(args(":1}")),
        calls(args(":2}"), index=1),
        finishes("tool_calls"),
        finishes("tool_calls", index=1),
        DONE,
    )
    answer = completion(wire)
    assert (tool_calls(answer, 0), tool_calls(answer, 1)) == ([TWO[0]], [TWO[1]])
    assert repairs(read(wire)) == {}


def test_arguments_come_piece_by_piece() -> None:
    wire = stream(piece(0, "a", "tide", ""), args('{"x"'), args(":1}"))
    emitted = [event for event in read(wire) if isinstance(event, ToolCallStart | ToolCallDelta)]
    assert emitted == [ToolCallStart(0, 0, "a", "tide"), ToolCallDelta(0, 0, '{"x"'), ToolCallDelta(0, 0, ":1}")]


def test_text_and_calls_stand_side_by_side() -> None:
    wire = sse(
        begins(),
        delta({"content": "Let me see.", "tool_calls": [piece(0, "a", "tide", '{"x":1}')]}),
        finishes("tool_calls"),
        DONE,
    )
    answer = completion(wire)
    assert (answer.text, tool_calls(answer)) == ("Let me see.", ONE)


def test_a_legacy_function_call_is_read() -> None:
    parts: list[Json] = [{"name": "tide", "arguments": ""}, {"arguments": '{"x"'}, {"arguments": ":1}"}]
    for reason, tolerated in (("function_call", {}), ("stop", {"finish-stop-with-tools": 1})):
        wire = sse(begins(), *(delta({"function_call": part}) for part in parts), finishes(reason), DONE)
        (choice,) = completion(wire).choices
        assert [(call.kind, call.id, call.name, call.arguments) for call in choice.tool_calls] == [
            ("function_call", None, "tide", '{"x":1}')
        ]
        assert choice.finish_reason == "function_call"
        assert repairs(read(wire)) == tolerated


def test_two_legacy_function_calls_are_not_made_one() -> None:
    parts: list[Json] = [{"name": "tide", "arguments": '{"x":1}'}, {"name": "wind", "arguments": '{"y":2}'}]
    answer = completion(
        sse(begins(), *(delta({"function_call": part}) for part in parts), finishes("function_call"), DONE)
    )
    assert answer.ending == "failed" or [(name, arguments) for _, name, arguments in tool_calls(answer)] == [
        ("tide", '{"x":1}'),
        ("wind", '{"y":2}'),
    ]


def test_a_custom_tools_input_is_free_text() -> None:
    parts: list[Json] = [
        {"index": 0, "id": "a", "type": "custom", "custom": {"name": "sql", "input": "SELECT {"}},
        {"index": 0, "custom": {"input": " 1"}},
    ]
    wire = sse(begins(), *(calls(part) for part in parts), finishes("tool_calls"), DONE)
    (call,) = completion(wire).choices[0].tool_calls
    assert (call.kind, call.id, call.name, call.arguments) == ("custom", "a", "sql", "SELECT { 1")
    assert repairs(read(wire)) == {}


def test_extras_of_a_call_are_kept() -> None:
    signature: Json = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
    wire = stream(piece(0, "a", "tide", '{"x":1}') | signature)
    assert Extra("tool", signature, 0, 0) in read(wire)
    assert completion(wire).choices[0].tool_calls[0].extras == signature


def test_a_cut_call_is_never_closed() -> None:
    wire = sse(begins(), calls(piece(0, "a", "tide", '{"x":')))
    answer = completion(wire)
    assert (answer.ending, tool_calls(answer)) == ("truncated", [("a", "tide", '{"x":')])


def test_halves_of_a_character_in_arguments_are_joined() -> None:
    halves = [dumps(calls(piece(0, "a", "tide", "~"))), dumps(calls(args("~")))]
    wire = sse(
        begins(),
        halves[0].replace("~", '{\\"x\\":\\"\\ud83c'),
        halves[1].replace("~", '\\udf0d\\"}'),
        finishes("tool_calls"),
        DONE,
    )
    assert tool_calls(completion(wire)) == [("a", "tide", '{"x":"\N{EARTH GLOBE EUROPE-AFRICA}"}')]
    assert repairs(read(wire)) == {"split-surrogate": 1}


@pytest.mark.parametrize("id", ["a", None])
def test_a_call_that_is_repeated_with_other_spaces_is_no_second_one(id: str | None) -> None:
    answer = completion(stream(piece(0, "a", "tide", '{"x":1}'), piece(0, id, "tide", '{"x": 1}')))
    assert [(call.id, call.arguments) for call in answer.choices[0].tool_calls] == [("a", '{"x":1}')]


def test_more_of_a_renumbered_call_is_never_forwarded_as_it_is() -> None:
    first = calls(piece({"odd": 1}, "call_1", "get_tide", "{}"))
    second = calls(piece(0, "call_2", "get_wind", '{"port"'))
    events: list[dict[str, object] | str] = [
        begins(),
        first,
        second,
        calls(piece(0, arguments=':"Brest"')),
        calls(piece(0, arguments="}")),
        finishes("tool_calls"),
    ]
    wire, _ = relayed([*(sse(event) for event in events), sse(DONE)], StreamReader())
    answer = Accumulator()
    reader = StreamReader()
    answer.extend([*reader.feed(wire), *reader.close()])
    assert [call.arguments for call in answer.completion.choices[0].tool_calls] == ["{}", '{"port":"Brest"}']
