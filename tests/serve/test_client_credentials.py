"""Calls with a credential of the client's own: which provider gets it, what it costs, who learns it."""

import http.client
import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from penstock.errors import ConfigError
from penstock.gateway.config import load
from penstock.serve.admin.routes import ROUTES
from tests.faults.client import CLIENT_KEY
from tests.faults.gateway import PROVIDER_KEY, Table, settings
from tests.faults.scripts import unstreamed
from tests.faults.upstream import EVENT_STREAM, JSON, Script, Upstream, chunk, head, last_chunk, status
from tests.messages import answer as claude_answer
from tests.messages import says_all
from tests.responses import answer as responses_answer
from tests.responses import says_all as responses_says_all
from tests.serve.in_process import InProcessGateway
from tests.serve.support import WAIT_S, AdminClient
from tests.sockets import Socket

# Of a subscription of Claude, of ChatGPT, and a key of the client's own. None may appear in anything that is written.
OAUTH = "sk-ant-oat01-canary-of-the-subscription-51f0"
CHATGPT = "eyJhbGciOiJSUzI1NiJ9.canary-of-the-login-88d1.c2ln"
OWN_KEY = "sk-ant-api03-canary-of-the-own-key-3c7e"
OWN = (OAUTH, CHATGPT, OWN_KEY)

# What the admin API lists.
LISTS = [
    route.path
    for route in ROUTES
    if route.method == "GET" and "{" not in route.path and not isinstance(route.response, str)
]
CLAUDE = {"model": "", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]}
CHAT = {"model": "", "messages": [{"role": "user", "content": "Hi"}]}
RESPONSES = {"model": "", "input": "Hi", "stream": True}
PROVIDERS = """
[providers.claude]
base_url = "{url}"
dialect = "anthropic_messages"
key_header = "x-api-key"
headers = {{ x-region = "eu" }}
client_credentials = {{ subscription = "free", key = "list" }}
[[providers.claude.keys]]
name = "first"
api_key = "{key}"
[[providers.claude.keys]]
name = "second"
api_key = "{key}-2"
[providers.chatgpt]
base_url = "{url}"
dialect = "openai_responses"
client_credentials = {{ subscription = "free" }}
[providers.keyed]
base_url = "{url}"
api_key = "{key}"
embeddings = "/embeddings"
client_credentials = {{ key = "list" }}
[providers.open]
base_url = "{url}"
[providers.ours]
base_url = "{url}"
api_key = "{key}"
embeddings = "/embeddings"
[prices."claude/*"]
input = 1.0
output = 2.0
[prices."chatgpt/*"]
input = 1.0
output = 2.0
[prices."keyed/*"]
input = 1.0
output = 2.0
[content]
keep = "always"
"""


def whole_claude() -> Script:
    return [head(), chunk(claude_answer(*says_all("Hello"))), last_chunk()]


def whole_responses() -> Script:
    return [head(), chunk(responses_answer(*responses_says_all("Hello"))), last_chunk()]


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[InProcessGateway]:
    folder = tmp_path_factory.mktemp("gateway")
    tables: dict[str, Table] = {
        "admin": {"listen": "127.0.0.1:0", "content": True},
        "server": {"record": str(folder / "captures")},
    }
    text = settings(upstream.url, 1, **tables) + PROVIDERS.format(url=upstream.url, key=PROVIDER_KEY)
    text += '[routes."mixed-*"]\ntargets = ["claude/*", "main/*"]\n'
    with InProcessGateway(folder, upstream, text) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def admin(running: InProcessGateway) -> AdminClient:
    return AdminClient(running)


@pytest.fixture(scope="module")
def key(admin: AdminClient) -> str:
    secret, report = admin.make(name="dev", client_credentials=["claude", "chatgpt", "keyed"])
    assert report["client_credentials"] == ["claude", "chatgpt", "keyed"]
    return secret


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def id(self) -> str:
        return self.headers["x-request-id"]

    @property
    def error(self) -> Any:
        return json.loads(self.body)["error"]


