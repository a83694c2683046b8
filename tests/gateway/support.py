"""A relay between fakes of its connection and its client, with a clock that the test sets."""

import asyncio
from collections.abc import Callable

from penstock import StreamReader, StreamWriter
from penstock.core.hub.failure import Failure
from penstock.gateway.record.attempt import Attempt, AttemptControl
from penstock.gateway.record.call import Call
from penstock.gateway.record.timeouts import AttemptTimeouts
from penstock.gateway.relay.outcome import Committed, Outcome
from penstock.gateway.relay.relay import Relay
from penstock.http.upstream_connection import Receiver
from tests.streams import DONE, begins, finishes, says, sse

USED_UP = Failure(code="budget_exceeded", message="no more", retryable=False)
HELLO, REST = sse(begins(), says("Hello")), sse(finishes(), DONE)
# What each path of the relay reads: text in whole frames; the same in whole HTTP chunks; text with something else.
VARIANTS = {
    "slow": sse(says(" word", padding="")) + b": a comment\n\n",
    "fast": sse(says(" word")) * 2,
    "no parser": b"",
}


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time the test sets."""

    now = 1000.0

    def time(self) -> float:
        return self.now


class Connection:
    aligned_chunks: tuple[bytes, ...] = ()
    on_chunk: Callable[[bytes, bytes], bool] | None = None
    redirected_to: Receiver | None = None

    def offer(self, data: bytes) -> bool:
        """Whether a chunk with this data is consumed without the parser. If not, it is not parsed either."""
        if self.on_chunk is None:
            return False
        if self.on_chunk(data, b"%x\r\n%b\r\n" % (len(data), data)):
            return True
        self.on_chunk = None
        return False

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def redirect(self, receiver: Receiver) -> None:
        self.redirected_to = receiver

    def abandon(self, receiver: Receiver) -> None: ...


class Client:
    stream = True

    def __init__(self) -> None:
        self.chunks = 0

    def begin(self) -> None: ...

    def write(self, data: bytes, /) -> None: ...

    def hold(self, data: bytes, /) -> None: ...

    def chunk_writer(self) -> Callable[[bytes], None]:
        return self._write_chunk

    def _write_chunk(self, _data: bytes) -> None:
        self.chunks += 1

    def end(self, data: bytes) -> None: ...

    def answer(self, body: bytes) -> None: ...


class Relayed:
    """A relay that gets events after given numbers of seconds."""

    def __init__(
        self,
        loop: Clock,
        *,
        keep: bool = False,
        drain_s: float = 0.0,
        client: Client | None = None,
        dialect: str = "openai_chat",
        hello: bytes = HELLO,
    ) -> None:
        """`hello` has the first events of an answer, with text."""
        self.loop = loop
        self.outcomes: list[Outcome] = []
        self.call = Call("req_1", "m", stream=True, started=loop.time())
        self.attempt = Attempt("p", "m")
        self.call.progress.attempts.append(self.attempt)
        self.call.progress.control = self.control = AttemptControl(self.attempt)
        if keep:
            self.control.keep_transcript()
        self.connection, self.client = Connection(), client or Client()
        timeouts = AttemptTimeouts(first_event_s=60, gap_s=300, heartbeat_s=0, total_s=9000, drain_s=drain_s)
        reader, writer = StreamReader(dialect), StreamWriter(dialect, source=dialect)
        self.relay = Relay(self.call, self.client, reader, writer, timeouts, self._outcome)
        self.relay.attach(self.connection)
        self.relay.on_head(200, {})
        self.after(2.0, hello)

    def _outcome(self, outcome: Outcome) -> None:
        assert outcome == Committed() or self.outcomes, "it failed before it was committed"
        self.outcomes.append(outcome)

    def after(self, seconds: float, data: bytes) -> None:
        self.loop.now += seconds
        self.connection.aligned_chunks = (data,)
        self.relay.on_data(data)

    def in_variant(self, variant: str, seconds: float) -> None:
        if variant != "no parser":
            self.after(seconds, VARIANTS[variant])
            return
        if self.connection.on_chunk is None:
            self.after(0.0, sse(says(" word")))
        self.loop.now += seconds
        assert self.connection.offer(sse(says(" word")))

    def end(self) -> None:
        self.relay.on_data(REST)
        self.relay.on_end()
