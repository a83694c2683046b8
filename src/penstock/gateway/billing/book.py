"""Book: where entries and keys are kept, as the gateway sees it. `stores/` has SQLite's and PostgreSQL's.

Every method blocks. A book may be opened by one thread and used by another, but never by two at a time. `BookError`
says that the store cannot do it now: full, locked, gone. Nothing has happened then, or the same can be asked again:
appending is idempotent.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from penstock.gateway.billing.entry import Entry
from penstock.gateway.keys.keys import Key

Grouping: TypeAlias = Literal["key", "model", "provider", "day", "tag", "outcome"]


class Filter(Struct, frozen=True, kw_only=True):
    """Which entries are meant. What is empty or None does not filter."""

    since_ms: int | None = None
    until_ms: int | None = None
    """The first moment that is not meant any more."""
    keys: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    """Calls that tried any of them."""
    targets: tuple[str, ...] = ()
    """The same of models of providers: `provider/model`, as the provider names it."""
    attempts: tuple[str, ...] = ()
    """Calls of which an attempt ended so; where targets are given, one at those."""
    outcomes: tuple[str, ...] = ()
    repair: str = ""
    loss: str = ""
    tags: Mapping[str, str] = {}


class UsageRow(Struct, frozen=True, kw_only=True):
    """What a group of calls has used. `group` are its names, one for each grouping asked for."""

    group: tuple[str, ...]
    calls: int
    input: int
    output: int
    cached: int
    cache_write: int
    reasoning: int
    cost: int
    """Nanodollars, of what has a price."""
    unpriced: int
    """Calls in which something has no price."""
    estimated: int
    """Calls in which something was estimated."""
    approximate: int
    """Calls whose cost is approximate."""


class Spent(Struct, frozen=True, kw_only=True):
    """What the book says of one key in one period: the sum, and the ids of calls that were booked of late."""

    total: int
    recent: frozenset[str]


class Percentiles(Struct, frozen=True):
    """What half of all times do not exceed, and what one in twenty does, in milliseconds; None where there are none."""

    p50: int | None
    p95: int | None


class HealthBucket(Struct, frozen=True, kw_only=True):
    """How a model has answered in a part of the time."""

    at_ms: int
    attempts: int
    outcomes: Mapping[str, int]
    first_event_ms: Percentiles
    repairs: Mapping[str, int]
    usage_missing: int


class ModelHealth(Struct, frozen=True, kw_only=True):
    """How a provider's model has answered in a time. Buckets in which nobody asked it are left out."""

    provider: str
    model: str
    attempts: int
    outcomes: Mapping[str, int]
    first_event_ms: Percentiles
    longest_gap_ms: Percentiles
    repairs: Mapping[str, int]
    usage_missing: int
    """Attempts whose usage had to be estimated."""
    buckets: Sequence[HealthBucket]


class Book(Protocol):
    """The ledger's store."""

    def append(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Book entries, durably, all or none. One that is there already, by its id, is left as it is.

        Returns those that were not.
        """

    def entries(self, wanted: Filter, *, limit: int, before: int | None = None) -> list[tuple[int, Entry]]:
        """Entries, newest first, each with its place in the book; `before` goes on from such a place."""

    def following(self, wanted: Filter, after: int, *, limit: int) -> list[tuple[int, Entry]]:
        """Entries in the order in which they were booked, from behind a place on."""

    def entry(self, id: str) -> Entry | None:
        """One entry."""

    def last(self) -> int:
        """The place of what was booked last; 0 in an empty book."""

    def usage(self, wanted: Filter, by: Sequence[Grouping], *, tag: str = "") -> list[UsageRow]:
        """What was used, by groups, in the order of their names; all in one row if there are no groups.

        `model` is the name that the client asked for, `day` the one in UTC on which the call was admitted, `tag` the
        value of the tag so named, or "". By `provider`, attempts are summed up: a call that tried two is counted with
        both, each with what it used, and one that tried none is in the group "". Where `wanted` names providers, only
        they are groups.
        """

    def health(self, since_ms: int, until_ms: int, bucket_ms: int) -> list[ModelHealth]:
        """How each provider's models have answered calls that were made in a time, in parts of so many milliseconds."""

    def sum_up(self, most: int) -> bool:
        """Take the next calls into the sums that `usage` and `health` are made of, if so many wait; whether they did.

        What these tell does not depend on it, only how soon.
        """

    def spent(self, key: str, since_ms: int, *, recent_since_ms: int | None = None) -> Spent:
        """What a key has spent by calls admitted since a time, in one snapshot with the ids of its calls that settled
        since another.
        """

    def keys(self) -> list[Key]:
        """All keys, the oldest first, revoked and expired ones too."""

    def keys_version(self) -> int:
        """A number that changes with every change of keys; cheap to ask."""

    def change_keys(self, change: Callable[[list[Key]], Iterable[Key]]) -> None:
        """Keep the keys that `change` makes of all keys, while nobody else changes any. It may be asked twice."""

    def close(self) -> None:
        """Let go of the store."""
