"""Responses that a gateway keeps: read, listed, deleted and continued, by the key that got them and by no other."""

import base64
import json
from typing import Any

import pytest

from tests import streams as chat
from tests.anthropic import support as messages
from tests.faults.client import CLIENT_KEY, Response, post
from tests.faults.scripts import ERROR_BODY, HELLO
from tests.faults.upstream import JSON, chunk, fin, hang, head, status
from tests.kept.support import (
    OTHER_KEY,
    PATH,
    TEXT,
    KeepingGateway,
    authorized,
    code,
    final,
    response_body,
    says,
    streams,
)

pytestmark = pytest.mark.slow


def input_of(gateway: KeepingGateway, model: str) -> list[tuple[str, Any]]:
    """The conversation that a chat provider got."""
    return [(message["role"], message["content"]) for message in gateway.asked(model)["messages"]]


# Reading.


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_response_is_read_again_as_the_client_got_it(gateway: KeepingGateway, stream: bool) -> None:
    model = gateway.upstream.play(streams() if stream else says(TEXT))
    got = final(gateway.respond(f"main/{model}", stream=stream, metadata={"topic": "tides"}))
    assert (got["status"], got["store"], got["previous_response_id"]) == ("completed", True, None)
    assert got["id"].startswith("resp_")
    assert gateway.ask_for(got["id"]).json == got


def test_every_event_of_a_stream_has_the_id_that_is_kept(gateway: KeepingGateway) -> None:
    model = gateway.upstream.play(streams())
    response = gateway.respond(f"main/{model}", stream=True)
    lines = [line.removeprefix("data: ") for line in response.body.decode().splitlines() if line.startswith("data: {")]
    ids = {event["response"]["id"] for event in map(json.loads, lines) if "response" in event}
    assert ids == {final(response)["id"]}


def test_a_provider_of_messages_answers_responses_that_are_kept(gateway: KeepingGateway) -> None:
    model = gateway.upstream.play(messages.streams(messages.ANSWER))
    first = final(gateway.respond(f"claude/{model}", "First.", stream=True))
    second = final(gateway.respond(f"claude/{model}", "Second.", stream=True, previous_response_id=first["id"]))
    assert gateway.ask_for(second["id"]).json == second
    asked = gateway.asked(model)["messages"]
    assert [message["role"] for message in asked] == ["user", "assistant", "user"]


def test_a_response_is_not_kept_if_the_client_does_not_want_it(gateway: KeepingGateway) -> None:
    before = gateway.stored()
    model = gateway.upstream.play(says(TEXT))
    got = final(gateway.respond(f"main/{model}", store=False))
    assert got["store"] is False
    assert code(gateway.ask_for(got["id"])) == (404, "response_not_found")
    assert code(gateway.respond(f"main/{model}", previous_response_id=got["id"])) == (
        400,
        "previous_response_not_found",
    )
    headers = authorized(CLIENT_KEY) | {"x-penstock-store": "false"}
    got = final(gateway.send(post(response_body(f"main/{model}", "Say hello."), headers, PATH), calls=1))
    assert got["store"] is False
    assert gateway.stored() == before


def test_a_kept_response_is_not_streamed_again(gateway: KeepingGateway) -> None:
    got = final(gateway.respond(f"main/{gateway.upstream.play(says(TEXT))}"))
    assert code(gateway.ask_for(f"{got['id']}?stream=true")) == (400, "invalid_request")
    assert gateway.ask_for(f"{got['id']}?stream=false").status == 200


def test_a_response_that_is_not_in_the_background_cannot_be_cancelled(gateway: KeepingGateway) -> None:
    got = final(gateway.respond(f"main/{gateway.upstream.play(says(TEXT))}"))
    refused = gateway.ask_for(f"{got['id']}/cancel", "POST")
    assert (refused.status, refused.json["error"]["type"]) == (400, "invalid_request_error")
    assert "Cannot cancel a synchronous response" in refused.json["error"]["message"]


