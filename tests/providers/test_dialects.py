"""A provider that offers several dialects: in which of them a model is asked, and where."""

from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.gateway.calls.plan import Plan, Plans
from penstock.gateway.config import Config, load

KEY = "sk-0123456789abcdef"
ENV = {
    "OPENAI_API_KEY": KEY,
    "XAI_API_KEY": KEY,
    "OPENROUTER_API_KEY": KEY,
    "AZURE_OPENAI_API_KEY": KEY,
    "AZURE_OPENAI_ENDPOINT": "https://me.openai.azure.com",
    "GEMINI_API_KEY": KEY,
    "AWS_BEARER_TOKEN_BEDROCK": KEY,
}
CHAT, MESSAGES, RESPONSES = "openai_chat", "anthropic_messages", "openai_responses"
CONVERSE = "bedrock_converse"
# By model: the dialect for clients of chat, of Messages and of Responses.
BUILT_IN = {
    "openai/gpt-5": (CHAT, CHAT, RESPONSES),
    "openai/gpt-5.4-mini": (CHAT, RESPONSES, RESPONSES),
    "openai/gpt-6-luna": (CHAT, RESPONSES, RESPONSES),
    "openai/gpt-4o-audio-preview": (CHAT, CHAT, CHAT),
    "openai/gpt-4o-search-preview": (CHAT, CHAT, CHAT),
    "openai/o3-pro": (RESPONSES,) * 3,
    "openai/o1-pro-2025-03-19": (RESPONSES,) * 3,
    "openai/gpt-5-pro": (RESPONSES,) * 3,
    "openai/gpt-5.1-codex-max": (RESPONSES,) * 3,
    "openai/codex-mini-latest": (RESPONSES,) * 3,
    "openai/o4-mini-deep-research": (RESPONSES,) * 3,
    "xai/grok-4": (CHAT, CHAT, RESPONSES),
    "xai/grok-4.20-multi-agent-0309": (RESPONSES,) * 3,
    "openrouter/openai/o3-pro": (CHAT, CHAT, RESPONSES),
    "azure/gpt-5-codex": (RESPONSES,) * 3,
    "azure/gpt-5.4": (CHAT, RESPONSES, RESPONSES),
    "gemini/gemini-3-flash": (CHAT,) * 3,
    "bedrock/us.anthropic.claude-sonnet-4-6-v1:0": (CONVERSE, MESSAGES, CONVERSE),
    "bedrock/us.amazon.nova-pro-v1:0": (CONVERSE,) * 3,
}
URLS = {
    "openai": ("https://api.openai.com/v1/chat/completions", "https://api.openai.com/v1/responses"),
    "xai": ("https://api.x.ai/v1/chat/completions", "https://api.x.ai/v1/responses"),
    "openrouter": ("https://openrouter.ai/api/v1/chat/completions", "https://openrouter.ai/api/v1/responses"),
    "azure": (
        "https://me.openai.azure.com/openai/v1/chat/completions",
        "https://me.openai.azure.com/openai/v1/responses",
    ),
}
NATIVE = {
    "http://box:11434": "http://box:11434/api/chat",
    "http://box:11434/v1": "http://box:11434/api/chat",
    "https://box/models/v1": "https://box/models/api/chat",
}
TWO = """
[providers.two]
base_url = "https://two.example/v1"
settings = { efforts = ["low"] }
[providers.two.dialects.openai_responses]
path = "/v2/{model}/responses"
settings = { efforts = [], models = { "big*" = { efforts = ["high"] } } }
"""


@pytest.mark.parametrize("address", NATIVE)
def test_ollama_is_asked_by_its_own_api_if_the_provider_names_it(tmp_path: Path, address: str) -> None:
    text = '[providers.ollama]\ndialect = "ollama"\n'
    provider = config(tmp_path, text, {"OLLAMA_HOST": address}).providers["ollama"]
    assert provider.dialect_for("qwen3", CHAT) == "ollama"
    assert provider.url("qwen3", "ollama") == NATIVE[address]
    assert provider.settings_for("gpt-oss:20b", "ollama") == {"think": "level"}


def config(folder: Path, text: str, env: dict[str, str] = ENV) -> Config:
    file = folder / "penstock.toml"
    file.write_text(text, encoding="utf-8")
    return load(file, env)


def plan(settings: Config, name: str, client: str) -> Plan:
    (found,) = Plans(settings, "streamed", client, recorded=False)[name] or ()
    return found


