"""Tools for a model that has none: the constraint on its output, and the calls that are read from the output."""

import json
from typing import Any

import pytest

from penstock import Accumulator, Completion, StreamReader
from penstock.core.hub.events import Event, ToolCallDelta, ToolCallStart
from penstock.upstream.local.emulated_tools import EmulatedToolReader, ToolsError, emulate
from tests.streams import begins, finishes, says, sse

WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "The weather in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
ADD: dict[str, Any] = {"name": "add"}
TOOLS = [{"type": "function", "function": function} for function in (WEATHER, ADD)]
ASKED = [{"role": "user", "content": "Is it raining in Rome?"}]
CALL = '{\n  "name" : "get_weather",\n "arguments": {"city": "Rome, \\"the\\" {city}", "n": [1, {"a": "}"}]}\n}\n'
ARGUMENTS = '{"city": "Rome, \\"the\\" {city}", "n": [1, {"a": "}"}]}'


def read(*texts: str, reason: str = "stop") -> tuple[list[Event], Completion]:
    """The events of an answer that comes in these pieces, and what they come to."""
    reader = EmulatedToolReader(StreamReader(), "call_req_1")
    answer = Accumulator()
    events = reader.feed(sse(begins(), *(says(text) for text in texts), finishes(reason), "[DONE]"))
    events += reader.close()
    answer.extend(events)
    return events, answer.completion


def options(fields: dict[str, Any]) -> list[Any]:
    """What the schema of a request lets the model write, with its references followed."""
    schema = fields["response_format"]["json_schema"]["schema"]
    found = []
    for option in schema["anyOf"]:
        names = {}
        for name, value in option["properties"].items():
            part = value.get("$ref", "").removeprefix("#/$defs/")
            names[name] = schema["$defs"][part] if part else value
        found.append(names)
    return found


# What is asked

A_WEATHER = {"name": {"const": "get_weather"}, "arguments": WEATHER["parameters"]}
A_SUM = {"name": {"const": "add"}, "arguments": {"type": "object", "properties": {}}}
AN_ANSWER = {"answer": {"type": "string"}}
CHOICES: dict[str, tuple[object, list[Any]]] = {
    "auto": ("auto", [A_WEATHER, A_SUM, AN_ANSWER]),
    "nothing said": (None, [A_WEATHER, A_SUM, AN_ANSWER]),
    "required": ("required", [A_WEATHER, A_SUM]),
    "one of them": ({"type": "function", "function": {"name": "add"}}, [A_SUM]),
}


@pytest.mark.parametrize(("choice", "expected"), CHOICES.values(), ids=CHOICES)
def test_the_choice_decides_what_may_be_written(choice: object, expected: list[Any]) -> None:
    fields, emulated = emulate({"messages": ASKED, "tools": TOOLS, "tool_choice": choice, "logprobs": True, "seed": 1})
    assert emulated
    assert options(fields) == expected
    assert fields["seed"] == 1
    assert not {"tools", "tool_choice", "logprobs"} & fields.keys()
    system = fields["messages"][0]
    assert system["role"] == "system"
    assert ('"answer"' in system["content"]) == (AN_ANSWER in expected)
    assert '"The weather in a city"' in system["content"] or A_WEATHER not in expected


PLAIN: dict[str, dict[str, Any]] = {
    "no tools": {"messages": ASKED},
    "none wanted": {"messages": ASKED, "tools": TOOLS, "tool_choice": "none"},
    "an empty list": {"messages": ASKED, "tools": []},
}


@pytest.mark.parametrize("given", PLAIN.values(), ids=PLAIN)
def test_without_tools_nothing_is_asked(given: dict[str, Any]) -> None:
    assert emulate(given) == ({"messages": ASKED}, False)


