"""What clients of Anthropic's API see of answers of a chat provider and of Claude: the table is in `answers.py`."""

from typing import Any

import msgspec
import pytest

from tests.faults.upstream import ByRequest
from tests.judges.answers import (
    ANSWERS,
    LISBON,
    PIXEL,
    ROME,
    SIGNATURE,
    TWO_CALLS,
    Answer,
    body,
    of_claude,
    seen,
    streamed,
)
from tests.judges.messages.asks import FIRST, VOICES, Report, Seen, Voice
from tests.judges.messages.bench import PROVIDERS, Bench
from tests.messages import Json
from tests.tables import table

BOTH_TOOLS = ["weather", "time"]


def agrees(voice: Voice, report: Report, *expected: Seen) -> None:
    """The client saw the expected answer, at the first try."""
    assert report.error is None, report.error
    assert report.statuses == [200] * len(expected)
    assert all(turn.id is None or turn.id.startswith("msg_") for turn in report.turns)
    ids = [turn.id for turn in report.turns]
    shown = [voice.shows(each) for each in expected]
    assert report.turns == [msgspec.structs.replace(each, id=id) for id, each in zip(ids, shown, strict=True)]
    if voice.streams:
        assert report.sent_text == "".join(each.text for each in expected)
    assert report.headers["request-id"].startswith("req_")


@pytest.mark.parametrize(("voice", "provider", "name"), table(VOICES, PROVIDERS, ANSWERS, whole=FIRST), ids=str)
def test_an_answer_is_seen(bench: Bench, voice: Voice, provider: str, name: str) -> None:
    answer = ANSWERS[name]
    model = bench.play(provider, streamed(answer.wire(provider)))
    report = bench.ask(voice, model, thinking=name == "thinking", stop=["three"] if "stop" in name else [])
    agrees(voice, report, answer.expected(provider))


@pytest.mark.parametrize(("voice", "provider"), table(VOICES, PROVIDERS, whole=FIRST), ids=str)
def test_an_answer_in_one_body_is_seen(bench: Bench, voice: Voice, provider: str) -> None:
    report = bench.ask(voice, bench.play(provider, body(provider)))
    expected = of_claude if provider == "claude" else seen
    agrees(voice, report, expected("text", text="Hi"))


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_the_provider_is_asked_what_the_client_asked(bench: Bench, voice: Voice, provider: str) -> None:
    model = bench.play(provider, streamed(ANSWERS["text"].wire(provider)))
    parts: list[Json] = [{"text": "What is this?"}, {"image": PIXEL}]
    bench.ask(voice, model, system="Be brief.", parts=parts, stop=["three"], max_tokens=300)
    (request,) = bench.requests(model)
    if provider == "claude":
        _, image = request["messages"][0]["content"]
        assert text_of(request["system"]) == "Be brief."
        assert image["source"] == {"type": "base64", "media_type": "image/png", "data": PIXEL}
        assert (request["max_tokens"], request["stop_sequences"]) == (300, ["three"])
    else:
        system, user = request["messages"]
        assert (system["role"], text_of(system["content"])) == ("system", "Be brief.")
        assert user["content"][0] == {"type": "text", "text": "What is this?"}
        assert user["content"][1]["image_url"]["url"] == f"data:image/png;base64,{PIXEL}"
        assert 300 in (request.get("max_tokens"), request.get("max_completion_tokens"))
        assert request["stop"] == ["three"]
    assert request.get("stream", False) is voice.streams


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_two_tools_in_parallel_over_two_turns(bench: Bench, voice: Voice, provider: str) -> None:
    model = bench.play(provider, by_turn(provider, TWO_CALLS))
    results: dict[str, list[Json]] = {"weather": [{"text": "sunny"}, {"image": PIXEL}]}
    report = bench.ask(voice, model, tools=BOTH_TOOLS, results=results, thinking=True)
    agrees(voice, report, TWO_CALLS.expected(provider), ANSWERS["text"].expected(provider))
    first, second = bench.requests(model)
    check = asked_of_claude if provider == "claude" else asked_of_chat
    check(first, second)


def by_turn(provider: str, first: Answer) -> list[ByRequest]:
    """A provider that calls tools until it has got their results."""

    def choose(body: Json) -> Any:
        has_results = "tool_call_id" in str(body) or "tool_result" in str(body)
        return streamed((ANSWERS["text"] if has_results else first).wire(provider))

    return [ByRequest(choose)]


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
    sunny, unknown = results["content"]
    assert sunny["tool_use_id"] == "call_a"
    assert [block["type"] for block in sunny["content"]] == ["text", "image"]
    assert sunny["content"][1]["source"]["data"] == PIXEL
    assert (unknown["tool_use_id"], unknown["is_error"]) == ("call_b", True)


def asked_of_chat(first: Json, second: Json) -> None:
    """The second request has the calls and a message for each result; the image follows in a user's message."""
    assert [tool["function"]["name"] for tool in first["tools"]] == BOTH_TOOLS
    _, assistant, weather, time, moved = second["messages"]
    assert text_of(assistant["content"]) == "I shall look."
    made = [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in assistant["tool_calls"]]
    assert made == [("call_a", "weather", LISBON), ("call_b", "time", ROME)]
    assert (weather["role"], weather["tool_call_id"]) == ("tool", "call_a")
    assert text_of(weather["content"]).startswith("sunny")
    assert (time["role"], time["tool_call_id"]) == ("tool", "call_b")
    assert "no such city" in text_of(time["content"])
    assert moved["role"] == "user"
    assert PIXEL in str(moved["content"])


def text_of(content: Any) -> str:
    """The text of a content, whichever of its two shapes it has."""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
