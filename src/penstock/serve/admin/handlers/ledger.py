"""The handlers for what the ledger has of calls: sums, entries, the health of providers, budget warnings."""

from collections.abc import Sequence
from functools import partial

from msgspec import Struct, structs

from penstock.amounts import Currency, moment, money
from penstock.error_codes import ERRORS
from penstock.errors import AdminError
from penstock.gateway.billing.queries import Filter, Grouping, HealthBucket, UsageRow
from penstock.gateway.keys.owner import user_parts
from penstock.gateway.keys.quota import member_account
from penstock.gateway.limits.warnings import BudgetWarning
from penstock.gateway.people.roles import Scope
from penstock.gateway.record.entry import AttemptEntry, Entry
from penstock.serve.admin import schemas
from penstock.serve.admin.queries import MAX_LIMIT, read_filter, read_grouping, read_limit, read_page, read_span
from penstock.serve.admin.request import AdminRequest
from penstock.serve.admin.visible import is_visible, visible_filter, visible_keys
from penstock.serve.webhook import warning_json
from penstock.stores.book.sql_book import Book

_MOST_WARNINGS = 10_000
# What an error code means in general, for a call whose own error is not known.
_MEANINGS: dict[str, str] = {code: row.meaning for code, row in ERRORS.items()}


def usage(book: Book, request: AdminRequest) -> object:
    """Sum up calls. Returns at most 500 rows, those with the highest cost; `truncated` says whether there are more.
    `archived_included` says whether [archived](ledger.md#retention) calls are in the sums, and `no_sums_before` from
    when on there are sums, if that is not always. With a [currency](ledger.md#currency), `converted` is the cost in
    it."""
    entry_filter = visible_filter(book, request, read_filter(request.query, request.now_ms))
    by, tag = read_grouping(request.query)
    rows = book.usage(entry_filter, by, tag=tag, most=MAX_LIMIT + 1)
    groups = [_usage_json(by, row, request.currency) for row in sorted(rows[:MAX_LIMIT], key=lambda row: row.group)]
    reply = {"by": by, "tag": tag or None, "usage": groups, "truncated": len(rows) > MAX_LIMIT}
    currency = request.currency
    shown = {"code": currency.code, "rate": str(currency.rate)} if currency is not None else None
    return (
        reply
        | {"currency": shown}
        | _archived(book, entry_filter)
        | {"archived_included": entry_filter.covers_archived(by)}
    )


def list_entries(book: Book, request: AdminRequest) -> object:
    """List calls, the newest first. `archived_before`: calls before that are archived, and not listed; `null` if there
    are none in the requested time."""
    entry_filter = visible_filter(book, request, read_filter(request.query, request.now_ms))
    entries, following = read_page(request.query, partial(book.entries, entry_filter))
    return {"entries": list(map(_entry_json, entries)), "next": following, **_archived(book, entry_filter)}


def show_entry(book: Book, request: AdminRequest) -> object:
    """Return one call by its `x-request-id`."""
    entry = book.entry(request.name)
    if entry is None or not is_visible(book, request, entry):
        before_ms = book.archived().before_ms
        archived = f"; calls before {moment(before_ms)} are archived" if before_ms else ""
        raise AdminError(f"there is no entry with this id{archived}", code="entry_not_found")
    return _entry_json(entry)


def health(book: Book, request: AdminRequest) -> object:
    """Return the outcomes, repairs and times of each model of a provider that was called."""
    since_ms, bucket_ms = read_span(request.query, request.now_ms)
    rows = book.health(since_ms, request.now_ms + 1, bucket_ms)
    targets = [structs.asdict(row) | {"buckets": [_bucket(bucket) for bucket in row.buckets]} for row in rows]
    return {"since": since_ms, "bucket_ms": bucket_ms, "rows": targets}


def list_warnings(book: Book, request: AdminRequest) -> object:
    """List [budget warnings](teams.md#warnings), the newest first."""
    limit, scope = read_limit(request.query), request.scope
    found = book.warnings(limit if scope is None else _MOST_WARNINGS)
    if scope is not None:
        own = {key.id for key in visible_keys(book, request)}
        found = [each for each in found if _covers(each, scope, own)][:limit]
    return {"warnings": [{**warning_json(each), "delivery": each.delivery} for each in found]}


def _entry_json(entry: Entry) -> dict[str, object]:
    """One settled call."""
    return _filled(
        schemas.LedgerEntry,
        entry,
        at=moment(entry.at_ms),
        key=entry.key or None,
        code=entry.code or None,
        error=entry.error or _MEANINGS.get(entry.code),
        tokens=structs.asdict(entry.tokens),
        cost=money(entry.cost),
        user=entry.user or None,
        team=entry.team or None,
        attempts=list(map(_attempt, entry.attempts)),
    )


def _usage_json(by: Sequence[Grouping], row: UsageRow, currency: Currency | None) -> dict[str, object]:
    """The usage of one group of calls."""
    fields = structs.asdict(row)
    converted = currency.converted(row.cost) if currency is not None else None
    amounts = {"cost": money(row.cost), "saved": money(row.saved), "converted": converted}
    return fields | {"group": dict(zip(by, row.group, strict=True))} | amounts


def _attempt(attempt: AttemptEntry) -> dict[str, object]:
    return _filled(
        schemas.EntryAttempt,
        attempt,
        code=attempt.code or None,
        error=_MEANINGS.get(attempt.code),
        tokens=structs.asdict(attempt.tokens),
        cost=money(attempt.cost),
        saved=money(attempt.saved),
        price=attempt.price or None,
        tier=attempt.tier or None,
    )


def _filled(kind: type[Struct], source: Struct, **given: object) -> dict[str, object]:
    """The fields of a schema: what is given, and else what the source has under the same name."""
    return {name: given[name] if name in given else getattr(source, name) for name in kind.__struct_fields__}


def _archived(book: Book, entry_filter: Filter) -> dict[str, object]:
    """The time before which single calls are archived, and sums are deleted, if the filter includes such times."""
    state, since_ms = book.archived(), entry_filter.since_ms or 0
    times = {"archived_before": state.before_ms, "no_sums_before": state.no_sums_before_ms}
    return {name: moment(at_ms) if at_ms > since_ms else None for name, at_ms in times.items()}


def _bucket(bucket: HealthBucket) -> dict[str, object]:
    fields = structs.asdict(bucket)
    times = fields.pop("first_event_ms")
    return fields | structs.asdict(times)


def _covers(warning: BudgetWarning, scope: Scope, keys: set[str]) -> bool:
    if warning.kind == "key":
        return warning.name in keys
    role = scope.role_in(warning.name)
    if warning.kind == "member" and role == "member":
        return warning.account.startswith(member_account(warning.name, user_parts(scope.owner)[1]))
    return role is not None