def test_after_a_result_it_answers_in_words() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Rome"}'}}
    results = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "sunny"}]},
    ]
    fields, emulated = emulate({"messages": ASKED + results, "tools": TOOLS})
    assert not emulated
    assert fields["messages"][1:] == [
        {"role": "assistant", "content": 'I will call get_weather with {"city":"Rome"}.'},
        {"role": "user", "content": "The result of get_weather is: sunny\nNow answer my question."},
    ]
    assert emulate({"messages": ASKED + results, "tools": TOOLS, "tool_choice": "required"})[1]


def test_a_system_message_is_kept_and_an_answer_may_have_a_form() -> None:
    schema = {"type": "object", "properties": {"rain": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"type": "boolean"}}}
    form = {"type": "json_schema", "json_schema": {"schema": schema}}
    fields, _ = emulate(
        {"messages": [{"role": "system", "content": "Be brief."}, *ASKED], "tools": TOOLS, "response_format": form}
    )
    assert fields["messages"][0]["content"].startswith("Be brief.\n\nYou have these functions:")
    moved = options(fields)[-1]["answer"]
    assert moved["properties"]["rain"] == {"$ref": "#/$defs/part2/$defs/b"}
    assert moved["$defs"] == schema["$defs"]


WRONG: dict[str, dict[str, Any]] = {
    "tools that are no list": {"tools": "all"},
    "a tool that is no function": {"tools": [{"type": "custom", "custom": {"name": "x"}}]},
    "a function without a name": {"tools": [{"type": "function", "function": {}}]},
    "a choice that is not there": {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}},
    "a choice that is no word": {"tools": TOOLS, "tool_choice": "perhaps"},
    "required, of nothing": {"tool_choice": "required"},
    "the tools of old": {"functions": [ADD]},
}


@pytest.mark.parametrize("given", WRONG.values(), ids=WRONG)
def test_tools_that_cannot_be_used_are_reported(given: dict[str, Any]) -> None:
    with pytest.raises(ToolsError, match="`tool"):
        emulate({"messages": ASKED, **given})


# What is read


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_a_call_is_reported_as_it_is_written(size: int) -> None:
    events, completion = read(*(CALL[i : i + size] for i in range(0, len(CALL), size)))
    (call,) = completion.choices[0].tool_calls
    assert (call.id, call.name, call.arguments) == ("call_req_1_0", "get_weather", ARGUMENTS)
    assert json.loads(call.arguments)["n"] == [1, {"a": "}"}]
    assert (completion.text, completion.choices[0].finish_reason) == ("", "tool_calls")
    if size == 1:
        reported = [type(event) for event in events if isinstance(event, ToolCallStart | ToolCallDelta)]
        assert reported == [ToolCallStart] + [ToolCallDelta] * len(ARGUMENTS)


ANSWERS: dict[str, tuple[str, str]] = {
    "plain": ('{"answer": "It rains."}', "It rains."),
    "escaped": (r'{ "answer" : "a\n\"b\" \\ \u00e9 \ud83d\ude00 {\t}" }', 'a\n"b" \\ é 😀 {\t}'),
    "half of a character": (r'{"answer": "a\ud83d b"}', "a\ufffd b"),
    "empty": ('{"answer": ""}', ""),
    "an object": ('{"answer": {"rain": [true]}}', '{"rain": [true]}'),
    "no JSON at all": ("It rains.", "It rains."),
    "JSON of another kind": ('{"weather": 1}', '{"weather": 1}'),
    "the beginning of a call only": ('{"name": "get_w', '{"name": "get_w'),
    "nothing but white space": (" \n ", " \n "),
}


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(("written", "sent_text"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_is_reported_as_text(written: str, sent_text: str, size: int) -> None:
    _, completion = read(*(written[i : i + size] for i in range(0, len(written), size)))
    assert completion.text == sent_text
    assert completion.choices[0].tool_calls == ()
    assert completion.choices[0].finish_reason == "stop"
    assert completion.ending == "completed"


def test_a_call_that_is_cut_short_says_so() -> None:
    _, completion = read('{"name": "add", "arguments": {"a": 1', reason="length")
    assert completion.choices[0].tool_calls[0].arguments == '{"a": 1'
    assert completion.choices[0].finish_reason == "length"
