"""Healthy streams of the dialects that only providers speak, for the fuzzer and the property tests."""

import json

from tests import bedrock, cohere, ollama
from tests.streams import Json

THOUGHT, TEXT, ARGUMENTS = "Tides turn.", "High water at 6.", {"port": "Brest", "days": [1, 2.5]}
_WRITTEN = json.dumps(ARGUMENTS)

OLLAMA = {
    "text": ollama.answer(ollama.message("High water"), ollama.message(" at 6.")),
    "thinking and a call": ollama.answer(
        ollama.message(thinking=THOUGHT),
        ollama.message(TEXT),
        ollama.message(tool_calls=[ollama.call("call_1", ARGUMENTS), ollama.call("call_2", ARGUMENTS)]),
    ),
    "unstreamed": ollama.body(ollama.message(TEXT)),
}

_COHERE_USAGE = cohere.usage(cached=2)
_COHERE_TEXT = cohere.says_all("High water", " at 6.")
_SOURCE = "https://tides.example/brest"
COHERE = {
    "text": cohere.answer(*_COHERE_TEXT, finish=cohere.ends(counts=_COHERE_USAGE)),
    "thinking and a call": cohere.wire(
        cohere.BEGIN,
        *cohere.says_all("Tides", kind="thinking"),
        *_COHERE_TEXT[:-1],
        *cohere.cites("at 6", 11, url=_SOURCE),
        _COHERE_TEXT[-1],
        cohere.plans(" turn."),
        *cohere.calls_all("tide_1", _WRITTEN[:9], _WRITTEN[9:]),
        cohere.ends("TOOL_CALL", _COHERE_USAGE),
    ),
    "unstreamed": cohere.body(
        "TOOL_CALL",
        _COHERE_USAGE,
        tool_plan=THOUGHT,
        content=[cohere.text(TEXT)],
        tool_calls=[cohere.call("tide_1", _WRITTEN)],
        citations=[cohere.citation("at 6", 11, url=_SOURCE)],
    ),
}

_BEDROCK_USAGE: Json = {"inputTokens": 4, "outputTokens": 4, "totalTokens": 11, "cacheReadInputTokens": 2}
_BEDROCK_USAGE |= {"cacheWriteInputTokens": 1, "cacheDetails": [{"inputTokens": 1, "ttl": "1h"}]}
_BEDROCK_TEXT = bedrock.says_all("High water", " at 6.", index=1)
_CALL = bedrock.call("tooluse_1")
BEDROCK = {
    "text": bedrock.answer(_BEDROCK_TEXT, usage=_BEDROCK_USAGE),
    "thinking and a call": bedrock.answer(
        bedrock.thinks_all("Tides", " turn.", seal="c2ln"),
        _BEDROCK_TEXT,
        bedrock.calls_all("tooluse_1", _WRITTEN[:9], _WRITTEN[9:], index=2),
        reason="tool_use",
        usage=_BEDROCK_USAGE,
    ),
    "unstreamed": bedrock.body(
        {"reasoningContent": {"reasoningText": {"text": THOUGHT, "signature": "c2ln"}}},
        {"text": TEXT},
        {"toolUse": _CALL["toolUse"] | {"input": ARGUMENTS}},
        reason="tool_use",
        usage=_BEDROCK_USAGE,
    ),
}
HEALTHY: dict[str, dict[str, bytes]] = {ollama.DIALECT: OLLAMA, cohere.DIALECT: COHERE, bedrock.DIALECT: BEDROCK}
"""By dialect."""
