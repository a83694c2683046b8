"""openai-agents: an agent calls two tools, hands off to another agent, and that one answers.

A run is several requests; its report has one turn, with the items of all of them.
"""

import json

import pytest

from tests.faults.upstream import ByRequest, Op, chunk, fin, head
from tests.judges.answers import streamed
from tests.judges.responses.answers import (
    ANSWERS,
    CALLS,
    HELLO,
    PROVIDERS,
    TWO_CALLS,
    USAGE,
    WEATHER,
    WEATHER_TEXT,
    calls,
    says,
)
from tests.judges.responses.asks import SeenCall, Voice
from tests.judges.responses.bench import Bench
from tests.messages import Json

VOICES = [Voice("openai-agents", "run_streamed"), Voice("openai-agents", "run", streams=False)]
HAND_OFF = "transfer_to_harbour_master"
TEXT = ANSWERS["text"].seen.text
TOOLS: Json = {"tools": ["weather", "time"], "results": {"weather": "sunny", "time": "noon"}}


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_two_tools_and_a_handoff(bench: Bench, voice: Voice, provider: str) -> None:
    model = bench.play(provider, [ByRequest(lambda body: next_step(provider, body))])
    report = bench.ask(voice, model, **TOOLS, reasoning=True, system="You steer.")
    assert report.error is None, report.error
    (turn,) = report.turns
    assert (turn.text, turn.reasoning, turn.reason) == (TEXT, "Both.", "harbour_master")
    assert turn.calls == [*CALLS, SeenCall("call_c", HAND_OFF, {})]
    assert turn.usage == {name: 3 * count for name, count in USAGE.items()}
    assert report.statuses == [200] * 3
    if voice.streams:
        assert report.sent_text == f"I shall look.{TEXT}"
    first, _, third = map(json.dumps, bench.requests(model))
    assert "You steer." in first
    assert "You know the harbour." in third
    for result in ("sunny", "noon", "harbour_master"):
        assert result in third


def next_step(provider: str, body: Json) -> list[Op]:
    """Two tools, then the handoff, then the answer."""
    conversation = json.dumps(body)
    if '"call_c"' in conversation:
        return streamed(ANSWERS["text"].wires[provider])
    if '"call_b"' in conversation:
        return streamed(calls(provider, ("call_c", HAND_OFF, "{}")))
    return streamed(TWO_CALLS.wires[provider])


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_an_answer_has_the_fields_of_a_schema(bench: Bench, voice: Voice, provider: str) -> None:
    report = bench.ask(voice, bench.play(provider, streamed(says(provider, WEATHER_TEXT))), schema=True)
    assert report.error is None, report.error
    assert report.turns[0].parsed == WEATHER


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_a_broken_answer_is_no_answer(bench: Bench, voice: Voice, provider: str) -> None:
    report = bench.ask(voice, bench.play(provider, [head(), chunk(HELLO[provider]), fin()]))
    assert report.error is not None
    assert not report.turns
    assert report.statuses == ([200] if voice.streams else [502])