@pytest.mark.parametrize("model", BUILT_IN)
def test_the_dialect_of_a_built_in_provider(model: str) -> None:
    settings = load(None, ENV)
    plans = [plan(settings, model, client) for client in (CHAT, MESSAGES, RESPONSES)]
    assert tuple(found.dialect for found in plans) == BUILT_IN[model]
    assert [found.target.dialect for found in plans] == [found.dialect for found in plans]


@pytest.mark.parametrize("name", URLS)
def test_each_dialect_has_its_url(name: str) -> None:
    provider = load(None, ENV).providers[name]
    assert (provider.url("m", CHAT), provider.url("m", RESPONSES)) == URLS[name]
    assert provider.url_beside("/responses/input_tokens", RESPONSES) == URLS[name][1] + "/input_tokens"


AZURE = '[providers.azure]\napi_version = "2024-10-21"\n'
DATED = "https://me.openai.azure.com/openai"
# What the user writes, and where chat, Responses and embeddings are then.
VERSIONS = {
    "a date": (
        AZURE,
        f"{DATED}/deployments/a%2Fb/chat/completions?api-version=2024-10-21",
        f"{DATED}/responses?api-version=2024-10-21",
        f"{DATED}/deployments/a%2Fb/embeddings?api-version=2024-10-21",
    ),
    "a date, and a path": (
        f'{AZURE}path = "/chat"\nembeddings = "/embed"\n',
        "https://me.openai.azure.com/chat",
        f"{DATED}/responses?api-version=2024-10-21",
        "https://me.openai.azure.com/embed",
    ),
    "a date, and one dialect": (
        f'{AZURE}dialect = "openai_responses"\n',
        f"{DATED}/responses?api-version=2024-10-21",
        f"{DATED}/responses?api-version=2024-10-21",
        f"{DATED}/deployments/a%2Fb/embeddings?api-version=2024-10-21",
    ),
    "a variable, with what no date has": (
        '[providers.azure]\napi_version = "${VERSION}"\n',
        f"{DATED}/deployments/a%2Fb/chat/completions?api-version=2025%26a%3D%2F..",
        f"{DATED}/responses?api-version=2025%26a%3D%2F..",
        f"{DATED}/deployments/a%2Fb/embeddings?api-version=2025%26a%3D%2F..",
    ),
}


@pytest.mark.parametrize(("text", "own", "responses", "embeddings"), VERSIONS.values(), ids=VERSIONS)
def test_a_version_of_the_api_has_paths_of_its_own(
    tmp_path: Path, text: str, own: str, responses: str, embeddings: str
) -> None:
    provider = config(tmp_path, text, ENV | {"VERSION": "2025&a=/.."}).providers["azure"]
    assert (provider.url("a/b"), provider.url("a/b", RESPONSES)) == (own, responses)
    assert provider.embeddings_url("a/b") == embeddings
    beside = responses.replace("/responses", "/responses/input_tokens")
    assert provider.url_beside("/responses/input_tokens", RESPONSES) == beside


def test_a_version_without_paths_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no paths for this version; the patterns of its versions are 20\*"):
        config(tmp_path, '[providers.azure]\napi_version = "v1"\n')
    with pytest.raises(ConfigError, match="no paths for this version; write it into path"):
        config(tmp_path, '[providers.openai]\napi_version = "2024-10-21"\n')
    with pytest.raises(ConfigError, match="unknown dialect; did you mean 'openai_chat'"):
        config(tmp_path, '[providers.openai.api_versions."*"]\nopenai_chatt = "/chat"\n')


def test_path_and_settings_belong_to_a_dialect(tmp_path: Path) -> None:
    settings = config(tmp_path, TWO)
    provider = settings.providers["two"]
    assert provider.url("big/1", RESPONSES) == "https://two.example/v1/v2/big%2F1/responses"
    assert not provider.can_name("..")
    for client, model, efforts in ((CHAT, "big", ["low"]), (RESPONSES, "small", []), (RESPONSES, "big", ["high"])):
        assert plan(settings, f"two/{model}", client).destination.settings == {"efforts": efforts}


