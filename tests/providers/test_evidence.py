"""The guess at the provider of a stream: one example per row, and providers that must not be confused."""

import re

import pytest

from penstock import Choice, Completion, Fault, ToolCall, Usage
from penstock.providers.evidence import Evidence, evidence, guess

UUID = "0b7e1f3a-9c2d-4e5f-8a6b-1c2d3e4f5a6b"
OPENAI_ID = "chatcmpl-" + "Ab3" * 9 + "Cd"


def answer(
    id: str = "x",
    model: str = "m",
    *,
    choice: dict[str, object] | None = None,
    tool: dict[str, object] | None = None,
    usage: dict[str, object] | None = None,
    **extras: object,
) -> Completion:
    """A completion with evidence of its provider."""
    call = ToolCall("call_1", "f", "{}", extras=tool or {})
    return Completion(
        id=id,
        model=model,
        choices=(Choice(0, tool_calls=(call,), extras=choice or {}),),
        usage=Usage(raw=usage) if usage else None,
        extras=extras,
    )


# In the order of the rows, one for each.
EXAMPLES: list[tuple[str, Completion]] = [
    ("reseller", answer(f"foaicmpl-{UUID}", "grok-3", system_fingerprint=None)),
    ("openrouter", answer("gen-1761505595-4Kw8Do5GsouLWLb7z64J", "x-ai/grok-3", provider="xAI")),
    ("openrouter", answer("chatcmpl-1", usage={"cost": 0.1, "is_byok": False})),
    ("vercel", answer("gen_01K", generationId="gen_01K")),
    ("copilot", answer(model="gpt-4o", copilot_usage={}, prompt_filter_results=[])),
    ("venice", answer(cost={"usd": 0.1, "diem": 0.1})),
    ("groq", answer(x_groq={"id": "req_1"})),
    ("groq", Completion(fault=Fault("provider-error", "no", 0, 1, {"failed_generation": "<f>"}))),
    ("cerebras", answer(time_info={"queue_time": 0.1})),
    ("azure", answer(OPENAI_ID, "gpt-4o", prompt_filter_results=[], system_fingerprint="fp_b6f445fc1c")),
    ("mistral", answer(p="abcdef")),
    ("xai", answer(UUID, "grok-4", usage={"num_sources_used": 0})),
    ("deepseek", answer(model="deepseek-chat", usage={"prompt_cache_hit_tokens": 0, "prompt_cache_miss_tokens": 8})),
    ("perplexity", answer(UUID, "sonar-pro", citations=[])),
    ("perplexity", answer(UUID, usage={"search_context_size": "low"})),
    ("together", answer(choice={"token_id": 9, "seed": 1})),
    ("fireworks", answer(model="accounts/fireworks/models/llama-v3p1-8b-instruct")),
    ("cloudflare", answer("id-1735689600000", "@cf/meta/llama-3.1-8b-instruct")),
    ("minimax", answer(base_resp={"status_code": 0})),
    ("writer", answer(UUID, "palmyra-x5", choice={"graph_data": {}})),
    ("gemini", answer(tool={"extra_content": {"google": {"thought_signature": "s"}}})),
    ("ollama", answer("chatcmpl-604", system_fingerprint="fp_ollama")),
    ("llamacpp", answer(system_fingerprint="b10499-6d05498")),
    ("llamacpp", answer(timings={"predicted_per_second": 9.5})),
    ("vllm", answer(system_fingerprint="vllm-0.23.0-ed")),
    ("mistralrs", answer(usage={"avg_compl_tok_per_sec": 9.5})),
    ("huggingface", answer("", system_fingerprint="1.4.4-sha-6c4496a")),
    ("azure", answer(OPENAI_ID, "gpt-4o", choice={"content_filter_results": {}}, system_fingerprint="fp_1")),
    ("xai", answer(f"{UUID}_us-east-1", "grok-3-mini", system_fingerprint="fp_4fae27f477")),
    ("deepseek", answer(UUID, "deepseek-reasoner", system_fingerprint="fp_eaab8d114b_prod0820_fp8_kvcache")),
    ("zai", answer("20251015013556dbdab6cf74114c82", "glm-4.6")),
    ("mistral", answer("0123456789abcdef" * 2, "mistral-small-latest")),
    ("alibaba", answer("chatcmpl-8e243c57-23b3-9db2-a02e-e3c53929c368", "qwen3-max", system_fingerprint=None)),
    ("openai", answer(OPENAI_ID, "gpt-4o-mini-2024-07-18", system_fingerprint=None)),
    ("openai", answer("chatcmpl-1", "gpt-5-nano", obfuscation="a", service_tier="default")),
]

UNKNOWN: dict[str, Completion] = {
    "nothing at all": Completion(),
    "a known model from anybody": answer("chatcmpl-1", "gpt-4o", system_fingerprint="fp_44709d6fcb"),
    "an open model with OpenAI's name": answer(OPENAI_ID, "gpt-oss-120b", system_fingerprint="fp_44709d6fcb"),
    "a reseller's grok": answer(f"chatcmpl-{UUID}", "grok-3", system_fingerprint=None),
    "somebody's DeepSeek": answer(f"chatcmpl-{UUID}", "deepseek-ai/DeepSeek-V3"),
    "a cost of another kind": answer(cost=0.1),
    "fields of the wrong type": answer(timings=[], base_resp=None, system_fingerprint=7),
}


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_a_row_fits_its_example(number: int) -> None:
    provider, completion = EXAMPLES[number]
    row = evidence()[number]
    assert row.provider == provider
    assert row.fits(completion)
    assert guess(completion) == provider


def test_every_row_has_an_example() -> None:
    assert len(evidence()) == len(EXAMPLES)


@pytest.mark.parametrize("completion", UNKNOWN.values(), ids=UNKNOWN)
def test_no_answer_is_better_than_a_wrong_one(completion: Completion) -> None:
    assert guess(completion) is None


@pytest.mark.parametrize("row", evidence(), ids=lambda row: row.provider)
def test_a_row_has_a_condition_besides_the_name_of_the_model(row: Evidence) -> None:
    namespaced = "/" in row.model  # a path that only its owner gives to models
    assert row != Evidence(row.provider, model=row.model) or namespaced
    assert re.fullmatch("[a-z]+", row.provider)
