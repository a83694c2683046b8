"""Requests with many values are estimated and translated in a thread, so that other calls do not wait."""

import asyncio
import json
import threading
from pathlib import Path

import pytest
from msgspec import structs

from penstock.core.dialects.registry import surface_dialect
from penstock.core.failure import Failure
from penstock.core.request import ClientRequest, Request
from penstock.gateway.billing.ledger import NoLedger
from penstock.gateway.calls.call import Call
from penstock.gateway.calls.pipeline import Gateway
from penstock.gateway.calls.plan import PendingConnection
from penstock.gateway.calls.routing import TargetHealth
from penstock.gateway.config import load
from penstock.gateway.relay.relay import Relay
from penstock.http.client import UpstreamError
from penstock.providers.provider import Provider


class Unreachable:
    """An upstream, and the only endpoint of it, that accepts no connection."""

    def endpoint(self, url: str, headers: dict[str, str]) -> "Unreachable":  # noqa: ARG002
        return self

    def idle_connection(self) -> PendingConnection | None:
        return None

    async def open(self, timeout_s: float) -> PendingConnection:  # noqa: ARG002
        raise UpstreamError("upstream_connect_failed", "no connection")

    def request(self, body: bytes, headers: bytes = b"") -> bytes:
        return headers + body


class Waiting:
    """A client that waits for its answer, or for an error."""

    stream = True

    def __init__(self) -> None:
        self.outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def attach(self, relay: Relay) -> None: ...

    def refuse(self, failure: Failure) -> None:
        self.outcome.set_result(failure.code)

    def fail(self, error: BaseException) -> None:
        self.outcome.set_exception(error)

    def begin(self) -> None: ...

    def write(self, data: bytes, /) -> None: ...

    def chunk_writer(self) -> None: ...

    def end(self, data: bytes) -> None: ...

    def answer(self, body: bytes) -> None: ...


def request_of(turns: int) -> ClientRequest:
    messages = [{"role": "user", "content": "Hi"}] * turns
    body = json.dumps({"model": "openai/m", "max_tokens": 9, "stream": True, "messages": messages}).encode()
    return surface_dialect("anthropic_messages").read_request(body, {}, "/messages")


async def threads_of(request: ClientRequest) -> tuple[str, set[str]]:
    """How a call ends, and the names of the threads that read its request."""
    threads: set[str] = set()

    def read() -> Request:
        threads.add(threading.current_thread().name)
        return request.read()

    def estimate() -> int:
        threads.add(threading.current_thread().name)
        return request.estimate()

    def upstream(_provider: Provider) -> Unreachable:
        return Unreachable()

    config = load(Path("/dev/null"), {"OPENAI_API_KEY": "x"})
    gateway = Gateway(config, upstream, {}, TargetHealth(config.retries, lambda: 0.0, lambda: 0.0), NoLedger())
    client = Waiting()
    call = Call("req_1", request.model, stream=True, started=asyncio.get_running_loop().time())
    attempts = gateway.answer(call, structs.replace(request, read=read, estimate=estimate), client)
    assert attempts is not None
    attempts.start()
    async with asyncio.timeout(10):
        return await client.outcome, threads


@pytest.mark.parametrize(("turns", "apart"), [(1, False), (100, False), (3_000, True)])
def test_a_thread_reads_and_translates_a_request_with_many_values(turns: int, apart: bool) -> None:
    outcome, threads = asyncio.run(threads_of(request_of(turns)))
    assert outcome == "upstream_connect_failed"
    assert threads
    assert (threading.main_thread().name not in threads) == apart


def test_a_client_that_disconnects_meanwhile_gets_nothing() -> None:
    async def run() -> None:
        config = load(Path("/dev/null"), {"OPENAI_API_KEY": "x"})
        gateway = Gateway(
            config, lambda _: Unreachable(), {}, TargetHealth(config.retries, lambda: 0.0, lambda: 0.0), NoLedger()
        )
        client, request = Waiting(), request_of(3_000)
        attempts = gateway.answer(Call("req_1", request.model, stream=True, started=0.0), request, client)
        assert attempts is not None
        attempts.start()
        attempts.stop()
        await asyncio.sleep(0.1)
        assert not client.outcome.done()

    asyncio.run(run())