def send(running: InProcessGateway, path: str, fields: Mapping[str, object], headers: Mapping[str, str]) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=WAIT_S)
    try:
        connection.request("POST", path, json.dumps(fields), {"Content-Type": "application/json", **headers})
        return Answer(connection.getresponse())
    finally:
        connection.close()


def subscribed(key: str, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {OAUTH}", "x-penstock-key": key} | more


def headers_of(request: bytes) -> dict[str, str]:
    lines = request.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    names = [line.partition(":")[0].lower() for line in lines]
    assert len(names) == len(set(names)), lines
    return {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in lines}


def test_a_subscription_reaches_its_provider_and_is_free(
    running: InProcessGateway, upstream: Upstream, key: str
) -> None:
    model = upstream.play(whole_claude())
    more = {"anthropic-beta": "oauth-2025-04-20", "User-Agent": "claude-cli/2.1", "x-app": "cli"}
    answer = send(
        running, "/v1/messages", CLAUDE | {"model": f"claude/{model}", "stream": True}, subscribed(key, **more)
    )
    assert answer.status == 200, answer.body
    assert b"Hello" in answer.body
    (request,) = upstream.requests(model)
    sent = headers_of(request)
    assert sent["authorization"] == f"Bearer {OAUTH}"
    assert (sent["anthropic-beta"], sent["user-agent"], sent["x-app"]) == ("oauth-2025-04-20", "claude-cli/2.1", "cli")
    assert sent["x-region"] == "eu"
    assert "x-api-key" not in sent
    assert "x-penstock-key" not in sent
    assert PROVIDER_KEY not in request.decode()
    assert key not in request.decode()
    entry = running.book.entry(answer.id)
    (attempt,) = entry.attempts
    assert (attempt.price, attempt.cost, entry.tags["credentials"]) == ("client", 0, "client")
    assert (entry.tokens.input, entry.tokens.output > 0) == (7, True)
    running.until(lambda: any(line["request_id"] == answer.id for line in running.calls))
    (line,) = [line for line in running.calls if line["request_id"] == answer.id]
    assert (line["key"], line["attempts"][0]["client_credentials"]) == ("dev", True)


def test_a_key_of_the_client_costs_the_list_price(running: InProcessGateway, upstream: Upstream, key: str) -> None:
    model = upstream.play(whole_claude())
    headers = {"x-api-key": OWN_KEY, "x-penstock-key": key}
    answer = send(running, "/v1/messages", CLAUDE | {"model": f"claude/{model}", "stream": True}, headers)
    sent = headers_of(upstream.requests(model)[0])
    assert (sent["x-api-key"], "authorization" in sent, sent["user-agent"]) == (OWN_KEY, False, "penstock")
    (attempt,) = running.book.entry(answer.id).attempts
    assert (attempt.price, attempt.cost) == ("configured", 7 * 1_000 + attempt.tokens.output * 2_000)


def test_a_login_of_chatgpt_goes_with_its_account(running: InProcessGateway, upstream: Upstream, key: str) -> None:
    model = upstream.play(whole_responses())
    headers = {"Authorization": f"Bearer {CHATGPT}", "x-penstock-key": key, "ChatGPT-Account-Id": "acc-1"}
    headers |= {"originator": "codex_cli_rs", "User-Agent": "codex_cli_rs/0.1", "session_id": "s-1"}
    answer = send(running, "/v1/responses", RESPONSES | {"model": f"chatgpt/{model}"}, headers)
    assert answer.status == 200, answer.body
    sent = headers_of(upstream.requests(model)[0])
    assert sent["authorization"] == f"Bearer {CHATGPT}"
    expected = ("acc-1", "codex_cli_rs", "codex_cli_rs/0.1", "s-1")
    assert tuple(sent[n] for n in ("chatgpt-account-id", "originator", "user-agent", "session_id")) == expected
    assert running.book.entry(answer.id).attempts[0].cost == 0


def test_without_its_own_credential_a_call_has_that_of_the_gateway(
    running: InProcessGateway, upstream: Upstream, key: str
) -> None:
    model = upstream.play(whole_claude())
    headers = {"x-penstock-key": key, "ChatGPT-Account-Id": "acc-1", "User-Agent": "mine"}
    answer = send(running, "/v1/messages", CLAUDE | {"model": f"claude/{model}", "stream": True}, headers)
    assert answer.status == 200
    sent = headers_of(upstream.requests(model)[0])
    assert sent["x-api-key"].startswith(PROVIDER_KEY)
    assert (sent["user-agent"], "chatgpt-account-id" in sent) == ("penstock", False)
    assert "credentials" not in running.book.entry(answer.id).tags


def test_a_provider_without_a_key_of_the_gateway_needs_one_of_the_client(
    running: InProcessGateway, upstream: Upstream, key: str
) -> None:
    model = upstream.play(whole_responses())
    for headers in ({"Authorization": f"Bearer {key}"}, {"x-penstock-key": key}):
        answer = send(running, "/v1/responses", RESPONSES | {"model": f"chatgpt/{model}"}, headers)
        assert (answer.status, answer.error["code"]) == (401, "client_credentials_missing")
    assert not upstream.requests(model)


PATHS: dict[str, Mapping[str, object]] = {
    "/v1/chat/completions": CHAT,
    "/v1/messages": CLAUDE,
    "/v1/messages/count_tokens": CLAUDE,
    "/v1/responses": RESPONSES,
    "/v1/responses/input_tokens": {"model": "", "input": "Hi"},
    "/v1/responses/compact": {"model": "", "input": "Hi"},
    "/v1/embeddings": {"model": "", "input": "Hi"},
    "/v1beta/models/{model}:generateContent": {"contents": [{"parts": [{"text": "Hi"}]}]},
    "/v1beta/models/{model}:streamGenerateContent?alt=sse": {"contents": [{"parts": [{"text": "Hi"}]}]},
    "/v1beta/models/{model}:countTokens": {"contents": [{"parts": [{"text": "Hi"}]}]},
    "/v2/chat": CHAT | {"stream": True},
    "/model/{model}/converse": {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]},
    "/model/{model}/converse-stream": {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]},
}


