"""Failures in the format of OpenAI's API: the error envelope, as a body and as the last frame of a stream."""

from penstock.core.dialects.openai_errors import write_error
from penstock.core.hub.failure import Failure


def write_error_frame(failure: Failure, request_id: str) -> bytes:
    """The error as the last frame of a stream."""
    return b"data: " + write_error(failure, request_id) + b"\n\n"
