"""Errors of providers that say that a request is too long, in their words."""

import pytest

from penstock.core.provider_errors.context_overflow import ContextOverflow, read_overflow

WORDS: dict[str, tuple[str, ContextOverflow | None]] = {
    "Anthropic": ("prompt is too long: 210000 tokens > 200000 maximum", ContextOverflow(210_000, 200_000)),
    "Anthropic, with max_tokens": (
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
        ContextOverflow(190_000),
    ),
    "OpenAI": (
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130,001 tokens.",
        ContextOverflow(130_001, 128_000),
    ),
    "vLLM": (
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4900 in the messages)",
        ContextOverflow(5_000, 4_096),
    ),
    "vLLM, later": (
        "This model's maximum context length is 8192 tokens. However, your request has 9000 input tokens.",
        ContextOverflow(9_000, 8_192),
    ),
    "OpenAI, later": (
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens.",
        ContextOverflow(300_000, 272_000),
    ),
    "OpenRouter": (
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 200000 tokens.",
        ContextOverflow(200_000, 131_072),
    ),
    "Cerebras": (
        "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",
        ContextOverflow(9_000, 8_192),
    ),
    "xAI": (
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        ContextOverflow(537_812, 131_072),
    ),
    "Gemini": (
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        ContextOverflow(1_200_000, 1_048_576),
    ),
    "Mistral": (
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        ContextOverflow(40_000, 32_768),
    ),
    "llama.cpp": (
        "the request (5000 tokens) exceeds the available context size of m (4096 tokens); shorten it",
        ContextOverflow(5_000, 4_096),
    ),
    "Groq": ("Please reduce the length of the messages or completion.", ContextOverflow()),
    "another error": ("max_tokens is too large: 200000. This model supports at most 16384 completion tokens.", None),
    "nothing": ("", None),
}


@pytest.mark.parametrize(("message", "expected"), WORDS.values(), ids=WORDS)
def test_words(message: str, expected: ContextOverflow | None) -> None:
    assert read_overflow(message) == expected


def test_the_code_of_openai_is_enough() -> None:
    assert read_overflow("Zu lang.", "context_length_exceeded") == ContextOverflow()
    assert read_overflow("Zu lang.", "other") is None