@pytest.mark.parametrize(
    ("path", "method", "expected"),
    [
        ("{id}", "PUT", (405, "method_not_allowed")),
        ("{id}", "POST", (405, "method_not_allowed")),
        ("{id}/cancel", "GET", (405, "method_not_allowed")),
        ("{id}/output", "GET", (404, "not_found")),
        ("compact", "GET", (405, "method_not_allowed")),
        ("", "GET", (404, "not_found")),
    ],
)
def test_other_paths_and_methods_are_refused(
    gateway: KeepingGateway, path: str, method: str, expected: tuple[int, str]
) -> None:
    got = final(gateway.respond(f"main/{gateway.upstream.play(says(TEXT))}"))
    assert code(gateway.ask_for(path.format(id=got["id"]), method)) == expected


# Deleting.


def test_a_deleted_response_is_gone(gateway: KeepingGateway) -> None:
    model = gateway.upstream.play(says(TEXT))
    first = final(gateway.respond(f"main/{model}"))["id"]
    second = final(gateway.respond(f"main/{model}", previous_response_id=first))["id"]
    deleted = gateway.ask_for(first, "DELETE")
    assert (deleted.status, deleted.json) == (200, {"id": first, "object": "response", "deleted": True})
    for method in ("GET", "DELETE"):
        assert code(gateway.ask_for(first, method)) == (404, "response_not_found")
    assert first not in gateway.stored()
    assert gateway.ask_for(second).status == 200, "what continues it can be read"
    refused = gateway.respond(f"main/{model}", previous_response_id=second)
    assert code(refused) == (400, "previous_response_not_found")
    assert "was deleted" in refused.json["error"]["message"]


# Continuing.


def test_a_request_continues_a_response_on_a_chat_provider(gateway: KeepingGateway) -> None:
    model = gateway.upstream.play(says("Hello, Ada."))
    first = final(gateway.respond(f"main/{model}", "I am Ada.", instructions="Be brief."))
    assert input_of(gateway, model) == [("system", "Be brief."), ("user", "I am Ada.")]
    second = final(gateway.respond(f"main/{model}", "Who am I?", previous_response_id=first["id"]))
    assert second["previous_response_id"] == first["id"]
    assert input_of(gateway, model) == [("user", "I am Ada."), ("assistant", "Hello, Ada."), ("user", "Who am I?")]
    third = final(
        gateway.respond(f"main/{model}", "And now?", previous_response_id=second["id"], instructions="Shout.")
    )
    assert [role for role, _ in input_of(gateway, model)] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert third["previous_response_id"] == second["id"]
    assert gateway.ask_for(third["id"]).json == third


def test_a_request_refers_to_items_of_kept_responses(gateway: KeepingGateway) -> None:
    model = gateway.upstream.play(says(TEXT))
    first = final(gateway.respond(f"main/{model}", "Who are you?"))
    reference = {"type": "item_reference", "id": first["output"][0]["id"]}
    input = [{"role": "user", "content": "Who are you?"}, reference, {"role": "user", "content": "And now?"}]
    second = gateway.respond(f"main/{model}", input)
    assert second.status == 200
    assert gateway.asked(model)["messages"] == [
        {"role": "user", "content": "Who are you?"},
        {"role": "assistant", "content": TEXT},
        {"role": "user", "content": "And now?"},
    ]
    assert code(gateway.respond(f"main/{model}", input, OTHER_KEY)) == (400, "shared_state_not_allowed")
    last = [reference | {"id": final(second)["output"][0]["id"]}, {"role": "user", "content": "Go on."}]
    assert gateway.respond(f"main/{model}", last, previous_response_id=first["id"]).status == 200
    assert [role for role, _ in input_of(gateway, model)] == ["user", "assistant", "user"]
    assert gateway.asked(model)["messages"][1]["content"].count(TEXT) == 2
    assert gateway.ask_for(first["id"], "DELETE").status == 200
    assert code(gateway.respond(f"main/{model}", input)) == (400, "shared_state_not_allowed")


def test_a_conversation_may_branch_and_go_to_another_provider(gateway: KeepingGateway) -> None:
    model = gateway.upstream.play(says("One."))
    first = final(gateway.respond(f"main/{model}", "Count."))["id"]
    for text in ("Go on.", "Stop."):
        assert gateway.respond(f"spare/{model}", text, previous_response_id=first).status == 200
        assert input_of(gateway, model) == [("user", "Count."), ("assistant", "One."), ("user", text)]