def send_for(running: InProcessGateway, path: str, model: str, headers: Mapping[str, str]) -> Answer:
    """Send the request of a path for a model, which is in the path or in the body."""
    named = {"model": model} if "model" in PATHS[path] else {}
    return send(running, path.format(model=quote(model, safe="")), {**PATHS[path], **named}, headers)


@pytest.mark.parametrize("path", PATHS)
def test_the_account_of_the_gateway_is_not_used_instead(
    running: InProcessGateway, upstream: Upstream, key: str, path: str
) -> None:
    """The provider takes no credentials of clients: what the client pays for itself is not booked to the operator."""
    model = upstream.play(unstreamed())
    answer = send_for(running, path, f"ours/{model}", subscribed(key))
    assert (answer.status, b"x-penstock-key" in answer.body) == (403, True), answer.body
    assert not upstream.requests(model)
    assert send_for(running, path, "nowhere/x", subscribed(key)).status == 404


def test_on_a_websocket_it_is_not_used_either(running: InProcessGateway, upstream: Upstream, key: str) -> None:
    """Also where the provider takes credentials, but the key is not allowed to send one."""
    model, narrow = upstream.play(whole_responses()), {"Authorization": f"Bearer {CHATGPT}"}
    for secret, provider in ((key, "ours"), (CLIENT_KEY, "chatgpt")):
        with Socket(running.port, key="", headers=narrow | {"x-penstock-key": secret}) as client:
            for generate in (True, False):
                (error,) = client.respond(f"{provider}/{model}", generate=generate)
                assert (error["status"], error["error"]["code"]) == (403, "client_credentials_not_allowed")
    assert not upstream.requests(model)
    with Socket(running.port, key="", headers=narrow | {"x-penstock-key": key}) as client:
        first = client.respond(f"chatgpt/{model}", store=False)[-1]["response"]
        client.respond(f"chatgpt/{model}", previous_response_id=first["id"], store=False)
    assert [headers_of(each)["authorization"] for each in upstream.requests(model)] == [f"Bearer {CHATGPT}"] * 2


