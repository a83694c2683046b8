"""How much a model may reason: what each built-in provider is sent for clients of other APIs, by its data."""

from typing import Any

import pytest

from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.providers.catalog import catalog
from penstock.providers.provider import Provider
from tests.translation.support import CHAT, MESSAGES, Json, asked

HI: Json = {"messages": [{"role": "user", "content": "Hi"}]}
HIGH = HI | {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}
SMALL = HI | {"thinking": {"type": "enabled", "budget_tokens": 1_024}}
OFF = HI | {"thinking": {"type": "disabled"}}
# By provider and model: `reasoning_effort` for high effort, for a small budget, and for no thinking. None: not sent.
SENT: dict[str, tuple[str | None, str | None, str | None]] = {
    "openai/gpt-5": ("high", "minimal", "minimal"),
    "openai/gpt-5-mini-2025-08-07": ("high", "minimal", "minimal"),
    "openai/gpt-5.1": ("high", "low", "none"),
    "openai/gpt-5.2-2025-12-11": ("high", "low", "none"),
    "openai/o3": ("high", "low", "low"),
    "openai/o4-mini": ("high", "low", "low"),
    "openai/o1-mini": (None, None, None),
    "openai/gpt-5-chat-latest": (None, None, None),
    "openai/gpt-5-search-api": (None, None, None),
    "openai/gpt-5.4": (None, None, None),
    "openai/gpt-4o": (None, None, None),
    "openai/gpt-4.1-mini": (None, None, None),
    "azure/gpt-5": ("high", "minimal", "minimal"),
    "azure/o3-mini": ("high", "low", "low"),
    "azure/our-deployment": (None, None, None),
    "groq/openai/gpt-oss-120b": ("high", "low", "low"),
    "groq/qwen/qwen3-32b": (None, None, "none"),
    "groq/llama-3.3-70b-versatile": (None, None, None),
    "xai/grok-3-mini": ("high", "low", "low"),
    "xai/grok-4.3": ("high", "low", "none"),
    "xai/grok-4": (None, None, None),
    "gemini/gemini-2.5-flash": ("high", "low", "none"),
    "gemini/gemini-2.5-pro": ("high", "low", "low"),
    "gemini/gemini-3-pro-preview": ("high", "low", "low"),
    "gemini/gemini-2.5-flash-image": (None, None, None),
    "gemini/gemini-2.0-flash": (None, None, None),
    "mistral/mistral-small-latest": ("high", "high", "none"),
    "mistral/mistral-medium-3-5": ("high", "high", "none"),
    "mistral/mistral-large-latest": (None, None, None),
    "mistral/magistral-medium-latest": (None, None, None),
    "cerebras/gpt-oss-120b": ("high", "low", "low"),
    "cerebras/zai-glm-4.7": (None, None, "none"),
    "cerebras/llama3.1-8b": (None, None, None),
    "fireworks/accounts/fireworks/models/gpt-oss-120b": ("high", "low", "low"),
    "fireworks/accounts/fireworks/models/glm-5": ("high", "high", "none"),
    "fireworks/accounts/fireworks/models/kimi-k2-instruct": (None, None, None),
    "together/openai/gpt-oss-20b": ("high", "low", "low"),
    "together/zai-org/GLM-5": (None, None, None),
    "perplexity/sonar-deep-research": ("high", "low", "low"),
    "perplexity/sonar-pro": (None, None, None),
    "ollama/gpt-oss:20b": ("high", "low", "low"),
    "ollama/llama3.2": (None, None, None),
    "vllm/Qwen/Qwen3-32B": ("high", "low", "low"),
    "vllm/mistralai/Mistral-Small-3.2": (None, None, None),
    "llamacpp/any": (None, None, "none"),
    "deepseek/deepseek-chat": ("high", "low", "low"),
    "openrouter/openrouter/auto": ("high", "minimal", "none"),
}


def provider_of(name: str) -> Provider:
    table: dict[str, Any] = {key: value for key, value in catalog()[name].items() if key in ("dialect", "settings")}
    return Provider(name=name, base_url="https://a.example", **table)


@pytest.mark.parametrize("target", SENT)
def test_an_effort_is_sent_where_the_model_takes_it(target: str) -> None:
    name, _, model = target.partition("/")
    settings = provider_of(name).settings_for(model)
    efforts, losses = [], []
    for body in (HIGH, SMALL, OFF):
        sent, lost = asked(MESSAGES, CHAT, body, **settings)
        efforts.append(sent.get("reasoning_effort"))
        losses.append({code for code, _ in lost} & {"field-dropped", "effort-approximated"})
    assert tuple(efforts) == SENT[target]
    exact = [efforts[0] == "high", False, efforts[2] == "none"]
    assert losses == [
        set() if same else {"effort-approximated"} if effort else {"field-dropped"}
        for effort, same in zip(efforts, exact, strict=True)
    ]


def test_every_provider_of_chat_completions_is_in_the_table() -> None:
    tables = {name: table for name, table in catalog().items() if "model" not in table}
    chat = {name for name, table in tables.items() if table.get("dialect", DEFAULT_DIALECT) == CHAT}
    assert {target.partition("/")[0] for target in SENT} == chat
