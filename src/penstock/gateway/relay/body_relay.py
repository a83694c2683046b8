"""BodyRelay: one attempt at an answer, such as embeddings, that is forwarded as a whole and unchanged.

The relay checks that the body is an answer (`body_check.py`) and reads its usage.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
from msgspec import Struct

from penstock.core.hub.events import Ending
from penstock.core.hub.failure import Failure
from penstock.core.hub.usage import Usage
from penstock.error_codes import TRUNCATION_CODES, ErrorCode
from penstock.gateway.record.call import Call
from penstock.gateway.record.failure import from_answer, from_transport, redacted
from penstock.gateway.record.timeouts import AttemptTimeouts
from penstock.gateway.relay.body_check import TRUNCATED, check_body
from penstock.gateway.relay.outcome import Committed, Failed, Outcome
from penstock.gateway.relay.ports import Connection
from penstock.http.deadline import Deadline
from penstock.http.upstream_connection import ReceiverError, UpstreamError

# The embeddings of two thousand texts in three thousand dimensions are 75 MB of JSON.
_MAX_BODY = 100_000_000
_TOO_LARGE = f"the answer exceeds {_MAX_BODY} bytes"
# The usage is near the end or near the beginning. Only these margins are searched: to decode 75 MB would block the
# event loop, and so every other call.
_USAGE = re.compile(rb'"usage"\s*:\s*(\{[^{}]{0,1000})\}')
_MARGIN = 4_096


class WholeResponse(Struct, frozen=True):
    """A complete answer, as the provider sent it."""

    body: bytes
    headers: Mapping[str, str]


class WholeClient(Protocol):
    """The client's side of a call whose answer is forwarded as a whole."""

    def forward(self, whole: WholeResponse) -> None:
        """Send the answer."""


class _UsageField(Struct):
    prompt_tokens: int | None = None
    total_tokens: int | None = None


class BodyRelay:
    """Collects a provider's answer until it is complete."""

    def __init__(
        self, call: Call, client: WholeClient, timeouts: AttemptTimeouts, report: Callable[[Outcome], None]
    ) -> None:
        """`report` is called once: with the failure, or before the answer is sent."""
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._call = call
        self._client = client
        self._attempt = call.progress.attempts[-1]
        self._timeouts = timeouts
        self._total_deadline = call.started + timeouts.total_s
        self._started_at = loop.time()
        self._deadline = Deadline(loop, call.guarded(self._expire))
        self._connection: Connection | None = None
        self._status = 0
        self._headers: Mapping[str, str] = {}
        self._pieces: list[bytes] = []
        self._size = 0
        self._over = False
        self._report = report

    def attach(self, connection: Connection) -> None:
        """Set the connection that the answer arrives on."""
        self._attempt.sent = True
        self._connection = connection
        self._wait(self._timeouts.first_event_s)

    # Called by the upstream connection.

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Take the head of the provider's response."""
        self._status = self._attempt.status = status
        self._headers = headers

    def on_data(self, data: bytes, *, last: bool = False) -> None:  # noqa: ARG002
        """Take a piece of the body."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size > _MAX_BODY:
            self._settle(from_transport("upstream_bad_response", _TOO_LARGE))
        else:
            self._wait(self._timeouts.gap_s)

    def on_end(self) -> None:
        """The body is complete: check it and settle."""
        body = b"".join(self._pieces)
        if self._status >= 300:
            self._settle(from_answer(self._attempt, self._headers, body))
            return
        answer = check_body(body, self._headers.get("content-encoding", ""))
        if isinstance(answer, Failure):
            self._settle(answer, "truncated" if answer.code == TRUNCATED else "failed")
        else:
            self._read_usage(answer)
            self._settle(WholeResponse(body, self._headers))

    def on_error(self, error: UpstreamError) -> None:
        """The connection failed before the body was complete, or the gateway did."""
        if isinstance(error, ReceiverError):
            self._call.fail(error.__cause__ or error)
            return
        ending: Ending = "truncated" if error.code in TRUNCATION_CODES else "failed"
        self._settle(from_transport(error.code, error.message), ending)

    # Called by the client's side.

    def cancel(self, failure: Failure) -> None:
        """End the attempt: the client has disconnected, or the gateway shuts down."""
        self._settle(failure, "cancelled")

    def drain(self, on_drained: Callable[[], None]) -> bool:  # noqa: ARG002 - the protocol's parameter
        """The client has disconnected. An unstreamed body is never drained."""
        return False

    def pause(self) -> None:
        """Do nothing: the client is sent nothing before the answer is complete."""

    def resume(self) -> None:
        """Do nothing: nothing was paused."""

    def _wait(self, seconds: float) -> None:
        self._deadline.set(max(0.0, min(seconds, self._total_deadline - self._loop.time())))

    def _expire(self) -> None:
        total = self._loop.time() >= self._total_deadline
        code: ErrorCode = "upstream_timeout_total" if total else "upstream_timeout_idle"
        self._settle(from_transport(code, "the provider took too long"), "timed_out")

    def _settle(self, outcome: Failure | WholeResponse, ending: Ending = "failed") -> None:
        if self._over:
            return
        self._over = True
        self._deadline.end()
        self._attempt.seconds = self._loop.time() - self._started_at
        self._attempt.ending = ending if isinstance(outcome, Failure) else "completed"
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abandon(self)
        if isinstance(outcome, Failure):
            failure = redacted(outcome, self._attempt.secrets)
            self._attempt.code = failure.code
            self._report(Failed(failure))
        else:
            self._report(Committed())  # and not `Completed`, which would excuse streams of this target that broke
            self._client.forward(outcome)

    def _read_usage(self, body: bytes) -> None:
        match = _USAGE.search(body[-_MARGIN:]) or _USAGE.search(body[:_MARGIN])
        if match is None:
            return
        try:
            figures = msgspec.json.decode(match[1] + b"}", type=_UsageField)
        except ValueError:
            return  # a usage of another form is no failure
        self._attempt.usage = Usage(input=figures.prompt_tokens, output=0, total=figures.total_tokens)
