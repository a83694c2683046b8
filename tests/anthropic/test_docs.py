"""The examples of docs/anthropic.md work as they are written, with the requests that Claude Code sends."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.anthropic.support import CHAT_ANSWER, COUNT, PATH, TEXT, MessagesGateway, streams, text
from tests.faults.client import get, post
from tests.faults.upstream import Upstream

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "anthropic.md").read_text(encoding="utf-8")
CONFIGURATION, *_ = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS, *_ = re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
# The names that Claude Code 2.1 sends: of the models that a user may select, and of those that it selects itself.
MODELS = (
    "claude-opus-5-5",
    "claude-sonnet-5-5",
    "claude-fable-5-2",
    "claude-haiku-5-5",
    "claude-opus-4-8",
    "claude-sonnet-4-5-20250929",
    "claude-haiku-4-5-20251001",
    "claude-3-5-haiku-20241022",
)
BETAS = (
    "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,per-turn-control-2026-07-01,"
    "mid-conversation-tool-changes-2026-07-01,thinking-token-count-2026-05-13,advanced-tool-use-2025-11-20,"
    "effort-2025-11-24"
)
HEADERS = {
    "Authorization": "Bearer any",
    "anthropic-version": "2023-06-01",
    "anthropic-beta": BETAS,
    "X-Claude-Code-Session-Id": "6d1f",
    "X-Stainless-Lang": "js",
    "Accept": "application/json",
    "Accept-Encoding": "gzip, deflate, br, zstd",
}
CACHED = {"cache_control": {"type": "ephemeral"}}
SCHEMA = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": {}}


def of_claude_code(model: str, **fields: object) -> bytes:
    """The body of its first request for a turn."""
    texts = [{"type": "text", "text": f"<system-reminder>{n}</system-reminder>"} for n in range(2)]
    body: dict[str, Any] = {
        "model": model,
        "messages": [
            {"role": "user", "content": [*texts, {"type": "text", "text": "Say hello."}]},
            {
                "role": "system",
                "content": [{"type": "text", "text": "Be brief.", **CACHED}],
                "output_config": {"effort": "medium"},
            },
        ],
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.325.ab1; cc_entrypoint=sdk-cli;"},
            {"type": "text", "text": "You are Claude Code.", **CACHED},
            {"type": "text", "text": "Use tools.", **CACHED},
        ],
        "tools": [
            {"name": "Read", "description": "Reads a file.", "input_schema": SCHEMA},
            {"name": "DeferredToolPlaceholder", "description": "", "input_schema": SCHEMA, "defer_loading": True},
        ],
        "metadata": {"user_id": json.dumps({"device_id": "d" * 64, "account_uuid": "", "session_id": "6d1f"})},
        "max_tokens": 128_000,
        "thinking": {"type": "adaptive", "display": "omitted"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "medium"},
        "stream": True,
    }
    return json.dumps(body | fields).encode()


def test_claude_code_works_with_the_configuration_of_the_page(tmp_path: Path) -> None:
    assert re.findall(r"(\w+)=\S+ penstock serve", COMMANDS) == ["GROQ_API_KEY"]
    with Upstream() as upstream:
        upstream.play(streams(CHAT_ANSWER), "openai/gpt-oss-120b")
        provider = f'[server]\nlog = "json"\n[providers.groq]\nbase_url = "{upstream.url}"\n'
        key = {"GROQ_API_KEY": "gsk-of-the-page-0123456789"}
        with MessagesGateway(tmp_path, upstream, provider + CONFIGURATION, environment=key) as gateway:
            with gateway.client() as client:
                client.send(get("/api/hello", {"Authorization": ""}, "HEAD"))
                assert client.response("HEAD").status == 200
            lost: set[str] = set()
            for model in MODELS:
                response = gateway.send(post(of_claude_code(model), HEADERS, f"{PATH}?beta=true"), calls=1)
                assert (response.status, text(response)) == (200, TEXT), model
                lost |= {pair.partition("=")[0] for pair in response.headers["x-penstock-losses"].split(",")}
                count = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hi"}]}).encode()
                assert gateway.send(post(count, HEADERS, f"{COUNT}?beta=true")).json["input_tokens"] > 0
        asked = json.loads(upstream.requests("openai/gpt-oss-120b")[-1].partition(b"\r\n\r\n")[2])
    assert asked["messages"] == [
        {"role": "system", "content": "You are Claude Code.\n\nUse tools."},
        {
            "role": "user",
            "content": "<system-reminder>0</system-reminder>\n\n<system-reminder>1</system-reminder>\n\nSay hello.",
        },
        {"role": "system", "content": "Be brief."},
    ]
    usual = {"model", "messages", "tools", "max_completion_tokens", "stream", "stream_options"}
    assert set(asked) == usual | {"reasoning_effort"}
    assert asked["reasoning_effort"] == "medium"
    assert (asked["max_completion_tokens"], len(asked["tools"])) == (32_000, 1)
    listed = re.findall(r"`([a-z-]+)`", "".join(re.findall(r"^\| (`[a-z-]+`.*?) \|", PAGE, re.MULTILINE)))
    assert lost <= set(listed)


def test_the_session_is_a_tag(tmp_path: Path) -> None:
    """As the page says, `penstock usage --by tag=session` groups by it."""
    assert "penstock usage --by tag=session" in PAGE
    with Upstream() as upstream:
        upstream.play(streams(CHAT_ANSWER), "m")
        provider = f'[server]\nlog = "json"\n[providers.p]\nbase_url = "{upstream.url}"\n'
        with MessagesGateway(tmp_path, upstream, provider) as gateway:
            response = gateway.send(post(of_claude_code("p/m"), HEADERS, PATH), calls=1)
            assert gateway.book.entry(response.request_id).tags == {"session": "6d1f"}
