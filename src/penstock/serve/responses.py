"""Answers in OpenAI's manner: JSON, the error envelope, and the headers that every answer carries."""

import msgspec

from penstock.gateway.call import Call
from penstock.gateway.failure import Failure
from penstock.http.server import Exchange

JSON = "application/json"
# Proxies must neither buffer, nor cache, nor compress a stream.
STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}


def respond_json(exchange: Exchange, status: int, body: object, headers: dict[str, str] | None = None) -> None:
    """Answer with a JSON value."""
    exchange.respond(status, {"content-type": JSON, **(headers or {})}, msgspec.json.encode(body))


def respond_failure(exchange: Exchange, failure: Failure, request_id: str, headers: dict[str, str]) -> None:
    """Answer with a failure: a provider's own refusal as it is, anything else in the envelope."""
    headers = {"x-request-id": request_id, **headers}
    if failure.retry_after:
        headers["retry-after"] = _one_line(failure.retry_after)
    if not failure.retryable or not failure.passing:
        headers["x-should-retry"] = "false"
    if failure.body and _is_envelope(failure.body):
        exchange.respond(failure.status, {"content-type": JSON, **headers}, failure.body)
    else:
        respond_json(exchange, failure.status, {"error": failure.error(request_id)}, headers)


def error_page(status: int, message: str) -> tuple[str, bytes]:
    """The body for a request that is refused before anything reads it."""
    kind = "invalid_request_error"
    return JSON, msgspec.json.encode({"error": {"message": message, "type": kind, "param": None, "code": str(status)}})


def call_headers(call: Call) -> dict[str, str]:
    """What the client is told about how its call was answered."""
    headers = {"x-request-id": call.id, "x-penstock-attempts": str(len(call.attempts))}
    if call.attempts:
        headers["x-penstock-provider"] = _one_line(call.attempts[-1].provider)
        headers["x-penstock-model"] = _one_line(call.attempts[-1].model)
    if call.repairs:
        headers["x-penstock-repairs"] = ",".join(f"{code}={count}" for code, count in call.repairs.items())
    return headers


def _one_line(value: str) -> str:
    """A value that is safe in a header."""
    return "".join(character if " " <= character <= "~" else "?" for character in value)[:200]


def _is_envelope(body: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(body).get("error"), dict)
    except (ValueError, AttributeError, RecursionError):
        return False
