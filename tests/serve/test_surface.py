"""A surface with a bug: its client still gets an answer, and can continue on the same connection."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.core.dialects.registry import surface_dialect
from penstock.core.hub.request import ClientRequest
from penstock.gateway.billing.ledger import NoLedger
from penstock.gateway.calls.attempt_loop import AttemptLoop
from penstock.gateway.calls.gateway import Gateway, Upstream
from penstock.gateway.calls.routing import TargetHealth
from penstock.gateway.config import load
from penstock.gateway.record.call import Call
from penstock.http.exchange import Exchange, HttpRequest
from penstock.http.limits import FrontLimits
from penstock.http.server import ServerConnection
from penstock.providers.provider import Provider
from penstock.serve.responses import error_page
from penstock.serve.surfaces.answers import AnswerSession
from penstock.serve.surfaces.call_session import CallSession
from penstock.serve.surfaces.surface import Surface

WORDS = "what-the-client-says"


class Defective(Surface[ClientRequest]):
    """A surface with a bug: when it reads a request, when it looks for an answer, or after the answer has begun."""

    def __init__(self, calls: dict[CallSession, None], over: Callable[[CallSession], None], place: str) -> None:
        self.name = "chat"
        self._misreads = place == "reads"
        super().__init__(calls, over, AnswerSession, _answer_in_part if place == "streams" else _answer_not)

    def read(self, body: bytes, request: HttpRequest) -> ClientRequest:
        if self._misreads:
            raise LookupError(body)
        return surface_dialect(self.dialect).read_request(body, request.headers, request.path)


def _answer_not(_gateway: Gateway, _call: Call, request: ClientRequest, _client: AnswerSession) -> AttemptLoop:
    raise KeyError(request.fields["messages"])


def _answer_in_part(gateway: Gateway, call: Call, request: ClientRequest, client: AnswerSession) -> AttemptLoop:
    client.begin()
    return _answer_not(gateway, call, request, client)


class Outcome(NamedTuple):
    """What two requests on one connection came to."""

    answers: list[bytes]
    settled: list[Call]
    reported: list[str]
    left: int


async def ask_twice(place: str, padding: int) -> Outcome:
    """Ask a surface with a defect twice on one connection."""
    loop = asyncio.get_running_loop()
    reported: list[str] = []
    loop.set_exception_handler(lambda _, context: reported.append(repr(context)))
    gateway = _gateway()
    calls: dict[CallSession, None] = {}
    settled: list[Call] = []

    def over(client: CallSession) -> None:
        del calls[client]
        settled.append(client.call)

    surface = Defective(calls, over, place)

    def handle(exchange: Exchange) -> None:
        surface.handle(exchange, gateway, "req_1", None)

    server = await loop.create_server(
        lambda: ServerConnection(handle, error_page, FrontLimits(), set()), "127.0.0.1", 0
    )
    body = json.dumps({"model": "m", "stream": True, "messages": [WORDS + " " * padding]}).encode()
    answers = []
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    for _ in range(2):
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        async with asyncio.timeout(10):
            head = await reader.readuntil(b"\r\n\r\n")
            if b"chunked" in head:
                rest = await reader.readuntil(b"0\r\n\r\n")
            else:
                length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length: "))
                rest = await reader.readexactly(int(length.removeprefix(b"content-length: ")))
        answers.append(head + rest)
    writer.close()
    server.close()
    return Outcome(answers, settled, reported, len(calls))


def _gateway() -> Gateway:
    def no_upstream(provider: Provider) -> Upstream:
        raise AssertionError(provider)

    config = load(Path("/dev/null"), {"OPENAI_API_KEY": "x"})
    return Gateway(config, no_upstream, {}, TargetHealth(config.retries, lambda: 0.0, lambda: 0.0), NoLedger())


@pytest.mark.parametrize("padding", [0, 300_000], ids=["small", "read beside the loop"])
@pytest.mark.parametrize("place", ["reads", "answers"])
def test_a_defect_is_reported_with_a_status_of_its_own(place: str, padding: int) -> None:
    outcome = asyncio.run(ask_twice(place, padding))
    for answer in outcome.answers:
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 500 ")
        assert b"x-request-id: req_1" in head
        assert json.loads(body)["error"] == {
            "message": "the gateway failed",
            "type": "server_error",
            "param": None,
            "code": "internal_error",
            "request_id": "req_1",
        }
    assert outcome.left == 0
    assert [(call.progress.status, call.progress.code) for call in outcome.settled] == [(500, "internal_error")] * (
        2 if place == "answers" else 0
    )


def test_a_defect_behind_the_beginning_is_the_last_frame() -> None:
    outcome = asyncio.run(ask_twice("streams", 0))
    for answer in outcome.answers:
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.count(b"data: ") == answer.count(b'"code":"internal_error"') == 1
    assert [call.progress.code for call in outcome.settled] == ["internal_error"] * 2


@pytest.mark.parametrize("place", ["reads", "answers", "streams"])
def test_a_defect_is_reported_once_and_without_what_the_client_sent(place: str) -> None:
    outcome = asyncio.run(ask_twice(place, 0))
    assert len(outcome.reported) == 2
    for reported in outcome.reported:
        assert "a call failed: " in reported
        assert "test_surface.py:" in reported
        assert WORDS not in reported
