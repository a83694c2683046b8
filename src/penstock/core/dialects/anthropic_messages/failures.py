"""Failures in the format of Anthropic's API: the error envelope, as a body and as the last event of a stream."""

import msgspec

from penstock.core.hub.failure import Failure
from penstock.core.provider_errors.context_overflow import CODE, read_overflow

# The maximum length of a message. It may quote a provider.
_MAX_MESSAGE = 1000
_TOO_LONG = "prompt is too long"
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error_type(status: int) -> str:
    """Anthropic's error type for this status."""
    return _TYPES.get(status) or ("invalid_request_error" if status < 500 else "api_error")


def write_error(failure: Failure, request_id: str) -> bytes:
    """The body of an error. Its message ends with Penstock's own code: the envelope has no field for it."""
    message = failure.message[:_MAX_MESSAGE]
    if failure.code == CODE and _TOO_LONG not in message:
        message = _too_long(message)
    if failure.code not in message:
        message = f"{message} ({failure.code})"
    return envelope(error_type(failure.status), message, request_id)


def _too_long(message: str) -> str:
    """The message with Anthropic's words before it: Claude Code reads both figures, and compacts the conversation."""
    known = read_overflow(message)
    if known is None or known.tokens is None or known.maximum is None:
        return f"{_TOO_LONG}. {message}"
    return f"{_TOO_LONG}: {known.tokens} tokens > {known.maximum} maximum. {message}"


def write_error_event(failure: Failure, request_id: str) -> bytes:
    """The error as the last event of a stream."""
    return b"event: error\ndata: " + write_error(failure, request_id) + b"\n\n"


def envelope(type: str, message: str, request_id: str) -> bytes:
    """The error envelope of Anthropic's API."""
    return msgspec.json.encode(
        {"type": "error", "error": {"type": type, "message": message}, "request_id": request_id or None}
    )
