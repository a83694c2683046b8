"""What clients of Gemini's API see of answers of a chat provider, of Claude and of Gemini."""

import json
from typing import Any

import pytest

from penstock.core.dialects.gemini.signatures import standard_base64
from tests.faults.upstream import JSON, ByRequest, chunk, head, last_chunk, status
from tests.gemini import says, wire
from tests.judges.answers import CLAUDE_BEGINS, LISBON, PIXEL, ROME, streamed
from tests.judges.answers import SIGNATURE as OF_CLAUDE
from tests.judges.gemini.asks import (
    ANSWERS,
    FIRST,
    PLAIN,
    PROVIDERS,
    SIGNATURE,
    STREAMED,
    TWO_CALLS,
    VOICES,
    GeminiAnswer,
)
from tests.judges.gemini.bench import Bench
from tests.judges.messages.asks import Report, Voice
from tests.messages import Json
from tests.messages import error as claude_error
from tests.messages import opens as claude_opens
from tests.messages import says as claude_says
from tests.messages import wire as claude_wire
from tests.streams import begins as chat_begins
from tests.streams import says as chat_says
from tests.streams import sse
from tests.tables import table

BOTH_TOOLS = ["weather", "time"]
BEGINNINGS = {
    "main": sse(chat_begins(), chat_says("Hello")),
    "claude": claude_wire(CLAUDE_BEGINS, claude_opens(), claude_says("Hello")),
    "gem": wire(says("Hello")),
}
FAILURES = {
    "main": sse({"error": {"message": "Overloaded", "code": 503}}),
    "claude": claude_wire(claude_error()),
    "gem": wire({"error": {"code": 503, "message": "Overloaded", "status": "UNAVAILABLE"}}),
}
REFUSALS = {
    "main": {"error": {"message": "no such effort", "type": "invalid_request_error"}},
    "claude": {"type": "error", "error": {"type": "invalid_request_error", "message": "no such effort"}},
    "gem": {"error": {"code": 400, "message": "no such effort", "status": "INVALID_ARGUMENT"}},
}


def agrees(voice: Voice, provider: str, report: Report, *expected: GeminiAnswer) -> None:
    """The client saw the expected answers, at the first try."""
    assert report.error is None, report.error
    assert report.statuses == [200] * len(expected)
    assert report.turns == [each.shown(voice, provider) for each in expected]
    if voice.streams:
        assert report.sent_text == "".join(each.text for each in expected)
    assert report.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize(("voice", "provider", "name"), table(VOICES, PROVIDERS, ANSWERS, whole=FIRST), ids=str)
def test_an_answer_is_seen(bench: Bench, voice: Voice, provider: str, name: str) -> None:
    answer = ANSWERS[name]
    model = bench.play(provider, streamed(answer.wires[provider]))
    agrees(voice, provider, bench.ask(voice, model, thinking=name == "thinking"), answer)


@pytest.mark.parametrize(("voice", "provider"), table(VOICES, PROVIDERS, whole=FIRST), ids=str)
def test_the_provider_is_asked_what_the_client_asked(bench: Bench, voice: Voice, provider: str) -> None:
    model = bench.play(provider, streamed(ANSWERS["text"].wires[provider]))
    parts: list[Json] = [{"text": "What is this?"}, {"image": PIXEL}]
    bench.ask(voice, model, system="Be brief.", parts=parts, stop=["three"], max_tokens=300)
    (request,) = bench.requests(model)
    if provider == "gem":
        text, image = request["contents"][0]["parts"]
        data = image.get("inlineData") or image["inline_data"]
        assert text["text"] == "What is this?"
        assert standard_base64(data["data"]) == PIXEL
        assert request["generationConfig"]["maxOutputTokens"] == 300
        assert request["generationConfig"]["stopSequences"] == ["three"]
        instruction = request.get("systemInstruction") or request["system_instruction"]
        assert instruction["parts"][0]["text"] == "Be brief."
    else:
        assert "Be brief." in json.dumps(request)
        assert json.dumps(request).count(PIXEL) == 1
        assert 300 in (request.get("max_tokens"), request.get("max_completion_tokens"))
        assert (request.get("stop") or request.get("stop_sequences")) == ["three"]


