"""How clients handle failures: they raise an error with a helpful message, and never take a broken answer for complete.

If a second target can answer, the client notices only the headers.
"""

import json
import time

import pytest

from tests.faults.client import CLIENT_KEY
from tests.faults.scripts import ERROR_BODY, HELLO, REST, WORLD, whole
from tests.faults.upstream import JSON, Script, Turns, chunk, fin, head, last_chunk, rst, status
from tests.judges.gateway.asks import FIRST, PLAIN, STREAMED, VOICES, Report, Voice, meaning
from tests.judges.gateway.bench import Bench
from tests.streams import calls, piece, sse
from tests.tables import table

PAGE = b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
REFUSED = {
    "error": {
        "message": "'messages' must contain the word 'json'",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "json_missing",
    }
}
WHOLE = HELLO + WORLD + REST
ERROR_EVENT = sse(ERROR_BODY.decode())

# Failures before the first text: the script, and the status and code for the client if there is no other target.
EARLY: dict[str, tuple[Script, int, str]] = {
    "an error as the first event": ([head(), chunk(ERROR_EVENT), last_chunk()], 502, "upstream_error"),
    "an error as the body of a 200": ([status(200, JSON, ERROR_BODY)], 502, "upstream_error"),
    "a page in a 200": ([status(200, {"content-type": "text/html"}, PAGE)], 502, "upstream_bad_content_type"),
    "a page instead of events": ([head(), chunk(PAGE), last_chunk()], 502, "upstream_bad_content_type"),
    "an empty stream": ([head(), last_chunk()], 502, "upstream_empty"),
    "a cut before the first word": ([head(), chunk(HELLO[:40]), fin()], 502, "upstream_"),
    "500": ([status(500, JSON, ERROR_BODY)], 502, "upstream_error"),
    "503": ([status(503, JSON, ERROR_BODY)], 503, "upstream_error"),
    "401, for our key": ([status(401, JSON, ERROR_BODY)], 502, "upstream_auth"),
    "403, for our key": ([status(403, JSON, ERROR_BODY)], 502, "upstream_auth"),
    "429": ([status(429, JSON, ERROR_BODY)], 429, "upstream_rate_limited"),
}

# Failures after the first text, and the code in the error frame.
CALL = sse(calls(piece(0, "call_a", "weather", '{"city":')))
LATE: dict[str, tuple[Script, str]] = {
    "an error event": ([head(), chunk(HELLO), chunk(ERROR_EVENT), last_chunk()], "upstream_error"),
    "an error event, then the rest": (
        [head(), chunk(HELLO), chunk(ERROR_EVENT), chunk(WORLD + REST), last_chunk()],
        "upstream_error",
    ),
    "the end of the body": ([head(), chunk(HELLO), last_chunk()], "upstream_truncated"),
    "the end of the body, in a call": ([head(), chunk(HELLO + CALL), last_chunk()], "upstream_truncated"),
    "a closed connection": ([head(), chunk(HELLO), fin()], "upstream_"),
    "a closed connection, within an event": ([head(), chunk(HELLO + WORLD[:30]), fin()], "upstream_"),
    "a reset": ([head(), chunk(HELLO), rst()], "upstream_"),
    "[DONE] without a finish reason": (
        [head(), chunk(HELLO), chunk(b"data: [DONE]\n\n"), last_chunk()],
        "upstream_truncated",
    ),
}


# One way of each client, and the asynchronous ones, because each has a retry loop of its own.
RETRIERS = [
    voice
    for voice in VOICES
    if voice.way in ("create", "create async", "plain", "fullStream", "generateText", "stream", "astream", "invoke")
    and str(voice) not in ("openai-python stream", "openai-node stream")
]


@pytest.mark.parametrize("voice", RETRIERS, ids=str)
def test_a_client_that_must_wait_waits_and_tries_again(bench: Bench, voice: Voice) -> None:
    limited = status(429, JSON | {"retry-after": "1"}, ERROR_BODY)
    model = bench.play([Turns([limited], whole())])
    begun = time.monotonic()
    report = bench.ask(voice, model, max_retries=1)
    assert time.monotonic() - begun >= 1.0
    assert report.statuses == [429, 200]
    assert report.error is None
    assert report.seen == voice.shows(meaning(WHOLE))


