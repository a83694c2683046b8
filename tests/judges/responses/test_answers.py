"""What clients of the Responses API see of answers of three providers: the table is in `answers.py`."""

from typing import Any

import msgspec
import pytest

from tests.faults.upstream import ByRequest, Op
from tests.judges.answers import LISBON, PIXEL, ROME, SIGNATURE, streamed
from tests.judges.responses.answers import ANSWERS, PROVIDERS, SEAL, TWO_CALLS, WEATHER, WEATHER_TEXT, says
from tests.judges.responses.asks import FIRST, SCHEMA, VOICES, Report, Seen, Voice
from tests.judges.responses.bench import Bench
from tests.messages import Json
from tests.tables import table

BOTH_TOOLS = ["weather", "time"]
RESULTS = {"weather": "sunny", "time": "noon"}
# Errors with which a client answers what the model said, independent of the provider.
RAISED = {
    ("pydantic-ai", "a refusal"): "ContentFilterError",
    ("pydantic-ai", "an empty answer"): "UnexpectedModelBehavior",
}


def agrees(voice: Voice, report: Report, *expected: Seen) -> None:
    """The client saw what was meant, at the first try."""
    assert report.error is None, report.error
    assert report.statuses == [200] * len(expected)
    assert all(turn.id is None or turn.id.startswith("resp_") for turn in report.turns)
    shown = [voice.shows(each) for each in expected]
    assert [msgspec.structs.replace(turn, id=None) for turn in report.turns] == shown
    if voice.streams:
        assert report.sent_text == "".join(each.text for each in shown)
    assert report.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize(("voice", "provider", "name"), table(VOICES, PROVIDERS, ANSWERS, whole=FIRST), ids=str)
def test_an_answer_is_seen(bench: Bench, voice: Voice, provider: str, name: str) -> None:
    answer = ANSWERS[name]
    report = bench.ask(voice, bench.play(provider, streamed(answer.wires[provider])), reasoning=name == "thinking")
    expected = answer.expected(provider)
    if (voice.client, name) in RAISED and not expected.text:
        assert report.error is not None
        assert report.error.name == RAISED[voice.client, name]
        assert (expected.refusal or "") in report.error.message
    else:
        agrees(voice, report, expected)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_the_provider_is_asked_what_the_client_asked(bench: Bench, voice: Voice, provider: str) -> None:
    model = bench.play(provider, streamed(ANSWERS["text"].wires[provider]))
    parts: list[Json] = [{"text": "What is this?"}, {"image": PIXEL}]
    bench.ask(voice, model, system="Be brief.", parts=parts, max_tokens=300)
    (request,) = bench.requests(model)
    if provider == "claude":
        assert text_of(request["system"]) == "Be brief."
        (user,) = request["messages"]
        assert user["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": PIXEL}
        assert request["max_tokens"] == 300
    elif provider == "main":
        system, user = request["messages"]
        assert (system["role"], text_of(system["content"])) == ("system", "Be brief.")
        assert user["content"][1]["image_url"]["url"] == f"data:image/png;base64,{PIXEL}"
        assert 300 in (request.get("max_tokens"), request.get("max_completion_tokens"))
    else:
        user = request["input"][-1]
        assert "Be brief." in (request.get("instructions"), text_of(request["input"][0]["content"]))
        assert user["content"][1]["image_url"] == f"data:image/png;base64,{PIXEL}"
        assert request["max_output_tokens"] == 300
    assert user["role"] == "user"
    assert user["content"][0]["text"] == "What is this?"
    assert request.get("stream", False) is voice.streams


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_an_answer_has_the_fields_of_a_schema(bench: Bench, voice: Voice, provider: str) -> None:
    model = bench.play(provider, streamed(says(provider, WEATHER_TEXT)))
    report = bench.ask(voice, model, schema=True)
    parsed = WEATHER if voice.way not in ("create", "create async", "create plain") else None
    if voice.client == "langchain":
        parsed = report.turns[0].parsed if report.turns else None  # only `with_structured_output` decodes
    if voice.client == "openai-node" and voice.way == "create":
        parsed = None
    expected = msgspec.structs.replace(ANSWERS["text"].expected(provider), text=WEATHER_TEXT, parsed=parsed)
    agrees(voice, report, expected)
    (request,) = bench.requests(model)
    if provider == "main":
        asked = request["response_format"]["json_schema"]["schema"]
    elif provider == "claude":
        asked = request["output_config"]["format"]["schema"]
    else:
        asked = request["text"]["format"]["schema"]
    assert asked["properties"].keys() == SCHEMA["properties"].keys()
    assert asked["required"] == SCHEMA["required"]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_two_tools_in_parallel_over_two_turns(bench: Bench, voice: Voice, provider: str) -> None:
    model = bench.play(provider, [ByRequest(lambda body: by_turn(provider, body))])
    report = bench.ask(voice, model, tools=BOTH_TOOLS, results=RESULTS, reasoning=True)
    agrees(voice, report, TWO_CALLS.expected(provider), ANSWERS["text"].expected(provider))
    first, second = bench.requests(model)
    {"main": asked_of_chat, "claude": asked_of_claude, "responses": asked_of_responses}[provider](first, second)


