"""How kept responses become the input of a request, and how they are listed: bytes in, bytes out."""

import json
from typing import Any

import pytest

from penstock.core.dialects.dialect import KeptAnswer, RequestError
from penstock.core.dialects.openai_responses.stored import StoredResponses
from penstock.core.json.members import JsonMembers

STORED = StoredResponses()
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Hello.", "annotations": []}],
}
CALL = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
SEALED = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA"}
BARE = {"id": "rs_2", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
SEARCH = {"id": "ws_1", "type": "web_search_call", "status": "completed"}


def kept(input: object, *output: object, id: str = "resp_1") -> KeptAnswer:
    return KeptAnswer(id, json.dumps(input).encode(), json.dumps(output).encode())


def expanded(body: str, *history: KeptAnswer) -> bytes:
    continuation = STORED.continuation(body.encode())
    assert continuation is not None
    return STORED.expand(continuation, history)


def without_id(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != "id"}


def test_the_conversation_comes_before_the_input_and_all_else_stays() -> None:
    body = '{"model":"m","previous_response_id":"resp_2","input":"Third.","temperature":0.50,"odd":{"a":1.0}}'
    first = kept([{"role": "user", "content": "First."}], MESSAGE)
    second = kept([{"role": "user", "content": "Second.", "odd": 1}], MESSAGE, CALL, id="resp_2")
    edited = expanded(body, first, second)
    assert b'"temperature":0.50,"odd":{"a":1.0}' in edited
    fields = json.loads(edited)
    assert "previous_response_id" not in fields
    assert fields["input"] == [
        {"role": "user", "content": "First."},
        without_id(MESSAGE),
        {"role": "user", "content": "Second.", "odd": 1},
        without_id(MESSAGE),
        without_id(CALL),
        {"type": "message", "role": "user", "content": "Third."},
    ]


def test_items_with_types_of_odd_shapes_go_back_as_they_are() -> None:
    odd = {"id": "a", "type": ["message"]}
    assert json.loads(expanded('{"previous_response_id":"r","input":[]}', kept([], odd)))["input"] == [odd]


@pytest.mark.parametrize("limit", ["0000000050000", "000000001" + "0" * 5_000, "\u0661", "-1", "1_0", " 1"])
def test_a_limit_is_a_small_number(limit: str) -> None:
    with pytest.raises(RequestError):
        STORED.write_input([kept([MESSAGE])], {"limit": limit})


def test_reasoning_and_items_of_other_types_go_back_as_they_are() -> None:
    fields = json.loads(expanded('{"previous_response_id":"r","input":[]}', kept([], BARE, SEALED, SEARCH)))
    assert fields["input"] == [BARE, SEALED, SEARCH]


def test_white_space_and_the_order_of_members_do_not_matter() -> None:
    body = '{ "input" : [ {"role" : "user", "content" : "é\\u00e9"} ] ,\n "previous_response_id" : "r" }'
    fields = json.loads(expanded(body, kept([], MESSAGE)))
    assert fields == {"input": [without_id(MESSAGE), {"role": "user", "content": "éé"}]}


def test_a_request_without_input_continues_too() -> None:
    fields = json.loads(expanded('{"previous_response_id":"r","prompt":{"id":"p"}}', kept([], MESSAGE)))
    assert fields == {"prompt": {"id": "p"}, "input": [without_id(MESSAGE)]}


@pytest.mark.parametrize(
    "body", ["{}", '{"input":"Hi."}', '{"previous_response_id":null}', '{"a":"previous_response_id"}']
)
def test_most_requests_continue_nothing(body: str) -> None:
    assert STORED.continuation(body.encode()) is None


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('{"previous_response_id":7}', "invalid_request"),
        ('{"previous_response_id":""}', "invalid_request"),
        ('{"previous_response_id":"a","previous_response_id":"b"}', "duplicate_key"),
        ('{"previous_response_id":"a","input":"x","input":[]}', "duplicate_key"),
        ('["previous_response_id"]', "invalid_json"),
        ('{"previous_response_id":', "invalid_json"),
    ],
)
def test_a_malformed_request_is_refused(body: str, code: str) -> None:
    with pytest.raises(RequestError) as refused:
        STORED.continuation(body.encode())
    assert refused.value.failure.code == code


def test_an_input_of_another_type_is_refused() -> None:
    with pytest.raises(RequestError) as refused:
        expanded('{"previous_response_id":"r","input":7}', kept([], MESSAGE))
    assert refused.value.failure.param == "input"


def test_a_failed_response_is_not_continued() -> None:
    with pytest.raises(RequestError) as refused:
        expanded('{"previous_response_id":"r","input":"x"}', KeptAnswer("r", b"[]", None))
    assert refused.value.failure.code == "previous_response_not_found"


# What is kept.


def response(status: str = "completed", **fields: object) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "status": status, "output": [MESSAGE], "tools": [], **fields}


def event(type: str, **fields: object) -> bytes:
    return f"event: {type}\ndata: {json.dumps({'type': type, 'sequence_number': 1} | fields)}\n\n".encode()


