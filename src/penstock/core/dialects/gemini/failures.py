"""Failures in the format of Google's APIs: the error envelope, as a body and as the last message of a stream."""

import msgspec

from penstock.core.hub.failure import Failure
from penstock.core.provider_errors.context_overflow import CODE, read_overflow

# The maximum length of a message. It may quote a provider.
_MAX_MESSAGE = 1_000
_TOO_LONG = "exceeds the maximum number of tokens allowed"
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def error_of(status: int, message: str, details: list[dict[str, object]] | None = None) -> dict[str, object]:
    """The error envelope."""
    word = _STATUSES.get(status) or ("INVALID_ARGUMENT" if status < 500 else "INTERNAL")
    error: dict[str, object] = {"code": status, "message": message, "status": word}
    return {"error": error | ({"details": details} if details else {})}


def write_error(failure: Failure, request_id: str) -> bytes:
    """The body of an error. Its details have Penstock's own code, the id of the request, and the time to wait."""
    message = failure.message[:_MAX_MESSAGE]
    if failure.code == CODE and _TOO_LONG not in message:
        message = _too_long(message)
    details: list[dict[str, object]] = [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": failure.code.upper(),
            "domain": "penstock",
            "metadata": {"code": failure.code, "requestId": request_id},
        }
    ]
    if failure.retry_after.isdecimal():
        details.append(
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{int(failure.retry_after)}s"}
        )
    return msgspec.json.encode(error_of(failure.status, message, details))


def _too_long(message: str) -> str:
    """The message with Google's words before it, by which clients recognise that the conversation is too long."""
    known = read_overflow(message)
    if known is None or known.tokens is None or known.maximum is None:
        return f"The input token count {_TOO_LONG}. {message}"
    return f"The input token count ({known.tokens}) {_TOO_LONG} ({known.maximum}). {message}"
