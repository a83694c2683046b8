"""The handlers for the user of a request, API tokens, sessions and the audit log."""

from functools import partial

from penstock.errors import AdminError
from penstock.gateway.people.audit import AuditFilter, audit_json
from penstock.gateway.people.sessions import session_json
from penstock.gateway.people.tokens import TokenTerms, token_json
from penstock.http.exchange import Exchange
from penstock.serve.admin.access import StoredCredential
from penstock.serve.admin.backend import Backend
from penstock.serve.admin.queries import read_page
from penstock.serve.admin.replies import refusal, result_of, send_json
from penstock.serve.admin.request import AdminRequest
from penstock.stores.book.sql_book import Book


def list_tokens(book: Book, request: AdminRequest) -> object:
    """List API tokens, the oldest first."""
    every = request.query.flag("all")
    tokens = [each for each in book.people.tokens() if every or not each.unusable(request.now_ms)]
    return {"tokens": [token_json(each, request.now_ms) for each in tokens]}


def create_token(book: Book, request: AdminRequest) -> object:
    """Create an API token. `secret` is shown only once."""
    new = book.people.create_token(request.read_body(TokenTerms), book.actor, request.now_ms)
    return {"secret": new.secret, **token_json(new.token, request.now_ms)}


def revoke_token(book: Book, request: AdminRequest) -> object:
    """Revoke an API token. Idempotent."""
    return token_json(book.people.revoke_token(request.name, book.actor, request.now_ms), request.now_ms)


def list_sessions(book: Book, request: AdminRequest) -> object:
    """List the sessions of users who signed in with OpenID Connect, the oldest first."""
    return {"sessions": [session_json(each) for each in book.people.sessions(request.now_ms)]}


def end_sessions(book: Book, request: AdminRequest) -> object:
    """End all sessions of a user, by name or `sub`, or one session by its id."""
    ended = book.people.end_sessions(request.name, book.actor, request.now_ms)
    if not ended:
        raise AdminError("there is no session of that user or with that id", code="session_not_found")
    return {"ended": ended}


def list_audit(book: Book, request: AdminRequest) -> object:
    """List the audit log, the newest entry first."""
    query, now_ms = request.query, request.now_ms
    wanted = AuditFilter(
        since_ms=query.moment("since", now_ms),
        until_ms=query.moment("until", now_ms),
        who=query.one("who"),
        action=query.one("action"),
        subject=query.one("subject"),
    )
    entries, following = read_page(query, partial(book.people.audit, wanted))
    return {"entries": list(map(audit_json, entries)), "next": following}


async def end_session(backend: Backend, request: AdminRequest, exchange: Exchange) -> object:
    """End the session of the request, and delete its cookie."""
    user = request.user
    found = backend.access.identify(exchange.request.headers, exchange.peer)
    actor = backend.audit.actor(user, exchange)
    if isinstance(found, StoredCredential) and found.kind == "session":
        digest = found.digest.hex()
        await result_of(backend.act_thread.submit, lambda book: book.people.end_session(digest, actor, request.now_ms))
    elif user.via == "session":
        backend.access.end_link_session(exchange.request.headers)
        await backend.audit.record("session.end", user.name, actor)
    else:
        return refusal("invalid_parameter", "this request has no session: there is nothing to end")
    send_json(exchange, 200, {"signed_out": True}, {"set-cookie": backend.access.no_cookie})
    return None
