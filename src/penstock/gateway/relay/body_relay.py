"""BodyRelay: one attempt at an answer that is passed on whole, as the provider sent it.

Only its usage is read, and whether it is an answer at all.
"""

import asyncio
import re
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from penstock.core.events import Ending
from penstock.core.failure import Failure
from penstock.core.usage import Usage
from penstock.error_codes import ErrorCode
from penstock.gateway.calls.call import Call
from penstock.gateway.calls.failure import from_status, from_transport, redacted
from penstock.gateway.relay.body_check import TRUNCATED, look_through
from penstock.gateway.relay.ports import AttemptTimeouts, Connection
from penstock.http.client import UpstreamError
from penstock.http.deadline import Deadline

# The embeddings of two thousand texts in three thousand dimensions, as text, are 75 MB.
_MAX_BODY = 100_000_000
_TOO_LARGE = f"the answer exceeds {_MAX_BODY} bytes"
# Usage stands at the end, or at the beginning. What lies between is not read: it would hold up every other call.
_USAGE = re.compile(rb'"usage"\s*:\s*(\{[^{}]{0,1000})\}')
_MARGIN = 4_096


class WholeResponse(Struct, frozen=True):
    """A whole answer, as it came."""

    body: bytes
    headers: Mapping[str, str]


class _UsageField(Struct):
    prompt_tokens: int | None = None
    total_tokens: int | None = None


class BodyRelay:
    """Takes a provider's answer as it arrives, until it is whole."""

    def __init__(
        self, call: Call, patience: AttemptTimeouts, on_outcome: Callable[["Failure | WholeResponse"], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._call = call
        self._attempt = call.attempts[-1]
        self._patience = patience
        self._until = call.started + patience.total_s
        self._begun = loop.time()
        self._deadline = Deadline(loop, self._expire)
        self._connection: Connection | None = None
        self._status = 0
        self._headers: Mapping[str, str] = {}
        self._pieces: list[bytes] = []
        self._size = 0
        self._over = False
        # Called once: with the answer, or why there is none.
        self._on_outcome = on_outcome

    def attach(self, connection: Connection) -> None:
        """The connection that the answer will come on."""
        self._attempt.sent = True
        self._connection = connection
        self._wait(self._patience.first_event_s)

    # What the upstream's connection calls.

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        """The head of the provider's answer."""
        self._status = self._attempt.status = status
        self._headers = headers

    def on_data(self, data: bytes, *, last: bool = False) -> None:  # noqa: ARG002
        """A piece of its body."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size > _MAX_BODY:
            self._settle(from_transport("upstream_bad_response", _TOO_LARGE))
        else:
            self._wait(self._patience.gap_s)

    def on_end(self) -> None:
        """The body is complete."""
        body = b"".join(self._pieces)
        if self._status >= 300:
            self._settle(from_status(self._status, self._headers, body))
            return
        answer = look_through(body, self._headers.get("content-encoding", ""))
        if isinstance(answer, Failure):
            self._settle(answer, "truncated" if answer.code == TRUNCATED else "failed")
        else:
            self._read_usage(answer)
            self._settle(WholeResponse(body, self._headers))

    def on_error(self, error: UpstreamError) -> None:
        """The connection broke before the body was complete."""
        self._settle(from_transport(error.code, error.message))

    # What the client's side calls.

    def cancel(self, failure: Failure) -> None:
        """Stop: the client has gone, or the gateway is going."""
        self._settle(failure, "cancelled")

    def leave(self, on_left: Callable[[], None]) -> bool:  # noqa: ARG002 - nobody is heard out
        """The client has gone: so does the call."""
        return False

    def pause(self) -> None:
        """The client is slow; nothing is sent to it before all is here."""

    def resume(self) -> None:
        """The client has caught up."""

    def _wait(self, seconds: float) -> None:
        self._deadline.set(max(0.0, min(seconds, self._until - self._loop.time())))

    def _expire(self) -> None:
        total = self._loop.time() >= self._until
        code: ErrorCode = "upstream_timeout_total" if total else "upstream_timeout_idle"
        self._settle(from_transport(code, "the provider took too long"), "timed_out")

    def _settle(self, outcome: Failure | WholeResponse, ending: Ending = "failed") -> None:
        if self._over:
            return
        self._over = True
        self._deadline.end()
        self._attempt.seconds = self._loop.time() - self._begun
        self._attempt.ending = ending if isinstance(outcome, Failure) else "completed"
        if isinstance(outcome, Failure):
            outcome = redacted(outcome, self._attempt.secrets)
            self._attempt.code = outcome.code
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abandon(self)
        self._on_outcome(outcome)

    def _read_usage(self, body: bytes) -> None:
        found = _USAGE.search(body[-_MARGIN:]) or _USAGE.search(body[:_MARGIN])
        if found is None:
            return
        try:
            figures = msgspec.json.decode(found[1] + b"}", type=_UsageField)
        except ValueError:
            return  # not ours to judge
        self._attempt.usage = Usage(input=figures.prompt_tokens, output=0, total=figures.total_tokens)
