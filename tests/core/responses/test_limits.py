"""What one event of a Responses stream may become, and the odd shapes of it that must not raise."""

import json
from typing import Any

import pytest

from penstock import Completion, StreamWriter
from tests.responses import (
    CITATION,
    DIALECT,
    Json,
    added,
    begins,
    completes,
    completion,
    done,
    function,
    message,
    of_item,
    part,
    says_all,
    wire,
)

PROBABILITY: Json = {"token": " the", "logprob": -0.3, "bytes": [32, 116, 104, 101], "top_logprobs": []}
TOOL: Json = {
    "type": "function",
    "name": "f",
    "parameters": {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(40)}},
}


def streamed(*events: Json) -> Completion:
    return completion(wire(*begins(), *events))


def body(*output: Json, **fields: Any) -> bytes:
    return json.dumps(completes(*output, **fields)["response"]).encode()


def search(number: int) -> Json:
    source = {"type": "url", "url": f"https://a.example/{number}"}
    action = {"type": "search", "query": "tide", "sources": [source] * 20}
    return {"id": f"ws_{number}", "type": "web_search_call", "status": "completed", "action": action}


@pytest.mark.slow
def test_a_response_of_deep_research_is_read() -> None:
    """Hundreds of searches, and a report with hundreds of citations and all its log probabilities."""
    report = message(part("Some words.", annotations=[CITATION] * 350, logprobs=[PROBABILITY] * 1_500))
    searches = [search(number) for number in range(250)]
    whole = completion(body(*searches, report, tools=[TOOL] * 300))
    assert (whole.fault, whole.ending, len(whole.choices[0].parts)) == (None, "completed", 251)
    events = [event for place, each in enumerate(searches) for event in (added(place, each), done(place, each))]
    whole = streamed(*events, *says_all("Some words.", index=250), completes(*searches, report, tools=[TOOL] * 300))
    assert (whole.fault, whole.ending) == (None, "completed")


@pytest.mark.slow
def test_what_was_streamed_may_be_repeated_at_the_end() -> None:
    """However much it is: only what is new at the end takes time."""
    output = [message(part("Hi."), id=f"msg_{n}") for n in range(1_500)]
    events = [event for n in range(1_500) for event in says_all("Hi.", index=n, id=f"msg_{n}")]
    whole = streamed(*events, completes(*output))
    assert (whole.fault, whole.text) == (None, "Hi." * 1_500)


@pytest.mark.parametrize(
    "events",
    [
        [completes(*[{}] * 1_000)],
        [completes(message(*[part("a")] * 1_000))],
        [completes(message(part("a", annotations=[CITATION] * 1_500)))],
        [done(0, {"type": "reasoning", "summary": [{"text": "a"}] * 1_000})],
        [added(0, message(*[part("a")] * 1_000)), done(0, {"type": "message"})],
        [completes(*[0] * 20_000)],  # type: ignore[arg-type]
        [done(0, {"type": "x"} | {f"f{n}": 0 for n in range(11_000)})],
    ],
)
def test_an_event_that_would_take_too_long_is_refused(events: list[Json]) -> None:
    fault = streamed(*events).fault
    assert fault is not None
    assert fault.code == "event-too-complex"


def test_only_so_many_items_are_open_at_once() -> None:
    """All of them end with the response."""
    calls = [function("", id=f"fc_{n}", call_id=f"call_{n}") for n in range(70)]
    events = [added(n, call) for n, call in enumerate(calls)]
    assert streamed(*events[:60], completes(*calls[:60])).fault is None
    fault = streamed(*events, completes(*calls)).fault
    assert fault is not None
    assert fault.code == "event-too-complex"


def test_texts_of_announcements_are_passed_on_when_the_next_part_begins() -> None:
    """They are not collected: that could fill the memory."""
    parts = [of_item("content_part.added", 0, "msg_1", content_index=n, part=part(f"{n} and ")) for n in range(3)]
    whole = streamed(added(0, message(status="in_progress")), *parts, done(0, message()), completes())
    assert whole.text == "0 and 1 and 2 and "


@pytest.mark.parametrize(
    ("output", "fields"),
    [
        ([message({"text": "no type"})], {}),
        ([{"type": "x", "id": ["a"]}], {}),
        ([{"type": "image_generation_call", "id": {"a": 1}, "result": "aGk="}], {}),
        ([function(id=["a"])], {}),  # type: ignore[arg-type]
        ([], {"tools": [{"type": ["x_search"]}, {"type": "x_search"}]}),
        ([function() | {"type": "custom_tool_call", "name": ["f"]}], {"tools": [{"type": "x_search"}]}),
    ],
)
def test_values_of_odd_types_do_not_raise(output: list[Json], fields: Json) -> None:
    for dialect in (DIALECT, "openai_chat", "anthropic_messages"):
        whole = completion(body(*output, **fields))
        assert StreamWriter(dialect).write_body(whole)
    assert streamed(*(done(n, item) for n, item in enumerate(output)), completes(*output, **fields)).ending
