"""Failure: why a call, or one attempt at it, has no answer, independent of any API.

`gateway/record/failure.py` decides which failure follows from what happened. A dialect (`SurfaceDialect.write_error`)
writes it for a client in the format of its API.
"""

from msgspec import Struct, structs

from penstock.error_codes import ERRORS, ErrorCode, ErrorType


class Failure(Struct, frozen=True, kw_only=True):
    """Why there is no answer."""

    code: ErrorCode
    message: str
    status: int = 0
    """The HTTP status; 0 becomes the default status of the code."""
    param: str | None = None
    retryable: bool = True
    """Whether another target may succeed."""
    client_may_retry: bool = True
    """Whether the client may succeed with the same request later."""
    retry_after: str = ""
    upstream_status: int = 0
    """The HTTP status of the provider's response; 0 if there was none."""
    body: bytes = b""
    """The provider's own error, which clients of the same dialect get unchanged."""
    dialect: str = ""
    """The dialect of `body`."""
    content_policy: bool = False
    """Whether the provider's moderation refuses the content."""

    def __post_init__(self) -> None:
        if not self.status:
            structs.force_setattr(self, "status", ERRORS[self.code].status)

    @property
    def error_type(self) -> ErrorType:
        """The type of the error, as in OpenAI's API."""
        return ERRORS[self.code].type_of(self.status)


class RequestError(Exception):
    """A request is rejected. `failure` is the error for the client."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure
