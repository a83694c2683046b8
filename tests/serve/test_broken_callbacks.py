"""An exception of ours in any callback of a call ends it: the client gets an error, it is booked, nothing stays open.

Each scenario plays one call through the real server connection, surface, attempts, relay, watchdog, ledger and client
connection, on transports of the test. The dialects, the accounts and the journal count their calls, and raise at the
n-th: once, or from then on. Every n is tried, until the scenario ends without an exception.
"""

import asyncio
import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from msgspec import structs

from penstock.amounts import clock_ms
from penstock.core.dialects.registry import DIALECTS
from penstock.gateway.billing.ledger import Ledger
from penstock.gateway.billing.price_table import PriceTable
from penstock.gateway.billing.prices import PriceBook
from penstock.gateway.calls.gateway import Gateway
from penstock.gateway.calls.routing import TargetHealth
from penstock.gateway.config import Config, load
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.keys.quota import Quota
from penstock.gateway.limits.admission import Decision, Grant, Reservation
from penstock.gateway.record.entry import Entry
from penstock.gateway.record.price import Price, Rates
from penstock.http.exchange import Exchange
from penstock.http.limits import FrontLimits, UpstreamLimits
from penstock.http.server import ServerConnection
from penstock.http.upstream_connection import UpstreamConnection
from penstock.serve.responses import error_page
from penstock.serve.surfaces.answers import Answers
from penstock.serve.surfaces.call_session import CallSession
from tests.gateway.ledger_doubles import AccountsDouble, JournalDouble, WriterDouble
from tests.gateway.support import Clock
from tests.streams import DONE, begins, finishes, says, sse

CONFIG = """
[server]
heartbeat_s = 10
[timeouts]
gap_s = 30
[providers.p]
base_url = "http://p.example/v1"
abort = "ABORT"
"""
QUOTA = Quota(id="key_1", budget=10**12, period="month", concurrent=1)
KEY = ClientKey(id="key_1", name="a key", digest=b"1" * 32, quotas=(QUOTA,))
PRICE = Price(Rates(input=1_000, output=10_000))
TOOL = '{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{}"}}]}}'
Mode = Literal["once", "from then on"]


class BrokenError(Exception):
    """What the fuse raises."""


class Fuse:
    """Counts calls, and raises at the n-th: once, or from then on."""

    def __init__(self, n: int, mode: Mode) -> None:
        self.left, self.mode, self.blown = n, mode, False

    def count(self) -> None:
        self.left -= 1
        if self.left == 0 or (self.left < 0 and self.mode == "from then on"):
            self.blown = True
            raise BrokenError


class Fused:
    """Another object, whose methods count. Objects that a method in `makes` returns are fused, too."""

    def __init__(self, inner: Any, fuse: Fuse, *makes: str) -> None:
        self._inner, self._fuse, self._makes = inner, fuse, makes

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        def method(*args: Any, **kwargs: Any) -> Any:
            self._fuse.count()
            made = value(*args, **kwargs)
            return Fused(made, self._fuse) if name in self._makes else made

        return method


class FusedAccounts(Fused):
    """Accounts that may raise when something is reserved. If they raised when it is released, it could not be."""

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name) if name in ("reserve", "extend") else getattr(self._inner, name)


class Transport(asyncio.Transport):
    """Keeps what is written, and reports its end to its protocol."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.sent, self.closed, self._protocol = b"", False, protocol
        protocol.connection_made(self)

    def write(self, data: Any) -> None:
        self.sent += data

    def abort(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    close = abort

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Provider:
    """An upstream and its endpoint, with one connection, whose response the test plays."""

    def __init__(self) -> None:
        self.released: list[UpstreamConnection] = []
        self.connection = UpstreamConnection(UpstreamLimits(), self.released.append)
        self.transport = Transport(self.connection)

    def endpoint(self, url: str, headers: dict[str, str]) -> "Provider":  # noqa: ARG002
        return self

    secrets: tuple[str, ...] = ()

    def idle_connection(self) -> UpstreamConnection:
        return self.connection

    async def open(self, timeout_s: float) -> UpstreamConnection:  # noqa: ARG002
        return self.connection

    def request(self, body: bytes, headers: bytes = b"") -> bytes:
        return headers + body

    async def large_request(self, body: bytes, headers: bytes = b"") -> bytes:
        return self.request(body, headers)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TEXT = [chunk(sse(begins())), *(chunk(sse(says(word))) for word in ("Hello", " and", " more"))]
END = chunk(sse(finishes(), DONE)) + b"0\r\n\r\n"
STREAM = [HEAD, *TEXT, END]
USAGE = b'"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}'
BODY = b'{"id":"c","choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"stop"}],%b}' % USAGE
WHOLE = [b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(BODY), BODY]
CALLED = chunk(sse(f'{{"id":"c","choices":[{TOOL}]}}', finishes("tool_calls"), DONE)) + b"0\r\n\r\n"
Step = bytes | float | Literal["pause", "resume", "gone"]
# What the provider sends, the seconds that pass, and what the client does.
SCENARIOS: dict[str, tuple[str, bool, list[Step]]] = {
    "relayed stream": ("openai_chat", True, [*STREAM]),
    "translated stream": ("anthropic_messages", True, [*STREAM]),
    "stream with a tool call": ("gemini", True, [HEAD, *TEXT, CALLED]),
    "unstreamed": ("openai_chat", False, [*WHOLE]),
    "unstreamed and translated": ("openai_responses", False, [*WHOLE]),
    "cut off": ("openai_responses", True, [HEAD, *TEXT, b"0\r\n\r\n"]),
    "error": ("anthropic_messages", True, [b"HTTP/1.1 400 No\r\ncontent-length: 2\r\n\r\n{}"]),
    "heartbeat and timeout": ("openai_responses", True, [HEAD, 11.0, *TEXT, 11.0, 31.0]),
    "slow client": ("openai_chat", True, [HEAD, *TEXT, "pause", 1.0, "resume", END]),
    "disconnect": ("openai_chat", True, [HEAD, *TEXT, "gone"]),
    "drained after a disconnect": ("anthropic_messages", True, [HEAD, *TEXT, "gone", END]),
}
REQUESTS: dict[str, tuple[str, dict[str, object]]] = {
    "openai_chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
    "anthropic_messages": ("/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}),
    "openai_responses": ("/v1/responses", {"input": "Hi"}),
    "gemini": ("/v1beta/models/p/m:streamGenerateContent?alt=sse", {"contents": [{"parts": [{"text": "Hi"}]}]}),
}


class Outcome(NamedTuple):
    blown: bool
    answer: bytes
    """What the client got."""
    client_closed: bool
    entries: list[Entry]
    open_calls: int
    hold: bool
    """Whether the call still has its slot."""
    provider_open: bool
    """Whether the provider's connection is still open although its response is not complete."""
    reported: list[str]