def by_turn(provider: str, body: Json) -> list[Op]:
    """A provider that calls tools until it has got their results."""
    has_results = any(word in str(body) for word in ("tool_call_id", "tool_result", "function_call_output"))
    return streamed((ANSWERS["text"] if has_results else TWO_CALLS).wires[provider])


def asked_of_claude(first: Json, second: Json) -> None:
    """The second request has the calls, the signed thinking and both results, as Anthropic demands them."""
    assert [tool["name"] for tool in first["tools"]] == BOTH_TOOLS
    user, assistant, results = second["messages"]
    assert (user["role"], assistant["role"], results["role"]) == ("user", "assistant", "user")
    thinking, text, weather, time = assistant["content"]
    assert (thinking["type"], thinking["thinking"], thinking["signature"]) == ("thinking", "Both.", SIGNATURE)
    assert text["text"] == "I shall look."
    assert (weather["id"], weather["input"]) == ("call_a", {"city": "Lisbon 🌞"})
    assert (time["id"], time["input"]) == ("call_b", {"city": "Rome"})
    assert [(block["tool_use_id"], text_of(block["content"])) for block in results["content"]] == [
        ("call_a", "sunny"),
        ("call_b", "noon"),
    ]


def asked_of_chat(first: Json, second: Json) -> None:
    """The second request has the calls and a message for each result."""
    assert [tool["function"]["name"] for tool in first["tools"]] == BOTH_TOOLS
    _, assistant, weather, time = second["messages"]
    assert text_of(assistant["content"]) == "I shall look."
    made = [(call["id"], call["function"]["name"]) for call in assistant["tool_calls"]]
    assert made == [("call_a", "weather"), ("call_b", "time")]
    assert (weather["role"], weather["tool_call_id"], text_of(weather["content"])) == ("tool", "call_a", "sunny")
    assert (time["role"], time["tool_call_id"], text_of(time["content"])) == ("tool", "call_b", "noon")


def asked_of_responses(first: Json, second: Json) -> None:
    """The second request has the items of the answer, the sealed reasoning among them, and both results."""
    assert [tool["name"] for tool in first["tools"]] == BOTH_TOOLS
    reasoning, message, weather, time, *results = second["input"][1:]
    assert (reasoning["type"], reasoning["encrypted_content"]) == ("reasoning", SEAL)
    assert text_of(message["content"]) == "I shall look."
    made = [(call["call_id"], call["name"], call["arguments"]) for call in (weather, time)]
    assert [call[:2] for call in made] == [("call_a", "weather"), ("call_b", "time")]
    assert [msgspec.json.decode(call[2]) for call in made] == [msgspec.json.decode(each) for each in (LISBON, ROME)]
    assert [(result["call_id"], result["output"]) for result in results] == [("call_a", "sunny"), ("call_b", "noon")]


def text_of(content: Any) -> str:
    """The text of a content, whichever of its two shapes it has."""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
