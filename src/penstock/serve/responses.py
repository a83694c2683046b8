"""Responses to clients: JSON, errors in the client's dialect, and the headers of every response."""

import os
import time
from collections.abc import Iterator
from functools import lru_cache

import msgspec

from penstock.amounts import money
from penstock.core.dialects.registry import DEFAULT_DIALECT, answer_dialect, dialect_at
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import counted
from penstock.core.hub.repairs import by_level
from penstock.error_codes import ErrorCode
from penstock.gateway.record.call import Call
from penstock.http.exchange import Exchange, head_lines
from penstock.serve.paths import endpoint, plain_path

JSON = "application/json"
# The error codes of requests that the HTTP server refuses, by status.
_CODES: dict[int, ErrorCode] = {
    405: "method_not_allowed",
    408: "request_timeout",
    413: "body_too_large",
    414: "url_too_long",
    426: "upgrade_not_supported",
    431: "headers_too_large",
    501: "transfer_coding_not_supported",
    503: "too_many_connections",
}
_MAX_HEADER = 200
# Random bytes of a request id; and how many ids are generated together, to save system calls.
_RANDOM_BYTES = 8
_IDS_PER_BATCH = 64
# Proxies must neither buffer, nor cache, nor compress a stream.
STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
STREAM_LINES = head_lines(200, STREAM_HEADERS)


def stream_lines(content_type: str) -> str:
    """The head of a streamed response of another type."""
    return head_lines(200, STREAM_HEADERS | {"content-type": content_type})


def respond_json(exchange: Exchange, status: int, body: object, headers: dict[str, str] | None = None) -> None:
    """Send a JSON response."""
    exchange.respond(status, {"content-type": JSON, **(headers or {})}, msgspec.json.encode(body))


def respond_failure(
    exchange: Exchange,
    failure: Failure,
    request_id: str,
    headers: dict[str, str],
    dialect: str = DEFAULT_DIALECT,
) -> None:
    """Send an error in the client's dialect. A provider's own error body in the same dialect is passed on unchanged."""
    answers = answer_dialect(dialect)
    headers = id_headers(request_id, dialect) | headers
    if failure.retry_after:
        headers["retry-after"] = header_value(failure.retry_after)
    if not failure.retryable or not failure.client_may_retry:
        headers["x-should-retry"] = "false"
    if failure.body and failure.dialect == dialect:
        body = failure.body
    else:
        body = answers.write_error(failure, request_id)
    exchange.respond(answers.status_of(failure), {"content-type": JSON, **headers}, body)


def id_headers(request_id: str, dialect: str) -> dict[str, str]:
    """The headers with the id of a request, for a client of that dialect."""
    own = answer_dialect(dialect).request_id_header
    return {"x-request-id": request_id} | ({own: request_id} if own else {})


def error_page(status: int, message: str, target: bytes) -> tuple[dict[str, str], bytes]:
    """Headers and body of the response to a request that the HTTP server refuses."""
    path = endpoint(plain_path(target.partition(b"?")[0].decode("latin-1")))
    request_id, dialect = new_request_id(), dialect_at(path)
    failure = refused(message, _CODES.get(status, "bad_request"))
    body = answer_dialect(dialect).write_error(failure, request_id)
    return {"content-type": JSON} | id_headers(request_id, dialect), body


def refused(message: str, code: ErrorCode, param: str | None = None) -> Failure:
    """A failure that is the request's fault, so that a retry is pointless."""
    return Failure(code=code, message=message, param=param, retryable=False)


def new_request_id() -> str:
    """A new request id, which cannot be guessed."""
    return next(request_ids())


def request_ids() -> Iterator[str]:
    """Generate request ids. Each process needs its own generator: after a fork, both copies would yield the same ids.

    An id starts with the time in seconds, so that calls which are booked together are adjacent in the ledger's index.
    """
    while True:
        for random in os.urandom(_IDS_PER_BATCH * _RANDOM_BYTES).hex(" ", _RANDOM_BYTES).split():
            yield f"req_{int(time.time()):08x}{random}"


def call_headers(call: Call) -> dict[str, str]:
    """The response headers that describe how a call was answered."""
    return dict(line.split(": ", 1) for line in call_lines(call).split("\r\n") if line)


def call_lines(call: Call) -> str:
    """The response headers that describe how a call was answered, as lines of an HTTP head."""
    progress = call.progress
    attempts = progress.attempts
    lines = f"x-request-id: {call.id}\r\nx-penstock-attempts: {len(attempts)}\r\n"
    if progress.headers:
        lines += "".join(f"{name}: {value}\r\n" for name, value in progress.headers.items())
    if attempts:
        last = attempts[-1]
        lines += _answered_by(last.provider, last.model)
        if last.why:
            lines += f"x-penstock-route: {header_value(last.why)}\r\n"
        if call.tells_cost and progress.entry is not None and (cost := progress.entry.cost) is not None:
            lines += f"x-penstock-cost: {money(cost)}\r\n"
    if progress.commit_s is not None:
        lines += f"openai-processing-ms: {progress.commit_s * 1000:.0f}\r\n"
    if progress.breakpoints:
        lines += f"x-penstock-cache: {','.join(progress.breakpoints)}\r\n"
    if progress.losses:
        losses = ",".join(f"{code}={count}" for code, count in counted(progress.losses).items())
        lines += f"x-penstock-losses: {losses}\r\n"
    if progress.repairs:
        for header, counts in zip(("repairs", "findings", "notices"), by_level(progress.repairs), strict=True):
            if counts:
                value = ",".join(f"{code}={count}" for code, count in counts.items())
                lines += f"x-penstock-{header}: {value}\r\n"
    return lines


@lru_cache(maxsize=1_024)
def _answered_by(provider: str, model: str) -> str:
    return f"x-penstock-provider: {header_value(provider)}\r\nx-penstock-model: {header_value(model)}\r\n"


def header_value(value: str) -> str:
    """Make a value safe for a header: printable ASCII, truncated."""
    if value.isascii() and value.isprintable() and len(value) <= _MAX_HEADER:
        return value
    return "".join(character if " " <= character <= "~" else "?" for character in value)[:_MAX_HEADER]
