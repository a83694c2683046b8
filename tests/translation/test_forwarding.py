"""A Messages request for an Anthropic provider: its bytes stay, except for what the provider is known to refuse."""

import json

import pytest
from msgspec import convert

from penstock.core.dialects.dialect import Destination
from penstock.core.dialects.registry import surface_dialect, upstream_dialect
from penstock.core.hub.request import ClientRequest
from penstock.providers.catalog import catalog
from penstock.providers.provider import OfferedDialect, Provider
from tests.translation.support import CHAT, MESSAGES, Json, messages_of

SURFACE, UPSTREAM = surface_dialect(MESSAGES), upstream_dialect(MESSAGES)
BODY = b'{ "model" : "m", "max_tokens":9,"messages":[ {"role":"user","content":"\\u0048i"} ], "new":{"b":1, "a":2} }'
BETAS = "claude-code-20250219,context-management-2025-06-27, effort-2025-11-24,advanced-tool-use-2025-11-20"


def read(body: bytes | Json, headers: dict[str, str] | None = None) -> ClientRequest:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return SURFACE.read_request(data, headers or {}, SURFACE.path)


def forwarded(
    body: bytes | Json, headers: dict[str, str] | None = None, **settings: object
) -> tuple[bytes, Json, list[str]]:
    request = UPSTREAM.write_request(read(body, headers), Destination(model="target", settings=settings))
    return request.body, dict(request.headers), [f"{loss.code} {loss.detail}".strip() for loss in request.losses]


def test_only_the_name_of_the_model_changes() -> None:
    body, _, lost = forwarded(BODY)
    assert body == BODY.replace(b'"m"', b'"target"')
    assert lost == []


def test_open_lists_of_headers_pass_and_credentials_do_not() -> None:
    passed = {
        "anthropic-version": "2099-01-01",
        "anthropic-beta": BETAS,
        "anthropic-workspace-id": "w",
        "x-claude-code-session-id": "s",
        "x-stainless-os": "Linux",
    }
    kept_back = {
        "x-api-key": "sk",
        "authorization": "Bearer sk",
        "cookie": "c",
        "host": "h",
        "connection": "close",
        "accept-encoding": "gzip",
        "anthropic-api-key": "sk",
    }
    _, headers, _ = forwarded(BODY, passed | kept_back)
    assert headers == passed


def test_a_client_need_not_send_a_version() -> None:
    _, headers, _ = forwarded(BODY)
    assert headers == {"anthropic-version": "2023-06-01"}


def test_a_field_that_the_provider_refuses_leaves_with_its_beta() -> None:
    tool = {"name": "f", "input_schema": {"type": "object"}, "defer_loading": True}
    asked = {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hi"}],
        "context_management": {},
        "output_config": {"effort": "low"},
        "tools": [tool, {"name": "g"}],
    }
    body, headers, lost = forwarded(
        asked, {"anthropic-beta": BETAS}, drop=["context_management", "output_config", "defer_loading"]
    )
    kept = {"model": "target", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    assert json.loads(body) == kept | {"tools": [{"name": "f", "input_schema": {"type": "object"}}, {"name": "g"}]}
    assert headers["anthropic-beta"] == "claude-code-20250219"
    refused = ("context_management", "output_config", "tools.defer_loading")
    assert lost == [f"option-refused-by-provider {name}" for name in refused]


def test_a_beta_leaves_without_its_field_and_the_header_with_the_last_one() -> None:
    _, headers, lost = forwarded(BODY, {"anthropic-beta": "context-management-2025-06-27"}, drop=["context_management"])
    assert (headers, lost) == ({"anthropic-version": "2023-06-01"}, [])


def conversation(*blocks: Json) -> Json:
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [*blocks]}]
    return {"model": "m", "max_tokens": 9, "messages": [*turns, {"role": "user", "content": "Hi"}]}