@pytest.mark.parametrize(("voice", "provider"), table(VOICES, PROVIDERS, whole=FIRST), ids=str)
def test_two_tools_in_parallel_over_two_turns(bench: Bench, voice: Voice, provider: str) -> None:
    def choose(body: Json) -> Any:
        turn = ANSWERS["text"] if any(mark in str(body) for mark in RESULT_MARKS) else TWO_CALLS
        return streamed(turn.wires[provider])

    model = bench.play(provider, [ByRequest(choose)])
    report = bench.ask(voice, model, tools=BOTH_TOOLS, results={"weather": [{"text": "sunny"}]}, thinking=True)
    agrees(voice, provider, report, TWO_CALLS, ANSWERS["text"])
    first, second = bench.requests(model)
    CHECKS[provider](first, second)


RESULT_MARKS = ("tool_call_id", "tool_result", "functionResponse")


def asked_of_chat(first: Json, second: Json) -> None:
    assert [tool["function"]["name"] for tool in first["tools"]] == BOTH_TOOLS
    _, assistant, weather, time = second["messages"]
    made = [(call["function"]["name"], call["function"]["arguments"]) for call in assistant["tool_calls"]]
    assert made == [("weather", LISBON), ("time", ROME)]
    assert [weather["tool_call_id"], time["tool_call_id"]] == [call["id"] for call in assistant["tool_calls"]]
    assert "sunny" in weather["content"]
    assert "no such city" in time["content"]


def asked_of_claude(first: Json, second: Json) -> None:
    assert [tool["name"] for tool in first["tools"]] == BOTH_TOOLS
    _, assistant, results = second["messages"]
    kinds = [block["type"] for block in assistant["content"]]
    assert kinds == ["thinking", "text", "tool_use", "tool_use"]
    assert assistant["content"][0]["signature"] == OF_CLAUDE
    calls = [block["id"] for block in assistant["content"][2:]]  # LangChain does not send back those of the provider
    assert [block["tool_use_id"] for block in results["content"]] == calls
    assert "sunny" in str(results["content"][0]["content"])
    assert "no such city" in str(results["content"][1]["content"])


def asked_of_gemini(first: Json, second: Json) -> None:
    declared = first["tools"][0]
    functions = declared.get("functionDeclarations") or declared["function_declarations"]
    assert [each["name"] for each in functions] == BOTH_TOOLS
    _, assistant, *results = second["contents"]
    calls = [part for part in assistant["parts"] if "functionCall" in part]
    assert [call["functionCall"]["name"] for call in calls] == BOTH_TOOLS
    assert calls[0]["thoughtSignature"].rstrip("=") == SIGNATURE.rstrip("=")
    returned = [part["functionResponse"]["name"] for turn in results for part in turn["parts"]]
    assert returned == BOTH_TOOLS


CHECKS = {"main": asked_of_chat, "claude": asked_of_claude, "gem": asked_of_gemini}


@pytest.mark.parametrize(("voice", "provider"), table(VOICES, PROVIDERS, whole=FIRST), ids=str)
def test_a_refusal_of_the_provider_is_raised(bench: Bench, voice: Voice, provider: str) -> None:
    model = bench.play(provider, [status(400, JSON, json.dumps(REFUSALS[provider]).encode())])
    report = bench.ask(voice, model)
    assert report.error is not None
    assert "no such effort" in report.error.message
    assert report.error.status == 400
    assert report.statuses == [400]


@pytest.mark.parametrize("voice", FIRST + PLAIN[1:], ids=str)
def test_a_wrong_key_is_raised(bench: Bench, voice: Voice) -> None:
    report = bench.ask(voice, "main/any", key="wrong")
    assert report.error is not None
    assert (report.error.status, report.statuses) == (401, [401])
    assert "not known" in report.error.message


@pytest.mark.parametrize("ends", ["with an error", "without a finish reason"])
@pytest.mark.parametrize(("voice", "provider"), table(STREAMED, PROVIDERS, whole=STREAMED[:1]), ids=str)
def test_a_failure_after_the_first_word_is_raised(bench: Bench, voice: Voice, provider: str, ends: str) -> None:
    failure = [chunk(FAILURES[provider])] if ends == "with an error" else []
    report = bench.ask(voice, bench.play(provider, [head(), chunk(BEGINNINGS[provider]), *failure, last_chunk()]))
    assert report.sent_text == "Hello"
    assert report.error is not None


@pytest.mark.parametrize("voice", PLAIN, ids=str)
def test_a_failure_in_the_middle_is_a_status_without_a_stream(bench: Bench, voice: Voice) -> None:
    script = [head(), chunk(BEGINNINGS["gem"]), chunk(FAILURES["gem"]), last_chunk()]
    report = bench.ask(voice, bench.play("gem", script))
    assert report.error is not None
    assert report.error.status == 503
    assert "Overloaded" in report.error.message
