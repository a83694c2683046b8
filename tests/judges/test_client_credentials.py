"""Clients that send a credential of their own: the official SDKs, Claude Code with a Claude subscription, Codex with a
login of ChatGPT. The provider is scripted, and gets what theirs would."""

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path

import anthropic
import openai
import pytest

from penstock.gateway.record.entry import Entry
from tests.faults.gateway import PROVIDER_KEY, Gateway, settings
from tests.faults.scripts import unstreamed
from tests.faults.upstream import JSON, Script, Upstream, chunk, head, last_chunk, status
from tests.judges.claude_code.program import ClaudeCode
from tests.judges.codex.program import Codex
from tests.judges.packages import claude_code, codex
from tests.messages import answer as claude_answer
from tests.messages import says_all
from tests.responses import answer as responses_answer
from tests.responses import says_all as responses_says_all
from tests.serve.in_process import InProcessGateway
from tests.serve.support import AdminClient

pytestmark = pytest.mark.slow

OAUTH = "sk-ant-oat01-" + "canary-of-the-subscription-51f0" * 3
OWN_KEY = "sk-ant-api03-canary-of-the-own-key-3c7e"
ACCOUNT = "0f3e7a1c-8f4c-4d7b-9d51-1f0e6a7c2b11"
PROVIDERS = f"""
[providers.claude]
base_url = "{{url}}"
dialect = "anthropic_messages"
key_header = "x-api-key"
api_key = "{PROVIDER_KEY}"
client_credentials = {{{{ subscription = "free", key = "list" }}}}
[providers.chatgpt]
base_url = "{{url}}"
dialect = "openai_responses"
client_credentials = {{{{ subscription = "free" }}}}
[providers.keyed]
base_url = "{{url}}"
client_credentials = {{{{ key = "list" }}}}
[prices."keyed/*"]
input = 1.0
output = 2.0
[routes."claude-*"]
targets = ["claude/*"]
[routes."gpt-*"]
targets = ["chatgpt/*"]
"""


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[Gateway]:
    text = settings(upstream.url, 0, admin={"listen": "127.0.0.1:0"}) + PROVIDERS.format(url=upstream.url)
    with InProcessGateway(tmp_path_factory.mktemp("gateway"), upstream, text) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def key(gateway: Gateway) -> str:
    return AdminClient(gateway).make(name="ann", client_credentials=["claude", "chatgpt", "keyed"])[0]


def whole_claude() -> Script:
    return [head(), chunk(claude_answer(*says_all("Hello"))), last_chunk()]


def test_the_sdk_of_anthropic(gateway: Gateway, upstream: Upstream, key: str) -> None:
    model = upstream.play(whole_claude())
    base_url, headers = f"http://127.0.0.1:{gateway.port}", {"x-penstock-key": key}
    clients = {
        OAUTH: anthropic.Anthropic(auth_token=OAUTH, base_url=base_url, default_headers=headers),
        OWN_KEY: anthropic.Anthropic(api_key=OWN_KEY, base_url=base_url, default_headers=headers),
    }
    for own, client in clients.items():
        with client.messages.stream(
            model=f"claude/{model}", max_tokens=10, messages=[{"role": "user", "content": "Hi"}]
        ) as stream:
            assert stream.get_final_text() == "Hello"
        request = upstream.requests(model)[-1].decode()
        assert own in request
        assert not any(secret in request for secret in (key, PROVIDER_KEY))


def test_the_sdk_of_anthropic_raises_what_the_provider_says(gateway: Gateway, upstream: Upstream, key: str) -> None:
    body = b'{"type":"error","error":{"type":"authentication_error","message":"OAuth token has expired"}}'
    model = upstream.play([status(401, JSON, body)])
    client = anthropic.Anthropic(
        auth_token=OAUTH, base_url=f"http://127.0.0.1:{gateway.port}", default_headers={"x-penstock-key": key}
    )
    with pytest.raises(anthropic.AuthenticationError, match="OAuth token has expired"):
        client.messages.create(model=f"claude/{model}", max_tokens=10, messages=[{"role": "user", "content": "Hi"}])
    assert len(upstream.requests(model)) == 1


