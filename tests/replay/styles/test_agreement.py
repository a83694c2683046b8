"""Every style, compared with real captures of its provider: fields, their order, and framing."""

import pytest

from tests.corpus import CORPUS
from tests.replay.styles.agreement import KINDS, STYLES, agreement

pytestmark = pytest.mark.slow

NO_CORPUS = f"no corpus in {CORPUS}: set PENSTOCK_CORPUS to the folder that holds its INDEX.jsonl"

# For each provider, the least number of captures that are reproduced byte for byte, and the least share that agrees of
# each kind. Kinds that are not named need not agree: a few captures went through other gateways, or come from models
# that differ (those behind OpenRouter, and other companies' models on Azure).
FLOORS: dict[str, tuple[int, dict[str, float]]] = {
    "openai": (270, {"framing": 0.95, "first": 0.9, "text": 0.95, "call": 0.95, "finish": 0.95, "usage": 0.95}),
    "azure": (35, {"framing": 0.95, "first": 0.75, "text": 0.7, "call": 1, "finish": 0.75, "usage": 0.7}),
    "groq": (35, {"framing": 1, "first": 1, "text": 1, "reasoning": 1, "call": 1, "finish": 0.95, "usage": 1}),
    "xai": (20, {"framing": 1, "first": 0.8, "text": 1, "reasoning": 1, "call": 1, "finish": 1, "usage": 1}),
    "openrouter": (1, {"framing": 0.95, "first": 0.7, "text": 0.5, "reasoning": 0.95, "finish": 0.5, "usage": 0.95}),
    "deepseek": (4, {"framing": 0.8, "first": 0.8, "text": 0.8, "reasoning": 1, "finish": 0.8}),
    "mistral": (1, {"framing": 1, "first": 1, "text": 0.8, "call": 1, "finish": 0.8}),
    "cerebras": (8, {"framing": 1, "first": 1, "text": 1, "reasoning": 1, "call": 1, "finish": 1}),
    "zai": (9, {"framing": 1, "first": 0.7, "text": 0.7, "reasoning": 0.7, "call": 0.8, "finish": 0.9}),
}


@pytest.mark.skipif(not (CORPUS / "INDEX.jsonl").exists(), reason=NO_CORPUS)
@pytest.mark.parametrize("provider", STYLES)
def test_is_like_the_captures(provider: str) -> None:
    seen = agreement(provider)
    same_bytes, shares = FLOORS[provider]
    report = {kind: f"{seen.agreed[kind]} of {seen.had[kind]}" for kind in KINDS if seen.had[kind]}
    print(f"{provider}: {seen.captures} captures, {seen.same_bytes} byte for byte, {report}")  # noqa: T201
    assert seen.same_bytes >= same_bytes
    assert {kind for kind, share in shares.items() if seen.share(kind) < share} == set(), report