@pytest.mark.parametrize("status", ["completed", "incomplete"])
def test_the_last_event_has_the_response(status: str) -> None:
    whole = response(status)
    data = event("response.output_item.done", item=MESSAGE) + event(f"response.{status}", response=whole)
    for found in (
        STORED.read_answer("resp_1", b"[]", data),
        STORED.read_answer("resp_1", b"[]", json.dumps(whole).encode()),
    ):
        assert found is not None
        assert found.output is not None
        assert json.loads(found.output) == [MESSAGE]
        assert "output" not in json.loads(found.answer)
        assert json.loads(STORED.write_answer(found)) == whole


def test_references_become_the_items_of_kept_responses() -> None:
    call = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"}
    output = [{"type": "reasoning", "id": "rs_1", "summary": []}, call, {"type": "message", "id": "msg_1"}]
    kept = KeptAnswer("resp_1", b"[]", json.dumps(output).encode())
    assert STORED.item_ids(kept) == ("rs_1", "fc_1", "msg_1")
    references = [{"type": "item_reference", "id": id} for id in ("rs_1", "fc_1", "fc_1", "gone")]
    body = json.dumps({"model": "m", "input": [{"role": "user", "content": "Hi"}, *references], "n": 1}).encode()
    assert STORED.references(body) == ("rs_1", "fc_1", "gone")
    bare = {name: value for name, value in call.items() if name != "id"}
    assert json.loads(STORED.resolve(body, [kept])) == {
        "model": "m",
        "input": [{"role": "user", "content": "Hi"}, output[0], bare, bare, references[-1]],
        "n": 1,
    }


@pytest.mark.parametrize("input", ['"item_reference"', "[]", "[1]", '[{"type": "item_reference"}]'])
def test_most_requests_refer_to_nothing(input: str) -> None:
    assert STORED.references(f'{{"model": "m", "input": {input}}}'.encode()) == ()


def test_a_response_that_could_not_be_kept_says_so() -> None:
    done, whole = event("response.output_item.done", item=MESSAGE), response(store=True, metadata={"store": "true"})
    unkept = whole | {"store": False}
    assert STORED.write_unkept(done + event("response.completed", response=whole)) == done + event(
        "response.completed", response=unkept
    )
    assert json.loads(STORED.write_unkept(json.dumps(whole).encode())) == unkept
    assert STORED.write_unkept(done) == done


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_failed_response_is_kept_whole_and_has_no_output_to_continue(status: str) -> None:
    whole = response(status, error={"code": "server_error", "message": "it broke"})
    data = event("error", error={"code": "x"}) + event("response.failed", response=whole)
    found = STORED.read_answer("resp_1", b"[]", data)
    assert found is not None
    assert found.output is None
    assert json.loads(STORED.write_answer(found)) == whole


@pytest.mark.parametrize("data", [b"", event("error", error={}), event("response.in_progress", response=response())])
def test_an_end_without_a_response_is_not_kept(data: bytes) -> None:
    assert STORED.read_answer("resp_1", b"[]", data) is None


@pytest.mark.parametrize(
    ("body", "items"),
    [
        ('{"input":"Hi."}', [{"type": "message", "role": "user", "content": "Hi."}]),
        ('{"input":[{"a":1}]}', [{"a": 1}]),
        ('{"prompt":{}}', []),
    ],
)
def test_the_new_input_is_a_list(body: str, items: list[object]) -> None:
    assert json.loads(STORED.new_input(JsonMembers(body.encode()))) == items


# Lists of the input.


def test_items_are_listed_in_full_form_with_stable_and_distinct_ids() -> None:
    history = [
        kept(
            ["odd", {"role": "user", "content": "First."}, {"role": "assistant", "content": "Before."}], MESSAGE, SEALED
        ),
        kept([MESSAGE, {"type": "function_call_output", "call_id": "c", "output": "x"}], CALL, id="resp_2"),
    ]
    pages = [json.loads(STORED.write_input(history, {"order": "asc"})) for _ in range(2)]
    assert pages[0] == pages[1]
    items = pages[0]["data"]
    assert [item["type"] for item in items] == [
        "message",
        "message",
        "message",
        "reasoning",
        "message",
        "function_call_output",
    ]
    assert items[0]["content"] == [{"type": "input_text", "text": "First."}]
    assert items[1]["content"] == [{"type": "output_text", "text": "Before.", "annotations": []}]
    assert items[0]["status"] == "completed"
    assert (items[2]["id"], items[3]["id"]) == ("msg_1", "rs_1")
    assert items[4]["id"].startswith("msg_"), "the id of another item"
    assert items[5]["id"].startswith("fco_")
    assert len({item["id"] for item in items}) == 6


def test_pages_of_any_size_have_all_items_once() -> None:
    history = [kept([{"role": "user", "content": str(number)} for number in range(23)])]
    whole = json.loads(STORED.write_input(history, {"limit": "100"}))["data"]
    for limit in (1, 2, 5, 22, 23, 24):
        found: list[object] = []
        query = {"limit": str(limit)}
        while True:
            page = json.loads(STORED.write_input(history, query))
            found += page["data"]
            if not page["has_more"]:
                break
            query["after"] = page["last_id"]
        assert found == whole
