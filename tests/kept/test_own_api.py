"""Responses of a provider that offers the same API: kept by the gateway, not by the provider."""

from pathlib import Path
from typing import Any

import pytest

from tests import responses
from tests.anthropic.support import streams as streamed
from tests.faults.scripts import unstreamed
from tests.faults.upstream import Upstream
from tests.kept.support import KeepingGateway, code, final, start

pytestmark = pytest.mark.slow

SEALED = responses.reasoning("Hm.", seal="gAAA-proof")
ANSWER = responses.answer(
    responses.added(0, responses.reasoning()),
    responses.done(0, SEALED),
    *responses.says_all("Hello", ", world", index=1),
    finish=responses.completes(SEALED, responses.message(responses.part("Hello, world"))),
)
STATE: list[dict[str, Any]] = [
    {"conversation": "conv_1"},
    {"input": [{"type": "item_reference", "id": "rs_1"}]},
    {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file-1"}]}]},
]


def test_a_kept_response_has_an_id_of_the_gateway(gateway: KeepingGateway) -> None:
    model = gateway.upstream.play(streamed(ANSWER))
    response = gateway.respond(f"own/{model}", stream=True)
    got = final(response)
    assert b"resp_w1" not in response.body, "the provider's id"
    assert (got["store"], got["status"], gateway.asked(model)["store"]) == (True, "completed", False)
    assert gateway.ask_for(got["id"]).json == got
    assert gateway.ask_for("resp_w1").status == 404


def test_the_provider_gets_the_conversation_with_its_proof_of_reasoning(gateway: KeepingGateway) -> None:
    model = gateway.upstream.play(streamed(ANSWER))
    first = final(gateway.respond(f"own/{model}", "One.", stream=True))
    second = final(gateway.respond(f"own/{model}", "Two.", stream=True, previous_response_id=first["id"]))
    assert (second["previous_response_id"], second["store"]) == (first["id"], True)
    asked = gateway.asked(model)
    assert "previous_response_id" not in asked
    assert [item["type"] for item in asked["input"]] == ["message", "reasoning", "message", "message"]
    assert asked["input"][1]["encrypted_content"] == "gAAA-proof"
    assert "id" not in asked["input"][2]


def test_another_account_gets_the_conversation_without_the_proof(gateway: KeepingGateway) -> None:
    model = gateway.upstream.play(streamed(ANSWER))
    first = final(gateway.respond(f"own/{model}", "One.", stream=True))
    gateway.upstream.play(unstreamed("Yes."), model)
    second = gateway.respond(f"main/{model}", "Two.", previous_response_id=first["id"])
    assert second.status == 200
    messages = gateway.asked(model)["messages"]
    assert [message["content"] for message in messages] == ["One.", "Hello, world", "Two."]
    assert "gAAA-proof" not in str(messages)


def test_the_id_of_a_providers_response_is_not_continued(gateway: KeepingGateway) -> None:
    model = gateway.upstream.play(streamed(ANSWER))
    refused = gateway.respond(f"own/{model}", previous_response_id="resp_w1")
    assert code(refused) == (400, "previous_response_not_found")
    assert gateway.upstream.requests(model) == []


@pytest.mark.parametrize("fields", STATE)
def test_state_is_forwarded_if_the_operator_allows_it(
    tmp_path: Path, upstream: Upstream, fields: dict[str, Any]
) -> None:
    with start(tmp_path, upstream, store=False, memory=0, server={"shared_state": True}) as gateway:
        model = upstream.play(streamed(ANSWER))
        assert gateway.respond(f"own/{model}", **{"store": True, "stream": True} | fields).status == 200
        asked = gateway.asked(model)
        assert {name: asked[name] for name in (*fields, "store")} == fields | {"store": True}
        gateway.expected += 1
        refused = gateway.respond(f"main/{model}", **fields)
        assert code(refused) == (400, "invalid_request")
        assert "another API" in refused.json["error"]["message"]
        assert len(upstream.requests(model)) == 1