def test_the_sdk_of_openai(gateway: Gateway, upstream: Upstream, key: str) -> None:
    model = upstream.play(unstreamed())
    base_url = f"http://127.0.0.1:{gateway.port}/v1"
    client = openai.OpenAI(base_url=base_url, api_key=OWN_KEY, default_headers={"x-penstock-key": key})
    answer = client.chat.completions.create(model=f"keyed/{model}", messages=[{"role": "user", "content": "Hi"}])
    assert answer.choices[0].message.content
    (request,) = upstream.requests(model)
    assert f"Bearer {OWN_KEY}" in request.decode()
    assert key not in request.decode()
    wrong = openai.OpenAI(base_url=base_url, api_key=OWN_KEY, default_headers={"x-penstock-key": "sk-wrong"})
    with pytest.raises(openai.AuthenticationError):
        wrong.chat.completions.create(model=f"keyed/{model}", messages=[{"role": "user", "content": "Hi"}])


def test_claude_code_with_a_subscription(gateway: Gateway, upstream: Upstream, key: str, tmp_path: Path) -> None:
    program = ClaudeCode(claude_code(), tmp_path, f"http://127.0.0.1:{gateway.port}")
    model = upstream.play(whole_claude(), "claude-sonnet-judged")
    environment = {
        "ANTHROPIC_AUTH_TOKEN": "",
        "CLAUDE_CODE_OAUTH_TOKEN": OAUTH,
        "ANTHROPIC_CUSTOM_HEADERS": f"x-penstock-key: {key}",
    }
    outcome = program.ask("Say hello.", model, environment)
    assert (outcome.result, outcome.failed) == ("Hello", False)
    for request in upstream.requests(model):
        lines = request.partition(b"\r\n\r\n")[0].decode().lower()
        assert f"authorization: bearer {OAUTH}".lower() in lines
        assert "oauth-2025" in lines
        assert "user-agent: claude-cli" in lines
        assert key not in lines
        assert "x-api-key" not in lines
    for entry in booked(gateway, model):
        assert (entry.tags["credentials"], entry.attempts[0].price, entry.attempts[0].cost) == ("client", "client", 0)
        assert "session" in entry.tags


@pytest.mark.parametrize("socket", [False, True], ids=["HTTP", "WebSocket"])
def test_codex_with_a_login_of_chatgpt(
    gateway: Gateway, upstream: Upstream, key: str, tmp_path: Path, socket: bool
) -> None:
    program = Codex(codex(), tmp_path, f"http://127.0.0.1:{gateway.port}/v1")
    token = login(tmp_path / "home/.codex", key)
    script = [head(), chunk(responses_answer(*responses_says_all("Hello"))), last_chunk()]
    model = upstream.play(script, f"gpt-5.5-judged-{socket}")
    outcome = program.ask("Say hello.", model, supports_websockets=socket)
    assert (outcome.answers, outcome.errors) == (["Hello"], [])
    (request,) = upstream.requests(model)
    lines = request.partition(b"\r\n\r\n")[0].decode()
    assert f"authorization: Bearer {token}" in lines
    assert f"chatgpt-account-id: {ACCOUNT}" in lines
    assert "originator: codex" in lines
    assert key not in lines
    (entry,) = booked(gateway, model)
    assert (entry.tags["credentials"], entry.attempts[0].cost) == ("client", 0)


def booked(gateway: Gateway, model: str) -> list[Entry]:
    """The entries of a model, once each of its requests has one."""
    asked = len(gateway.upstream.requests(model))
    assert asked

    def entries() -> list[Entry]:  # without those that ask no provider: prepared requests, and counts of tokens
        return [entry for entry in gateway.book.entries() if entry.model == model and entry.attempts]

    gateway.until(lambda: len(entries()) == asked)
    return entries()


def login(home: Path, key: str) -> str:
    """What Codex stores after a login, and that its provider gets the gateway's key in a header; returns the token."""
    claims = {"chatgpt_account_id": ACCOUNT, "chatgpt_plan_type": "plus", "chatgpt_user_id": "user-1"}
    payload = {"exp": int(time.time()) + 86_400, "email": "a@example.com", "https://api.openai.com/auth": claims}
    token = ".".join([part({"alg": "RS256", "typ": "JWT"}), part(payload), "c2lnbmF0dXJl"])
    tokens = {"id_token": token, "access_token": token, "refresh_token": "rt-canary", "account_id": ACCOUNT}
    refreshed = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    stored = {"auth_mode": "chatgpt", "OPENAI_API_KEY": None, "tokens": tokens, "last_refresh": refreshed}
    (home / "auth.json").write_text(json.dumps(stored))
    config = home / "config.toml"
    text = config.read_text().replace('env_key = "PENSTOCK_KEY"\n', "requires_openai_auth = true\n")
    config.write_text(f'{text}http_headers = {{ "x-penstock-key" = "{key}" }}\n')
    return token


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