def test_a_provider_that_needs_no_credential_is_called_and_gets_none(
    running: InProcessGateway, upstream: Upstream, key: str
) -> None:
    model = upstream.play(unstreamed())
    answer = send(running, "/v1/chat/completions", CHAT | {"model": f"open/{model}"}, subscribed(key))
    assert answer.status == 200, answer.body
    (request,) = upstream.requests(model)
    assert OAUTH not in request.decode()
    assert "authorization" not in headers_of(request)
    assert "credentials" not in running.book.entry(answer.id).tags


REFUSED: dict[str, tuple[str, str, dict[str, str]]] = {
    "a bearer token of another API": ("/v1/messages", "keyed", {"Authorization": f"Bearer {OAUTH}"}),
    "a key in the header of another provider": ("/v1/messages", "keyed", {"x-api-key": OWN_KEY}),
    "a login where keys are taken, of another header": ("/v1/responses", "chatgpt", {"x-goog-api-key": CHATGPT}),
}


@pytest.mark.parametrize(("path", "provider", "headers"), REFUSED.values(), ids=REFUSED)
def test_a_credential_goes_only_where_it_belongs(
    running: InProcessGateway, upstream: Upstream, key: str, path: str, provider: str, headers: dict[str, str]
) -> None:
    model = upstream.play(whole_claude())
    fields = (CLAUDE if path == "/v1/messages" else RESPONSES) | {"model": f"{provider}/{model}"}
    answer = send(running, path, fields, headers | {"x-penstock-key": key})
    assert answer.status == 403, answer.body
    assert not upstream.requests(model)


@pytest.mark.parametrize("terms", [{}, {"client_credentials": ["keyed"]}], ids=["none", "another provider"])
def test_a_key_that_does_not_allow_it_is_refused(
    running: InProcessGateway, upstream: Upstream, admin: AdminClient, terms: dict[str, object]
) -> None:
    secret, _ = admin.make(name=f"narrow-{len(terms)}", **terms)
    model = upstream.play(whole_claude())
    for credential in (secret, CLIENT_KEY):
        answer = send(running, "/v1/messages", CLAUDE | {"model": f"claude/{model}"}, subscribed(credential))
        assert (answer.status, b"client_credentials" in answer.body) == (403, True), answer.body
    assert not upstream.requests(model)


def test_a_failed_call_is_tried_nowhere_else(running: InProcessGateway, upstream: Upstream, key: str) -> None:
    busy = b'{"type":"error","error":{"type":"overloaded_error","message":"Busy"}}'
    model = upstream.play([status(529, JSON, busy)], "mixed-busy")
    for _ in range(8):  # and no breaker opens for it
        answer = send(running, "/v1/messages", CLAUDE | {"model": model}, subscribed(key))
        assert (answer.status, answer.headers["x-penstock-attempts"]) == (529, "1"), answer.body
    requests = upstream.requests(model)
    assert [OAUTH.encode() in request for request in requests] == [True] * 8


def quoted(code: int, type: str, secret: str) -> Script:
    """An error that quotes the credential in several forms."""
    spoken = f"bad token {secret}, in base64 {b64encode(secret.encode()).decode()}; sign in"
    body = {"type": "error", "error": {"type": type, "message": spoken}}
    return [status(code, JSON | {"retry-after": "7"}, json.dumps(body).encode())]


REFUSALS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


@pytest.mark.parametrize(("code", "type"), REFUSALS.items())
def test_what_the_provider_says_of_the_credential_is_for_the_client(
    running: InProcessGateway, upstream: Upstream, key: str, code: int, type: str
) -> None:
    model = upstream.play(quoted(code, type, OAUTH))
    answers = [send(running, "/v1/messages", CLAUDE | {"model": f"claude/{model}"}, subscribed(key)) for _ in range(2)]
    for answer in answers:  # no key of the provider cools down
        assert (answer.status, answer.error["type"]) == (code, type)
        assert answer.error["message"].startswith("bad token")
        assert answer.error["message"].endswith("sign in")
        assert_hidden(answer.body)
    assert len(upstream.requests(model)) == 2
    entry = running.book.entry(answers[0].id)
    assert entry.code == ("upstream_rate_limited" if code == 429 else "client_credentials_refused")
    upstream.play(whole_claude(), model)
    headers = {"x-api-key": key}
    answer = send(running, "/v1/messages", CLAUDE | {"model": f"claude/{model}", "stream": True}, headers)
    assert answer.status == 200, answer.body


