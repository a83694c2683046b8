"""The routes of the admin API for API tokens, sessions and the audit log. They query the book."""

import re

from penstock.errors import AdminError
from penstock.gateway.billing.book import Book
from penstock.gateway.keys.terms import parse_moment
from penstock.gateway.people.audit import audit_json
from penstock.gateway.people.store import AuditFilter, session_json
from penstock.gateway.people.tokens import TokenTerms, token_json
from penstock.serve.admin.queries import read_cursor, read_limit
from penstock.serve.admin.routes import AdminReply, AdminRequest, Work, read_body


def list_tokens(book: Book, request: AdminRequest) -> AdminReply:
    """List API tokens, the oldest first; without `all`, only those that can be used."""
    request.query.only({"all"})
    every = request.query.one("all") in ("1", "true")
    tokens = [each for each in book.people.tokens() if every or each.usable(request.now_ms)]
    return AdminReply(200, {"tokens": [token_json(each, request.now_ms) for each in tokens]})


def create_token(book: Book, request: AdminRequest) -> AdminReply:
    """Create an API token. Its secret is shown only in this response."""
    new = book.people.create_token(read_body(request, TokenTerms), book.actor, request.now_ms)
    return AdminReply(201, {"secret": new.secret, **token_json(new.token, request.now_ms)})


def revoke_token(book: Book, request: AdminRequest) -> AdminReply:
    """Revoke an API token."""
    return AdminReply(
        200, token_json(book.people.revoke_token(request.name, book.actor, request.now_ms), request.now_ms)
    )


def list_sessions(book: Book, request: AdminRequest) -> AdminReply:
    """List the sessions of users who signed in, the oldest first."""
    request.query.only(set())
    return AdminReply(200, {"sessions": [session_json(each) for each in book.people.sessions(request.now_ms)]})


def end_sessions(book: Book, request: AdminRequest) -> AdminReply:
    """End the sessions of a user, or one session by its id."""
    ended = book.people.end_sessions(request.name, book.actor, request.now_ms)
    if not ended:
        raise AdminError("there is no session of that user or with that id", code="session_not_found")
    return AdminReply(200, {"ended": ended})


def list_audit(book: Book, request: AdminRequest) -> AdminReply:
    """List the audit log, the newest entry first."""
    query, now_ms = request.query, request.now_ms
    query.only({"since", "until", "who", "action", "subject", "limit", "before"})
    since, until = query.one("since"), query.one("until")
    wanted = AuditFilter(
        since_ms=parse_moment(since, now_ms, "since", past=True) if since else None,
        until_ms=parse_moment(until, now_ms, "until", past=True) if until else None,
        who=query.one("who"),
        action=query.one("action"),
        subject=query.one("subject"),
    )
    limit = read_limit(query)
    found = book.people.audit(wanted, limit=limit + 1, before=read_cursor(query, "before"))
    following = found[limit - 1][0] if len(found) > limit else None
    return AdminReply(200, {"entries": [audit_json(entry) for _, entry in found[:limit]], "next": following})


PEOPLE_ROUTES: tuple[tuple[str, re.Pattern[str], Work], ...] = (
    ("GET", re.compile(r"/admin/tokens"), list_tokens),
    ("POST", re.compile(r"/admin/tokens"), create_token),
    ("POST", re.compile(r"/admin/tokens/([^/]+)/revoke"), revoke_token),
    ("GET", re.compile(r"/admin/sessions"), list_sessions),
    ("DELETE", re.compile(r"/admin/sessions/([^/]+)"), end_sessions),
    ("GET", re.compile(r"/admin/audit"), list_audit),
)
