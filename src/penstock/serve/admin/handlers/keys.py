"""The handlers for keys. They query the book."""

from operator import attrgetter, itemgetter
from typing import Annotated

from msgspec import Meta, Struct, structs

from penstock.errors import AdminError
from penstock.gateway.keys import changes as key_changes
from penstock.gateway.keys.keys import Key
from penstock.gateway.keys.report import report, reports
from penstock.gateway.keys.terms import KeyTerms, KeyUpdate, ListedKeyUpdate
from penstock.gateway.teams.key_policy import policies_for, within_policies
from penstock.serve.admin.lists import in_order, page_of_keys
from penstock.serve.admin.queries import MAX_LIMIT
from penstock.serve.admin.request import AdminRequest
from penstock.serve.admin.visible import visible_keys
from penstock.stores.book.sql_book import Book


class RotateBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The request body of a key rotation."""

    grace: str = "0"


class UpdateBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The request body of a change of several keys."""

    keys: Annotated[tuple[ListedKeyUpdate, ...], Meta(max_length=MAX_LIMIT)]


def list_keys(book: Book, request: AdminRequest) -> object:
    """List keys, the oldest first unless `sort` says otherwise. `total` counts all that were found."""
    keys = visible_keys(book, request)
    page = page_of_keys(book, keys, request.query, request.now_ms)
    if request.query.flag("names"):
        names = in_order([{"id": key.id, "name": key.name} for key in keys], page.ids, itemgetter("id"))
        return {"keys": names, "next": page.next, "total": page.total}
    found = in_order(book.keys(page.ids), page.ids, attrgetter("id"))
    return {"keys": reports(book, found, request.now_ms), "next": page.next, "total": page.total}


def create_key(book: Book, request: AdminRequest) -> object:
    """Create a key. `secret` is the key, which is shown only once."""
    terms = request.read_body(KeyTerms)
    new = _create_own(book, terms, request) if request.scope else key_changes.create(book, terms, request.now_ms)
    return {"secret": new.secret, **report(book, new.key, request.now_ms)}


def show_key(book: Book, request: AdminRequest) -> object:
    """Return one key."""
    return report(book, _find(book, request), request.now_ms)


def update_key(book: Book, request: AdminRequest) -> object:
    """Change a key, or block it: the fields that are given, and nothing else."""
    change = key_changes.KeyChange(request.name, request.read_body(KeyUpdate))
    (key,) = key_changes.update(book, [change], request.now_ms)
    return report(book, key, request.now_ms)


def update_keys(book: Book, request: AdminRequest) -> object:
    """Change several keys, all or none; at most 500. `key` is an id or a name."""
    given = request.read_body(UpdateBody).keys
    changes = [key_changes.KeyChange(each.key, each, f"keys[{index}]") for index, each in enumerate(given)]
    keys = key_changes.update(book, changes, request.now_ms)
    return {"keys": reports(book, keys, request.now_ms)}


def revoke_key(book: Book, request: AdminRequest) -> object:
    """Revoke a key. Idempotent."""
    return report(book, key_changes.revoke(book, _which(book, request), request.now_ms), request.now_ms)


def stop_calls(book: Book, request: AdminRequest) -> object:
    """Stop all running calls of a key: every gateway does it within a second, or when it can read the ledger again. To
    keep new calls away, block or revoke the key first."""
    key = _find(book, request)
    book.stop_calls([key], request.now_ms)
    return report(book, key, request.now_ms)


def rotate_key(book: Book, request: AdminRequest) -> object:
    """Give a key a new secret, which is shown only once. `grace` keeps the old one valid for that time, such as
    `24h`."""
    grace = request.read_body(RotateBody).grace
    new = key_changes.rotate(book, _which(book, request), grace, request.now_ms)
    return {"secret": new.secret, **report(book, new.key, request.now_ms)}


def _find(book: Book, request: AdminRequest) -> Key:
    """The key of the path, if the user may see it."""
    found = key_changes.find(visible_keys(book, request), request.name, request.now_ms)
    return book.keys([found.id])[0]


def _which(book: Book, request: AdminRequest) -> str:
    """The key to change: as the path names it if the user may see all keys, else the id of one that it may see."""
    return request.name if request.scope is None else _find(book, request).id


def _create_own(book: Book, terms: KeyTerms, request: AdminRequest) -> key_changes.NewKey:
    """Create a key of a user with roles in teams only: it belongs to one of them, and to the user."""
    assert request.scope is not None
    if terms.client_credentials:
        raise AdminError("only an administrator can allow credentials of clients", param="client_credentials")
    if terms.managed_by:
        raise AdminError("only an administrator can say what manages a key", param="managed_by")
    teams = request.scope.teams
    team = terms.team or (next(iter(teams)) if len(teams) == 1 else "")
    if request.scope.role_in(team) is None:
        raise AdminError(f"team is one of {', '.join(sorted(teams))}", param="team")
    scope, now_ms = request.scope, request.now_ms
    policies = policies_for(book.teams(), team, lambda level: scope.role_in(level) == "team_admin")

    def fit(key: Key, keys: list[Key]) -> Key:
        return within_policies(key, policies, keys, now_ms)

    try:
        return key_changes.create(book, structs.replace(terms, team=team), now_ms, owner=scope.owner, fit=fit)
    except AdminError as error:
        if error.code == "name_taken":  # the key with this name may be that of another team
            raise AdminError("this name is taken: choose another", code="name_taken", param="name") from None
        raise
