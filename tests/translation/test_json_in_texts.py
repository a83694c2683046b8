"""JSON in texts, such as the arguments of a call, is decoded within the limits of a body, or is left as text."""

import json

import pytest

from penstock import ChoiceStart, End, Event, Finish, Start, ToolCallDelta, ToolCallStart
from penstock.core.dialects.dialect import RequestError
from penstock.core.dialects.registry import DIALECTS
from penstock.core.hub.losses import Loss
from penstock.core.hub.tool_map import ClientTool, ToolCallRestorer
from tests.cpu import calls_of
from tests.streams import Json
from tests.translation.support import asked
from tests.written_again import TRANSLATED, events_of, fold, streamed, unstreamed

COMPLEX: dict[str, str] = {
    "nested deeper than an event": '{"a":' * 101 + "1" + "}" * 101,
    "nested deeper than the interpreter allows": '{"a":' + "[" * 100_000 + "]" * 100_000 + "}",
    "many values": '{"a":[' + "[]," * 200_000 + "[]]}",
}
DEEP_AS_ALLOWED = '{"a":' * 100 + "1" + "}" * 100
WITH_OBJECTS = ("anthropic_messages", "gemini", "ollama", "bedrock_converse")
"""The dialects in which arguments, at least of a request, are objects and no text."""


def called(*arguments: str) -> list[Json]:
    """A conversation with calls that have these arguments."""
    calls: list[Json] = [
        {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": each}}
        for number, each in enumerate(arguments)
    ]
    results: list[Json] = [
        {"role": "tool", "tool_call_id": f"c{number}", "content": "x"} for number in range(len(calls))
    ]
    return [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": calls}, *results]


def answer(*arguments: str) -> list[Event]:
    """An answer with calls that have these arguments."""
    begin: list[Event] = [Start("id-1", "weir-3", 1_794_902_400), ChoiceStart(0, "assistant")]
    for number, each in enumerate(arguments):
        begin += [ToolCallStart(0, number, f"c{number}", "f"), ToolCallDelta(0, number, each)]
    return [*begin, Finish(0, "tool_calls"), End("completed")]


@pytest.mark.parametrize("arguments", COMPLEX.values(), ids=COMPLEX)
@pytest.mark.parametrize("provider", WITH_OBJECTS)
def test_a_request_whose_arguments_are_too_complex_is_refused(provider: str, arguments: str) -> None:
    with pytest.raises(RequestError) as refused:
        asked("openai_chat", provider, {"messages": called(arguments)})
    assert refused.value.failure.code == "request_too_complex"


@pytest.mark.slow
@pytest.mark.parametrize("provider", WITH_OBJECTS)
def test_the_arguments_of_a_request_share_one_limit(provider: str) -> None:
    each = '{"a":[' + "[]," * 100_000 + "[]]}"
    asked("openai_chat", provider, {"messages": called(each, DEEP_AS_ALLOWED)})
    with pytest.raises(RequestError):
        asked("openai_chat", provider, {"messages": called(*[each] * 12)})


@pytest.mark.parametrize("arguments", COMPLEX.values(), ids=COMPLEX)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_arguments_of_an_answer_that_are_too_complex_stay_text(dialect: str, arguments: str) -> None:
    events = answer(arguments)
    for wire, losses in (streamed(dialect, events, TRANSLATED), unstreamed(dialect, fold("", events), TRANSLATED)):
        if Loss("arguments-as-text", "f") not in losses:
            assert json.dumps(arguments)[1:-1].encode() in wire
            continue
        (read,) = fold(dialect, events_of(dialect, wire)).choices[0].tool_calls
        assert json.loads(read.arguments) == {"input": arguments}


@pytest.mark.slow
@pytest.mark.parametrize("dialect", WITH_OBJECTS)
def test_the_arguments_of_an_answer_share_one_limit(dialect: str) -> None:
    each = '{"a":[' + "[]," * 50_000 + "[]]}"
    _, losses = unstreamed(dialect, fold("", answer(*[each] * 5)), TRANSLATED)
    assert losses == [Loss("arguments-as-text", "f")] * 3


CUSTOM: dict[str, tuple[str, str]] = {
    "lone backslashes": ('{"input":"' + "\\q" * 100 + '"}', "\\q" * 100),
    "more of them than JSON has": ('{"input":"' + "\\q" * 325_000, "\\q" * 325_000),
    "escaped backslashes": ('{"input":"' + "\\\\" * 250_000 + '"}', "\\" * 250_000),
    "escaped quotes": ('{"input":"' + '\\"' * 250_000 + '"}', '"' * 250_000),
    "nested deeper than the interpreter allows": ("[" * 5_000, "[" * 5_000),
}


@pytest.mark.parametrize(("arguments", "text"), CUSTOM.values(), ids=CUSTOM)
def test_the_text_of_a_custom_tool_is_read_without_a_step_for_each_escape(arguments: str, text: str) -> None:
    restorer = ToolCallRestorer({"f": ClientTool("f", kind="custom")})
    events = answer(arguments)
    out: list[Event] = []
    assert calls_of(lambda: out.extend(restorer.restore(events))) < 1_000
    assert "".join(event.arguments for event in out if isinstance(event, ToolCallDelta)) == text


def test_messages_of_one_role_are_joined_in_linear_time() -> None:
    def work(number: int) -> int:
        turns = [{"role": "user", "content": "x"}] * number
        return calls_of(lambda: asked("openai_chat", "anthropic_messages", {"messages": turns}))

    assert work(400) < 3 * work(200)


@pytest.mark.parametrize("arguments", ["", " ", "null", "\nnull "])
@pytest.mark.parametrize("provider", [*WITH_OBJECTS, "cohere"])
def test_a_call_without_arguments_has_an_empty_object(provider: str, arguments: str) -> None:
    written = asked("openai_chat", provider, {"messages": called(arguments)})
    assert written == asked("openai_chat", provider, {"messages": called("{}")})
