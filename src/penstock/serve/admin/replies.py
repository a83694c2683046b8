"""Responses of the admin API: JSON, or an error in the same format as for clients. They must not be cached."""

from collections.abc import Callable
from typing import TypeVar

from penstock.core.hub.failure import Failure
from penstock.error_codes import ErrorCode
from penstock.errors import AdminError, BookError, SlowQueryError
from penstock.http.exchange import Exchange
from penstock.serve.responses import new_request_id, respond_failure, respond_json
from penstock.stores import query_thread
from penstock.stores.query_thread import QueueFullError, SubmitQuery

T = TypeVar("T")
Store = TypeVar("Store")
HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
# Its errors have the form of SCIM, whatever they are.
SCIM_ROOT = "/admin/scim/v2"
SCIM_JSON = "application/scim+json"
_SCIM_TYPES = {400: "invalidValue", 409: "uniqueness"}
BUSY = Failure(code="admin_busy", message="too many requests wait for the ledger; try again", retry_after="1")


class RefusedActError(Exception):
    """A request is refused. `allow` are the methods that the path has."""

    def __init__(self, failure: Failure, allow: str = "") -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.allow = allow


def own_headers() -> dict[str, str]:
    """The headers of every response, with a new request id."""
    return {**HEADERS, "x-request-id": new_request_id()}


def send_json(exchange: Exchange, status: int, body: object, headers: dict[str, str] | None = None) -> None:
    """Send a response."""
    respond_json(exchange, status, body, own_headers() | (headers or {}))


def send_error(exchange: Exchange, error: Exception) -> None:
    """Send an error."""
    headers = own_headers()
    match error:
        case RefusedActError():
            failure = error.failure
            if error.allow:
                headers["allow"] = error.allow
        case AdminError():
            failure = refusal(error.code, str(error), error.param)
        case SlowQueryError():
            failure = refusal("query_too_slow", str(error))
        case BookError():
            failure = Failure(code="ledger_unavailable", message=str(error), retry_after="2")
        case _:
            # A bug of ours. Its message may contain secrets, so only its type is sent.
            message = f"the admin API failed: {type(error).__name__}"
            failure = Failure(code="internal_error", message=message, client_may_retry=False)
    if failure.status == 401:
        headers["www-authenticate"] = "Bearer"
    if exchange.request.path.startswith(f"{SCIM_ROOT}/"):
        _send_scim_error(exchange, failure, getattr(error, "scim_type", ""), headers)
        return
    respond_failure(exchange, failure, headers["x-request-id"], headers)


def _send_scim_error(exchange: Exchange, failure: Failure, scim_type: str, headers: dict[str, str]) -> None:
    if failure.retry_after:
        headers["retry-after"] = failure.retry_after
    body = {
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:Error"],
        "status": str(failure.status),
        "detail": failure.message,
    }
    if scim_type := scim_type or _SCIM_TYPES.get(failure.status, ""):
        body["scimType"] = scim_type
    respond_json(exchange, failure.status, body, headers | {"content-type": SCIM_JSON})


def refusal(code: ErrorCode, message: str, param: str | None = None) -> Failure:
    """A failure that the client must not retry unchanged."""
    return Failure(code=code, message=message, param=param, retryable=False)


async def result_of(submit: SubmitQuery[Store], work: Callable[[Store], T], busy: Failure = BUSY) -> T:
    """The result of work in a thread. Raises its error; or `busy` if it is not started."""
    try:
        return await query_thread.result_of(submit, work)
    except QueueFullError:
        raise RefusedActError(busy) from None
