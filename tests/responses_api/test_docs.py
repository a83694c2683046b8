"""docs/responses.md, as it is written: with its configuration, the gateway answers what Codex sends."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from tests.anthropic.support import CHAT_ANSWER, TEXT, streams
from tests.faults.client import post
from tests.faults.upstream import Upstream
from tests.responses_api.support import PATH, Json, ResponsesGateway, events

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "responses.md").read_text(encoding="utf-8")
CODEX = tomllib.loads(re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[0])
(COMMANDS,) = re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
HEADERS = {
    "Authorization": "Bearer any",
    "Accept": "text/event-stream",
    "originator": "codex_exec",
    "session-id": "6d1f",
    "thread-id": "6d1f",
    "x-client-request-id": "6d1f",
    "x-codex-beta-features": "remote_compaction_v2",
}
SCHEMA: Json = {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}
FUNCTION: Json = {"type": "function", "name": "exec_command", "description": "", "strict": False, "parameters": SCHEMA}
CUSTOM: Json = {"type": "custom", "name": "apply_patch", "description": "", "format": {"type": "grammar"}}
NAMESPACE: Json = {"type": "namespace", "name": "multi_agent_v1", "description": "Agents.", "tools": [FUNCTION]}


def text_item(role: str, text: str) -> Json:
    """A message, as Codex sends it."""
    return {"type": "message", "id": f"msg_{text}", "role": role, "content": [{"type": "input_text", "text": text}]}


def of_codex(model: str) -> bytes:
    """The body of its first request for a turn."""
    body: Json = {
        "model": model,
        "stream": True,
        "input": [
            *(text_item("developer", text) for text in ("Be precise.", "Skills.")),
            *(text_item("user", text) for text in ("Environment.", "Say hello.")),
        ],
        "tools": [FUNCTION, CUSTOM, NAMESPACE, {"type": "web_search", "external_web_access": False}],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "6d1f",
        "text": {"verbosity": "low"},
        "client_metadata": {"root_turn_id": "6d1f"},
    }
    return json.dumps(body).encode()


def test_codex_works_with_the_configuration_of_the_page(tmp_path: Path) -> None:
    settings = CODEX["model_providers"][CODEX["model_provider"]]
    assert settings["base_url"].endswith("/v1")
    assert f"{settings['env_key']}=" in COMMANDS
    assert re.findall(r"(\w+)=\S+ penstock serve", COMMANDS) == ["GROQ_API_KEY"]
    with Upstream() as upstream:
        upstream.play(streams(CHAT_ANSWER), "openai/gpt-oss-120b")
        provider = f'[server]\nlog = "json"\n[providers.groq]\nbase_url = "{upstream.url}"\n'
        key = {"GROQ_API_KEY": "gsk-of-the-page-0123456789"}
        with ResponsesGateway(tmp_path, upstream, provider, environment=key) as gateway:
            response = gateway.send(post(of_codex(CODEX["model"]), HEADERS, PATH), calls=1)
            assert response.status == 200
            assert events(response)[-1]["response"]["output"][0]["content"][0]["text"] == TEXT
            assert gateway.book.entry(response.request_id).tags == {"session": "6d1f"}
        asked = json.loads(upstream.requests("openai/gpt-oss-120b")[-1].partition(b"\r\n\r\n")[2])
    names = [tool["function"]["name"] for tool in asked["tools"]]
    assert names == ["exec_command", "apply_patch", "multi_agent_v1__exec_command"]
    assert [message["role"] for message in asked["messages"]] == ["system", "user", "user"]
    lost = {pair.partition("=")[0] for pair in response.headers["x-penstock-losses"].split(",")}
    listed = re.findall(r"`([a-z-]+)`", "".join(re.findall(r"^\| (`[a-z-]+`.*?) \|", PAGE, re.MULTILINE)))
    assert lost <= set(listed)
