"""Failure: why a call, or one attempt at it, has no answer, in no API's words.

`gateway/calls/failure.py` decides which failure follows from what happened; a dialect (`SurfaceDialect.write_error`)
writes it for a client in the words of its API.
"""

from msgspec import Struct


class Failure(Struct, frozen=True, kw_only=True):
    """Why there is no answer."""

    code: str
    """Ours, and stable: docs/clients.md lists them."""
    message: str
    status: int = 502
    kind: str = "upstream_error"
    """The class of error, in OpenAI's words: `invalid_request_error`, `authentication_error`, …"""
    param: str | None = None
    retryable: bool = True
    """Whether another target may do better."""
    passing: bool = True
    """Whether the same client may do better, if it asks again."""
    retry_after: str = ""
    upstream_status: int = 0
    """The status that the provider answered with; 0 where it did not."""
    body: bytes = b""
    """The provider's own error, to be sent unchanged to clients that speak its dialect."""
    dialect: str = ""
    """The dialect of `body`."""
