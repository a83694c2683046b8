"""AdminResponses of the admin API: JSON, or a failure in the envelope that clients know; no browser may keep them."""

from typing import Protocol

from penstock.core.failure import Failure
from penstock.error_codes import ErrorCode
from penstock.errors import BookError, KeyTermsError
from penstock.http.exchange import Exchange
from penstock.serve.admin.routes import AdminReply
from penstock.serve.responses import respond_failure, respond_json

HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class AdminResponse(Protocol):
    """Sends the answer to one request."""

    def __call__(self, what: AdminReply | Exception | Failure, /, *, allow: str = "") -> None: ...


def send_answer(
    exchange: Exchange, request_id: str, what: AdminReply | Exception | Failure, *, allow: str = ""
) -> None:
    """Answer a request."""
    headers = {**HEADERS, "x-request-id": request_id}
    if allow:
        headers["allow"] = allow
    match what:
        case AdminReply(status, body):
            respond_json(exchange, status, body, headers)
            return
        case Failure():
            failure = what
        case KeyTermsError():
            failure = refusal(what.code, str(what), what.param)
        case BookError():
            failure = Failure(code="ledger_unavailable", message=str(what), retry_after="2")
        case _:
            # It is a bug of ours: what it says is for no one else.
            message = f"the admin API failed: {type(what).__name__}"
            failure = Failure(code="internal_error", message=message, passing=False)
    if failure.status == 401:
        headers["www-authenticate"] = "Bearer"
    respond_failure(exchange, failure, request_id, headers)


def refusal(code: ErrorCode, message: str, param: str | None = None) -> Failure:
    """Why something is not done."""
    return Failure(code=code, message=message, param=param, retryable=False)


def refuse_method(method: str, allowed: str, answer: AdminResponse) -> None:
    """Refuse what is possible by another method only."""
    answer(refusal("method_not_allowed", f"{method[:20]} is not possible here; use {allowed}"), allow=allowed)