@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_a_refusal_of_the_provider_is_passed_on_and_not_tried_again(bench: Bench, voice: Voice) -> None:
    model = bench.play([status(400, JSON, json.dumps(REFUSED).encode())])
    report = bench.ask(voice, model, max_retries=2)
    raised(report, 400, "json_missing", "'messages' must contain the word 'json'")
    assert report.statuses == [400]
    assert bench.times_asked(model) == 1


@pytest.mark.parametrize(("voice", "fault"), table(VOICES, EARLY, whole=FIRST), ids=str)
def test_a_failure_before_the_first_word_is_a_status(bench: Bench, voice: Voice, fault: str) -> None:
    script, code_of_http, code = EARLY[fault]
    report = bench.ask(voice, bench.play(script))
    raised(report, code_of_http, code)
    assert report.sent_text == ""


@pytest.mark.parametrize(("voice", "fault"), table(VOICES, EARLY, whole=FIRST), ids=str)
def test_a_failure_before_the_first_word_is_not_noticed_where_there_is_a_second_target(
    bench: Bench, voice: Voice, fault: str
) -> None:
    report = bench.ask(voice, bench.pair(EARLY[fault][0], whole()))
    assert report.error is None
    assert report.statuses == [200]
    assert report.seen == voice.shows(meaning(WHOLE))
    assert report.headers["x-penstock-attempts"] == "2"
    assert report.headers["x-penstock-provider"] == "spare"


@pytest.mark.parametrize(("voice", "fault"), table(STREAMED, LATE), ids=str)
def test_a_failure_after_the_first_word_is_raised(bench: Bench, voice: Voice, fault: str) -> None:
    script, code = LATE[fault]
    model = bench.play(script)
    report = bench.ask(voice, model, max_retries=1)
    raised(report, None, code)
    assert report.sent_text == "Hello"
    assert report.statuses == [200]
    assert bench.times_asked(model) == 1


@pytest.mark.parametrize(("voice", "fault"), table(PLAIN, LATE), ids=str)
def test_a_failure_in_the_middle_is_a_status_to_who_asked_for_no_stream(bench: Bench, voice: Voice, fault: str) -> None:
    script, code = LATE[fault]
    raised(bench.ask(voice, bench.play(script)), 502, code)


@pytest.mark.parametrize(("voice", "fault"), table(PLAIN, LATE), ids=str)
def test_a_failure_in_the_middle_is_not_noticed_by_who_asked_for_no_stream_where_there_is_a_second_target(
    bench: Bench, voice: Voice, fault: str
) -> None:
    report = bench.ask(voice, bench.pair(LATE[fault][0], whole()))
    assert report.error is None
    assert report.seen == voice.shows(meaning(WHOLE))
    assert report.headers["x-penstock-attempts"] == "2"


@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_providers_that_cannot_be_reached_are_a_502(bench: Bench, voice: Voice) -> None:
    report = bench.ask(voice, bench.unreachable(voice))
    raised(report, 502, "upstream_connect_failed")
    assert report.headers["x-penstock-attempts"] == "2"


@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_a_wrong_key_is_a_401(bench: Bench, voice: Voice) -> None:
    model = bench.play(whole())
    report = bench.ask(voice, model, key="not-the-key", max_retries=2)
    raised(report, 401, "invalid_api_key")
    assert report.statuses == [401]
    assert bench.times_asked(model) == 0


@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_an_unknown_model_is_a_404(bench: Bench, voice: Voice) -> None:
    report = bench.ask(voice, "no-such-model", max_retries=2)
    raised(report, 404, "model_not_found", "no-such-model")
    assert report.statuses == [404]


def raised(report: Report, code_of_http: int | None, code: str, words: str = "") -> None:
    """The client raised, and an application can tell why."""
    assert report.seen is None
    assert report.error is not None
    assert report.error.status == code_of_http
    assert (report.error.code or "").startswith(code)
    assert words in report.error.message
    assert CLIENT_KEY not in report.error.message
    assert report.headers["x-request-id"].startswith("req_")
