"""The whole gateway in this process: each client API, refusals, kept responses, and what the admin API says of them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.serve.admin.routes import ROUTES
from tests.faults.client import AUTHORIZED, CLIENT_KEY, RawClient, Response, body, get, post
from tests.faults.dialects import CLIENTS, MESSAGES, PROVIDERS, RESPONSES_CLIENT, TEXT, Client, ResponsesResponse
from tests.faults.gateway import settings
from tests.faults.scripts import HELLO, REST, WORLD, whole
from tests.faults.upstream import JSON, Gate, Upstream, chunk, hang, head, last_chunk, status
from tests.replay.support import keep
from tests.serve.in_process import InProcessGateway
from tests.serve.support import AdminClient, events

# What the admin API lists: JSON, which `AdminClient` compares with the OpenAPI document.
LISTS = [
    route.path
    for route in ROUTES
    if route.method == "GET" and "{" not in route.path and not isinstance(route.response, str)
]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessGateway]:
    with Upstream() as upstream:
        admin = {"listen": "127.0.0.1:0", "content": True}
        text = settings(upstream.url, 3, PROVIDERS.values(), admin=admin)
        with InProcessGateway(tmp_path_factory.mktemp("gateway"), upstream, text) as gateway:
            yield gateway


@pytest.fixture(scope="module")
def admin(running: InProcessGateway) -> AdminClient:
    return AdminClient(running)


def sent(running: InProcessGateway, path: str, **fields: object) -> Response:
    return running.send(post(json.dumps(fields).encode(), AUTHORIZED, path))


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_a_client_reads_the_answer_of_any_provider(running: InProcessGateway, client: Client) -> None:
    for provider in PROVIDERS.values():
        for stream in (True, False):
            model = running.upstream.play(provider.whole() if stream else provider.unstreamed())
            response = running.ask(f"main{provider.suffix}/{model}", client, stream=stream)
            assert (response.status, response.text) == (200, TEXT), provider.dialect
            assert stream or response.usage == (5, 3), provider.dialect
            line = running.call(response)
            name = f"main{provider.suffix}"
            assert (line["provider"], line["target"], line["ending"]) == (name, f"{name}/{model}", "completed")
            assert (line["input"], line["output"]) == (5, 3)


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_the_second_target_answers_in_place_of_one_that_fails(running: InProcessGateway, client: Client) -> None:
    failing = [status(503, JSON, b'{"error":{"message":"no"}}')]
    response = running.ask(running.pair(failing, whole()), client, stream=True)
    assert (response.status, response.text) == (200, TEXT)
    assert [attempt["code"] for attempt in running.call(response)["attempts"]] == ["upstream_error", ""]


def test_a_provider_that_is_silent_is_left(running: InProcessGateway) -> None:
    model = running.upstream.play([hang()])
    assert running.ask(f"hasty/{model}", stream=False).error["code"].startswith("upstream_timeout")


def test_requests_that_are_refused(running: InProcessGateway) -> None:
    asked = body("main/any", stream=False)
    bearer = f"Authorization: Bearer {CLIENT_KEY}\r\n".encode()
    refused: dict[str, tuple[bytes, int, str]] = {
        "no key": (post(asked).replace(bearer, b""), 401, "invalid_api_key"),
        "another key": (post(asked, {"Authorization": "Bearer sk-unknown"}), 401, "invalid_api_key"),
        "no JSON": (post(b"{"), 400, "invalid_json"),
        "no such model": (post(body("nowhere/any", stream=False)), 404, "model_not_found"),
        "no such path": (post(asked, path="/v1/nothing"), 404, "not_found"),
    }
    found = {name: running.send(request) for name, (request, *_) in refused.items()}
    assert {name: (each.status, each.error.get("code")) for name, each in found.items()} == {
        name: (code, word) for name, (_, code, word) in refused.items()
    }
    assert running.send(get("/health")).status == 200
    assert running.send(get("/v1/models", AUTHORIZED)).json["object"] == "list"


def test_tokens_are_counted_by_the_provider_or_estimated(running: InProcessGateway) -> None:
    fields: dict[str, Any] = {"messages": [{"role": "user", "content": "word " * 400}]}
    model = running.upstream.play([status(200, JSON, b'{"input_tokens": 123}')])
    counted = sent(running, "/v1/messages/count_tokens", model=f"main{MESSAGES.suffix}/{model}", **fields)
    assert counted.json == {"input_tokens": 123}
    estimated = sent(running, "/v1/messages/count_tokens", model="main/any", **fields)
    assert 400 <= estimated.json["input_tokens"] <= 600
    failing = running.upstream.play([status(500, JSON, b"{}")])
    instead = sent(running, "/v1/messages/count_tokens", model=f"main{MESSAGES.suffix}/{failing}", **fields)
    assert 400 <= instead.json["input_tokens"] <= 600


def test_a_kept_response_is_continued_and_deleted(running: InProcessGateway) -> None:
    model = running.upstream.play(whole())
    streamed = running.ask(f"main/{model}", RESPONSES_CLIENT, stream=True)
    assert isinstance(streamed, ResponsesResponse)
    ((id,),) = [{event["response"]["id"] for event in streamed.events if "response" in event}]
    assert running.send(get(f"/v1/responses/{id}", AUTHORIZED)).json["status"] == "completed"
    first = sent(running, "/v1/responses", model=f"main/{model}", input="Say hello.", stream=False).json
    path = f"/v1/responses/{first['id']}"
    assert running.send(get(path, AUTHORIZED)).json["output"] == first["output"]
    fields = {"model": f"main/{model}", "input": "And again.", "previous_response_id": first["id"]}
    assert sent(running, "/v1/responses", **fields).status == 200
    asked = json.loads(running.upstream.requests(model)[-1].partition(b"\r\n\r\n")[2])
    assert [turn["content"] for turn in asked["messages"]] == ["Say hello.", TEXT, "And again."]
    assert running.send(get(path, AUTHORIZED, "DELETE")).json["deleted"]
    assert running.send(get(path, AUTHORIZED)).status == 404


def test_every_list_of_the_admin_api_is_answered(running: InProcessGateway, admin: AdminClient) -> None:
    running.call(running.ask(f"main/{running.upstream.play(whole())}", stream=True))
    for path in LISTS:
        status_, reported = admin.ask("GET", path)
        assert (status_, bool(reported)) == (200, True), path
    (entry, *_) = admin.get("/admin/entries")["entries"]
    assert admin.get(f"/admin/entries/{entry['id']}")["outcome"] == "completed"
    assert "/admin/keys" in admin.get("/admin/openapi.json")["paths"]
    assert admin.ask("GET", "/admin/export")[1].splitlines()[1:]
    assert admin.ask("GET", "/metrics")[0] == 200
    assert admin.send("GET", "/admin/keys", None, {"Authorization": "Bearer none"})[0] == 401
    assert admin.ask("GET", "/admin/nothing")[0] == 404


def test_a_key_lives_from_its_creation_to_its_end(running: InProcessGateway, admin: AdminClient) -> None:
    running.upstream.play(whole(), "river-1")
    secret, key = admin.make(name="in-process", budget="5")
    admin.until_known(secret)
    path = f"/admin/keys/{key['id']}"
    assert admin.ask("PATCH", path, {"requests_per_minute": 7})[0] == 200
    assert admin.get(path)["requests_per_minute"] == 7
    assert admin.ask("POST", f"{path}/rotate", {})[0] == 201
    assert admin.ask("POST", f"{path}/revoke")[0] == 200
    assert [each["action"] for each in admin.get("/admin/audit")["entries"]][:2] == ["key.revoke", "key.rotate"]


def test_a_call_is_shown_while_it_runs(running: InProcessGateway, admin: AdminClient) -> None:
    gate = Gate()
    model = running.upstream.play([head(), chunk(HELLO), gate, chunk(REST), last_chunk()])
    with running.begin(f"main/{model}", stream=True) as client:
        client.read_until(b"Hello")
        with events(admin, "/admin/live") as live:
            live.until(lambda shown: any(call["model"] == f"main/{model}" for call in shown.get("calls", ())))
        gate.open()
        running.keep(client.response())


def begun(running: InProcessGateway) -> tuple[RawClient, str, Gate]:
    """A stream that waits after its first word, and the id of its call."""
    gate = Gate()
    model = running.upstream.play([head(), chunk(HELLO), gate, chunk(WORLD), chunk(REST), last_chunk()])
    client = running.begin(f"main/{model}", stream=True)
    found = re.search(rb"x-request-id: (\S+)", client.read_until(b"Hello"))
    assert found
    return client, found[1].decode(), gate


def test_the_text_of_a_call_is_read_along(running: InProcessGateway, admin: AdminClient) -> None:
    client, id, gate = begun(running)
    with client, events(admin, f"/admin/calls/{id}/text") as text:
        gate.open()
        read = "".join(piece["text"] for name, piece in iter(text.next, ("", None)) if name == "text")
        assert running.keep(client.response()).text.endswith(read)
    assert read


def test_a_call_is_stopped(running: InProcessGateway, admin: AdminClient) -> None:
    client, id, gate = begun(running)
    with client:
        assert admin.ask("POST", f"/admin/calls/{id}/stop")[0] == 200
        assert client.response().error["code"] == "stopped_by_operator"
    gate.open()
    assert admin.ask("POST", f"/admin/calls/{id}/stop")[0] == 404


def test_a_link_opens_the_page_once(running: InProcessGateway, admin: AdminClient) -> None:
    link = "/" + running.endpoint.link().partition("//")[2].partition("/")[2]
    status_, _, headers = admin.send("GET", link)
    assert status_ == 303
    cookie = headers["set-cookie"].partition(";")[0]
    assert admin.send("GET", link)[0] == 403
    page = {"Cookie": cookie, "Origin": f"http://{admin.place}", "X-Penstock-Page": "1"}
    assert admin.send("GET", "/", None, page)[0] == 200
    assert admin.send("GET", "/admin/me", None, page)[0] == 200
    assert admin.send("GET", "/admin/me", None, page | {"Origin": "http://evil.example"})[0] == 403
    assert admin.send("DELETE", "/admin/session", None, page)[0] == 200
    assert admin.send("GET", "/admin/me", None, page)[0] == 401


def test_the_playground_calls_without_a_key(running: InProcessGateway, admin: AdminClient) -> None:
    model = running.upstream.play(whole())
    asked = {"model": f"main/{model}", "messages": [{"role": "user", "content": "Hi"}]}
    status_, answer = admin.ask("POST", "/admin/playground", asked)
    assert (status_, answer["choices"][0]["message"]["content"]) == (200, TEXT)
    assert admin.ask("POST", "/admin/playground?api=none", asked)[0] == 400


def test_without_keys_only_hosts_are_answered_that_no_attacker_can_own(tmp_path: Path) -> None:
    with Upstream() as upstream:
        server = {"keys": [], "hosts": ["gateway.internal"]}
        text = settings(upstream.url, 0, server=server, admin={"listen": "127.0.0.1:0"})
        with InProcessGateway(tmp_path, upstream, text) as gateway:
            hosts = {"localhost": 200, "127.0.0.1:80": 200, "gateway.internal": 200, "evil.example": 403}
            asked = {host: gateway.send(get("/v1/models", {"Host": host})).status for host in hosts}
    assert asked == hosts


def test_a_provider_replays_a_capture(tmp_path: Path) -> None:
    keep(tmp_path / "a.capture", HELLO, WORLD, REST)
    with Upstream() as upstream:
        replay = {"base_url": upstream.url, "replay": str(tmp_path / "a.capture"), "replay_speed": "max"}
        text = settings(upstream.url, 0, admin={"listen": "127.0.0.1:0"}, **{"providers.again": replay})
        with InProcessGateway(tmp_path, upstream, text) as gateway:
            for stream in (True, False):
                assert gateway.ask("again/m", stream=stream).text == TEXT
            assert gateway.ask("again/other", stream=True).error["code"] == "capture_not_found"
        assert not upstream.connections
