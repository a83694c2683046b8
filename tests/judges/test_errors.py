"""The errors that clients of Messages and of Responses get: before and after the first text, and by whose fault.

Both APIs have the same failures, and words of their own for them: those are the rows of `APIS`.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests import responses
from tests.faults.client import CLIENT_KEY
from tests.faults.scripts import ERROR_BODY
from tests.faults.upstream import JSON, Op, Script, Turns, chunk, fin, head, last_chunk, rst, status
from tests.judges.answers import streamed
from tests.judges.bench import Bench
from tests.judges.messages import asks as messages_asks
from tests.judges.messages import bench as messages_bench
from tests.judges.responses import answers as responses_answers
from tests.judges.responses import asks as responses_asks
from tests.judges.responses.answers import ANSWERS, HELLO
from tests.messages import calls, error, passes, wire
from tests.streams import calls as chat_calls
from tests.streams import piece, sse
from tests.tables import table

PAGE = b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
WORDS = "Invalid value: 'xhigh'. Supported values are: 'low'."
REFUSAL = {"message": WORDS, "type": "invalid_request_error", "param": "reasoning.effort", "code": "invalid_value"}
# By provider: its refusal of a request, its error as a body and as events of a stream, and the beginning of a call.
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
LATE = ["an error event", "an error event, then the rest", "the end of the body", "a call's end missing"]
LATE += ["a closed connection", "a reset"]

Meaning = tuple[int, str]
"""A status, and the word by which an application knows the error."""


@dataclass(frozen=True)
class Api:
    """How the clients of an API are reported what has failed."""

    name: str
    voices: Sequence[Any]
    providers: Sequence[str]
    word: Callable[[Any], str | None]
    """The word in an error that a client has raised."""
    request_id: str
    """The header that has the id of the call."""
    early: Mapping[str, Meaning]
    """What each failure before the first text means."""
    overloaded: Meaning
    """What the error of Claude means by its type, and that of a Responses provider by its code."""
    cut: tuple[str, str]
    """A word in the message of an answer that was cut, and the word by which an application knows it."""
    refusals: Mapping[str, str]
    wrong_key: str
    unknown_model: str
    retriers: tuple[str, ...]
    """One way of each client: each has a retry loop of its own."""

    def __str__(self) -> str:
        return self.name

    @property
    def first(self) -> list[Any]:
        """The voices that play every case: one that streams and one that does not."""
        return [next(voice for voice in self.voices if voice.streams is streams) for streams in (True, False)]


MESSAGES = Api(
    "messages",
    messages_asks.VOICES,
    messages_bench.PROVIDERS,
    word=lambda failure: failure.type,
    request_id="request-id",
    early={
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
    },
    overloaded=(529, "overloaded_error"),
    cut=("stream", "api_error"),
    refusals={"main": "invalid_request_error", "claude": "invalid_request_error"},
    wrong_key="authentication_error",
    unknown_model="not_found_error",
    retriers=("create", "plain async", "fullStream", "astream"),
)
RESPONSES = Api(
    "responses",
    responses_asks.VOICES,
    responses_answers.PROVIDERS,
    word=lambda failure: failure.code,
    request_id="x-request-id",
    early={
        "an error as the first event": (502, "upstream_error"),
        "an error as the body of a 200": (502, "upstream_error"),
        "a page in a 200": (502, "upstream_bad_content_type"),
        "an empty stream": (502, "upstream_empty"),
        "a cut before the first word": (502, "upstream_"),
        "500": (502, "upstream_error"),
        "503": (503, "server_is_overloaded"),
        "401, for our key": (502, "upstream_auth"),
        "429": (429, "rate_limit_exceeded"),
    },
    overloaded=(503, "server_is_overloaded"),
    cut=("answer was complete", ""),
    refusals={"main": "invalid_request", "claude": "invalid_request", "responses": "invalid_value"},
    wrong_key="invalid_api_key",
    unknown_model="model_not_found",
    retriers=("create", "parse async", "fullStream", "astream", "run"),
)
APIS = {api.name: api for api in (MESSAGES, RESPONSES)}


def rows(*names: str, streams: bool | None = None, retriers: bool = False) -> pytest.MarkDecorator:
    """Rows of an API, a voice, and what is named: a provider, a failure of `EARLY` or of `LATE`."""
    found = []
    for api in APIS.values():
        voices = [voice for voice in api.voices if streams is None or voice.streams is streams]
        if retriers:
            voices = [voice for voice in voices if voice.way in api.retriers]
        axes = {"provider": api.providers, "early": list(api.early), "late": LATE}
        whole = () if retriers else api.first
        found += [(api, *row) for row in table(voices, *(axes[name] for name in names), whole=whole)]
    columns = ("api", "voice", *("fault" if name in ("early", "late") else name for name in names))
    return pytest.mark.parametrize(columns, found, ids=str)


@pytest.fixture
def bench(request: pytest.FixtureRequest, api: Api) -> Any:
    return request.getfixturevalue(f"{api.name}_bench")


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
    rest = ANSWERS["text"].wires[provider]
    ends: dict[str, list[Op]] = {
        "an error event": [chunk(ERROR_EVENT[provider]), last_chunk()],
        "an error event, then the rest": [chunk(ERROR_EVENT[provider]), chunk(rest), last_chunk()],
        "the end of the body": [last_chunk()],
        "a call's end missing": [chunk(CALL[provider]), last_chunk()],
        "a closed connection": [fin()],
        "a reset": [rst()],
    }
    return [head(), chunk(HELLO[provider]), *ends[fault]]


@rows("provider", "early")
def test_a_failure_before_the_first_word_is_a_status(
    bench: Bench[Any, Any], api: Api, voice: Any, provider: str, fault: str
) -> None:
    report = bench.ask(voice, bench.play(provider, early(fault, provider)))
    reported = provider != "main" and fault.startswith("an error as")
    raised(api, report, *(api.overloaded if reported else api.early[fault]))
    assert report.sent_text == ""


@rows("provider")
def test_a_refusal_of_the_provider_is_passed_on_and_not_tried_again(
    bench: Bench[Any, Any], api: Api, voice: Any, provider: str
) -> None:
    model = bench.play(provider, [status(400, JSON, json.dumps(REFUSALS[provider]).encode())])
    report = bench.ask(voice, model, max_retries=2)
    raised(api, report, 400, api.refusals[provider], WORDS)
    assert report.statuses == [400]
    assert len(bench.requests(model)) == 1


@rows("provider", "late", streams=True)
def test_a_failure_after_the_first_word_is_raised(
    bench: Bench[Any, Any], api: Api, voice: Any, provider: str, fault: str
) -> None:
    model = bench.play(provider, late(fault, provider))
    report = bench.ask(voice, model, max_retries=1)
    assert not report.turns
    assert report.error is not None
    assert report.sent_text == "Hello"
    assert report.statuses == [200]
    assert len(bench.requests(model)) == 1
    failed = "error event" in fault
    words, word = ("verloaded", "") if failed else api.cut
    if failed and api is MESSAGES:
        word = "overloaded_error" if provider == "claude" else "api_error"
    assert words in report.error.message
    assert not word or api.word(report.error) == word


@rows("provider", "late", streams=False)
def test_a_failure_in_the_middle_is_a_status_without_a_stream(
    bench: Bench[Any, Any], api: Api, voice: Any, provider: str, fault: str
) -> None:
    report = bench.ask(voice, bench.play(provider, late(fault, provider)))
    assert not report.turns
    assert report.error is not None
    if api is MESSAGES:
        assert report.error.status in (502, 529)
        assert report.error.type in ("api_error", "overloaded_error")
    else:
        assert report.statuses[0] in (502, 503)


@rows("provider", retriers=True)
def test_a_client_that_must_wait_waits_and_tries_again(
    bench: Bench[Any, Any], api: Api, voice: Any, provider: str
) -> None:
    limited = status(429, JSON | {"retry-after": "1"}, OVERLOADED[provider])
    model = bench.play(provider, [Turns([limited], streamed(ANSWERS["text"].wires[provider]))])
    begun = time.monotonic()
    report = bench.ask(voice, model, max_retries=1)
    assert time.monotonic() - begun >= 1.0
    assert report.statuses == [429, 200]
    assert report.error is None
    assert [turn.text for turn in report.turns] == [ANSWERS["text"].seen.text]
    assert report.headers[api.request_id].startswith("req_")


@rows()
def test_a_wrong_key_is_a_401(bench: Bench[Any, Any], api: Api, voice: Any) -> None:
    model = bench.play("main", streamed(ANSWERS["text"].wires["main"]))
    report = bench.ask(voice, model, key="not-the-key", max_retries=2)
    raised(api, report, 401, api.wrong_key)
    assert report.statuses == [401]
    assert bench.requests(model) == []


@rows()
def test_an_unknown_model_is_a_404(bench: Bench[Any, Any], api: Api, voice: Any) -> None:
    report = bench.ask(voice, "no-such-model", max_retries=2)
    raised(api, report, 404, api.unknown_model, "no-such-model")
    assert report.statuses == [404]


def raised(api: Api, report: Any, code: int, word: str, words: str = "") -> None:
    """The client raised, and an application can tell why."""
    assert report.turns == []
    assert report.error is not None
    assert report.error.status == code
    assert (api.word(report.error) or "").startswith(word)
    assert words in report.error.message
    assert CLIENT_KEY not in report.error.message
    assert report.headers[api.request_id].startswith("req_")