# What the user writes, and the dialect for clients of chat and of Responses.
SETTINGS = {
    "the provider's dialect": ('[providers.openai]\ndialect = "openai_responses"', (RESPONSES, RESPONSES)),
    "the provider's first dialect": ('[providers.openai]\ndialect = "openai_chat"', (CHAT, CHAT)),
    "another address": ('[providers.openai]\nbase_url = "https://eu.example/v1"', (CHAT, CHAT)),
    "another address that has it": (
        '[providers.openai]\nbase_url = "https://eu.example/v1"\ndialects.openai_responses = {}',
        (CHAT, RESPONSES),
    ),
    "a target's dialect": (
        '[routes."openai/gpt-5"]\ntargets = [{ target = "openai/gpt-5", dialect = "openai_responses" }]',
        (RESPONSES, RESPONSES),
    ),
    "a route that sets fields": (
        '[routes."openai/gpt-5"]\ntargets = ["openai/gpt-5"]\nset = { reasoning_effort = "low" }',
        (CHAT, CHAT),
    ),
    "a preferred dialect": (
        '[providers.openai]\ndialects.openai_responses = { preferred_for = ["gpt-*"] }',
        (CHAT, RESPONSES),
    ),
    "a setting that has nothing to do with it": ("[providers.openai]\ntimeouts.gap_s = 3", (CHAT, RESPONSES)),
}


@pytest.mark.parametrize(("text", "expected"), SETTINGS.values(), ids=SETTINGS)
def test_a_setting_decides(tmp_path: Path, text: str, expected: tuple[str, str]) -> None:
    settings = config(tmp_path, text)
    assert (plan(settings, "openai/gpt-5", CHAT).dialect, plan(settings, "openai/gpt-5", RESPONSES).dialect) == expected


def test_a_preferred_dialect_is_for_clients_of_a_third_one(tmp_path: Path) -> None:
    plain = config(tmp_path, "")
    assert plan(plain, "openai/gpt-5.4", MESSAGES).dialect == RESPONSES
    text = '[routes."openai/gpt-5.4"]\ntargets = ["openai/gpt-5.4"]\nset = { reasoning_effort = "low" }'
    assert plan(config(tmp_path, text), "openai/gpt-5.4", MESSAGES).dialect == CHAT


def test_a_dialect_that_the_user_names_has_the_path_of_the_built_in(tmp_path: Path) -> None:
    text = '[providers.azure]\nbase_url = "https://we.example"\ndialect = "openai_responses"\n'
    azure = config(tmp_path, text).providers["azure"]
    assert (azure.url("m"), dict(azure.dialects)) == ("https://we.example/openai/v1/responses", {})


def test_a_further_api_may_have_an_address_and_a_key_header_of_its_own() -> None:
    gemini = load(None, ENV).providers["gemini"]
    assert gemini.url("m", CHAT) == "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions"
    assert gemini.credentials(CHAT) == {"authorization": f"Bearer {KEY}"}
    assert gemini.url("a/b", "gemini") == (
        "https://generativelanguage.googleapis.com/v1beta/models/a%2Fb:streamGenerateContent?alt=sse"
    )
    assert gemini.url_beside("/models/{model}:countTokens", "gemini", "m") == (
        "https://generativelanguage.googleapis.com/v1beta/models/m:countTokens"
    )
    assert gemini.credentials("gemini") == {"x-goog-api-key": KEY}
    settings = gemini.settings_for("gemini-3-flash", "gemini")
    assert (settings["thinking"], settings["signature_placeholder"]) == ("level", True)
    assert not gemini.can_name("..")


def test_a_dialect_that_the_user_names_has_the_address_of_the_built_in(tmp_path: Path) -> None:
    settings = config(tmp_path, '[providers.gemini]\ndialect = "gemini"\n')
    found = plan(settings, "gemini/gemini-2.5-flash", CHAT)
    assert (found.dialect, found.own_headers) == ("gemini", frozenset({"x-goog-api-key"}))
    assert (
        settings.providers["gemini"].url("m").startswith("https://generativelanguage.googleapis.com/v1beta/models/m:")
    )
    refused = '[providers.acme]\nbase_url = "https://a.example"\napi_key = "sk-0123456789"\n'
    with pytest.raises(ConfigError, match="would carry the key in the open"):
        config(tmp_path, f'{refused}dialects.gemini = {{ base_url = "http://b.example" }}\n')
    with pytest.raises(ConfigError, match="must begin with https"):
        config(tmp_path, f'{refused}dialects.gemini = {{ base_url = "ftp://b.example" }}\n')
