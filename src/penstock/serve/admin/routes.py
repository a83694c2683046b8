"""The routes of the admin API, and what each does with the book. All of it runs at the desk, in its thread."""

import re
from collections.abc import Callable
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Struct, structs

from penstock.errors import KeyTermsError
from penstock.gateway.billing.book import Book, Filter, HealthBucket
from penstock.gateway.keys import changes as key_changes
from penstock.gateway.keys.report import report
from penstock.gateway.keys.terms import KeyTerms
from penstock.serve.admin.entries import told_entry, told_usage
from penstock.serve.admin.queries import (
    MOST,
    Query,
    read_filter,
    read_grouping,
    read_limit,
    read_place,
    read_span,
    wrong,
)


class AdminRequest(Struct, frozen=True, kw_only=True):
    """What is asked. `name` is the part of the path that names something."""

    name: str
    query: Query
    body: bytes
    now_ms: int


class AdminReply(NamedTuple):
    """What is answered."""

    status: int
    body: object


class RotateBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a rotation."""

    grace: str = "0"


T = TypeVar("T")
Work: TypeAlias = Callable[[Book, AdminRequest], AdminReply]


def list_keys(book: Book, ask: AdminRequest) -> AdminReply:
    """Keys, the oldest first; those that live, unless `all` are asked for."""
    ask.query.only({"all", "limit", "after"})
    limit, after = read_limit(ask.query), ask.query.one("after")
    keys = book.keys()
    if after:
        ids = [key.id for key in keys]
        if after not in ids:
            raise wrong("after", "after is the id of a key, as `next` gave it")
        keys = keys[ids.index(after) + 1 :]
    if ask.query.one("all") not in ("1", "true"):
        keys = [key for key in keys if not key.unusable(ask.now_ms)]
    told = [report(book, key, ask.now_ms) for key in keys[:limit]]
    return AdminReply(200, {"keys": told, "next": keys[limit - 1].id if len(keys) > limit else None})


def create_key(book: Book, ask: AdminRequest) -> AdminReply:
    """A new key, shown this once."""
    new = key_changes.create(book, _body(ask, KeyTerms), ask.now_ms)
    return AdminReply(201, {"secret": new.secret, **report(book, new.key, ask.now_ms)})


def show_key(book: Book, ask: AdminRequest) -> AdminReply:
    """One key."""
    return AdminReply(200, report(book, key_changes.find(book.keys(), ask.name, ask.now_ms), ask.now_ms))


def revoke_key(book: Book, ask: AdminRequest) -> AdminReply:
    """A key that opens nothing any more."""
    return AdminReply(200, report(book, key_changes.revoke(book, ask.name, ask.now_ms), ask.now_ms))


def rotate_key(book: Book, ask: AdminRequest) -> AdminReply:
    """A key with a new secret, shown this once."""
    new = key_changes.rotate(book, ask.name, _body(ask, RotateBody).grace, ask.now_ms)
    return AdminReply(201, {"secret": new.secret, **report(book, new.key, ask.now_ms)})


def usage(book: Book, ask: AdminRequest) -> AdminReply:
    """What was used, by groups."""
    wanted = _by_id(book, read_filter(ask.query, ask.now_ms, "by"))
    by, tag = read_grouping(ask.query)
    rows = book.usage(wanted, by, tag=tag)
    dearest = sorted(rows, key=lambda row: (-row.cost, -row.calls))[:MOST]
    told = [told_usage(by, row) for row in sorted(dearest, key=lambda row: row.group)]
    return AdminReply(200, {"by": by, "tag": tag or None, "usage": told, "truncated": len(rows) > MOST})


def list_entries(book: Book, ask: AdminRequest) -> AdminReply:
    """A page of entries, the newest first."""
    wanted = _by_id(book, read_filter(ask.query, ask.now_ms, "limit", "before"))
    limit = read_limit(ask.query)
    found = book.entries(wanted, limit=limit + 1, before=read_place(ask.query, "before"))
    following = found[limit - 1][0] if len(found) > limit else None
    return AdminReply(200, {"entries": [told_entry(entry) for _, entry in found[:limit]], "next": following})


def show_entry(book: Book, ask: AdminRequest) -> AdminReply:
    """One entry."""
    found = book.entry(ask.name)
    if found is None:
        raise KeyTermsError("there is no such entry", code="entry_not_found")
    return AdminReply(200, told_entry(found))


def health(book: Book, ask: AdminRequest) -> AdminReply:
    """How providers' models have answered, over time."""
    since_ms, bucket_ms = read_span(ask.query, ask.now_ms)
    rows = book.health(since_ms, ask.now_ms + 1, bucket_ms)
    told = [structs.asdict(row) | {"buckets": [_bucket(bucket) for bucket in row.buckets]} for row in rows]
    return AdminReply(200, {"since": since_ms, "bucket_ms": bucket_ms, "rows": told})


def _bucket(bucket: HealthBucket) -> dict[str, object]:
    told = structs.asdict(bucket)
    times = told.pop("first_event_ms")
    return told | structs.asdict(times)


# What is asked for: a method, and a path in which a name may stand → what does it.
ROUTES: tuple[tuple[str, re.Pattern[str], Work], ...] = (
    ("GET", re.compile(r"/admin/keys"), list_keys),
    ("POST", re.compile(r"/admin/keys"), create_key),
    ("GET", re.compile(r"/admin/keys/([^/]+)"), show_key),
    ("POST", re.compile(r"/admin/keys/([^/]+)/revoke"), revoke_key),
    ("POST", re.compile(r"/admin/keys/([^/]+)/rotate"), rotate_key),
    ("GET", re.compile(r"/admin/usage"), usage),
    ("GET", re.compile(r"/admin/health"), health),
    ("GET", re.compile(r"/admin/entries"), list_entries),
    ("GET", re.compile(r"/admin/entries/([^/]+)"), show_entry),
)


def _by_id(book: Book, wanted: Filter) -> Filter:
    """The filter, in which keys that are named are known by their ids."""
    if not wanted.keys:
        return wanted
    keys = book.keys()
    named = [key.id for key in keys if key.name in wanted.keys]
    return structs.replace(wanted, keys=tuple(dict.fromkeys((*wanted.keys, *named))))


def _body(ask: AdminRequest, kind: type[T]) -> T:
    """The JSON of the body. What is wrong with it is told without quoting it."""
    try:
        return msgspec.json.decode(ask.body or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise KeyTermsError(f"the body is not what is wanted here: {error}") from None
    except (msgspec.DecodeError, RecursionError):
        raise KeyTermsError("the body is no JSON") from None
