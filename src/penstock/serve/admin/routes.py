"""The routes of the admin API that query the book. They run in a `QueryThread`."""

import re
from collections.abc import Callable
from typing import Annotated, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct, structs

from penstock.amounts import moment
from penstock.core.json.members import JsonMembers
from penstock.errors import AdminError
from penstock.gateway.billing.book import Book, Filter, HealthBucket, with_teams
from penstock.gateway.billing.entry import Entry
from penstock.gateway.keys import changes as key_changes
from penstock.gateway.keys.keys import Key, KeyName
from penstock.gateway.keys.report import report, reports
from penstock.gateway.keys.terms import KeyTerms, KeyUpdate, ListedKeyUpdate
from penstock.gateway.people.jwt_keys import team_keys
from penstock.gateway.people.roles import Scope
from penstock.serve.admin.entries import entry_json, usage_json
from penstock.serve.admin.queries import (
    MAX_LIMIT,
    MAX_NAMES,
    Query,
    invalid_parameter,
    read_cursor,
    read_filter,
    read_grouping,
    read_limit,
    read_span,
)


class AdminRequest(Struct, frozen=True, kw_only=True):
    """One request. `name` is the variable part of the path."""

    name: str
    query: Query
    body: bytes
    now_ms: int
    scope: Scope | None = None
    """The keys that the user may see and change; None for all. Only routes with `in_team` get one."""


class AdminReply(NamedTuple):
    """One response."""

    status: int
    body: object


class RotateBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The request body of a key rotation."""

    grace: str = "0"


class UpdateBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The request body of a change of several keys."""

    keys: Annotated[tuple[ListedKeyUpdate, ...], Meta(max_length=MAX_LIMIT)]


T = TypeVar("T")
# The id of no key, and the path of no team.
_NONE = "(none)"
_TRUE = ("1", "true")
Work: TypeAlias = Callable[[Book, AdminRequest], AdminReply]


def list_keys(book: Book, request: AdminRequest) -> AdminReply:
    """List keys, the oldest first; without `all`, only those that can be used. `names` leaves out all but names."""
    request.query.only({"all", "names", "limit", "after"})
    names = request.query.one("names") in _TRUE
    limit = read_limit(request.query, MAX_NAMES if names else MAX_LIMIT)
    after = request.query.one("after")
    keys = _visible(book, request)
    if after:
        ids = [key.id for key in keys]
        if after not in ids:
            raise invalid_parameter("after", "after is the id of a key, from `next` of the previous page")
        keys = keys[ids.index(after) + 1 :]
    if request.query.one("all") not in _TRUE:
        keys = [key for key in keys if not key.unusable(request.now_ms)]
    page: list[dict[str, object]] = [{"id": key.id, "name": key.name} for key in keys[:limit]]
    if not names:
        page = reports(book, book.keys([key.id for key in keys[:limit]]), request.now_ms)
    return AdminReply(200, {"keys": page, "next": keys[limit - 1].id if len(keys) > limit else None})


def create_key(book: Book, request: AdminRequest) -> AdminReply:
    """Create a key. Its secret is shown only in this response."""
    terms = read_body(request, KeyTerms)
    new = _create_own(book, terms, request) if request.scope else key_changes.create(book, terms, request.now_ms)
    return AdminReply(201, {"secret": new.secret, **report(book, new.key, request.now_ms)})


def show_key(book: Book, request: AdminRequest) -> AdminReply:
    """Show one key."""
    return AdminReply(200, report(book, _find(book, request), request.now_ms))


def update_key(book: Book, request: AdminRequest) -> AdminReply:
    """Change the settings of a key, or block it."""
    change = key_changes.KeyChange(request.name, read_body(request, KeyUpdate))
    (key,) = key_changes.update(book, [change], request.now_ms)
    return AdminReply(200, report(book, key, request.now_ms))


def update_keys(book: Book, request: AdminRequest) -> AdminReply:
    """Change several keys, all or none."""
    given = read_body(request, UpdateBody).keys
    changes = [key_changes.KeyChange(each.key, each, f"keys[{index}]") for index, each in enumerate(given)]
    keys = key_changes.update(book, changes, request.now_ms)
    return AdminReply(200, {"keys": reports(book, keys, request.now_ms)})


