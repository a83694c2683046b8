"""Compaction: a request for a summary, the item that has it, and that item as a message again."""

import json
from typing import Any

import pytest

from penstock.core.dialects.openai_responses.compaction import ResponsesCompaction
from penstock.core.hub.failure import RequestError
from penstock.core.hub.request import ClientRequest

COMPACTION = ResponsesCompaction()
HELLO = {"type": "message", "role": "user", "content": "Hello."}
TRIGGER = {"type": "compaction_trigger"}
CLIENT_TOOL = {"type": "function", "name": "f", "parameters": {}}
ANSWER = {
    "id": "resp_1",
    "created_at": 17,
    "status": "completed",
    "output": [
        {"type": "reasoning", "summary": []},
        {
            "type": "message",
            "content": [{"type": "output_text", "text": " The"}, {"type": "output_text", "text": " sum. "}],
        },
    ],
    "usage": {"total_tokens": 5},
}


def body(*items: object, **fields: object) -> bytes:
    return json.dumps({"model": "m", "input": list(items)} | fields).encode()


def read(*items: object, headers: dict[str, str] | None = None, **fields: object) -> ClientRequest:
    return COMPACTION.read_request(body(*items, **fields), headers or {})


def seal(text: str) -> str:
    return f"{COMPACTION.prefix}{text[::-1]}"


def unseal(sealed: str) -> str | None:
    return sealed.removeprefix(COMPACTION.prefix)[::-1] or None


def written(asked: bytes, answer: dict[str, Any]) -> Any:
    data, streamed = COMPACTION.write(asked, json.dumps(answer).encode(), "req_1", seal)
    assert not streamed
    return json.loads(data)


# The request.


def test_a_request_ends_with_the_instruction_and_is_not_kept() -> None:
    request = read(HELLO, max_output_tokens=5, temperature=0.5, include=["any"])
    fields: Any = request.fields
    assert fields["input"][0] == HELLO
    assert fields["input"][1]["content"].startswith("The conversation above is about to be replaced")
    assert len(fields["input"]) == 2
    assert (fields["store"], fields["temperature"]) == (False, 0.5)
    assert not fields.keys() & {"max_output_tokens", "include", "stream"}
    assert (request.unkept, request.echo) == (True, {})
    assert request.compacts is not None
    assert json.loads(bytes(request.compacts.values["input"])) == [HELLO]


def test_tools_of_the_client_are_known_and_none_is_called() -> None:
    fields = read(HELLO, tools=[{"type": "web_search"}, CLIENT_TOOL], tool_choice="required").fields
    assert (fields["tools"], fields["tool_choice"]) == ([CLIENT_TOOL], "none")
    fields = read(HELLO, tools=[{"type": "web_search"}], tool_choice="required").fields
    assert not fields.keys() & {"tools", "tool_choice"}


def test_it_is_not_streamed_unless_a_trigger_asks_so() -> None:
    with pytest.raises(RequestError) as refused:
        read(HELLO, stream=True)
    assert refused.value.failure.param == "stream"
    request = read(HELLO, TRIGGER, stream=True, temperature=0.5, instructions="Be short.")
    items: Any = request.fields["input"]
    assert [item["type"] for item in items] == ["message", "message"]
    assert "temperature" not in request.fields  # the endpoint has no such member
    assert request.echo["instructions"] == "Be short."
    assert not request.failures_in_stream
    assert read(HELLO, TRIGGER, stream=True, headers={"accept": "text/event-stream"}).failures_in_stream


@pytest.mark.parametrize(
    ("asked", "triggered"),
    [
        (body(HELLO, TRIGGER), True),
        (body(TRIGGER, HELLO), False),
        (body(HELLO), False),
        (body({"type": "compaction", "id": "c"}), False),
        (b'{"input": "compaction_trigger \\"compaction"}', False),
        (b'{"input": ["compaction_trigger"]}', False),
        (b'{"input": [{"type": "compaction_trigger"}', False),
    ],
)
def test_only_a_trigger_at_the_end_triggers(asked: bytes, triggered: bool) -> None:
    assert COMPACTION.is_triggered(asked) is triggered