def test_a_chat_client_learns_it_too(running: InProcessGateway, upstream: Upstream, key: str) -> None:
    model = upstream.play(quoted(401, "authentication_error", OWN_KEY))
    headers = {"x-api-key": OWN_KEY, "Authorization": "Bearer unused-by-this-provider", "x-penstock-key": key}
    answer = send(running, "/v1/chat/completions", CHAT | {"model": f"claude/{model}"}, headers)
    assert (answer.status, answer.error["code"]) == (401, "client_credentials_refused")
    assert_hidden(answer.body)
    assert "unused-by-this-provider" not in upstream.requests(model)[0].decode()


def test_the_client_learns_the_limits_of_its_account(running: InProcessGateway, upstream: Upstream, key: str) -> None:
    limits = {"anthropic-ratelimit-unified-status": "allowed", "anthropic-ratelimit-unified-reset": "1795000000"}
    hidden = {"set-cookie": "a=b", "anthropic-organization-id": "org", "anthropic-ratelimit-echo": OAUTH}
    failed = b'{"type":"error","error":{"type":"rate_limit_error","message":"Limit reached"}}'
    for code in (200, 429):
        for headers, learnt in ((subscribed(key), limits), ({"x-api-key": key}, dict.fromkeys(limits))):
            sent = limits | (hidden if learnt == limits else {})  # the other call is of the gateway's account
            streamed = [head(headers={**EVENT_STREAM, **sent}), *whole_claude()[1:]]
            model = upstream.play(streamed if code == 200 else [status(429, JSON | sent, failed)])
            answer = send(running, "/v1/messages", CLAUDE | {"model": f"claude/{model}", "stream": True}, headers)
            assert answer.status == code
            assert {name: answer.headers[name] for name in (*limits, *hidden)} == learnt | dict.fromkeys(hidden)


def test_the_playground_sends_no_credential(admin: AdminClient, upstream: Upstream) -> None:
    """The bearer token of its request is that of the admin API."""
    model = upstream.play(whole_claude())
    headers = {"Authorization": f"Bearer {admin.token}", "x-penstock-key": "any"}
    fields = CLAUDE | {"model": f"claude/{model}", "stream": True}
    assert admin.send("POST", "/admin/playground?api=messages", fields, headers)[0] == 200
    (request,) = upstream.requests(model)
    assert admin.token not in request.decode()
    assert headers_of(request)["x-api-key"].startswith(PROVIDER_KEY)


def test_tokens_are_counted_with_the_same_credential(running: InProcessGateway, upstream: Upstream, key: str) -> None:
    model = upstream.play([status(200, JSON, b'{"input_tokens": 11}')])
    fields = {name: value for name, value in CLAUDE.items() if name != "max_tokens"} | {"model": f"claude/{model}"}
    answer = send(running, "/v1/messages/count_tokens", fields, subscribed(key))
    assert json.loads(answer.body) == {"input_tokens": 11}
    sent = headers_of(upstream.requests(model)[0])
    assert (sent["authorization"], "x-api-key" in sent) == (f"Bearer {OAUTH}", False)


def test_embeddings_have_it_too(running: InProcessGateway, upstream: Upstream, key: str) -> None:
    body = b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5]}],"usage":{"prompt_tokens":2}}'
    model = upstream.play([status(200, JSON, body)])
    headers = {"Authorization": f"Bearer {OWN_KEY}", "x-penstock-key": key}
    answer = send(running, "/v1/embeddings", {"model": f"keyed/{model}", "input": "Hi"}, headers)
    assert answer.status == 200, answer.body
    assert headers_of(upstream.requests(model)[0])["authorization"] == f"Bearer {OWN_KEY}"