def revoke_key(book: Book, request: AdminRequest) -> AdminReply:
    """Revoke a key."""
    return AdminReply(
        200, report(book, key_changes.revoke(book, _which(book, request), request.now_ms), request.now_ms)
    )


def stop_calls(book: Book, request: AdminRequest) -> AdminReply:
    """Stop the running calls of a key, on all gateways that use the ledger."""
    key = _find(book, request)
    book.stop_calls([key], request.now_ms)
    return AdminReply(200, report(book, key, request.now_ms))


def rotate_key(book: Book, request: AdminRequest) -> AdminReply:
    """Give a key a new secret, which is shown only in this response."""
    grace = read_body(request, RotateBody).grace
    new = key_changes.rotate(book, _which(book, request), grace, request.now_ms)
    return AdminReply(201, {"secret": new.secret, **report(book, new.key, request.now_ms)})


def usage(book: Book, request: AdminRequest) -> AdminReply:
    """Show usage, by groups."""
    entry_filter = with_key_ids(book, request, read_filter(request.query, request.now_ms, "by"))
    by, tag = read_grouping(request.query)
    rows = book.usage(entry_filter, by, tag=tag, most=MAX_LIMIT + 1)
    groups = [usage_json(by, row) for row in sorted(rows[:MAX_LIMIT], key=lambda row: row.group)]
    reply = {"by": by, "tag": tag or None, "usage": groups, "truncated": len(rows) > MAX_LIMIT}
    return AdminReply(200, reply | _archived(book, entry_filter) | {"archived_included": entry_filter.covers_archived})


def list_entries(book: Book, request: AdminRequest) -> AdminReply:
    """List entries, the newest first."""
    entry_filter = with_key_ids(book, request, read_filter(request.query, request.now_ms, "limit", "before"))
    limit = read_limit(request.query)
    entries = book.entries(entry_filter, limit=limit + 1, before=read_cursor(request.query, "before"))
    following = entries[limit - 1][0] if len(entries) > limit else None
    listed = {"entries": [entry_json(entry) for _, entry in entries[:limit]], "next": following}
    return AdminReply(200, listed | _archived(book, entry_filter))


def show_entry(book: Book, request: AdminRequest) -> AdminReply:
    """Show one entry."""
    entry = book.entry(request.name)
    if entry is None or not _may_see(book, request, entry):
        before_ms = book.archived().before_ms
        archived = f"; calls before {moment(before_ms)} are archived" if before_ms else ""
        raise AdminError(f"there is no entry with this id{archived}", code="entry_not_found")
    return AdminReply(200, entry_json(entry))


def health(book: Book, request: AdminRequest) -> AdminReply:
    """Show the health of providers' models over time."""
    since_ms, bucket_ms = read_span(request.query, request.now_ms)
    rows = book.health(since_ms, request.now_ms + 1, bucket_ms)
    targets = [structs.asdict(row) | {"buckets": [_bucket(bucket) for bucket in row.buckets]} for row in rows]
    return AdminReply(200, {"since": since_ms, "bucket_ms": bucket_ms, "rows": targets})


def _archived(book: Book, entry_filter: Filter) -> dict[str, object]:
    """The time before which single calls are archived, and sums are deleted, if the filter includes such times."""
    state, since_ms = book.archived(), entry_filter.since_ms or 0
    times = {"archived_before": state.before_ms, "no_sums_before": state.no_sums_before_ms}
    return {name: moment(at_ms) if at_ms > since_ms else None for name, at_ms in times.items()}


def _bucket(bucket: HealthBucket) -> dict[str, object]:
    fields = structs.asdict(bucket)
    times = fields.pop("first_event_ms")
    return fields | structs.asdict(times)


# Method, pattern of the path (with at most one variable part), handler.
ROUTES: tuple[tuple[str, re.Pattern[str], Work], ...] = (
    ("GET", re.compile(r"/admin/keys"), list_keys),
    ("POST", re.compile(r"/admin/keys"), create_key),
    ("PATCH", re.compile(r"/admin/keys"), update_keys),
    ("GET", re.compile(r"/admin/keys/([^/]+)"), show_key),
    ("PATCH", re.compile(r"/admin/keys/([^/]+)"), update_key),
    ("POST", re.compile(r"/admin/keys/([^/]+)/revoke"), revoke_key),
    ("POST", re.compile(r"/admin/keys/([^/]+)/rotate"), rotate_key),
    ("POST", re.compile(r"/admin/keys/([^/]+)/stop"), stop_calls),
    ("GET", re.compile(r"/admin/usage"), usage),
    ("GET", re.compile(r"/admin/health"), health),
    ("GET", re.compile(r"/admin/entries"), list_entries),
    ("GET", re.compile(r"/admin/entries/([^/]+)"), show_entry),
)


