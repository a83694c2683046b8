"""The local model, called with the official SDK: what is forwarded, and what it cannot do.

No text of the model is asserted: it changes with every release of its runtime.
"""

import time
from typing import Any

import pytest
from openai import APIStatusError, NotFoundError
from pydantic import BaseModel

from tests.local.served import LONG, MODEL, Served, user

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def logged(served: Served, request_id: str) -> Any:
    """The line of the log about a call."""

    def found() -> list[Any]:
        return [call for call in served.calls if call["request_id"] == request_id]

    served.until(found)
    return found()[0]


def test_it_answers(shared: Served) -> None:
    answer = shared.sdk.chat.completions.create(model=MODEL, messages=user("Hello!"), max_tokens=24)
    choice = answer.choices[0]
    assert choice.message.content
    assert choice.message.tool_calls is None
    assert choice.finish_reason in ("stop", "length")
    assert answer.model == "smollm2"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens > 10
    assert 0 < answer.usage.completion_tokens <= 24


def test_it_streams_token_by_token(shared: Served) -> None:
    chunks = list(
        shared.sdk.chat.completions.create(
            model=MODEL, messages=LONG, max_tokens=12, stream=True, stream_options={"include_usage": True}
        )
    )
    texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    assert len(texts) > 8
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 12
    shared.until(lambda: shared.calls and shared.calls[-1]["output"] == 12)
    assert shared.calls[-1]["ending"] == "completed"


@pytest.mark.parametrize("tools", [False, True])
def test_a_stream_has_one_creation_time_and_needs_no_repair(shared: Served, tools: bool) -> None:
    fields: dict[str, Any] = {"tools": [WEATHER], "tool_choice": "auto"} if tools else {}
    for _ in range(8):
        began = time.time()
        stream = shared.sdk.chat.completions.create(model=MODEL, messages=LONG, max_tokens=300, stream=True, **fields)
        assert len({chunk.created for chunk in stream}) == 1
        call = logged(shared, stream.response.headers["x-request-id"])
        assert (call["repairs"], call["notices"]) == ({}, {})
        if int(time.time()) - int(began) > 1:  # else it may have come within one second by the clock
            return
    pytest.skip("the model answers within a second")


def test_max_tokens_and_stop_end_it(shared: Served) -> None:
    def ask(**fields: Any) -> Any:
        return shared.sdk.chat.completions.create(model=MODEL, messages=LONG, temperature=0, **fields)

    whole = ask(max_tokens=16)
    assert (whole.choices[0].finish_reason, whole.usage.completion_tokens) == ("length", 16)
    text = whole.choices[0].message.content
    word = text.split()[5]
    stopped = ask(max_tokens=16, stop=[word])
    assert stopped.choices[0].finish_reason == "stop"
    assert word not in stopped.choices[0].message.content
    assert text.startswith(stopped.choices[0].message.content)


def test_a_seed_fixes_what_it_says(shared: Served) -> None:
    def ask(seed: int) -> str | None:
        answer = shared.sdk.chat.completions.create(
            model=MODEL, messages=LONG, temperature=1.5, seed=seed, max_tokens=16
        )
        return answer.choices[0].message.content

    first = ask(1)
    assert ask(1) == first
    assert ask(2) != first


