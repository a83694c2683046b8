"""The errors that clients of Anthropic's API get: before and after the first text, of the provider or the gateway."""

import json
import time

import pytest

from tests.faults.client import CLIENT_KEY
from tests.faults.scripts import ERROR_BODY
from tests.faults.upstream import JSON, Op, Script, Turns, chunk, fin, head, last_chunk, rst, status
from tests.judges.answers import ANSWERS, CLAUDE_BEGINS, streamed
from tests.judges.messages.asks import PLAIN, STREAMED, VOICES, Report, Voice
from tests.judges.messages.bench import PROVIDERS, Bench
from tests.messages import calls, error, opens, passes, says, wire
from tests.streams import begins as chat_begins
from tests.streams import calls as chat_calls
from tests.streams import piece, sse
from tests.streams import says as chat_says

PAGE = b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
WORDS = "max_tokens: 999999 > 64000, which is the maximum"
REFUSALS = {
    "main": {"error": {"message": WORDS, "type": "invalid_request_error", "param": "max_tokens", "code": None}},
    "claude": {"type": "error", "error": {"type": "invalid_request_error", "message": WORDS}, "request_id": "req_up"},
}
OVERLOADED = {"main": ERROR_BODY, "claude": json.dumps(error()).encode()}
# How each provider's stream begins, an event that is an error, and the beginning of a call.
HELLO = {
    "main": sse(chat_begins(), chat_says("Hello")),
    "claude": wire(CLAUDE_BEGINS, opens(), says("Hello")),
}
ERROR_EVENT = {"main": sse(ERROR_BODY.decode()), "claude": wire(error())}
CALL = {
    "main": sse(chat_calls(piece(0, "call_a", "weather", '{"city":'))),
    "claude": wire({"type": "content_block_stop", "index": 0}, calls(1, "call_a", "weather"), passes('{"city":', 1)),
}
EARLY: dict[str, tuple[int, str]] = {
    "an error as the first event": (502, "api_error"),
    "an error as the body of a 200": (502, "api_error"),
    "a page in a 200": (502, "api_error"),
    "an empty stream": (502, "api_error"),
    "a cut before the first word": (502, "api_error"),
    "500": (502, "api_error"),
    "503": (503, "overloaded_error"),
    "529": (529, "overloaded_error"),
    "401, for our key": (502, "api_error"),
    "429": (429, "rate_limit_error"),
}
LATE = ["an error event", "an error event, then the rest", "the end of the body", "a call's end missing"]
LATE += ["a closed connection", "a reset"]


def early(fault: str, provider: str) -> Script:
    """Failures before the first text."""
    code = fault[:3]
    if code.isdigit():
        return [status(int(code), JSON, OVERLOADED[provider])]
    scripts: dict[str, list[Op]] = {
        "an error as the first event": [head(), chunk(ERROR_EVENT[provider]), last_chunk()],
        "an error as the body of a 200": [status(200, JSON, OVERLOADED[provider])],
        "a page in a 200": [status(200, {"content-type": "text/html"}, PAGE)],
        "an empty stream": [head(), last_chunk()],
        "a cut before the first word": [head(), chunk(HELLO[provider][:40]), fin()],
    }
    return scripts[fault]


def late(fault: str, provider: str) -> Script:
    """Failures after the first text."""
    rest = ANSWERS["text"].wire(provider)
    ends: dict[str, list[Op]] = {
        "an error event": [chunk(ERROR_EVENT[provider]), last_chunk()],
        "an error event, then the rest": [chunk(ERROR_EVENT[provider]), chunk(rest), last_chunk()],
        "the end of the body": [last_chunk()],
        "a call's end missing": [chunk(CALL[provider]), last_chunk()],
        "a closed connection": [fin()],
        "a reset": [rst()],
    }
    return [head(), chunk(HELLO[provider]), *ends[fault]]


@pytest.mark.parametrize("fault", EARLY)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_a_failure_before_the_first_word_is_a_status(bench: Bench, voice: Voice, provider: str, fault: str) -> None:
    report = bench.ask(voice, bench.play(provider, early(fault, provider)))
    # Claude says in its error event that it is overloaded; the error of the chat provider has no type that tells.
    reported = provider == "claude" and fault.startswith("an error as")
    raised(report, *((529, "overloaded_error") if reported else EARLY[fault]))
    assert report.sent_text == ""


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_a_refusal_of_the_provider_is_passed_on_and_not_tried_again(bench: Bench, voice: Voice, provider: str) -> None:
    model = bench.play(provider, [status(400, JSON, json.dumps(REFUSALS[provider]).encode())])
    report = bench.ask(voice, model, max_retries=2)
    raised(report, 400, "invalid_request_error", WORDS)
    assert report.statuses == [400]
    assert len(bench.requests(model)) == 1


@pytest.mark.parametrize("fault", LATE)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("voice", STREAMED, ids=str)
def test_a_failure_after_the_first_word_is_raised(bench: Bench, voice: Voice, provider: str, fault: str) -> None:
    model = bench.play(provider, late(fault, provider))
    report = bench.ask(voice, model, max_retries=1)
    assert not report.turns
    assert report.error is not None
    assert report.sent_text == "Hello"
    assert report.statuses == [200]
    assert len(bench.requests(model)) == 1
    words, type = "stream", "api_error"
    if "error event" in fault:
        words, type = ("Overloaded", "overloaded_error") if provider == "claude" else ("overloaded", "api_error")
    assert words in report.error.message
    assert report.error.type == type


@pytest.mark.parametrize("fault", LATE)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("voice", PLAIN, ids=str)
def test_a_failure_in_the_middle_is_a_status_without_a_stream(
    bench: Bench, voice: Voice, provider: str, fault: str
) -> None:
    report = bench.ask(voice, bench.play(provider, late(fault, provider)))
    assert report.error is not None
    assert report.error.status in (502, 529)
    assert report.error.type in ("api_error", "overloaded_error")


# One way of each client: each has a retry loop of its own.
RETRIERS = [voice for voice in VOICES if voice.way in ("create", "plain async", "fullStream", "astream")]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("voice", RETRIERS, ids=str)
def test_a_client_that_is_reported_to_wait_waits_and_tries_again(bench: Bench, voice: Voice, provider: str) -> None:
    limited = status(429, JSON | {"retry-after": "1"}, OVERLOADED[provider])
    model = bench.play(provider, [Turns([limited], streamed(ANSWERS["text"].wire(provider)))])
    begun = time.monotonic()
    report = bench.ask(voice, model, max_retries=1)
    assert time.monotonic() - begun >= 1.0
    assert report.statuses == [429, 200]
    assert report.turns == [voice.shows(ANSWERS["text"].expected(provider))]


@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_a_wrong_key_is_a_401(bench: Bench, voice: Voice) -> None:
    model = bench.play("main", streamed(ANSWERS["text"].chat))
    report = bench.ask(voice, model, key="not-the-key", max_retries=2)
    raised(report, 401, "authentication_error")
    assert report.statuses == [401]
    assert bench.requests(model) == []


@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_an_unknown_model_is_a_404(bench: Bench, voice: Voice) -> None:
    report = bench.ask(voice, "no-such-model", max_retries=2)
    raised(report, 404, "not_found_error", "no-such-model")
    assert report.statuses == [404]


def raised(report: Report, code: int, type: str, words: str = "") -> None:
    """The client raised, and an application can tell why."""
    assert report.turns == []
    assert report.error is not None
    assert (report.error.status, report.error.type) == (code, type)
    assert words in report.error.message
    assert CLIENT_KEY not in report.error.message
    assert report.headers["request-id"].startswith("req_")
