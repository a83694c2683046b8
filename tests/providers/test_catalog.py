"""The built-in providers: the loader accepts each file, and each provider is available through its variable."""

import re
import tomllib
from pathlib import Path

import pytest

from penstock.gateway.config import load
from penstock.providers import catalog as module
from penstock.providers.catalog import catalog, is_available

FOLDER = Path(module.__file__).parent
SOURCE = FOLDER.parent
KEY = "a-key-of-some-length"

# Where each is, by its own documentation, and the variable that its own SDK or server reads.
PROVIDERS: dict[str, tuple[str, dict[str, str]]] = {
    "openai": ("https://api.openai.com/v1/chat/completions", {"OPENAI_API_KEY": KEY}),
    "anthropic": ("https://api.anthropic.com/v1/messages", {"ANTHROPIC_API_KEY": KEY}),
    "groq": ("https://api.groq.com/openai/v1/chat/completions", {"GROQ_API_KEY": KEY}),
    "xai": ("https://api.x.ai/v1/chat/completions", {"XAI_API_KEY": KEY}),
    "openrouter": ("https://openrouter.ai/api/v1/chat/completions", {"OPENROUTER_API_KEY": KEY}),
    "deepseek": ("https://api.deepseek.com/v1/chat/completions", {"DEEPSEEK_API_KEY": KEY}),
    "mistral": ("https://api.mistral.ai/v1/chat/completions", {"MISTRAL_API_KEY": KEY}),
    "together": ("https://api.together.ai/v1/chat/completions", {"TOGETHER_API_KEY": KEY}),
    "fireworks": ("https://api.fireworks.ai/inference/v1/chat/completions", {"FIREWORKS_API_KEY": KEY}),
    "cerebras": ("https://api.cerebras.ai/v1/chat/completions", {"CEREBRAS_API_KEY": KEY}),
    "perplexity": ("https://api.perplexity.ai/chat/completions", {"PERPLEXITY_API_KEY": KEY}),
    "azure": (
        "https://me.openai.azure.com/openai/v1/chat/completions",
        {"AZURE_OPENAI_API_KEY": KEY, "AZURE_OPENAI_ENDPOINT": "https://me.openai.azure.com/"},
    ),
    "azure-anthropic": (
        "https://me.services.ai.azure.com/anthropic/v1/messages",
        {"ANTHROPIC_FOUNDRY_API_KEY": KEY, "ANTHROPIC_FOUNDRY_RESOURCE": "me"},
    ),
    "bedrock": (
        "https://bedrock-runtime.eu-west-3.amazonaws.com/model/some-model/converse-stream",
        {"AWS_BEARER_TOKEN_BEDROCK": KEY, "AWS_REGION": "eu-west-3"},
    ),
    "cohere": ("https://api.cohere.com/v2/chat", {"COHERE_API_KEY": KEY}),
    "ollama": ("http://127.0.0.1:11434/v1/chat/completions", {"OLLAMA_HOST": "127.0.0.1"}),
    "vllm": ("http://127.0.0.1:8000/v1/chat/completions", {"VLLM_API_KEY": KEY}),
    "llamacpp": ("http://127.0.0.1:8081/v1/chat/completions", {"LLAMACPP_BASE_URL": "http://127.0.0.1:8081"}),
    "gemini": ("https://generativelanguage.googleapis.com/v1beta/openai/chat/completions", {"GEMINI_API_KEY": KEY}),
}


# What runs on this machine, and has no address.
HERE = {"local"}
# What the file has to name, because its variables are also set for other purposes: tests/upstream/test_google.py.
NAMED = {"vertex", "vertex-anthropic"}


def test_every_provider_is_there() -> None:
    assert set(catalog()) == set(PROVIDERS) | HERE | NAMED


@pytest.mark.parametrize(("name", "url", "env"), [(name, *row) for name, row in PROVIDERS.items()], ids=PROVIDERS)
def test_is_found_by_its_variable(name: str, url: str, env: dict[str, str]) -> None:
    config = load(None, env)
    assert config.warnings == ()
    assert set(config.providers) == {name} | HERE
    provider = config.providers[name]
    assert provider.url("some-model") == url
    assert list(provider.credentials().values()) == [
        ("Bearer " if header == "authorization" else "") + value.reveal()
        for header, value in [(provider.key_header, provider.api_key)]
        if value is not None
    ]
    assert (provider.api_key is None) == (KEY not in env.values())


@pytest.mark.parametrize("name", [*PROVIDERS, *HERE, *sorted(NAMED)])
def test_is_one_file_with_its_own_name_and_its_source(name: str) -> None:
    text = (FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    assert list(tomllib.loads(text)) == ["providers"]
    assert list(tomllib.loads(text)["providers"]) == [name]
    assert re.match(r"# https://\S+\n", text)
    assert len(text.splitlines()) <= 30


def test_nothing_is_brought_in_by_an_empty_environment() -> None:
    there = {name for name, table in catalog().items() if is_available(table, {"": "x", "OPENAI_API_KEY": ""})}
    assert there == HERE


def test_what_clients_set_to_find_penstock_is_not_asked() -> None:
    config = load(None, {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://127.0.0.1:8080/v1"})
    assert config.providers["openai"].base_url == "https://api.openai.com/v1"


@pytest.mark.slow
def test_no_code_compares_a_provider_by_name() -> None:
    names = "|".join([*PROVIDERS, *HERE, *NAMED])
    compared = re.compile(rf"""(==|!=|\bin|\bcase|\.get\(|\[)\s*[(\[{{]?\s*["']({names})["']""")
    found = [path for path in SOURCE.rglob("*.py") if compared.search(path.read_text(encoding="utf-8"))]
    assert found == []