def test_calls_share_a_connection_and_no_headers(running: InProcessGateway, upstream: Upstream, key: str) -> None:
    model = upstream.play(whole_claude())
    fields = CLAUDE | {"model": f"claude/{model}", "stream": True}
    for headers in (subscribed(key), {"x-api-key": OWN_KEY, "x-penstock-key": key}, {"x-api-key": key}) * 3:
        assert send(running, "/v1/messages", fields, headers).status == 200
    requests = [request.decode() for request in upstream.requests(model)]
    found = [[secret for secret in (OAUTH, OWN_KEY, PROVIDER_KEY) if secret in request] for request in requests]
    assert found == [[OAUTH], [OWN_KEY], [PROVIDER_KEY]] * 3
    connections = [connection for connection in upstream.connections if model in connection.models]
    assert any(len(set(connection.requests)) > 1 for connection in connections), "no connection was used again"


def test_calls_at_the_same_time_keep_their_credentials(
    running: InProcessGateway, upstream: Upstream, admin: AdminClient
) -> None:
    """Each has its own, in one of two headers, or that of the gateway; and each entry has its own key."""
    model, count = upstream.play(whole_claude()), 45
    keys = [admin.make(name=f"many-{number}", client_credentials=["claude"]) for number in range(3)]

    def ask(number: int) -> Answer:
        fields = CLAUDE | {"model": f"claude/{model}", "stream": True}
        fields["messages"] = [{"role": "user", "content": f"I am {number}."}]
        own = {0: {"Authorization": f"Bearer {OAUTH}-{number}"}, 1: {"x-api-key": f"{OWN_KEY}-{number}"}, 2: {}}
        return send(running, "/v1/messages", fields, own[number % 3] | {"x-penstock-key": keys[number // 3 % 3][0]})

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(ask, range(count)))
    assert {answer.status for answer in answers} == {200}
    sent = {}
    for request in upstream.requests(model):
        (number,) = re.findall(r"I am (\d+)\.", request.decode())
        sent[int(number)] = headers_of(request)
    assert len(sent) == count
    for number, headers in sent.items():
        expected = (f"Bearer {OAUTH}-{number}", None), (None, f"{OWN_KEY}-{number}"), (None, PROVIDER_KEY)
        assert (headers.get("authorization"), headers.get("x-api-key", "").removesuffix("-2") or None) == (
            expected[number % 3]
        )
        entry = running.book.entry(answers[number].id)
        assert (entry.key, "credentials" in entry.tags) == (keys[number // 3 % 3][1]["id"], number % 3 < 2)


FAILED: dict[str, dict[str, str]] = {
    "no key": {"Authorization": f"Bearer {OAUTH}", "x-penstock-key": ""},
    "an unknown key": subscribed("sk-unknown"),
    "a mistyped key": subscribed("sk-ps-AAAA000000"),
    "a credential as the key": {"Authorization": f"Bearer {OAUTH}"},
    "a credential in both": subscribed(OAUTH),
    "the key in the place of the credential": {"Authorization": f"Bearer {CLIENT_KEY}", "x-penstock-key": "any"},
    "the key in both": {"Authorization": f"Bearer {CLIENT_KEY}", "x-penstock-key": CLIENT_KEY},
    "the key in another header": {"x-api-key": CLIENT_KEY} | subscribed(CLIENT_KEY),
}


@pytest.mark.parametrize("headers", FAILED.values(), ids=FAILED)
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens", "/v1/responses", "/v1/models"])
def test_a_failed_check_of_the_key_is_a_401(
    running: InProcessGateway, upstream: Upstream, headers: dict[str, str], path: str
) -> None:
    model = upstream.play(whole_claude())
    answer = send(running, path, CLAUDE | RESPONSES | {"model": f"claude/{model}"}, headers)
    assert answer.status == 401, answer.body
    assert not upstream.requests(model)


def test_only_an_administrator_allows_it(admin: AdminClient) -> None:
    secret, made = admin.make(name="later")
    assert made["client_credentials"] == []
    for headers in ({"Authorization": f"Bearer {secret}"}, {"x-penstock-key": secret}):
        status, _, _ = admin.send("PATCH", f"/admin/keys/{made['id']}", {"client_credentials": ["claude"]}, headers)
        assert status == 401
    assert admin.get(f"/admin/keys/{made['id']}")["client_credentials"] == []


def test_the_credentials_are_nowhere(
    running: InProcessGateway, admin: AdminClient, upstream: Upstream, key: str
) -> None:
    """Not in files, the log, pages, kept content, captures, tags or names, although the client writes it into all."""
    model = upstream.play([head(), chunk(claude_answer(*says_all(f"You are {OAUTH}."))), last_chunk()])
    fields = CLAUDE | {"model": f"claude/{model}", "stream": True, "metadata": {"user_id": OAUTH}}
    fields["messages"] = [{"role": "user", "content": f"My token is {OAUTH}"}]
    answer = send(running, "/v1/messages", fields, subscribed(key) | {"x-claude-code-session-id": OAUTH})
    assert OAUTH in answer.body.decode()  # the client's own
    entry = running.book.entry(answer.id)
    assert_hidden(repr(entry).encode())
    for path in (*LISTS, f"/admin/entries/{answer.id}", f"/admin/calls/{answer.id}/content"):
        admin.ask("GET", path)
    assert_hidden(admin.sent_text)
    running.until(lambda: any(line["request_id"] == answer.id for line in running.calls))
    assert_hidden("".join(running.output).encode())
    folder = running.file.parent
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".capture" for path in files), files
    for file in files:
        assert_hidden(file.read_bytes())


def assert_hidden(data: bytes) -> None:
    for secret in OWN:
        assert secret.encode() not in data
        assert b64encode(secret.encode())[:40] not in data


# Without keys.


def test_a_gateway_without_keys_sends_a_credential_only_if_it_is_marked(tmp_path: Path) -> None:
    with Upstream() as upstream:
        text = re.sub(r'"keys": \[.*?\], |keys = \["canary.*\n', "", settings(upstream.url, 1))
        text += PROVIDERS.format(url=upstream.url, key=PROVIDER_KEY) + '[admin]\nlisten = "127.0.0.1:0"\n'
        with InProcessGateway(tmp_path, upstream, text) as gateway:
            model = upstream.play(whole_claude())
            fields = CLAUDE | {"model": f"claude/{model}", "stream": True}
            unmarked = send(gateway, "/v1/messages", fields, {"Authorization": f"Bearer {OAUTH}"})
            marked = send(gateway, "/v1/messages", fields, subscribed("any"))
            assert (unmarked.status, marked.status) == (200, 200), (unmarked.body, marked.body)
            first, second = map(headers_of, upstream.requests(model))
            assert (first.get("authorization"), first["x-api-key"].startswith(PROVIDER_KEY)) == (None, True)
            assert (second["authorization"], "x-api-key" in second) == (f"Bearer {OAUTH}", False)
            for headers in (
                subscribed("sk-ps-not-a-key-000000"),
                subscribed("any", **{"x-api-key": "sk-ps-AAAA000000"}),
            ):
                assert send(gateway, "/v1/messages", fields, headers).status == 401


CONFIGURED = {
    "both in authorization": 'client_credentials = { subscription = "free", key = "list" }',
    "another form": 'client_credentials = { password = "free" }',
    "another cost": 'client_credentials = { key = "half" }',
    "over http": 'client_credentials = { key = "list" }\nbase_url = "http://api.acme.example/v1"',
    "signed requests": 'client_credentials = { key = "list" }\nauth = "google"',
}


@pytest.mark.parametrize("line", CONFIGURED.values(), ids=CONFIGURED)
def test_settings_that_cannot_be(tmp_path: Path, line: str) -> None:
    address = "" if "base_url" in line else 'base_url = "https://api.acme.example/v1"\n'
    file = tmp_path / "penstock.toml"
    file.write_text(f"[providers.acme]\n{address}{line}\n")
    with pytest.raises(ConfigError):
        load(file, {})


def test_a_built_in_provider_needs_no_key_of_the_gateway(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('[providers.anthropic]\nclient_credentials = { subscription = "free" }\n')
    provider = load(file, {}).providers["anthropic"]
    assert provider.client_only
    assert OAUTH not in repr(provider.for_client({"authorization": OAUTH}, "anthropic_messages", "anthropic_messages"))
