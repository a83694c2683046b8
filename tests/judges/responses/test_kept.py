"""The SDKs of OpenAI continue, read, list, cancel and delete responses that Penstock keeps, on every provider."""

import json

import msgspec
import pytest

from tests.judges.answers import streamed
from tests.judges.responses.answers import ANSWERS, PROVIDERS
from tests.judges.responses.asks import Voice
from tests.judges.responses.bench import Bench

VOICES = [Voice("openai-python", "kept"), Voice("openai-node", "kept")]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_a_kept_conversation(bench: Bench, voice: Voice, provider: str) -> None:
    answer = ANSWERS["text"]
    model = bench.play(provider, streamed(answer.wires[provider]))
    report = bench.ask(voice, model)
    first, second, kept = report.turns
    assert kept == second
    assert len({first.id, second.id}) == 2
    expected = answer.expected(provider)
    assert [msgspec.structs.replace(turn, id=None) for turn in (first, second)] == [expected, expected]
    assert report.sent_text == f"Say hello.|{expected.text}|Say hello.|"
    # Created, continued, read, two pages of its input, not cancelled, deleted, and then gone.
    assert report.statuses == [200, 200, 200, 200, 200, 400, 200, 404]
    assert report.error is not None
    assert (report.error.name, report.error.status) == ("NotFoundError", 404)
    asked = json.dumps(bench.requests(model)[1], ensure_ascii=False)
    assert asked.count("Say hello.") == 2
    assert expected.text in asked
    assert "previous_response_id" not in asked