# The response.


def test_the_text_of_the_answer_is_sealed_in_one_item() -> None:
    assert written(body(HELLO), ANSWER) == {
        "id": "resp_1",
        "object": "response.compaction",
        "created_at": 17,
        "output": [{"type": "compaction", "id": "cmp_req_1", "encrypted_content": seal("The sum.")}],
        "usage": {"total_tokens": 5},
    }
    assert written(body(HELLO), ANSWER | {"usage": None})["usage"]["total_tokens"] == 0


def test_the_item_of_a_provider_stays_as_it_is() -> None:
    output = [HELLO, {"type": "compaction", "id": "cmp_2", "encrypted_content": "gAAA"}]
    assert written(body(HELLO), ANSWER | {"output": output})["output"] == output
    assert written(body(HELLO, TRIGGER), ANSWER | {"output": output})["output"] == output[1:]


@pytest.mark.parametrize("changed", [{"status": "incomplete"}, {"output": []}, {"output": [HELLO | {"content": " "}]}])
def test_without_a_whole_summary_the_answer_fails(changed: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as failed:
        written(body(HELLO), ANSWER | changed)
    assert (failed.value.failure.code, failed.value.failure.retryable) == ("upstream_bad_response", True)


def test_a_trigger_is_answered_with_a_response_that_has_the_item_alone() -> None:
    response = written(body(HELLO, TRIGGER), ANSWER)
    assert (response["object"], response["status"], response["usage"]) == ("response", "completed", {"total_tokens": 5})
    assert [item["type"] for item in response["output"]] == ["compaction"]


def test_a_trigger_in_a_stream_is_answered_with_events() -> None:
    data, streamed = COMPACTION.write(body(HELLO, TRIGGER, stream=True), json.dumps(ANSWER).encode(), "req_1", seal)
    assert streamed
    *blocks, done, rest = data.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    events = []
    for block in blocks:
        name, _, line = block.partition(b"\n")
        events.append(json.loads(line.removeprefix(b"data: ")))
        assert name.decode() == f"event: {events[-1]['type']}"
    assert [(event["type"], event["sequence_number"]) for event in events] == [
        ("response.created", 0),
        ("response.output_item.added", 1),
        ("response.output_item.done", 2),
        ("response.completed", 3),
    ]
    created, added, ended, completed = events
    assert (created["response"]["status"], created["response"]["output"], created["response"]["usage"]) == (
        ("in_progress", [], None)
    )
    assert added["item"] == ended["item"] == completed["response"]["output"][0]
    assert (added["output_index"], completed["response"]["status"]) == (0, "completed")


# Requests that have a summary.


def test_a_summary_becomes_a_message_and_all_else_stays() -> None:
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": seal("The sum.")}
    foreign = {"type": "compaction", "id": "cmp_2", "encrypted_content": "gAAA"}
    words = HELLO | {"content": f"What is {COMPACTION.prefix}?"}
    opened = json.loads(COMPACTION.open(body(HELLO, item, foreign, words, temperature=0.5), unseal))
    first, message, *others = opened["input"]
    assert (first, others, opened["temperature"]) == (HELLO, [foreign, words], 0.5)
    assert (message["role"], "\n\nThe sum.\n\n" in message["content"]) == ("user", True)


@pytest.mark.parametrize(
    "given", [body(HELLO), body(HELLO | {"content": "summary"}), b'{"input":"penstock-summary1.x"}']
)
def test_a_request_without_a_summary_is_not_written_again(given: bytes) -> None:
    assert COMPACTION.open(given, unseal) is given


def test_a_summary_of_another_key_is_refused() -> None:
    with pytest.raises(RequestError) as refused:
        COMPACTION.open(body({"type": "compaction", "encrypted_content": COMPACTION.prefix}), unseal)
    assert refused.value.failure.param == "input"
