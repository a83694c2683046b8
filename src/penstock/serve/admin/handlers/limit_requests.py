"""The handlers for requests of members for more. They query the book.

A member sees its own requests, a `team_admin` those of its teams, and a user with a global role all of them.
"""

from collections.abc import Callable, Sequence
from functools import partial

from penstock.errors import AdminError
from penstock.gateway.keys import changes as key_changes
from penstock.gateway.keys.owner import user_parts
from penstock.gateway.people.limit_requests import (
    VALID_MS,
    ApprovalTerms,
    LimitRequest,
    Raised,
    RefusalTerms,
    RequestTerms,
    Subject,
    approved,
    new_request,
    refused,
    request_json,
    subjects_of,
)
from penstock.serve.admin.queries import read_page
from penstock.serve.admin.request import AdminRequest
from penstock.serve.admin.visible import visible_keys
from penstock.stores.book.sql_book import Book

_BATCH = 500


def list_requests(book: Book, request: AdminRequest) -> object:
    """List the [requests for more](people.md#requests-for-more) that wait for an answer, the newest first."""
    since_ms = None if request.query.flag("all") else request.now_ms - VALID_MS
    found, following = read_page(request.query, partial(_newest, book, request, since_ms))
    return {"requests": _reports(book, request, found), "next": following}


def make_request(book: Book, request: AdminRequest) -> object:
    """Ask for more: for a `key`, or for your own limits in a `team`. `reason` is required, and a limit with the value
    that you need."""
    scope = request.scope
    if scope is None:
        raise AdminError("an administrator changes limits without a request", code="invalid_parameter")
    terms = request.read_body(RequestTerms)
    if bool(terms.key) == bool(terms.team):
        raise AdminError("name either a key, or a team for your own limits in it", param="key")
    key = key_changes.find(visible_keys(book, request), terms.key, request.now_ms).id if terms.key else ""
    if not key and scope.role_in(terms.team) is None:
        raise AdminError(f"team is one of {', '.join(sorted(scope.teams))}", param="team")
    made = book.limit_requests.ask(
        lambda subject: new_request(terms, request.user.name, subject, request.now_ms),
        key=key,
        team=terms.team,
        now_ms=request.now_ms,
    )
    return _reports(book, request, [made])[0]


def approve_request(book: Book, request: AdminRequest) -> object:
    """Approve a request, as it is or with the values that are given, and raise the limits. Not your own one."""
    terms = request.read_body(ApprovalTerms)

    def decide(asked: LimitRequest, subject: Subject) -> Raised:
        _check_may_answer(request, asked, subject)
        return approved(asked, terms, subject, request.scope, request.user.name, request.now_ms)

    return _answer(book, request, decide)


def refuse_request(book: Book, request: AdminRequest) -> object:
    """Refuse a request. Nothing changes. Not your own one: withdraw it."""
    terms = request.read_body(RefusalTerms)

    def decide(asked: LimitRequest, subject: Subject) -> Raised:
        _check_may_answer(request, asked, subject)
        return Raised(refused(asked, terms, request.user.name, request.now_ms), None, None)

    return _answer(book, request, decide)


def withdraw_request(book: Book, request: AdminRequest) -> object:
    """Withdraw a request of your own that has no answer yet."""
    if not _is_own(request, _find(book, request)):
        raise AdminError("this is not your request: refuse it instead", code="permission_denied")
    book.limit_requests.withdraw(request.name, request.now_ms)
    return {"id": request.name, "withdrawn": True}


def _newest(
    book: Book, request: AdminRequest, since_ms: int | None, *, limit: int, before: int | None
) -> list[tuple[int, LimitRequest]]:
    """The newest requests that the user may see."""
    found: list[tuple[int, LimitRequest]] = []
    while len(found) < limit:
        batch = book.limit_requests.newest(since_ms=since_ms, limit=_BATCH, before=before)
        found += [each for each in batch if _is_visible(request, each[1])]
        if len(batch) < _BATCH:
            break
        before = batch[-1][0]
    return found[:limit]


def _find(book: Book, request: AdminRequest) -> LimitRequest:
    """The request of the path. What the user may not see does not exist for it."""
    found = book.limit_requests.find(request.name)
    if not _is_visible(request, found):
        raise AdminError("there is no request for more with that id", code="request_not_found")
    return found


def _is_visible(request: AdminRequest, asked: LimitRequest) -> bool:
    scope = request.scope
    return scope is None or _is_own(request, asked) or scope.role_in(asked.team) == "team_admin"


def _is_own(request: AdminRequest, asked: LimitRequest) -> bool:
    return asked.member == user_parts(request.user.name)[1]


def _may_answer(request: AdminRequest, asked: LimitRequest, team: str) -> bool:
    user = request.user
    return not _is_own(request, asked) and (user.may("manage") or user.scope.role_in(team) == "team_admin")


def _check_may_answer(request: AdminRequest, asked: LimitRequest, subject: Subject) -> None:
    if _is_own(request, asked):
        raise AdminError("this is your own request: another administrator answers it", code="permission_denied")
    if not _may_answer(request, asked, subject.team):
        raise AdminError("only an administrator of the team answers this request", code="permission_denied")


def _answer(book: Book, request: AdminRequest, decide: Callable[[LimitRequest, Subject], Raised]) -> object:
    _find(book, request)
    answered = book.limit_requests.answer(request.name, decide, request.now_ms)
    return _reports(book, request, [answered])[0]


def _reports(book: Book, request: AdminRequest, asked: Sequence[LimitRequest]) -> list[dict[str, object]]:
    keys = book.keys([each.key for each in asked if each.key])
    subjects = subjects_of(asked, keys, book.teams(), book.members()) if asked else {}
    rows = []
    for each in asked:
        subject = subjects.get(each.id)
        waits = each.state(request.now_ms) == "open"
        may_answer = waits and subject is not None and _may_answer(request, each, subject.team)
        rows.append(
            request_json(each, subject, request.now_ms) | {"own": _is_own(request, each), "may_answer": may_answer}
        )
    return rows
