"""Tools as every API accepts them, and the way back: names, namespaces, and custom tools."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import BlockEnd, End, Event, Fault, Finish, ToolCall, ToolCallDelta, ToolCallStart
from penstock.core.hub.blocks import Blocks
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import Tool
from penstock.core.hub.tool_map import ClientTool, ToolCallRestorer, ToolMap, arguments_of, as_function

LONG = "x" * 80
EXEC = {"exec": ClientTool("exec", None, "custom")}


def test_names_that_every_api_accepts_stay() -> None:
    names = ToolMap([Tool(name="get_tide"), Tool(name="a-b_C")])
    assert [names.name("get_tide"), names.name("a-b_C")] == ["get_tide", "a-b_C"]
    assert names.changed() == {}


def test_a_namespace_is_a_part_of_the_name() -> None:
    names = ToolMap([Tool(name="spawn", namespace="agents"), Tool(name="spawn", namespace="jobs")])
    assert names.name("spawn", "agents") == "agents__spawn"
    assert names.changed() == {
        "agents__spawn": ClientTool("spawn", "agents"),
        "jobs__spawn": ClientTool("spawn", "jobs"),
    }
    assert names.chosen("spawn") == "agents__spawn"


@pytest.mark.parametrize("order", [1, -1])
def test_two_tools_never_have_one_name(order: int) -> None:
    tools = [Tool(name="b__c", namespace="a"), Tool(name="c", namespace="a__b"), Tool(name="a__b__c")]
    names = ToolMap(tools[::order])
    written = [names.name(tool.name, tool.namespace) for tool in tools]
    assert len(set(written)) == 3
    assert written[2] == "a__b__c"
    assert all(len(name) <= 64 and name.replace("_", "").isalnum() for name in written)
    for tool in tools[:2]:
        known = names.changed()[names.name(tool.name, tool.namespace)]
        assert (known.name, known.namespace) == (tool.name, tool.namespace)


def test_long_and_special_names_are_shortened() -> None:
    names = ToolMap([Tool(name=LONG), Tool(name="räum.auf"), Tool(name="web_search", kind="server")])
    written = [names.name(LONG), names.name("räum.auf")]
    assert all(len(name) <= 64 and name.isascii() for name in written)
    assert {known.name for known in names.changed().values()} == {LONG, "räum.auf"}


def test_a_call_of_a_tool_that_is_gone_has_a_name_too() -> None:
    assert ToolMap([]).name("spawn", "agents") == "agents__spawn"


def test_a_custom_tool_becomes_a_function() -> None:
    losses: list[Loss] = []
    grammar: dict[str, object] = {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'}
    tool = as_function(Tool(name="exec", description="Runs.", kind="custom", format=grammar), losses)
    assert (tool.kind, tool.schema) == (
        "function",
        {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
    )
    assert tool.description == 'Runs.\n\n`input` must match this grammar (lark):\nstart: "a"'
    assert losses == [Loss("grammar-dropped", "exec")]
    losses.clear()
    as_function(Tool(name="exec", kind="custom", format={"type": "text"}), losses)
    assert losses == []
    assert ToolMap([Tool(name="exec", kind="custom")]).changed() == EXEC
    assert arguments_of(ToolCall("c1", "exec", 'say "hi"', "custom")) == '{"input":"say \\"hi\\""}'


def restored(*pieces: str, last: Event | None = None) -> str:
    """The text of a custom tool whose arguments come in these pieces."""
    restorer = ToolCallRestorer(EXEC)
    events = restorer.restore([ToolCallStart(0, 0, "c1", "exec", block=0)])
    assert events == [ToolCallStart(0, 0, "c1", "exec", "custom", block=0)]
    for piece in pieces:
        events += restorer.restore([ToolCallDelta(0, 0, piece)])
    events += restorer.restore([last or BlockEnd(0, 0)])
    assert events[-1] == (last or BlockEnd(0, 0))
    return "".join(event.arguments for event in events if isinstance(event, ToolCallDelta))


@given(st.text(), st.booleans(), st.lists(st.integers(0, 60), max_size=8))
def test_the_text_of_a_custom_tool_is_read_as_it_arrives(text: str, escaped: bool, cuts: list[int]) -> None:
    arguments = json.dumps({"input": text}, ensure_ascii=escaped)
    places = sorted({0, len(arguments), *(min(cut, len(arguments)) for cut in cuts)})
    pieces = [arguments[start:end] for start, end in pairwise(places)]
    assert restored(*pieces) == restored(*arguments) == text


def test_text_is_reported_before_its_end() -> None:
    restorer = ToolCallRestorer(EXEC)
    restorer.restore([ToolCallStart(0, 0, "c1", "exec")])
    assert restorer.restore([ToolCallDelta(0, 0, '{"input": "ls\\')]) == [ToolCallDelta(0, 0, "ls")]
    assert restorer.restore([ToolCallDelta(0, 0, "n-l\\ud83d\\ude")]) == [ToolCallDelta(0, 0, "\n-l")]
    assert restorer.restore([ToolCallDelta(0, 0, '00"')]) == [ToolCallDelta(0, 0, "😀")]
    assert restorer.restore([ToolCallDelta(0, 0, "}")]) == []


ODD = {
    "another member first": ('{"why":"a","input":"ls"}', "ls"),
    "another name for the text": ('{"command":"ls"}', "ls"),
    "several members": ('{"a":"b","c":"d"}', '{"a":"b","c":"d"}'),
    "no object": ('"ls"', '"ls"'),
    "no JSON": ("ls -l", "ls -l"),
    "nothing": ("", ""),
    "an empty object": ("{}", ""),
    "an escape that JSON has not": ('{"input":"a\\xb\\"c"}', 'a\\xb"c'),
    "a line end that is not escaped": ('{"input":"a\nb"}', "a\nb"),
    "cut off": ('{"input":"ls -', "ls -"),
    "half of a pair": ('{"input":"\\ud83dx"}', "\ufffdx"),
    "an escaped backslash before the letters of a half": ('{"input":"\\\\ud83d"}', "\\ud83d"),
    "a number": ('{"input":7}', '{"input":7}'),
}


@pytest.mark.parametrize(("arguments", "text"), ODD.values(), ids=ODD)
@pytest.mark.parametrize("last", [BlockEnd(0, 0), Finish(0, "tool_calls"), Fault("x", "y", 0, 0), End("truncated")])
def test_arguments_of_another_form(arguments: str, text: str, last: Event) -> None:
    assert restored(arguments, last=last) == restored(*arguments, last=last) == text


def test_large_arguments_of_another_form_are_not_collected() -> None:
    arguments = '{"a":"' + "x" * 200_000
    assert restored(*(arguments[place : place + 1000] for place in range(0, len(arguments), 1000))) == arguments


def test_calls_of_other_tools_stay() -> None:
    events: list[Event] = [
        ToolCallStart(0, 0, "c1", "exec"),
        ToolCallStart(0, 1, "c2", "other"),
        ToolCallDelta(0, 1, '{"input":"x"}'),
        Finish(0, "tool_calls"),
    ]
    assert ToolCallRestorer(EXEC).restore(events)[1:] == events[1:]


def test_input_that_is_known_at_the_end_only_is_not_lost_if_another_call_follows() -> None:
    events: list[Event] = [
        *(ToolCallStart(0, 0, "a", "exec"), ToolCallDelta(0, 0, '{"command":"ls"}')),
        *(ToolCallStart(0, 1, "b", "get_tide"), ToolCallDelta(0, 1, "{}"), Finish(0, "tool_calls")),
    ]
    ordered = Blocks([]).order(ToolCallRestorer(EXEC).restore(events))
    assert ordered == [
        *(ToolCallStart(0, 0, "a", "exec", "custom", block=0), ToolCallDelta(0, 0, "ls", 0), BlockEnd(0, 0)),
        *(ToolCallStart(0, 1, "b", "get_tide", block=1), ToolCallDelta(0, 1, "{}", 1), BlockEnd(0, 1)),
        Finish(0, "tool_calls"),
    ]
