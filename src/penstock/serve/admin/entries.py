"""Ledger entries and usage as JSON of the admin API. Money and times have the format of `gateway/keys/report.py`."""

from collections.abc import Mapping, Sequence

from msgspec import structs

from penstock.amounts import moment, money
from penstock.error_codes import ERRORS
from penstock.gateway.billing.book import Grouping, UsageRow
from penstock.gateway.billing.entry import AttemptEntry, Entry

# What an error code means in general, for a call whose own error is not known.
_MEANINGS: Mapping[str, str] = {code: row.meaning for code, row in ERRORS.items()}


def entry_json(entry: Entry) -> dict[str, object]:
    """One settled call."""
    return {
        "id": entry.id,
        "at": moment(entry.at_ms),
        "key": entry.key or None,
        "surface": entry.surface,
        "model": entry.model,
        "stream": entry.stream,
        "outcome": entry.outcome,
        "status": entry.status,
        "code": entry.code or None,
        "error": entry.error or _MEANINGS.get(entry.code),
        "first_event_ms": entry.first_event_ms,
        "duration_ms": entry.duration_ms,
        "measure": entry.measure,
        "tokens": structs.asdict(entry.tokens),
        "cost": money(entry.cost),
        "approximate": entry.approximate,
        "repairs": dict(entry.repairs),
        "losses": dict(entry.losses),
        "tags": dict(entry.tags),
        "user": entry.user or None,
        "team": entry.team or None,
        "attempts": [_attempt(attempt) for attempt in entry.attempts],
    }


def usage_json(by: Sequence[Grouping], row: UsageRow) -> dict[str, object]:
    """The usage of one group of calls."""
    fields = structs.asdict(row)
    return fields | {"group": dict(zip(by, row.group, strict=True)), "cost": money(row.cost)}


def _attempt(attempt: AttemptEntry) -> dict[str, object]:
    fields = structs.asdict(attempt)
    return fields | {
        "code": attempt.code or None,
        "error": _MEANINGS.get(attempt.code),
        "tokens": structs.asdict(attempt.tokens),
        "cost": money(attempt.cost),
        "price": attempt.price or None,
        "tier": attempt.tier or None,
    }
