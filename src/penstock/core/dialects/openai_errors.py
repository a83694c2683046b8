"""The error envelope of OpenAI's APIs, which chat completions and Responses share."""

import msgspec

from penstock.core.hub.failure import Failure

# The maximum length of a message. It may quote a provider.
MAX_MESSAGE = 1000


def error_object(failure: Failure, request_id: str) -> dict[str, object]:
    """The error, without the envelope."""
    error: dict[str, object] = {
        "message": failure.message[:MAX_MESSAGE],
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