async def play(fuse: Fuse, config: Config, dialect: str, stream: bool, steps: list[Step]) -> Outcome:
    """Play one scenario."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Clock)
    reported: list[str] = []
    loop.set_exception_handler(lambda _, context: reported.append(str(context["message"])))
    journal, accounts, writer, provider = JournalDouble(), AccountsDouble(), WriterDouble(), Provider()
    fused_journal: Any = Fused(journal, fuse)
    fused_accounts: Any = FusedAccounts(accounts, fuse)
    ledger = Ledger(
        fused_journal, fused_accounts, PriceBook(PriceTable(), {"p/*": PRICE}), {"p": config.providers["p"]}
    )
    ledger.book_writer = writer
    health = TargetHealth(config.retries, lambda: 0.0, lambda: 0.0)
    gateway = Gateway(config, lambda _: provider, {}, health, ledger)
    calls: dict[CallSession, None] = {}

    def settled(session: CallSession) -> None:
        del calls[session]
        ledger.settle(session.call)
        fuse.count()  # as metrics or the log could

    surface = Answers(dialect, calls, settled)

    def handle(exchange: Exchange) -> None:
        surface.handle(exchange, gateway, "req_1", KEY)

    server = ServerConnection(handle, error_page, FrontLimits(), set())
    client = Transport(server)
    path, fields = REQUESTS[dialect]
    body = json.dumps({"model": "p/m", "stream": stream, **fields}).encode()
    head = b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (path.encode(), len(body))
    try:
        server.data_received(head + body)
    except BrokenError as error:  # as a real transport does
        reported.append(repr(error))
        client.abort()
    await turns()
    if calls:
        assert not accounts_free(accounts), "the call has a slot"
    for step in steps:
        act(step, loop, server, client, provider)
        await turns()
    ledger.flush()
    free = accounts_free(accounts)
    return Outcome(
        fuse.blown,
        client.sent,
        client.closed,
        [entry for batch in writer.batches for entry in batch],
        len(calls),
        not free,
        not provider.transport.closed and not provider.released,
        reported,
    )


def act(step: Step, loop: Clock, server: ServerConnection, client: Transport, provider: Provider) -> None:
    if isinstance(step, bytes):
        if not provider.transport.closed:
            provider.connection.data_received(step)
    elif isinstance(step, float):
        loop.now += step
    elif step == "gone":
        client.abort()
    elif not client.closed:
        (server.pause_writing if step == "pause" else server.resume_writing)()


async def turns() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


def accounts_free(accounts: AccountsDouble) -> bool:
    """Whether the key, which may have one call at a time, has none."""
    answers: list[Decision] = []
    accounts.reserve(
        QUOTA, Reservation(id="another", cost=1, tokens=1, now=clock_ms(), until=clock_ms() + 1), answers.append
    )
    accounts.release(KEY.id, "another")
    return isinstance(answers[0], Grant)


def run(n: int, mode: Mode, config: Config, scenario: str, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    fuse, loop = Fuse(n, mode), Clock()
    dialect, stream, steps = SCENARIOS[scenario]
    with monkeypatch.context() as patched:
        for name in {dialect, "openai_chat"}:
            whole = DIALECTS[name]
            upstream: Any = Fused(whole.upstream, fuse, "frame_reader")
            surface: Any = Fused(whole.surface, fuse, "writer")
            patched.setitem(DIALECTS, name, structs.replace(whole, upstream=upstream, surface=surface))
        try:
            return loop.run_until_complete(play(fuse, config, dialect, stream, steps))
        finally:
            loop.close()


@pytest.mark.parametrize("mode", ["once", "from then on"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_exception_in_any_callback_ends_its_call(
    scenario: str, mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text(CONFIG.replace("ABORT", "drain" if "drained" in scenario else "cancel"))
    config = load(path, {})
    blown = 0
    while True:
        outcome = run(blown + 1, mode, config, scenario, monkeypatch)
        if not outcome.blown:
            break
        blown += 1
        where = f"{scenario}, the {blown}th call: {outcome}"
        assert outcome.reported, where
        assert not outcome.open_calls, where
        assert not outcome.hold, where
        assert not outcome.provider_open, where
        check_answer(outcome, scenario, mode, where)
    assert blown > 10
    assert [entry.outcome for entry in outcome.entries] == [ENDINGS.get(scenario, "completed")], outcome
    assert outcome.reported == []


ENDINGS = {"cut off": "truncated", "error": "failed", "heartbeat and timeout": "timed_out", "disconnect": "cancelled"}
ENDINGS["drained after a disconnect"] = "cancelled"


def check_answer(outcome: Outcome, scenario: str, mode: Mode, where: str) -> None:
    """The client got the error, or its answer or another error that it gets anyway; and the ledger agrees."""
    if not outcome.entries:  # the request could not be read: there is no call
        assert b" 500 " in outcome.answer or (mode == "from then on" and outcome.client_closed), where
        return
    (entry,) = outcome.entries
    reported = b"internal_error" in outcome.answer or b"the gateway failed" in outcome.answer
    whole = outcome.answer.endswith((b"0\r\n\r\n", b"}")) and not reported
    if entry.code == "internal_error":
        assert entry.outcome == ("failed" if entry.attempts else "refused"), where
        assert reported or (mode == "from then on" and outcome.client_closed), where
    else:
        assert entry.outcome == ENDINGS.get(scenario, "completed"), where
        assert whole or outcome.client_closed or (reported and entry.outcome == "failed"), where