TEXT: Json = {"type": "text", "text": "A"}
SIGNED: Json = {"type": "thinking", "thinking": "", "signature": "EqQB"}
UNSIGNED: dict[str, Json] = {
    "empty": {"type": "thinking", "thinking": "hm", "signature": ""},
    "wrapped": {"type": "thinking", "thinking": "hm", "signature": "penstock1.gemini.0a1b2c3d.YWJj"},
    "redacted": {"type": "redacted_thinking", "data": "penstock1.openai.0a1b2c3d.YWJj"},
}


@pytest.mark.parametrize("block", UNSIGNED.values(), ids=UNSIGNED)
def test_thinking_of_other_providers_does_not_reach_anthropic(block: Json) -> None:
    body, _, lost = forwarded(conversation(SIGNED, block, TEXT))
    assert json.loads(body)["messages"][1]["content"] == [SIGNED, TEXT]
    assert lost == ["reasoning-dropped"]
    body, _, lost = forwarded(conversation(block))
    assert [message["role"] for message in json.loads(body)["messages"]] == ["user", "user"]


def test_signed_thinking_stays_as_it_is() -> None:
    asked = json.dumps(conversation(SIGNED, TEXT)).encode()
    body, _, lost = forwarded(asked)
    assert (body, lost) == (asked.replace(b'"m"', b'"target"'), [])


def test_a_provider_that_wants_unsigned_thinking_gets_it() -> None:
    asked = json.dumps(conversation(UNSIGNED["empty"], TEXT)).encode()
    body, _, lost = forwarded(asked, unsigned_thinking=True)
    assert (body, lost) == (asked.replace(b'"m"', b'"target"'), [])


def test_text_that_looks_like_a_signature_stays() -> None:
    asked = json.dumps(conversation({"type": "text", "text": '"signature": ""'})).encode()
    body, _, lost = forwarded(asked)
    assert (body, lost) == (asked.replace(b'"m"', b'"target"'), [])


def test_system_messages_where_the_provider_refuses_them() -> None:
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "system", "content": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": "A"},
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "B"},
    ]
    body, _, lost = forwarded({"model": "m", "max_tokens": 9, "messages": messages}, mid_system=False)
    brief = {"type": "text", "text": "<system-reminder>\nBe brief.\n</system-reminder>"}
    assert json.loads(body)["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}, brief | {"cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": "A"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "<system-reminder>\nBe kind.\n</system-reminder>"},
                {"type": "text", "text": "B"},
            ],
        },
    ]
    assert lost == ["system-moved", "system-moved"]


BILLING = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.325;"}
PROMPT = {"type": "text", "text": "You are a coder.", "cache_control": {"type": "ephemeral"}}
SYSTEMS: dict[str, tuple[object, object]] = {
    "first": ([BILLING, PROMPT], [PROMPT]),
    "alone": ([BILLING], None),
    "a string": (BILLING["text"], None),
}


@pytest.mark.parametrize(("system", "kept"), SYSTEMS.values(), ids=SYSTEMS)
def test_the_attribution_reaches_anthropic_only(system: object, kept: object) -> None:
    asked = {"model": "m", "max_tokens": 9, "system": system, "messages": [{"role": "user", "content": "Hi"}]}
    body, _, lost = forwarded(asked)
    expected = {**asked, "model": "target", "system": kept}
    assert json.loads(body) == {name: value for name, value in expected.items() if value is not None}
    assert lost == ["attribution-dropped attribution"]
    data = json.dumps(asked).encode()
    body, _, lost = forwarded(data, attribution=True)
    assert (body, lost) == (data.replace(b'"m"', b'"target"'), [])


def test_a_prompt_that_quotes_the_attribution_stays() -> None:
    data = json.dumps(
        {
            "model": "m",
            "max_tokens": 9,
            "system": f"Say {BILLING['text']}",
            "messages": [{"role": "user", "content": "Hi"}],
        }
    ).encode()
    body, _, lost = forwarded(data)
    assert (body, lost) == (data.replace(b'"m"', b'"target"'), [])


