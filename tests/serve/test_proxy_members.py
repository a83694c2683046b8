"""Members by which clients control LiteLLM's proxy: honoured, refused, or dropped with a loss, never sent on."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.faults.client import AUTHORIZED, CLIENT_KEY, Response, get, post
from tests.faults.gateway import settings
from tests.faults.scripts import whole
from tests.faults.upstream import JSON, Script, Upstream, status
from tests.serve.in_process import InProcessGateway
from tests.serve.support import AdminClient

ANSWER = whole()
FAILS: Script = [status(500, JSON, b"{}")]
DROPPED: dict[str, Any] = {
    "num_retries": 3,
    "timeout": 20,
    "cache": {"no-cache": True},
    "drop_params": True,
    "litellm_trace_id": "t-1",
    "litellm_metadata": {"team": "a"},
    "disable_fallbacks": None,
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessGateway]:
    with Upstream() as upstream:
        text = settings(upstream.url, 2, admin={"listen": "127.0.0.1:0"})
        with InProcessGateway(tmp_path_factory.mktemp("gateway"), upstream, text) as gateway:
            yield gateway


def play(running: InProcessGateway, name: str, script: Script = ANSWER) -> str:
    running.upstream.play(script, name)
    return name


def ask(running: InProcessGateway, model: str, headers: dict[str, str] | None = None, **members: Any) -> Response:
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "Hello"}], **members}
    return running.send(post(json.dumps(body).encode(), headers or AUTHORIZED))


def with_member(name: str, value: object) -> dict[str, Any]:
    return {name: value}


def sent(running: InProcessGateway, model: str) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(running.upstream.requests(model)[-1].partition(b"\r\n\r\n")[2])
    return fields


def test_no_provider_gets_them_and_each_is_a_loss(running: InProcessGateway) -> None:
    response = ask(running, f"main/{play(running, 'dropped')}", **DROPPED, temperature=0.5)
    assert response.status == 200
    assert response.headers["x-penstock-losses"] == "proxy-option-dropped=6"
    body = sent(running, "dropped")
    assert body["temperature"] == 0.5
    assert body.keys().isdisjoint(DROPPED)


@pytest.mark.parametrize("member", ["mock_response", "api_key", "api_base", "prompt_id"])
def test_those_that_would_mislead_are_refused(running: InProcessGateway, member: str) -> None:
    response = ask(running, f"main/{play(running, f'refused-{member}')}", **with_member(member, "of-the-client"))
    assert (response.status, response.error["param"]) == (400, member)
    assert "of-the-client" not in response.error["message"]
    assert not running.upstream.requests(f"refused-{member}")
    assert ask(running, f"main/refused-{member}", **with_member(member, None)).status == 200


@pytest.mark.parametrize("form", ["names", "objects", "table"])
def test_fallbacks_of_the_client_are_tried_next(running: InProcessGateway, form: str) -> None:
    first, second = play(running, f"first-{form}", FAILS), play(running, f"second-{form}")
    name = f"spare/{second}"
    given: dict[str, Any] = {"names": [name], "objects": [{"model": name}], "table": [{f"main/{first}": [name]}]}
    response = ask(running, f"main/{first}", fallbacks=given[form])
    assert (response.status, response.headers["x-penstock-model"]) == (200, second)
    line = running.call(response)
    assert line["model"] == f"main/{first}"
    assert [attempt["target"] for attempt in line["attempts"]] == [f"main/{first}", f"spare/{second}"]
    assert "fallbacks" not in sent(running, second)


def test_a_fallback_is_tried_at_once_while_the_model_cools_down(running: InProcessGateway) -> None:
    first, second = play(running, "cooling-1", FAILS), play(running, "cooling-2")
    for _ in range(12):
        ask(running, f"main/{first}")
    alone = ask(running, f"main/{first}")
    assert alone.error["code"] == "no_healthy_target"
    response = ask(running, f"main/{first}", fallbacks=[f"spare/{second}"])
    assert (response.status, response.headers["x-penstock-attempts"]) == (200, "1")


@pytest.mark.parametrize("given", [[f"spare/{number}" for number in range(11)], [1], [{"a": 1}], {"a": "b"}, [""]])
def test_fallbacks_of_another_form_are_refused(running: InProcessGateway, given: Any) -> None:
    response = ask(running, f"main/{play(running, 'form')}", fallbacks=given)
    assert (response.status, response.error["param"]) == (400, "fallbacks")


def test_a_fallback_must_exist_and_be_allowed(running: InProcessGateway) -> None:
    play(running, "mine")
    play(running, "theirs")
    unknown = ask(running, "main/mine", fallbacks=["no-such-model"])
    assert (unknown.status, unknown.error["code"]) == (404, "model_not_found")
    admin = AdminClient(running)
    secret, _ = admin.make(name="narrow", models=["main/mine"])
    theirs = {**AUTHORIZED, "Authorization": f"Bearer {secret}"}
    assert ask(running, "main/mine", theirs).status == 200
    refused = ask(running, "main/mine", theirs, fallbacks=["spare/theirs"])
    assert (refused.status, refused.error["code"]) == (403, "model_not_allowed")
    assert not running.upstream.requests("theirs")


def test_tags_are_a_tag_of_the_call(running: InProcessGateway) -> None:
    model = play(running, "tagged")
    metadata = {"tags": ["b", "c"], "job": "night"}
    response = ask(running, f"main/{model}", tags=["a"], metadata=metadata)
    assert running.send(get(f"/v1/calls/{response.request_id}")).status == 200  # it is in the book
    entry = AdminClient(running).get(f"/admin/entries/{response.request_id}")
    assert entry["tags"] == {"tags": "a,b,c", "job": "night"}
    body = sent(running, model)
    assert ("tags" in body, body["metadata"]) == (False, {"job": "night"})


def test_openai_sends_them_in_its_extra_body(running: InProcessGateway) -> None:
    first, second = play(running, "sdk-1", FAILS), play(running, "sdk-2")
    url = f"http://127.0.0.1:{running.port}/v1"
    with openai.OpenAI(base_url=url, api_key=CLIENT_KEY, max_retries=0) as client:
        chunks = client.chat.completions.create(
            model=f"main/{first}",
            messages=[{"role": "user", "content": "Hello"}],
            stream=True,
            extra_body={"fallbacks": [f"spare/{second}"], "num_retries": 0, "metadata": {"tags": ["x"]}},
        )
        assert [chunk.model for chunk in chunks if chunk.choices][-1]
