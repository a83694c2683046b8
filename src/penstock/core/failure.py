"""Failure: why a call, or one attempt at it, has no answer, in no API's words.

`gateway/calls/failure.py` decides which failure follows from what happened; a dialect (`SurfaceDialect.write_error`)
writes it for a client in the words of its API.
"""

from msgspec import Struct, structs

from penstock.error_codes import ERRORS, ErrorCode, ErrorType


class Failure(Struct, frozen=True, kw_only=True):
    """Why there is no answer."""

    code: ErrorCode
    message: str
    status: int = 0
    """The HTTP status; 0 stands for the usual one of the code."""
    param: str | None = None
    retryable: bool = True
    """Whether another target may succeed."""
    client_may_retry: bool = True
    """Whether the client may succeed with the same request later."""
    retry_after: str = ""
    upstream_status: int = 0
    """The status that the provider answered with; 0 where it did not."""
    body: bytes = b""
    """The provider's own error, to be sent unchanged to clients that speak its dialect."""
    dialect: str = ""
    """The dialect of `body`."""

    def __post_init__(self) -> None:
        if not self.status:
            structs.force_setattr(self, "status", ERRORS[self.code].status)

    @property
    def error_type(self) -> ErrorType:
        """The class of error, in OpenAI's words."""
        return ERRORS[self.code].type_of(self.status)
