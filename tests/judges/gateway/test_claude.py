"""What clients of chat completions get from Claude, and what Claude gets from them: the streams are in `answers.py`."""

import time
from typing import Any

import msgspec
import pytest

from tests.faults.upstream import ByRequest, chunk, fin, head, last_chunk, status
from tests.judges.answers import ANSWERS, CLAUDE_BEGINS, LISBON, PIXEL, ROME, TWO_CALLS, body, streamed
from tests.judges.cases import Seen, SeenCall, SeenChoice
from tests.judges.gateway.asks import FIRST, PLAIN, STREAMED, TOOLS, VOICES, Report, Voice
from tests.judges.gateway.bench import Bench
from tests.messages import Json, error, opens, says, wire
from tests.tables import table

USAGE = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
FINISHES = {
    "text": "stop",
    "thinking": "stop",
    "max_tokens": "length",
    "a refusal": "content_filter",
    "a content filter": "content_filter",
    "a stop sequence": "stop",
    "an empty answer": "stop",
}
CALLS = [SeenCall("function", "call_a", "weather", LISBON), SeenCall("function", "call_b", "time", ROME)]
HELLO = wire(CLAUDE_BEGINS, opens(), says("Hello"))


def expected(text: str, finish: str, *, reasoning: str = "", calls: list[SeenCall] | None = None) -> Seen:
    """What a client sees; when the answer was created, only the gateway knows."""
    choice = SeenChoice("assistant", text, reasoning, "", calls or [], finish)
    return Seen("msg_w1", "weir-3", 0, {0: choice}, dict(USAGE))


def agrees(voice: Voice, report: Report, meant: Seen) -> None:
    """The client saw the expected answer, at the first try."""
    assert report.error is None, report.error
    assert report.statuses == [200]
    assert report.seen is not None
    assert report.seen.created == 0 or abs(report.seen.created - time.time()) < 60
    assert report.seen.usage is not None
    if "prompt_tokens_details" in report.seen.usage:
        assert report.seen.usage["prompt_tokens_details"] == {"cached_tokens": 8}
    figures = {name: report.seen.usage[name] for name in USAGE}
    if voice.client == "langchain":  # shows no thinking
        meant = without_reasoning(meant)
    seen = msgspec.structs.replace(report.seen, created=0, usage=figures)
    if voice.way.startswith("stream") and voice.client.startswith("openai"):
        # The helper keeps only the last piece of fields that the package does not know.
        seen, meant = without_reasoning(seen), without_reasoning(meant)
    assert seen == voice.shows(meant)
    if voice.streams:
        assert report.sent_text == meant.choices[0].text


def without_reasoning(seen: Seen) -> Seen:
    choice = msgspec.structs.replace(seen.choices[0], reasoning="")
    return msgspec.structs.replace(seen, choices={0: choice})


@pytest.mark.parametrize(("voice", "name"), table(VOICES, ANSWERS, whole=FIRST), ids=str)
def test_an_answer_is_seen(bench: Bench, voice: Voice, name: str) -> None:
    answer = ANSWERS[name]
    report = bench.ask(voice, bench.play(streamed(answer.claude), "claude"))
    meant = answer.seen_of_claude
    agrees(voice, report, expected(meant.text, FINISHES[name], reasoning=meant.thinking))


@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_an_answer_in_one_body_is_seen(bench: Bench, voice: Voice) -> None:
    agrees(voice, bench.ask(voice, bench.play(body("claude"), "claude")), expected("Hi", "stop"))


@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_two_tools_in_parallel_are_seen(bench: Bench, voice: Voice) -> None:
    model = bench.play(streamed(TWO_CALLS.claude), "claude")
    report = bench.ask(voice, model, tools=TOOLS)
    agrees(voice, report, expected("I shall look.", "tool_calls", reasoning="Both.", calls=CALLS))
    request = bench.request(model)
    assert [tool["name"] for tool in request["tools"]] == ["weather", "time"]
    assert request["max_tokens"] > 0
    assert request.get("stream", False) is voice.streams


@pytest.mark.parametrize("voice", [voice for voice in VOICES if voice.client.startswith("openai")], ids=str)
def test_results_and_images_reach_claude(bench: Bench, voice: Voice) -> None:
    def choose(body: Any) -> Any:
        return streamed((ANSWERS["text"] if "tool_result" in str(body) else TWO_CALLS).claude)

    model = bench.play([ByRequest(choose)], "claude")
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    question: list[Json] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Where is this?"}, image]},
    ]
    first = bench.ask(voice, model, messages=question, tools=TOOLS)
    assert first.seen is not None
    made = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in first.seen.choices[0].calls
    ]
    answered: list[Json] = [
        {"role": "assistant", "content": "I shall look.", "tool_calls": made},
        {"role": "tool", "tool_call_id": "call_a", "content": "sunny"},
        {"role": "tool", "tool_call_id": "call_b", "content": "noon"},
    ]
    second = bench.ask(voice, model, messages=question + answered, tools=TOOLS)
    agrees(voice, second, expected("Hello, wörld 🌞", "stop"))
    request = bench.request(model)
    assert str(request["system"]).count("Be brief.") == 1
    user, assistant, results = request["messages"]
    assert user["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": PIXEL}
    assert [block["type"] for block in assistant["content"]] == ["text", "tool_use", "tool_use"]
    assert [block["input"] for block in assistant["content"][1:]] == [{"city": "Lisbon 🌞"}, {"city": "Rome"}]
    assert [block["tool_use_id"] for block in results["content"]] == ["call_a", "call_b"]


@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_a_refusal_is_passed_on_in_the_words_of_chat(bench: Bench, voice: Voice) -> None:
    refused = wire(error("max_tokens: too many", "invalid_request_error")).partition(b"data: ")[2].strip()
    report = bench.ask(voice, bench.play([status(400, {"content-type": "application/json"}, refused)], "claude"))
    assert report.error is not None
    assert report.error.status == 400
    assert "max_tokens: too many" in report.error.message


@pytest.mark.parametrize("voice", STREAMED, ids=str)
@pytest.mark.parametrize(
    "end", [[chunk(wire(error())), last_chunk()], [last_chunk()], [fin()]], ids=["error", "end", "fin"]
)
def test_a_failure_after_the_first_word_is_raised(bench: Bench, voice: Voice, end: list[Any]) -> None:
    report = bench.ask(voice, bench.play([head(), chunk(HELLO), *end], "claude"))
    assert report.seen is None
    assert report.error is not None
    assert report.sent_text == "Hello"
    assert (report.error.code or "").startswith("upstream_")


@pytest.mark.parametrize("voice", PLAIN, ids=str)
def test_a_failure_in_the_middle_is_a_status_without_a_stream(bench: Bench, voice: Voice) -> None:
    report = bench.ask(voice, bench.play([head(), chunk(HELLO), chunk(wire(error())), last_chunk()], "claude"))
    assert report.error is not None
    assert report.error.status == 503
    assert "Overloaded" in report.error.message