def with_key_ids(book: Book, request: AdminRequest, entry_filter: Filter) -> Filter:
    """The filter with names of keys replaced by their ids, and the keys whose name or id contains its text; limited to
    the calls that the user may see. Teams include those below them."""
    entry_filter = with_teams(entry_filter, book.teams()) if entry_filter.teams else entry_filter
    scope = request.scope
    if not entry_filter.keys and not entry_filter.text and scope is None:
        return entry_filter
    teams = _paths(book, request)
    keys: list[KeyName] = [*_visible(book, request), *team_keys(teams).values()]
    part = entry_filter.text.lower()
    wanted = [*entry_filter.keys, *(key.id for key in keys if key.name in entry_filter.keys)]
    found = [key.id for key in keys if part in key.name.lower() or part in key.id] if part else []
    if scope is not None:
        # An empty filter would select the calls of all teams, or all keys.
        teams = [path for path in teams if not entry_filter.teams or path in entry_filter.teams] or [_NONE]
        entry_filter = structs.replace(entry_filter, teams=tuple(teams))
        if not scope.only_team_admin:
            wanted = [key.id for key in keys if not entry_filter.keys or key.id in wanted] or [_NONE]
    return structs.replace(entry_filter, keys=tuple(dict.fromkeys(wanted)), text_keys=tuple(found))


def _may_see(book: Book, request: AdminRequest, entry: Entry) -> bool:
    """Whether the user may see a call: the same as `with_key_ids` selects."""
    wanted = with_key_ids(book, request, Filter())
    return (not wanted.teams or entry.team in wanted.teams) and (not wanted.keys or entry.key in wanted.keys)


def _paths(book: Book, request: AdminRequest) -> list[str]:
    """The teams that the user may see, including deleted ones, which have calls."""
    scope = request.scope
    return [team.path for team in book.teams() if scope is None or scope.role_in(team.path) is not None]


def _visible(book: Book, request: AdminRequest) -> list[KeyName]:
    """The keys that the user may see."""
    keys, scope = book.key_names(), request.scope
    return keys if scope is None else [key for key in keys if scope.covers(key)]


def _find(book: Book, request: AdminRequest) -> Key:
    """The key of the path, if the user may see it."""
    found = key_changes.find(_visible(book, request), request.name, request.now_ms)
    return book.keys([found.id])[0]


def _which(book: Book, request: AdminRequest) -> str:
    """The key to change: as the path names it if the user may see all keys, else the id of one that it may see."""
    return request.name if request.scope is None else _find(book, request).id


def _create_own(book: Book, terms: KeyTerms, request: AdminRequest) -> key_changes.NewKey:
    """Create a key of a user with roles in teams only: it belongs to one of them, and to the user."""
    assert request.scope is not None
    teams = request.scope.teams
    team = terms.team or (next(iter(teams)) if len(teams) == 1 else "")
    if request.scope.role_in(team) is None:
        raise AdminError(f"team is one of {', '.join(sorted(teams))}", param="team")
    try:
        return key_changes.create(book, structs.replace(terms, team=team), request.now_ms, owner=request.scope.owner)
    except AdminError as error:
        if error.code == "name_taken":  # the key with this name may be that of another team
            raise AdminError("this name is taken: choose another", code="name_taken", param="name") from None
        raise


def read_body(request: AdminRequest, kind: type[T]) -> T:
    """Decode the JSON body. Errors do not quote it."""
    body = request.body or b"{}"
    try:
        value = msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise AdminError(f"the request body is not valid: {error}") from None
    except (msgspec.DecodeError, RecursionError):
        raise AdminError("the request body is not valid JSON") from None
    for name in JsonMembers(body).repeated():
        raise AdminError(f"`{name[:100]}` is there twice", param=name[:100])
    return value
