"""A Responses request for a provider of Responses: its bytes stay, except for what the provider must not get."""

import json

import pytest

from penstock.core.dialects.dialect import Destination
from penstock.core.dialects.registry import surface_dialect, upstream_dialect
from penstock.core.hub.content import ReasoningSeal
from penstock.core.hub.request import ClientRequest
from penstock.core.hub.seals import wrap
from tests.translation.support import ISSUER, RESPONSES, Json

SURFACE, UPSTREAM = surface_dialect(RESPONSES), upstream_dialect(RESPONSES)
BODY = b'{ "model" : "m", "input":[ {"role":"user","content":"\\u0048i"} ], "store" : true, "new":{"b":1, "a":2} }'
USER: Json = {"role": "user", "content": "Hi"}
CALL: Json = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}"}


def request_of(body: bytes | Json) -> ClientRequest:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return SURFACE.read_request(data, {"openai-beta": "responses=v1"}, SURFACE.path)


def forwarded(body: bytes | Json, *, stream: bool | None = None, **settings: object) -> tuple[bytes, list[str]]:
    destination = Destination(model="target", settings=settings, issuer=ISSUER, stream=stream)
    request = UPSTREAM.write_request(request_of(body), destination)
    assert request.headers == {"openai-beta": "responses=v1"}
    return request.body, [f"{loss.code} {loss.detail}".strip() for loss in request.losses]


def test_only_the_name_of_the_model_and_storage_change() -> None:
    body, lost = forwarded(BODY)
    assert body == BODY.replace(b'"m"', b'"target"').replace(b"true", b"false")
    assert lost == []


def test_nothing_is_stored_and_no_state_is_referred_to() -> None:
    asked = {"model": "m", "input": "Hi", "previous_response_id": "resp_1", "conversation": "c"}
    body, _ = forwarded(asked)
    assert json.loads(body) == {"model": "target", "input": "Hi", "store": False}


def test_a_stream_is_requested_as_the_route_says() -> None:
    body, _ = forwarded({"model": "m", "input": "Hi", "stream": True}, stream=False)
    assert json.loads(body)["stream"] is False


def test_fields_that_the_provider_refuses_leave() -> None:
    body, lost = forwarded({"model": "m", "input": "Hi", "client_metadata": {}}, drop=["client_metadata"])
    assert json.loads(body) == {"model": "target", "input": "Hi", "store": False}
    assert lost == ["option-refused-by-provider client_metadata"]


def thinks(seal: str | None) -> Json:
    return {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": seal}


def conversation(*items: Json) -> Json:
    return {"model": "m", "input": [USER, *items, USER]}


def test_reasoning_is_unwrapped_for_its_issuer() -> None:
    body, lost = forwarded(conversation(thinks(wrap(ReasoningSeal("openai", "gAAAseal"), ISSUER)), CALL))
    assert json.loads(body)["input"][1] == thinks("gAAAseal")
    assert lost == []


@pytest.mark.parametrize(
    "seal",
    [wrap(ReasoningSeal("openai", "x"), "ffffffff"), wrap(ReasoningSeal("anthropic", "x"), ISSUER), None, ""],
    ids=["another account", "another API", "none", "empty"],
)
def test_other_reasoning_is_left_out_and_declared(seal: str | None) -> None:
    body, lost = forwarded(conversation(thinks(seal), CALL))
    assert json.loads(body)["input"] == [USER, CALL, USER]
    assert lost == ["reasoning-dropped"]


def test_reasoning_that_was_not_wrapped_stays() -> None:
    asked = json.dumps(conversation(thinks("gAAA"), CALL)).encode()
    body, lost = forwarded(asked)
    assert body == asked.replace(b'"m"', b'"target"')[:-1] + b', "store": false}'
    assert lost == []


def test_open_models_get_reasoning_without_its_seal() -> None:
    body, lost = forwarded(conversation(thinks(wrap(ReasoningSeal("anthropic", "x"), ISSUER))), open_reasoning=True)
    assert json.loads(body)["input"][1] == {"type": "reasoning", "id": "rs_1", "summary": []}
    assert lost == ["seal-dropped anthropic"]


def test_ids_of_other_providers_leave() -> None:
    approval = {"type": "mcp_approval_request", "id": "b7b464ea", "name": "f", "arguments": "{}", "server_label": "s"}
    body, lost = forwarded(conversation(CALL | {"id": "b7b464ea"}, USER | {"id": "x", "type": "message"}, approval))
    kept = {name: value for name, value in CALL.items() if name != "id"}
    assert json.loads(body)["input"] == [USER, kept, USER | {"type": "message"}, approval, USER]
    assert lost == []


def test_results_are_texts_where_the_provider_wants_that() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    result = {"type": "function_call_output", "call_id": "call_1"}
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}, image]
    asked = conversation(CALL, result | {"output": parts})
    assert json.loads(forwarded(asked)[0])["input"] == asked["input"]
    body, lost = forwarded(asked, result_parts=False)
    attached = {"type": "input_text", "text": "The result of call_1 is attached."}
    assert json.loads(body)["input"][2:4] == [
        result | {"output": "a\nb"},
        {"type": "message", "role": "user", "content": [attached, image]},
    ]
    assert lost == ["result-media-moved call_1"]


def test_limits() -> None:
    destination = Destination(model="target", overrides={"max_output_tokens": 5})
    request = request_of({"model": "m", "input": "Hi", "max_output_tokens": 99, "service_tier": "Flex"})
    limits = UPSTREAM.limits(request, Destination(model="target"))
    assert (limits.output, limits.tier) == (99, "flex")
    assert UPSTREAM.limits(request, destination).output == 5
