"""Responses of the admin API: JSON, or an error in the same format as for clients. They must not be cached."""

from typing import Protocol

from penstock.core.hub.failure import Failure
from penstock.error_codes import ErrorCode
from penstock.errors import AdminError, BookError, SlowQueryError
from penstock.http.exchange import Exchange
from penstock.serve.admin.routes import AdminReply
from penstock.serve.responses import respond_failure, respond_json

HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class AdminResponse(Protocol):
    """Sends the response to one request."""

    def __call__(self, reply: AdminReply | Exception | Failure, /, *, allow: str = "") -> None: ...


def send_answer(
    exchange: Exchange, request_id: str, reply: AdminReply | Exception | Failure, *, allow: str = ""
) -> None:
    """Send a response."""
    headers = {**HEADERS, "x-request-id": request_id}
    if allow:
        headers["allow"] = allow
    match reply:
        case AdminReply(status, body):
            respond_json(exchange, status, body, headers)
            return
        case Failure():
            failure = reply
        case AdminError():
            failure = refusal(reply.code, str(reply), reply.param)
        case SlowQueryError():
            failure = refusal("query_too_slow", str(reply))
        case BookError():
            failure = Failure(code="ledger_unavailable", message=str(reply), retry_after="2")
        case _:
            # A bug of ours. Its message may contain secrets, so only its type is sent.
            message = f"the admin API failed: {type(reply).__name__}"
            failure = Failure(code="internal_error", message=message, client_may_retry=False)
    if failure.status == 401:
        headers["www-authenticate"] = "Bearer"
    respond_failure(exchange, failure, request_id, headers)


def refusal(code: ErrorCode, message: str, param: str | None = None) -> Failure:
    """A failure that the client must not retry unchanged."""
    return Failure(code=code, message=message, param=param, retryable=False)


def refuse_method(method: str, allowed: str, answer: AdminResponse) -> None:
    """Send 405 with the allowed methods."""
    answer(refusal("method_not_allowed", f"{method[:20]} is not allowed here; use {allowed}"), allow=allowed)