def test_a_continuation_that_is_not_kept_says_what_it_continues(gateway: KeepingGateway) -> None:
    model = gateway.upstream.play(says("One."))
    first = final(gateway.respond(f"main/{model}", "Count."))["id"]
    second = final(gateway.respond(f"main/{model}", "Go on.", previous_response_id=first, store=False))
    assert (second["previous_response_id"], second["store"]) == (first, False)
    assert gateway.ask_for(second["id"]).status == 404


def test_the_results_of_tools_continue_a_response(gateway: KeepingGateway) -> None:
    call = {"id": "call_9", "type": "function", "function": {"name": "get_tide", "arguments": '{"at":"Cuxhaven"}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    answer = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
    }
    tools = [{"type": "function", "name": "get_tide", "parameters": {"type": "object"}}]
    model = gateway.upstream.play([status(200, JSON, json.dumps(answer).encode())])
    first = final(gateway.respond(f"main/{model}", "When is high tide?", tools=tools))
    (item,) = [item for item in first["output"] if item["type"] == "function_call"]
    assert item["call_id"] == "call_9"
    result = [{"type": "function_call_output", "call_id": "call_9", "output": "at noon"}]
    gateway.upstream.play(says("At noon."), model)
    assert gateway.respond(f"main/{model}", result, previous_response_id=first["id"], tools=tools).status == 200
    asked = gateway.asked(model)["messages"]
    assert [message["role"] for message in asked] == ["user", "assistant", "tool"]
    assert asked[1]["tool_calls"] == [call]
    assert (asked[2]["tool_call_id"], asked[2]["content"]) == ("call_9", "at noon")


@pytest.mark.parametrize("value", [None, "null"], ids=["absent", "null"])
def test_no_previous_response_is_none(gateway: KeepingGateway, value: str | None) -> None:
    model = gateway.upstream.play(says(TEXT))
    fields: dict[str, Any] = {} if value is None else {"previous_response_id": None}
    assert final(gateway.respond(f"main/{model}", "Hi.", **fields))["previous_response_id"] is None
    assert input_of(gateway, model) == [("user", "Hi.")]


@pytest.mark.parametrize("wrong", [7, "", ["resp_1"], {"id": "resp_1"}])
def test_a_previous_response_must_be_an_id(gateway: KeepingGateway, wrong: object) -> None:
    model = gateway.upstream.play(says(TEXT))
    assert code(gateway.respond(f"main/{model}", previous_response_id=wrong)) == (400, "invalid_request")


@pytest.mark.parametrize("name", ["previous\\u005fresponse_id", "\\u0070revious_response_id"])
def test_an_escaped_name_does_not_reach_a_provider(gateway: KeepingGateway, name: str) -> None:
    model = gateway.upstream.play(says(TEXT))
    body = f'{{"model":"main/{model}","input":"Hi.","{name}":"resp_of_somebody"}}'.encode()
    refused = gateway.send(post(body, authorized(CLIENT_KEY), PATH))
    assert code(refused) == (400, "invalid_request")
    assert gateway.upstream.requests(model) == []


def test_a_name_that_comes_twice_is_refused(gateway: KeepingGateway) -> None:
    model = gateway.upstream.play(says(TEXT))
    body = f'{{"model":"main/{model}","input":"Hi.","previous_response_id":"a","previous_response_id":"b"}}'.encode()
    assert code(gateway.send(post(body, authorized(CLIENT_KEY), PATH))) == (400, "duplicate_key")


def test_a_large_request_continues_a_response(gateway: KeepingGateway) -> None:
    model = gateway.upstream.play(says("Yes."))
    first = final(gateway.respond(f"main/{model}", "a" * 300_000))["id"]
    second = final(gateway.respond(f"main/{model}", "b" * 300_000, previous_response_id=first))
    texts = [content for _, content in input_of(gateway, model)]
    assert texts == ["a" * 300_000, "Yes.", "b" * 300_000]
    assert gateway.ask_for(second["id"]).json == second


def test_tokens_are_counted_of_the_whole_conversation(gateway: KeepingGateway) -> None:
    model = gateway.upstream.play(says("Yes."))
    first = final(gateway.respond(f"main/{model}", "word " * 1_000))["id"]

    def count(key: str = CLIENT_KEY, calls: int = 0, **fields: object) -> Response:
        body = json.dumps({"model": f"main/{model}", "input": "Hi."} | fields).encode()
        return gateway.send(post(body, authorized(key), f"{PATH}/input_tokens"), calls=calls)

    counts = (count(calls=1), count(calls=1, previous_response_id=first))
    alone, together = (each.json["input_tokens"] for each in counts)
    assert together > alone + 500
    assert code(count(OTHER_KEY, previous_response_id=first)) == (400, "previous_response_not_found")
    assert code(count(conversation="conv_1")) == (400, "shared_state_not_allowed")


# Other keys, and forged ids.


def test_another_key_finds_nothing(gateway: KeepingGateway) -> None:
    model = gateway.upstream.play(says(TEXT))
    got = final(gateway.respond(f"main/{model}"))["id"]
    asked = len(gateway.upstream.requests(model))
    for path, method in ((got, "GET"), (f"{got}/input_items", "GET"), (f"{got}/cancel", "POST"), (got, "DELETE")):
        assert code(gateway.ask_for(path, method, OTHER_KEY)) == (404, "response_not_found")
    refused = gateway.respond(f"main/{model}", key=OTHER_KEY, previous_response_id=got)
    assert code(refused) == (400, "previous_response_not_found")
    assert len(gateway.upstream.requests(model)) == asked
    assert gateway.ask_for(got).status == 200, "it was not deleted"


def test_forged_ids_find_nothing(gateway: KeepingGateway) -> None:
    model = gateway.upstream.play(says(TEXT))
    own = final(gateway.respond(f"main/{model}", key=OTHER_KEY))["id"].removeprefix("resp_")
    got = final(gateway.respond(f"main/{model}"))["id"].removeprefix("resp_")
    mine, theirs = (base64.urlsafe_b64decode(each) for each in (own, got))
    forged = [
        theirs[:16] + mine[16:22] + theirs[22:],  # our key in their id
        theirs[:22] + mine[22:],  # our signature
        theirs[:16] + mine[16:],
        mine[:12] + theirs[12:],
        bytes(42),
    ]
    names = [f"resp_{base64.urlsafe_b64encode(each).decode()}" for each in forged]
    for name in [*names, f"resp_{got[:-1]}", f"resp_{got}A", got, "resp_1", f"resp_{got}%00", f"RESP_{got}"]:
        assert gateway.ask_for(name, key=OTHER_KEY).status == 404
        refused = gateway.respond(f"main/{model}", key=OTHER_KEY, previous_response_id=name)
        assert code(refused) == (400, "previous_response_not_found")


def test_requests_about_responses_need_a_key(gateway: KeepingGateway) -> None:
    got = final(gateway.respond(f"main/{gateway.upstream.play(says(TEXT))}"))["id"]
    assert code(gateway.ask_for(got, key="no-key-of-ours")) == (401, "invalid_api_key")


# Answers that fail.


def test_a_truncated_answer_is_kept_as_failed(gateway: KeepingGateway) -> None:
    model = gateway.upstream.play([head(), chunk(HELLO), fin()])
    got = final(gateway.respond(f"main/{model}", stream=True))
    assert got["status"] == "failed"
    assert gateway.ask_for(got["id"]).json == got
    refused = gateway.respond(f"main/{model}", previous_response_id=got["id"])
    assert code(refused) == (400, "previous_response_not_found")
    assert "failed" in refused.json["error"]["message"]


def test_nothing_is_kept_for_a_client_that_leaves(gateway: KeepingGateway) -> None:
    before = len(gateway.stored())
    with gateway.begin_response(f"main/{gateway.upstream.play([head(), chunk(HELLO), hang()])}") as client:
        client.read_until(b"event: response.output_text.delta")
    line = gateway.last_call()
    assert (line["ending"], line["code"]) == ("cancelled", "client_gone")
    gateway.respond(f"main/{gateway.upstream.play(says(TEXT))}")  # what was queued before it is stored, too
    assert len(gateway.stored()) == before + 1


def test_an_incomplete_answer_is_kept_and_continued(gateway: KeepingGateway) -> None:
    once = chat.sse(chat.begins(), chat.says("Once upon"), chat.finishes("length"), chat.DONE)
    model = gateway.upstream.play([head(), chunk(once), fin()])
    got = final(gateway.respond(f"main/{model}", "A story.", stream=True))
    assert (got["status"], got["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert gateway.ask_for(got["id"]).json == got
    gateway.upstream.play(says(" a time."), model)
    assert gateway.respond(f"main/{model}", "Go on.", previous_response_id=got["id"]).status == 200
    assert input_of(gateway, model)[1] == ("assistant", "Once upon")


def test_nothing_is_kept_of_a_refused_call(gateway: KeepingGateway) -> None:
    before = gateway.stored()
    model = gateway.upstream.play([status(400, JSON, ERROR_BODY)])
    gateway.expected += 1
    assert gateway.respond(f"main/{model}").status == 400
    assert gateway.stored() == before


# Pages of the input.


def test_the_input_is_listed_in_pages(gateway: KeepingGateway) -> None:
    model = gateway.upstream.play(says("One."))
    first = final(gateway.respond(f"main/{model}", "Count."))
    items = [{"role": "user", "content": f"Say {number}."} for number in range(5)]
    second = final(gateway.respond(f"main/{model}", items, previous_response_id=first["id"]))["id"]
    listed = gateway.ask_for(f"{second}/input_items?order=asc").json
    assert (listed["object"], listed["has_more"]) == ("list", False)
    texts = [item["content"][0]["text"] for item in listed["data"]]
    assert texts == ["Count.", "One.", *(f"Say {number}." for number in range(5))]
    assert listed["data"][1]["id"] == first["output"][0]["id"]
    ids = [item["id"] for item in listed["data"]]
    assert len(set(ids)) == 7
    assert (listed["first_id"], listed["last_id"]) == (ids[0], ids[-1])
    newest = gateway.ask_for(f"{second}/input_items").json
    assert [item["id"] for item in newest["data"]] == ids[::-1]
    page = gateway.ask_for(f"{second}/input_items?order=asc&limit=3&after={ids[1]}").json
    assert ([item["id"] for item in page["data"]], page["has_more"]) == (ids[2:5], True)
    last = gateway.ask_for(f"{second}/input_items?order=asc&limit=3&after={ids[4]}").json
    assert ([item["id"] for item in last["data"]], last["has_more"]) == (ids[5:], False)
    assert gateway.ask_for(f"{second}/input_items?order=asc&after={ids[6]}").json["data"] == []


@pytest.mark.parametrize(
    "query", ["limit=0", f"limit=000000001{'0' * 5_000}", "limit=x", "order=up", "after=msg_of_another"]
)
def test_a_wrong_page_is_refused(gateway: KeepingGateway, query: str) -> None:
    got = final(gateway.respond(f"main/{gateway.upstream.play(says(TEXT))}"))["id"]
    refused = gateway.ask_for(f"{got}/input_items?{query}")
    assert code(refused) == (400, "invalid_request")
    assert refused.json["error"]["param"] == query.partition("=")[0]


# State that providers keep.


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("conversation", {"conversation": "conv_1"}),
        ("conversation", {"conversation": {"id": "conv_1"}}),
        ("input", {"input": [{"type": "item_reference", "id": "rs_1"}]}),
        ("file_id", {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file-1"}]}]}),
        (
            "file_id",
            {
                "input": [
                    {
                        "type": "function_call_output",
                        "call_id": "c",
                        "output": [{"type": "input_image", "file_id": "file-1"}],
                    }
                ]
            },
        ),
        ("container", {"tools": [{"type": "code_interpreter", "container": "cntr_1"}]}),
        ("file_ids", {"tools": [{"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["file-1"]}}]}),
    ],
)
def test_state_of_the_shared_account_is_refused(gateway: KeepingGateway, param: str, fields: dict[str, Any]) -> None:
    model = gateway.upstream.play(says(TEXT))
    refused = gateway.respond(f"main/{model}", **fields)
    assert code(refused) == (400, "shared_state_not_allowed")
    assert refused.json["error"]["param"] == param
    assert "shared_state = true in [server]" in refused.json["error"]["message"]


def test_a_container_of_its_own_is_no_shared_state(gateway: KeepingGateway) -> None:
    model = gateway.upstream.play(says(TEXT))
    response = gateway.respond(f"main/{model}", tools=[{"type": "code_interpreter", "container": {"type": "auto"}}])
    assert response.status != 400 or response.json["error"]["code"] != "shared_state_not_allowed"
