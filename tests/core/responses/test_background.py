"""Background responses: a request as one for a stream, and the response as the events of the stream have it so far."""

import json

import pytest

from penstock.core.dialects.openai_responses.background import BackgroundResponses
from penstock.core.dialects.openai_responses.surface import read_call
from penstock.core.hub.failure import RequestError
from penstock.core.hub.request import ClientRequest

BACKGROUND = BackgroundResponses()
QUEUED = b'{"id":"resp_1","status":"queued","odd":1.50}'


def request(**fields: object) -> ClientRequest:
    return read_call(json.dumps({"model": "m", "input": "Hi.", "background": True} | fields).encode(), {}, "")


def event(number: int | None, **members: object) -> bytes:
    numbered = {} if number is None else {"sequence_number": number}
    return b"event: any\ndata: " + json.dumps(numbered | members).encode() + b"\n\n"


EVENTS = [
    event(0, response={"id": "resp_1", "status": "in_progress"}),
    b": a comment\n\n",
    event(1, delta="Hello"),
    event(2, delta="."),
    b"data: [DONE]\n\n",
]


def test_the_request_becomes_one_for_a_stream() -> None:
    body = BACKGROUND.as_stream(request(temperature=0.5))
    assert json.loads(body) == {"model": "m", "input": "Hi.", "temperature": 0.5, "stream": True}


def test_a_response_that_is_not_stored_cannot_be_read_later() -> None:
    with pytest.raises(RequestError) as refused:
        BACKGROUND.as_stream(request(store=False))
    assert (refused.value.failure.param, "store" in refused.value.failure.message) == ("background", True)
    BACKGROUND.as_stream(request(store=True))


def test_before_it_begins_it_is_queued() -> None:
    queued = json.loads(BACKGROUND.write_queued("resp_1", 17, request(temperature=0.5)))
    wanted = {
        "id": "resp_1",
        "created_at": 17,
        "model": "m",
        "status": "queued",
        "output": [],
        "usage": None,
        "background": True,
        "store": True,
        "previous_response_id": None,
        "temperature": 0.5,
    }
    assert {name: queued[name] for name in wanted} == wanted


def test_it_is_the_response_of_the_newest_event_that_has_one() -> None:
    def running(*events: bytes, status: str | None = None) -> object:
        return json.loads(BACKGROUND.write_running(QUEUED, events, status))

    assert BACKGROUND.write_running(QUEUED, [], None) == QUEUED
    assert running(*EVENTS) == {"id": "resp_1", "status": "in_progress"}
    assert running(*EVENTS, event(3, response={"status": "completed"})) == {"status": "completed"}
    assert running(*EVENTS, status="cancelled") == {"id": "resp_1", "status": "cancelled"}


def test_one_that_the_gateway_did_not_complete_says_so() -> None:
    failed = json.loads(BACKGROUND.write_running(QUEUED, EVENTS, "failed"))
    assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")


@pytest.mark.parametrize(("after", "position"), [(-1, 0), (0, 1), (1, 3), (2, 4), (9, 4)])
def test_a_reader_goes_on_behind_the_event_of_a_number(after: int, position: int) -> None:
    assert BACKGROUND.position(EVENTS, after) == position
    assert BACKGROUND.position([], after) == 0


def test_an_event_without_a_number_is_before_all_others() -> None:
    assert BACKGROUND.position([event(None), event(1)], 0) == 1
