"""Answers of the admin API: JSON, or a failure in the envelope that clients know; no browser may keep them."""

from typing import Protocol

from penstock.core.failure import Failure
from penstock.errors import BookError, KeyTermsError
from penstock.http.exchange import Exchange
from penstock.serve.admin.routes import Reply
from penstock.serve.responses import respond_failure, respond_json

HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
# What a refusal by the rules of keys is in HTTP; 400 for all others.
_STATUSES = {
    "key_not_found": 404,
    "entry_not_found": 404,
    "name_taken": 409,
    "ambiguous": 409,
    "key_unusable": 409,
}


class Answer(Protocol):
    """Sends the answer to one request."""

    def __call__(self, what: Reply | Exception | Failure, /, *, allow: str = "") -> None: ...


def send_answer(exchange: Exchange, request_id: str, what: Reply | Exception | Failure, *, allow: str = "") -> None:
    """Answer a request."""
    headers = {**HEADERS, "x-request-id": request_id}
    if allow:
        headers["allow"] = allow
    match what:
        case Reply(status, body):
            respond_json(exchange, status, body, headers)
            return
        case Failure():
            failure = what
        case KeyTermsError():
            failure = refusal(_STATUSES.get(what.code, 400), what.code, str(what), what.param)
        case BookError():
            failure = Failure(
                code="ledger_unavailable", message=str(what), status=503, kind="server_error", retry_after="2"
            )
        case _:
            # It is a bug of ours: what it says is for no one else.
            message = f"the admin API failed: {type(what).__name__}"
            failure = Failure(code="internal_error", message=message, status=500, kind="server_error", passing=False)
    if failure.status == 401:
        headers["www-authenticate"] = "Bearer"
    respond_failure(exchange, failure, request_id, headers)


def refusal(status: int, code: str, message: str, param: str | None = None) -> Failure:
    """Why something is not done."""
    kind = "authentication_error" if status == 401 else "invalid_request_error"
    return Failure(code=code, message=message, status=status, kind=kind, param=param, retryable=False)


def refuse_method(method: str, allowed: str, answer: Answer) -> None:
    """Refuse what is possible by another method only."""
    answer(refusal(405, "method_not_allowed", f"{method[:20]} is not possible here; use {allowed}"), allow=allowed)
