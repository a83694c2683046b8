"""Failures in the format of OpenAI's API: the error envelope, as a body and as the last frame of a stream."""

import msgspec

from penstock.core.failure import Failure

# The maximum length of a message. It may quote a provider.
_MAX_MESSAGE = 1000


def error_object(failure: Failure, request_id: str) -> dict[str, object]:
    """The error, without the envelope."""
    error: dict[str, object] = {
        "message": failure.message[:_MAX_MESSAGE],
        "type": failure.error_type,
        "param": failure.param,
        "code": failure.code,
        "request_id": request_id,
    }
    if failure.upstream_status:
        error["upstream"] = {"status": failure.upstream_status}
    return error


def write_error(failure: Failure, request_id: str) -> bytes:
    """The body of an error."""
    return msgspec.json.encode({"error": error_object(failure, request_id)})


def write_error_frame(failure: Failure, request_id: str) -> bytes:
    """The error as the last frame of a stream."""
    return b"data: " + write_error(failure, request_id) + b"\n\n"