@pytest.mark.parametrize("stream", [True, False])
def test_vertex_wants_the_version_in_the_body_and_the_model_in_the_path(stream: bool) -> None:
    version = "vertex-2023-10-16"
    asked: Json = {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    body, _, lost = forwarded(asked | {"model": "m", "stream": stream}, body_version=version)
    assert json.loads(body) == asked | {"anthropic_version": version, "stream": True}
    assert lost == []
    translated, _ = messages_of(asked | {"stream": stream}, body_version=version)
    assert translated == {
        "anthropic_version": version,
        "stream": True,
        "max_tokens": 9,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    }


@pytest.mark.parametrize("stream", [True, False])
def test_bedrock_wants_betas_in_the_body_and_no_stream(stream: bool) -> None:
    settings: Json = {"body_version": "bedrock-2023-05-31", "stream_field": False, "body_betas": ["effort-*"]}
    asked: Json = {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    betas = {"anthropic-beta": "claude-code-20250219, effort-2025-11-24"}
    body, headers, lost = forwarded(asked | {"model": "m", "stream": stream}, betas, **settings)
    version = {"anthropic_version": "bedrock-2023-05-31"}
    assert json.loads(body) == asked | version | {"anthropic_beta": ["effort-2025-11-24"]}
    assert "anthropic-beta" not in headers
    assert lost == ["option-refused-by-provider claude-code-20250219"]
    body, headers, lost = forwarded(asked | {"model": "m"}, {"anthropic-beta": "new"}, **settings)
    assert (json.loads(body), lost) == (asked | version, ["option-refused-by-provider new"])
    translated, _ = messages_of(asked | {"stream": stream}, **settings)
    assert translated.keys() == {"anthropic_version", "max_tokens", "messages"}


# By model on Bedrock: what a client sends, and the betas and losses of the request to the provider.
BEDROCK = {
    "us.anthropic.claude-sonnet-4-6": (
        "claude-code-20250219,advanced-tool-use-2025-11-20,context-management-2025-06-27,tool-search-tool-2025-10-19",
        ["tool-search-tool-2025-10-19", "tool-examples-2025-10-29", "context-management-2025-06-27"],
        ["option-refused-by-provider claude-code-20250219"],
    ),
    "us.anthropic.claude-sonnet-5": (
        "interleaved-thinking-2025-05-14,token-efficient-tools-2026-03-28,prompt-caching-scope-2026-01-05,fast-mode-2026-02-01",
        ["interleaved-thinking-2025-05-14"],
        [
            "option-refused-by-provider token-efficient-tools-2026-03-28",
            "option-refused-by-provider prompt-caching-scope-2026-01-05",
            "option-refused-by-provider fast-mode-2026-02-01",
        ],
    ),
    "us.anthropic.claude-opus-4-7": (
        "effort-2025-11-24",
        None,
        ["option-refused-by-provider effort-2025-11-24"],
    ),
}


@pytest.mark.parametrize("model", BEDROCK)
def test_the_betas_of_claude_on_bedrock(model: str) -> None:
    table = convert(catalog()["bedrock"]["dialects"], dict[str, OfferedDialect])
    bedrock = Provider(name="bedrock", base_url="https://a.example", dialect="bedrock_converse", dialects=table)
    betas, expected, losses = BEDROCK[model]
    asked: Json = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    settings = bedrock.settings_for(model, "anthropic_messages")
    body, headers, lost = forwarded(asked, {"anthropic-beta": betas}, **settings)
    assert (json.loads(body).get("anthropic_beta"), lost) == (expected, losses)
    assert "anthropic-beta" not in headers


def test_sessions_of_claude_code_are_tags() -> None:
    request = read(BODY, {"x-claude-code-session-id": "s-1", "x-claude-code-agent-id": "a-1", "x-stainless-os": "L"})
    assert request.metadata == {"session": "s-1", "agent": "a-1"}
    assert read(BODY).metadata == {}


@pytest.mark.parametrize("dialect", [MESSAGES, CHAT])
def test_a_request_is_read_once_for_all_targets(dialect: str) -> None:
    surface = surface_dialect(dialect)
    request = surface.read_request(BODY, {}, surface.path)
    assert request.read() is request.read()
