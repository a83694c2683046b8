"""Rejections: requests that are rejected before they become calls, by key, client address and reason.

They have no entry in the ledger and no line of a call, so this table is where a revoked key in use can be seen. It is
in the memory of a worker, and bounded: of known keys and of unknown clients, `MAX_ROWS` each are kept, those that were
used last. The log has a line for the first rejection of a row, and then at most one each minute, with their number; all
rows together have at most `_MAX_LINES` a minute. The key that the client sent is never stored or logged.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from msgspec import Struct, structs

from penstock.amounts import clock_ms
from penstock.core.hub.failure import Failure
from penstock.gateway.keys.client_key import ClientKey

MAX_ROWS = 500
REASONS: dict[str, str] = {
    "no_key": "without an API key",
    "unknown_key": "with an unknown API key",
    "mistyped_key": "with a mistyped API key",
    "rotated_key": "with the old secret of the key {}",
    "revoked_key": "with the revoked key {}",
    "expired_key": "with the expired key {}",
    "blocked_key": "with the blocked key {}",
    "blocked_team": "with the key {} of a blocked or deleted team",
    "misplaced_key": "with a key of the gateway where a provider's credential belongs",
    "invalid_token": "with an invalid JWT",
    "invalid_signature": "with a signature of AWS that does not match, or has expired",
    "team_not_allowed": "with a JWT of a team that does not exist",
    "host_not_allowed": "with a Host header that is not allowed",
    "origin_not_allowed": "of a page of another origin",
    "ledger_unavailable": "with a key that cannot be read from the ledger now",
}
"""Why requests are rejected, and how the log says it."""
_LINE_EVERY_S = 60.0
_MAX_LINES = 20

RowKey: TypeAlias = tuple[str, str, str]


class Rejection(Struct, frozen=True):
    """Why a request is rejected: the error for the client, the reason (of `REASONS`), and the key, if it is known."""

    failure: Failure
    reason: str
    key: ClientKey | None = None


class RejectionRow(Struct):
    """Rejections of one key, from one address, for one reason."""

    key: str
    """The id of the key; empty if it is not known."""
    key_name: str
    address: str
    reason: str
    first_ms: int
    last_ms: int = 0
    count: int = 0


class Rejections:
    """The rejections of one worker. Used by the event loop's thread."""

    def __init__(self, warn: Callable[[str], None], count: Callable[[str], None], clock: Callable[[], float]) -> None:
        """`count` is called with the reason of each rejection; `clock` is monotonic, in seconds."""
        self._warn = warn
        self._count = count
        self._clock = clock
        # Of known keys, and of others; the least recently used row first.
        self._known: dict[RowKey, RejectionRow] = {}
        self._others: dict[RowKey, RejectionRow] = {}
        # The rows that have a line in this minute.
        self._logged: set[RowKey] = set()
        self._minute_ends = float("-inf")

    def add(self, rejection: Rejection, address: str) -> None:
        """Count a rejection."""
        self._count(rejection.reason)
        id, name = (rejection.key.id, rejection.key.name) if rejection.key is not None else ("", "")
        rows, at = self._known if id else self._others, (id, address, rejection.reason)
        now_ms = clock_ms()
        row = rows.pop(at, None) or RejectionRow(id, name, address, rejection.reason, now_ms)
        rows[at] = row
        row.count += 1
        row.last_ms = now_ms
        if len(rows) > MAX_ROWS:
            del rows[next(iter(rows))]
        self._log(at, row)

    def _log(self, at: RowKey, row: RejectionRow) -> None:
        now = self._clock()
        if now >= self._minute_ends:
            self._minute_ends = now + _LINE_EVERY_S
            self._logged.clear()
        if at not in self._logged and len(self._logged) < _MAX_LINES:
            self._logged.add(at)
            times = f" ({row.count} since the start)" if row.count > 1 else ""
            name = f"{row.key_name} ({row.key})"
            self._warn(f"a request {REASONS[row.reason].format(name)} was rejected, from {row.address}{times}")

    def __len__(self) -> int:
        return len(self._known) + len(self._others)

    @property
    def rows(self) -> list[RejectionRow]:
        """All rows."""
        return [*self._known.values(), *self._others.values()]


def merged(rows: Iterable[RejectionRow]) -> list[RejectionRow]:
    """The rows of several workers, those that are alike added up: known keys first, then by the last use."""
    found: dict[RowKey, RejectionRow] = {}
    for row in rows:
        at = (row.key, row.address, row.reason)
        before = found.get(at)
        if before is None:
            found[at] = structs.replace(row)
        else:
            before.count += row.count
            before.first_ms, before.last_ms = min(before.first_ms, row.first_ms), max(before.last_ms, row.last_ms)
    return sorted(found.values(), key=lambda row: (not row.key, -row.last_ms))
