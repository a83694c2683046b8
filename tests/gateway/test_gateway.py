"""Requests with many values are estimated and translated in a thread, so that other calls do not wait."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec import structs

from penstock.core.dialects.dialect import RequestError
from penstock.core.dialects.registry import surface_dialect
from penstock.core.dialects.shared_state import find_reference
from penstock.core.hub.failure import Failure
from penstock.core.hub.request import ClientRequest, Request
from penstock.gateway.billing.ledger import NoLedger
from penstock.gateway.calls.gateway import Gateway
from penstock.gateway.calls.plan import PendingConnection
from penstock.gateway.calls.routing import TargetHealth
from penstock.gateway.config import Config, load
from penstock.gateway.record.call import Call
from penstock.gateway.record.embeddings_request import parse_embeddings
from penstock.gateway.record.trace import trace_of
from penstock.gateway.relay.body_relay import WholeResponse
from penstock.gateway.relay.relay import Relay
from penstock.http.upstream_connection import UpstreamError
from penstock.providers.provider import Provider


class Unreachable:
    """An upstream, and the only endpoint of it, that accepts no connection."""

    def endpoint(self, url: str, headers: dict[str, str]) -> "Unreachable":  # noqa: ARG002
        return self

    secrets: tuple[str, ...] = ()

    def idle_connection(self) -> PendingConnection | None:
        return None

    async def open(self, timeout_s: float) -> PendingConnection:  # noqa: ARG002
        raise UpstreamError("upstream_connect_failed", "no connection")

    def request(self, body: bytes, headers: bytes = b"") -> bytes:
        return headers + body

    async def large_request(self, body: bytes, headers: bytes = b"") -> bytes:
        return self.request(body, headers)


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

    def hold(self, data: bytes, /) -> None: ...

    def chunk_writer(self) -> None: ...

    def end(self, data: bytes) -> None: ...

    def answer(self, body: bytes) -> None: ...


class EmbeddingsClient(Waiting):
    def attach(self, relay: Any) -> None: ...

    def forward(self, whole: WholeResponse) -> None: ...


TWO_TARGETS = """
[providers.one]
base_url = "http://one.example"
[providers.two]
base_url = "http://two.example"
dialect = "openai_responses"
[routes.pair]
targets = ["one/m", "two/m"]
strict = STRICT
[telemetry]
otlp = "http://collector.example"
content = true
"""


def request_of(turns: int, model: str = "openai/m") -> ClientRequest:
    messages = [{"role": role, "content": "Some words. " * 20} for role in ("user", "assistant")] * (turns // 2 + 1)
    fields = {"model": model, "max_tokens": 9, "stream": True, "messages": messages, "top_k": 5}
    body = json.dumps(fields).encode()
    return surface_dialect("anthropic_messages").read_request(body, {}, "/messages")


async def longest_turn_s(stop: asyncio.Event) -> float:
    """The most CPU time that the thread of the event loop took between two turns of it."""
    longest, before = 0.0, time.thread_time()
    while not stop.is_set():
        await asyncio.sleep(0)
        longest, before = max(longest, time.thread_time() - before), time.thread_time()
    return longest


class Outcome(NamedTuple):
    code: str
    attempts: int
    threads: set[str]
    """The names of the threads that read the request."""
    longest_turn_s: float
    traced: bool
    """Whether the request is there for traces."""


async def outcome_of(request: ClientRequest, config: Config, *, traced: bool = False) -> Outcome:
    """How a call ends."""
    threads: set[str] = set()

    def read() -> Request:
        threads.add(threading.current_thread().name)
        return request.read()

    def upstream(_provider: Provider) -> Unreachable:
        return Unreachable()

    gateway = Gateway(config, upstream, {}, TargetHealth(config.retries, lambda: 0.0, lambda: 0.0), NoLedger())
    client, stop = Waiting(), asyncio.Event()
    call = Call("req_1", request.model, stream=True, started=asyncio.get_running_loop().time())
    call.trace = trace_of("") if traced else None
    watching = asyncio.get_running_loop().create_task(longest_turn_s(stop))
    attempts = gateway.attempts_for(call, structs.replace(request, read=read), client)
    attempts.start()
    async with asyncio.timeout(30):
        code = await client.outcome
        stop.set()
        return Outcome(
            code,
            len(call.progress.attempts),
            threads,
            await watching,
            traced=call.trace is not None and call.trace.request is not None,
        )


def default_config() -> Config:
    return load(Path("/dev/null"), {"OPENAI_API_KEY": "x"})


@pytest.mark.parametrize(("turns", "apart"), [(1, False), (100, False), (3_000, True)])
def test_a_thread_reads_and_translates_a_request_with_many_values(turns: int, apart: bool) -> None:
    outcome = asyncio.run(outcome_of(request_of(turns), default_config()))
    assert outcome.code == "upstream_connect_failed"
    assert outcome.threads
    assert (threading.main_thread().name not in outcome.threads) == apart


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strict", "code", "attempts"), [(False, "upstream_connect_failed", 2), (True, "translation_loss", 0)]
)
def test_the_thread_also_translates_for_further_targets_and_for_traces(
    tmp_path: Path, strict: bool, code: str, attempts: int
) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text("[retries]\nsame_target = 0\n" + TWO_TARGETS.replace("STRICT", str(strict).lower()))
    config = load(path, {})
    few = asyncio.run(outcome_of(request_of(10, "pair"), config, traced=True))
    many = asyncio.run(outcome_of(request_of(10_000, "pair"), config, traced=True))
    for outcome in (few, many):
        assert (outcome.code, outcome.attempts, outcome.traced) == (code, attempts, True)
    assert few.threads == {threading.main_thread().name}
    assert threading.main_thread().name not in many.threads
    assert many.longest_turn_s < 0.025  # on the loop, each translation takes some 50 ms


@pytest.mark.parametrize(("size", "works"), [(1_000, []), (1_000_000, ["demand", "content"])])
def test_a_thread_estimates_and_writes_a_large_request_for_embeddings(
    tmp_path: Path, size: int, works: list[str]
) -> None:
    class Threads(ThreadPoolExecutor):
        def submit(self, work: Callable[..., Any], /, *arguments: Any, **more: Any) -> Future[Any]:
            done.append(work.__name__)
            return super().submit(work, *arguments, **more)

    done: list[str] = []
    path = tmp_path / "penstock.toml"
    path.write_text(
        '[retries]\nsame_target = 0\n\n[providers.one]\nbase_url = "http://one.example"\nembeddings = "/embeddings"'
    )
    config = load(path, {})

    async def run() -> str:
        asyncio.get_running_loop().set_default_executor(Threads())
        health = TargetHealth(config.retries, lambda: 0.0, lambda: 0.0)
        gateway = Gateway(config, lambda _: Unreachable(), {}, health, NoLedger())
        request = parse_embeddings(json.dumps({"model": "one/m", "input": "a" * size}).encode())
        client = EmbeddingsClient()
        attempts = gateway.embed(Call("req_1", request.model, stream=False, started=0.0), request, client)
        attempts.start()
        async with asyncio.timeout(30):
            return await client.outcome

    assert asyncio.run(run()) == "upstream_connect_failed"
    assert done == works


def test_a_client_that_disconnects_meanwhile_gets_nothing() -> None:
    async def run() -> None:
        config = default_config()
        gateway = Gateway(
            config, lambda _: Unreachable(), {}, TargetHealth(config.retries, lambda: 0.0, lambda: 0.0), NoLedger()
        )
        client, request = Waiting(), request_of(3_000)
        attempts = gateway.attempts_for(Call("req_1", request.model, stream=True, started=0.0), request, client)
        attempts.start()
        attempts.stop()
        await asyncio.sleep(0.1)
        assert not client.outcome.done()

    asyncio.run(run())


SHARED = {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]}]}
ROUTED = {"messages": [{}], "models": ["a", "b"]}


@pytest.mark.parametrize(
    ("settings", "fields", "code"),
    [
        ("", SHARED, "shared_state_not_allowed"),
        ("[server]\nshared_state = true", SHARED, ""),
        ("", ROUTED, "provider_routing_not_allowed"),
        ("[server]\nshared_state = true", ROUTED, "provider_routing_not_allowed"),
        ("[server]\nprovider_routing = true", ROUTED, ""),
        ("[server]\nprovider_routing = true", ROUTED | SHARED, "shared_state_not_allowed"),
    ],
)
def test_shared_state_and_other_routes_are_the_operators_to_allow(
    tmp_path: Path, settings: str, fields: dict[str, object], code: str
) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text(settings)
    config = load(path, {"OPENAI_API_KEY": "x"})
    request = surface_dialect("openai_chat").read_request(json.dumps({"model": "openai/m", **fields}).encode(), {}, "")
    request.reference = find_reference("openai_chat", request.fields)
    health = TargetHealth(config.retries, lambda: 0.0, lambda: 0.0)
    gateway = Gateway(config, lambda _: Unreachable(), {}, health, NoLedger())
    if not code:
        gateway.check(request)
        return
    with pytest.raises(RequestError, match=r"in \[server\]") as refused:
        gateway.check(request)
    assert refused.value.failure.code == code


RATE_LIMITED = Failure(code="upstream_rate_limited", message="", retry_after="7")
BROKEN = Failure(code="upstream_error", message="", retry_after="7")


@pytest.mark.parametrize(
    ("failures", "refusal"),
    {
        "a rate limit": ([RATE_LIMITED], (429, "upstream_rate_limited")),
        "a failure": ([BROKEN], (503, "no_healthy_target")),
        "a rate limit after a failure": ([BROKEN, RATE_LIMITED], (429, "upstream_rate_limited")),
    }.values(),
)
def test_clients_get_a_429_in_the_cool_down_after_a_rate_limit(
    failures: list[Failure], refusal: tuple[int, str]
) -> None:
    async def run() -> Failure:
        config = default_config()
        health = TargetHealth(config.retries, lambda: 0.0, lambda: 0.0)
        gateway = Gateway(config, lambda _: Unreachable(), {}, health, NoLedger())
        (plan,) = gateway.plans("openai/m", "anthropic_messages", stream=True)
        for failure in failures:
            health.failed(plan.target, failure)
        request = request_of(1)
        with pytest.raises(RequestError) as refused:
            gateway.attempts_for(Call("req_1", request.model, stream=True, started=0.0), request, Waiting())
        return refused.value.failure

    failure = asyncio.run(run())
    assert (failure.status, failure.code, failure.retry_after) == (*refusal, "7")
