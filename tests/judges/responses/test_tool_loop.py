"""The AI SDK's default provider for OpenAI runs tools over two steps, on a provider of every API.

It sends no items of the answer before, but references to them, and does not ask for encrypted reasoning: the gateway
has to know the items, in its default configuration.
"""

import json

import pytest

from tests import bedrock, cohere, ollama
from tests.faults.upstream import ByRequest, Op, chunk, head, last_chunk
from tests.judges.answers import LISBON, ROME, SIGNATURE, streamed
from tests.judges.gemini import asks as gemini
from tests.judges.responses.answers import ANSWERS, CALLS, SEAL, TWO_CALLS
from tests.judges.responses.asks import Voice
from tests.judges.responses.bench import Bench
from tests.messages import Json

VOICES = [Voice("vercel", "fullStream"), Voice("vercel", "generateText", streams=False)]
RESULTS = {"weather": "sunny", "time": "noon"}
TEXT = "Hello, wörld 🌞"
FRAMED = "application/vnd.amazon.eventstream"
LINES = "application/x-ndjson"


def plays(type: str, wire: bytes) -> list[Op]:
    """A provider that streams these bytes."""
    return [head(headers={"content-type": type}), chunk(wire), last_chunk()]


# By provider: its answer that thinks, says something and calls two tools; its last answer; the proof of its reasoning
# that comes back to it.
LOOPS: dict[str, tuple[list[Op], list[Op], str]] = {
    "main": (streamed(TWO_CALLS.wires["main"]), streamed(ANSWERS["text"].wires["main"]), ""),
    "claude": (streamed(TWO_CALLS.wires["claude"]), streamed(ANSWERS["text"].wires["claude"]), SIGNATURE),
    "responses": (streamed(TWO_CALLS.wires["responses"]), streamed(ANSWERS["text"].wires["responses"]), SEAL),
    "gem": (
        streamed(gemini.TWO_CALLS.wires["gem"]),
        streamed(gemini.ANSWERS["text"].wires["gem"]),
        gemini.SIGNATURE,
    ),
    "converse": (
        plays(
            FRAMED,
            bedrock.answer(
                bedrock.thinks_all("Both.", seal=SIGNATURE),
                bedrock.says_all("I shall look.", index=1),
                bedrock.calls_all("call_a", LISBON, index=2, name="weather"),
                bedrock.calls_all("call_b", ROME, index=3, name="time"),
                reason="tool_use",
            ),
        ),
        plays(FRAMED, bedrock.answer(bedrock.says_all(TEXT))),
        SIGNATURE,
    ),
    "command": (
        plays(
            "text/event-stream",
            cohere.answer(
                cohere.plans("I shall look."),
                *cohere.calls_all("call_a", LISBON, name="weather"),
                *cohere.calls_all("call_b", ROME, index=1, name="time"),
                finish=cohere.ends("TOOL_CALL"),
            ),
        ),
        plays("text/event-stream", cohere.answer(*cohere.says_all(TEXT))),
        "",
    ),
    "ollama": (
        plays(
            LINES,
            ollama.answer(
                ollama.message(thinking="Both."),
                ollama.message("I shall look."),
                ollama.message(
                    tool_calls=[
                        ollama.call("call_a", json.loads(LISBON), "weather"),
                        ollama.call("call_b", json.loads(ROME), "time", 1),
                    ]
                ),
            ),
        ),
        plays(LINES, ollama.answer(ollama.message(TEXT))),
        "",
    ),
}


@pytest.mark.parametrize("provider", LOOPS)
@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_tools_are_run_over_two_steps(bench: Bench, voice: Voice, provider: str) -> None:
    calls, ends, proof = LOOPS[provider]

    def by_turn(body: Json) -> list[Op]:
        return ends if "sunny" in json.dumps(body) else calls

    model = bench.play(provider, [ByRequest(by_turn)])
    report = bench.ask(voice, model, tools=list(RESULTS), results=RESULTS, reasoning=True, kept=True)
    assert report.error is None, report.error
    first, second = report.turns
    assert [(call.name, call.arguments) for call in first.calls] == [(call.name, call.arguments) for call in CALLS]
    assert second.text == TEXT
    asked = json.dumps(bench.requests(model)[1], ensure_ascii=False)
    assert "item_reference" not in asked
    for part in ("I shall look.", "Lisbon 🌞", "Rome", "sunny", "noon", proof):
        assert part in asked, part