def test_logprobs_come_with_the_tokens(shared: Served) -> None:
    answer = shared.sdk.chat.completions.create(
        model=MODEL, messages=user("Hello!"), logprobs=True, top_logprobs=3, max_tokens=3, temperature=0
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert len(logprobs.content) == 3
    assert "".join(token.token for token in logprobs.content) == answer.choices[0].message.content
    assert all(token.logprob <= 0 and len(token.top_logprobs) == 3 for token in logprobs.content)


class Person(BaseModel):
    name: str
    age: int


def test_a_schema_holds_it_to_a_form(shared: Served) -> None:
    answer = shared.sdk.chat.completions.parse(
        model=MODEL, messages=user("Invent a person."), response_format=Person, max_tokens=60, temperature=0
    )
    assert isinstance(answer.choices[0].message.parsed, Person)


def test_tools_that_it_cannot_see_are_a_loss(shared: Served) -> None:
    answer = shared.sdk.chat.completions.with_raw_response.create(
        model=MODEL, messages=user("What is the weather in Paris?"), tools=[WEATHER], max_tokens=8
    )
    assert answer.parse().choices[0].message.content
    assert "tools-unseen" in answer.headers["x-penstock-losses"]
    assert logged(shared, answer.headers["x-request-id"])["losses"] == {"tools-unseen": 1}


def test_tools_that_must_not_be_called_are_no_loss(shared: Served) -> None:
    answer = shared.sdk.chat.completions.with_raw_response.create(
        model=MODEL, messages=user("Hi"), tools=[WEATHER], tool_choice="none", max_tokens=4
    )
    assert "x-penstock-losses" not in answer.headers


def test_a_strict_call_with_tools_is_refused(shared: Served) -> None:
    with pytest.raises(APIStatusError, match="tools-unseen") as refused:
        shared.sdk.chat.completions.create(
            model=MODEL, messages=user("Hi"), tools=[WEATHER], extra_headers={"x-penstock-strict": "1"}
        )
    assert refused.value.status_code == 400


DEMANDS: dict[str, Any] = {
    "any tool": "required",
    "a tool": {"type": "function", "function": {"name": "get_weather"}},
    "one of some": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [WEATHER]}},
}


@pytest.mark.parametrize("choice", DEMANDS.values(), ids=DEMANDS)
def test_a_call_cannot_be_demanded(shared: Served, choice: Any) -> None:
    with pytest.raises(APIStatusError, match="ask a model that has tools") as refused:
        shared.sdk.chat.completions.create(model=MODEL, messages=user("Hi"), tools=[WEATHER], tool_choice=choice)
    assert refused.value.status_code == 400
    assert refused.value.body["param"] == "tool_choice"  # type: ignore[index]


def test_after_the_result_of_a_tool_it_answers_in_words(shared: Served) -> None:
    function = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    messages: Any = [
        *user("What is the weather in Paris?"),
        {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny, 21 degrees"},
    ]
    answer = shared.sdk.chat.completions.with_raw_response.create(model=MODEL, messages=messages, max_tokens=40)
    message = answer.parse().choices[0].message
    assert message.tool_calls is None
    assert message.content
    assert "tools-unseen" in answer.headers["x-penstock-losses"]  # the earlier call


def test_two_answers_to_one_question(shared: Served) -> None:
    answer = shared.sdk.chat.completions.create(model=MODEL, messages=LONG, n=2, temperature=1, max_tokens=4)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert all(choice.message.content for choice in answer.choices)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a tool that is none": ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "must be a list of functions"),
    "a schema that is none": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "odd"}}}},
        "schema",
    ),
    "a prompt that is too long": ({"messages": user("word " * 9000)}, "exceeds the available context size"),
}


@pytest.mark.parametrize(("fields", "words"), REFUSED.values(), ids=REFUSED)
def test_what_it_cannot_do_is_reported(shared: Served, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(APIStatusError, match=words) as refused:
        shared.sdk.chat.completions.create(**{"model": MODEL, "messages": user("Hi"), "max_tokens": 4, **fields})
    assert refused.value.status_code == 400


def test_another_name_is_not_answered(shared: Served) -> None:
    with pytest.raises(NotFoundError):
        shared.sdk.chat.completions.create(model="local/gpt-5", messages=user("Hi"))


def test_it_is_listed_for_what_it_is(shared: Served) -> None:
    (model,) = shared.sdk.models.list().data
    assert (model.id, model.owned_by) == (MODEL, "local")
    extra = model.model_extra or {}
    assert extra["available"] is True
    assert "toy" in extra["description"]
