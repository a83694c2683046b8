"""Every member of a provider's answer reaches a client, or is declared as a loss, or the answer fails.

`scripts/fuzz --answers` tries more of the same.
"""

from random import Random

import pytest

from tests.generated_answers import CLIENTS, PROVIDERS, GeneratedAnswer, Json, random_answer, unaccounted

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "unstreamed"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_member_of_an_answer_vanishes(provider: str, streamed: bool) -> None:
    for seed in range(2 * len(CLIENTS)):
        random = Random(seed)
        answer = random_answer(random, provider, streamed=streamed)
        client, stream = CLIENTS[seed % len(CLIENTS)], seed >= len(CLIENTS)
        assert unaccounted(answer, client, random, stream=stream) == [], (seed, client, stream, answer.values)


FOUND: dict[str, tuple[str, str, bool, Json]] = {
    "unknown members of redacted thinking": (
        "anthropic_messages",
        "anthropic_messages",
        True,
        {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "claude",
            "content": [{"type": "redacted_thinking", "data": "seal", "mood": {"calm": "very"}}],
            "stop_reason": "max_tokens",
            "usage": {"input_tokens": 1, "output_tokens": 2},
        },
    ),
    "probabilities of Cohere's tokens": (
        "cohere",
        "cohere",
        True,
        {
            "id": "c",
            "message": {"role": "assistant", "content": [{"type": "text", "text": "word"}]},
            "finish_reason": "COMPLETE",
            "logprobs": [{"token_ids": [7], "text": "word", "logprobs": [-0.5]}],
        },
    ),
    "a passage without a source": (
        "gemini",
        "anthropic_messages",
        False,
        {
            "responseId": "r",
            "modelVersion": "gemini",
            "candidates": [
                {
                    "index": 0,
                    "content": {"parts": [{"text": "word"}]},
                    "finishReason": "MAX_TOKENS",
                    "groundingMetadata": {"groundingSupports": [{"renderedParts": [3]}]},
                }
            ],
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 2},
        },
    ),
}


@pytest.mark.parametrize(("provider", "client", "stream", "body"), FOUND.values(), ids=FOUND)
def test_no_member_of_these_answers_vanishes(provider: str, client: str, stream: bool, body: Json) -> None:
    answer = GeneratedAnswer(provider, False, [body])
    assert unaccounted(answer, client, Random(1), stream=stream, most=100) == []
