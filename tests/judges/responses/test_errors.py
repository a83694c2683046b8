"""What clients of the Responses API get when something fails: before the first word, after it, and by whom."""

import json
import time

import pytest

from tests import responses
from tests.faults.client import CLIENT_KEY
from tests.faults.scripts import ERROR_BODY
from tests.faults.upstream import JSON, Op, Script, Turns, chunk, fin, head, last_chunk, rst, status
from tests.judges.answers import streamed
from tests.judges.responses.answers import ANSWERS, HELLO, PROVIDERS
from tests.judges.responses.asks import PLAIN, STREAMED, VOICES, Report, Voice
from tests.judges.responses.bench import Bench
from tests.messages import calls, error, passes, wire
from tests.streams import calls as chat_calls
from tests.streams import piece, sse

PAGE = b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
WORDS = "Invalid value: 'xhigh'. Supported values are: 'low'."
REFUSAL = {"message": WORDS, "type": "invalid_request_error", "param": "reasoning.effort", "code": "invalid_value"}
REFUSALS = {
    "main": {"error": REFUSAL},
    "responses": {"error": REFUSAL},
    "claude": {"type": "error", "error": {"type": "invalid_request_error", "message": WORDS}, "request_id": "req_up"},
}
OVERLOADED = {
    "main": ERROR_BODY,
    "claude": json.dumps(error()).encode(),
    "responses": json.dumps({"error": responses.error()["error"]}).encode(),
}
# An event that is an error, and the beginning of a call.
FAILS = (responses.error(), responses.fails("Overloaded", "server_is_overloaded"))
ERROR_EVENT = {
    "main": sse(ERROR_BODY.decode()),
    "claude": wire(error()),
    "responses": b"".join(map(responses.named, FAILS)),
}
CALL = {
    "main": sse(chat_calls(piece(0, "call_a", "weather", '{"city":'))),
    "claude": wire({"type": "content_block_stop", "index": 0}, calls(1, "call_a", "weather"), passes('{"city":', 1)),
    "responses": b"".join(map(responses.named, responses.calls_all('{"city":""}', 1)[:2])),
}
EARLY: dict[str, tuple[int, str]] = {
    "an error as the first event": (502, "upstream_error"),
    "an error as the body of a 200": (502, "upstream_error"),
    "a page in a 200": (502, "upstream_bad_content_type"),
    "an empty stream": (502, "upstream_empty"),
    "a cut before the first word": (502, "upstream_"),
    "500": (502, "upstream_error"),
    "503": (503, "server_is_overloaded"),
    "401, for our key": (502, "upstream_auth"),
    "429": (429, "rate_limit_exceeded"),
}
LATE = ["an error event", "the end of the body", "a call's end missing", "a closed connection", "a reset"]


def early(fault: str, provider: str) -> Script:
    """What goes wrong before the first word."""
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
    """What goes wrong after the first word."""
    ends: dict[str, list[Op]] = {
        "an error event": [chunk(ERROR_EVENT[provider]), last_chunk()],
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
    # Claude says by the type of its error that it is overloaded, and a Responses provider by the code.
    reported = provider != "main" and fault.startswith("an error as")
    raised(report, *((503, "server_is_overloaded") if reported else EARLY[fault]))
    assert report.sent_text == ""


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_a_refusal_of_the_provider_is_passed_on_and_not_tried_again(bench: Bench, voice: Voice, provider: str) -> None:
    model = bench.play(provider, [status(400, JSON, json.dumps(REFUSALS[provider]).encode())])
    report = bench.ask(voice, model, max_retries=2)
    raised(report, 400, "invalid_value" if provider == "responses" else "invalid_request", WORDS)
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
    assert ("verloaded" if fault == "an error event" else "answer was complete") in report.error.message


@pytest.mark.parametrize("fault", LATE)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("voice", PLAIN, ids=str)
def test_a_failure_in_the_middle_is_a_status_without_a_stream(
    bench: Bench, voice: Voice, provider: str, fault: str
) -> None:
    report = bench.ask(voice, bench.play(provider, late(fault, provider)))
    assert report.error is not None
    assert report.statuses[0] in (502, 503)
    assert not report.turns


# One way of each client: each has a retry loop of its own.
RETRIERS = [voice for voice in VOICES if voice.way in ("create", "parse async", "fullStream", "astream", "run")]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("voice", RETRIERS, ids=str)
def test_a_client_that_must_wait_waits_and_tries_again(bench: Bench, voice: Voice, provider: str) -> None:
    limited = status(429, JSON | {"retry-after": "1"}, OVERLOADED[provider])
    model = bench.play(provider, [Turns([limited], streamed(ANSWERS["text"].wires[provider]))])
    begun = time.monotonic()
    report = bench.ask(voice, model, max_retries=1)
    assert time.monotonic() - begun >= 1.0
    assert report.statuses == [429, 200]
    assert [turn.text for turn in report.turns] == [ANSWERS["text"].seen.text]


@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_a_wrong_key_is_a_401(bench: Bench, voice: Voice) -> None:
    model = bench.play("main", streamed(ANSWERS["text"].wires["main"]))
    report = bench.ask(voice, model, key="not-the-key", max_retries=2)
    raised(report, 401, "invalid_api_key")
    assert report.statuses == [401]
    assert bench.requests(model) == []


@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_an_unknown_model_is_a_404(bench: Bench, voice: Voice) -> None:
    report = bench.ask(voice, "no-such-model", max_retries=2)
    raised(report, 404, "model_not_found", "no-such-model")
    assert report.statuses == [404]


def raised(report: Report, code_of_http: int, code: str, words: str = "") -> None:
    """The client raised, and an application can tell why."""
    assert report.turns == []
    assert report.error is not None
    assert report.error.status == code_of_http
    assert (report.error.code or "").startswith(code)
    assert words in report.error.message
    assert CLIENT_KEY not in report.error.message
    assert report.headers["x-request-id"].startswith("req_")
