"""Book: the store of entries and keys, as the gateway uses it. `stores/book/` has SQLite and PostgreSQL.

Every method blocks. A book may be opened by one thread and used by another, but never by two at the same time.
`BookError` means that the store is unavailable: full, locked or unreachable. The caller may repeat the same operation,
even if it did take effect: `append` is idempotent.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

from msgspec import Struct, structs

from penstock.gateway.billing.entry import Entry
from penstock.gateway.keys.keys import Key, KeyName, Spender
from penstock.gateway.limits.warnings import BudgetWarning, Delivery, TakenWarning
from penstock.gateway.teams.path import within
from penstock.gateway.teams.team import Team

if TYPE_CHECKING:  # the reports of keys, which the audit log uses, are about books
    from penstock.gateway.people.audit import Actor
    from penstock.gateway.people.store import PeopleStore

Grouping: TypeAlias = Literal["key", "model", "provider", "day", "tag", "outcome", "team"]


class Filter(Struct, frozen=True, kw_only=True):
    """Selects entries. A field that is empty or None does not filter."""

    since_ms: int | None = None
    until_ms: int | None = None
    """Exclusive."""
    keys: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    """Calls with an attempt at any of them."""
    targets: tuple[str, ...] = ()
    """Calls with an attempt at any of them: `provider/model`, with the provider's name for the model."""
    attempts: tuple[str, ...] = ()
    """Calls with an attempt of such an outcome; if `targets` are given, an attempt at one of those."""
    outcomes: tuple[str, ...] = ()
    repair: str = ""
    loss: str = ""
    users: tuple[str, ...] = ()
    """End users, as entries have them: their pseudonyms, or names."""
    teams: tuple[str, ...] = ()
    """Paths of teams, exactly: `with_teams` adds those below."""
    tags: Mapping[str, str] = {}
    text: str = ""
    """Calls that contain this text, not case-sensitive: in the id, model, end user, error code, error, a tag
    (`name=value`) or the name of a provider that was tried; or whose key is one of `text_keys`."""
    text_keys: tuple[str, ...] = ()

    @property
    def covers_archived(self) -> bool:
        """Whether sums with this filter include archived calls."""
        return not (self.targets or self.attempts or self.repair or self.loss or self.users or self.text)


def with_teams(wanted: Filter, teams: Iterable[Team]) -> Filter:
    """The filter, with all teams below the ones that it names."""
    if not wanted.teams:
        return wanted
    below = [team.path for team in teams if any(within(team.path, named) for named in wanted.teams)]
    return structs.replace(wanted, teams=tuple(dict.fromkeys((*wanted.teams, *below))))


class UsageRow(Struct, frozen=True, kw_only=True):
    """The usage of a group of calls. `group` has one name per requested grouping."""

    group: tuple[str, ...]
    calls: int
    input: int
    output: int
    cached: int
    cache_write: int
    reasoning: int
    cost: int
    """In nanodollars, of attempts with a price."""
    unpriced: int
    """Calls with an attempt without a price."""
    estimated: int
    """Calls with an attempt whose tokens are estimated."""
    approximate: int
    """Calls whose cost is approximate."""


class Spent(Struct, frozen=True, kw_only=True):
    """The spending of one key in one period: the sum, and the ids of calls that were booked recently."""

    total: int
    recent: frozenset[str]


class Archived(Struct, frozen=True, kw_only=True):
    """Which calls were moved from the book to archives. Times are starts of days, in UTC."""

    calls: int
    before_ms: int
    """Calls that ended before are archived, or will be soon; 0 if none are."""
    no_sums_before_ms: int
    """Calls before that are in no sum any more, only in budgets; 0 if all are."""


class Percentiles(Struct, frozen=True):
    """The median and the 95th percentile, in milliseconds; None without values."""

    p50: int | None
    p95: int | None


class HealthBucket(Struct, frozen=True, kw_only=True):
    """The attempts at a model in one time bucket."""

    at_ms: int
    attempts: int
    outcomes: Mapping[str, int]
    first_event_ms: Percentiles
    repairs: Mapping[str, int]
    usage_missing: int


class ModelHealth(Struct, frozen=True, kw_only=True):
    """The attempts at a provider's model in a time range. Buckets without attempts are omitted."""

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


class TakenOver(NamedTuple):
    """What a change of keys and teams stores, or an import of another gateway."""

    teams: Sequence[Team] = ()
    keys: Sequence[Key] = ()
    entries: Sequence[Entry] = ()
    """What they have spent at the other gateway."""


class Book(Protocol):
    """The ledger's store."""

    actor: "Actor"
    """Who changes keys, for the audit log. The caller sets it."""

    @property
    def people(self) -> "PeopleStore":
        """The API tokens, the sessions and the audit log."""

    def append(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Store entries durably, all or none. An entry whose id is stored or archived already is left unchanged.

        Returns the entries that are new.
        """

    def entries(self, wanted: Filter, *, limit: int, before: int | None = None) -> list[tuple[int, Entry]]:
        """Entries, newest first, each with its position in the book; `before` continues from such a position."""

    def following(self, wanted: Filter, after: int, *, limit: int) -> list[tuple[int, Entry]]:
        """Entries after a position, in the order in which they were stored."""

    def entry(self, id: str) -> Entry | None:
        """One entry."""

    def last(self) -> int:
        """The position of the newest entry; 0 in an empty book."""

    def usage(
        self, wanted: Filter, by: Sequence[Grouping], *, tag: str = "", most: int | None = None
    ) -> list[UsageRow]:
        """The usage by groups, ordered by their names; one row if there are no groupings. With `most`, only of so many
        groups: those with the highest cost, the highest first.

        `model` is the name that the client requested, `day` the UTC day on which the call was admitted, `tag` the value
        of the tag named `tag`, or "". By `provider`, attempts are summed: a call with attempts at two providers counts
        for both, each with its own usage, and a call without attempts is in the group "". If `wanted` names providers,
        only they are groups.

        Archived calls are included, in whole hours, where `covers_archived` of `wanted` is true.
        """

    def health(self, since_ms: int, until_ms: int, bucket_ms: int) -> list[ModelHealth]:
        """The health of each provider's models over the calls received in a time range, with buckets of `bucket_ms`."""

    def sum_up(self, most: int) -> bool:
        """Add the next entries to the rollups that `usage` and `health` read, if `most` of them wait. Returns whether
        it did.

        The results of `usage` and `health` do not depend on it, only their speed.
        """

    def spent(self, who: str | Spender, since_ms: int, *, recent_since_ms: int | None = None) -> Spent:
        """The spending of a key (its id), of a team with all below it, or of one of their end users, by calls admitted
        since `since_ms`, the start of a day, including archived calls; and the ids of calls that were settled since
        `recent_since_ms`, in one snapshot.
        """

    def spent_by(self, asked: Sequence[tuple[Spender, int]], *, recent_since_ms: int | None = None) -> Sequence[Spent]:
        """`spent` of several, each with its own `since_ms`, in one snapshot. Much cheaper than one by one."""

    def spenders_after(self, place: int) -> tuple[int, set[str]]:
        """The place of the newest entry; and the keys and teams with entries after a place, as `chain.scopes` names
        them."""

    def archived(self) -> Archived:
        """Which calls are archived."""

    def prune(self, folder: Path, before_ms: int, *, most: int = 100) -> int | None:
        """Archive and delete the next calls that ended before a day, the one of `before_ms`; returns how many.

        0 means that there are no more, None that another process is pruning. No sum and no spending changes.
        """

    def prunable(self, before_ms: int) -> int:
        """How many calls `prune` would archive."""

    def drop_sums(self, before_ms: int) -> bool:
        """Delete the sums of the oldest day, if it ended before a time; returns whether there was such a day.

        Spending is kept. A late entry of a deleted day is not stored, because it may be an archived one.
        """

    def export(self, wanted: Filter, folder: Path, write: Callable[[Entry], None]) -> list[str]:
        """Pass all entries that match, archived or not, to `write`, in one snapshot: the archived ones first, then by
        time. Returns the names of archives that are not in the folder.
        """

    def keys(self, ids: Sequence[str] | None = None) -> list[Key]:
        """All keys, or those with these ids, oldest first, including revoked and expired ones."""

    def key_names(self) -> list[KeyName]:
        """The names, teams and times of all keys, without their limits: ten times as fast as `keys`."""

    def keys_version(self) -> int:
        """A number that changes with every change of the keys; cheap to read."""

    def change_keys(self, change: Callable[[list[Key]], Iterable[Key]]) -> None:
        """Store the keys that `change` returns for the list of all keys, in one transaction. It may be called twice."""

    def stop_calls(self, keys: Sequence[Key], now_ms: int) -> None:
        """Ask every process that uses the book to stop the running calls of keys. `keys_version` changes."""

    def stopped_calls(self) -> dict[str, int]:
        """The time of the last `stop_calls` of each key, by its id, of the last day."""

    def teams(self) -> list[Team]:
        """All teams, by path, including deleted ones."""

    def change_teams(self, change: Callable[[list[Team], list[Key]], Iterable[Team]]) -> None:
        """Store the teams that `change` returns for the lists of all teams and keys, in one transaction. It may be
        called twice. `keys_version` changes.
        """

    def claim_warnings(self, warnings: Sequence[BudgetWarning]) -> list[BudgetWarning]:
        """Store budget warnings; returns those that no process has stored before."""

    def warnings(self, limit: int) -> list[BudgetWarning]:
        """The budget warnings, the newest first."""

    def take_warning(self, now_ms: int, until_ms: int) -> TakenWarning | int | None:
        """Take the budget warning that is due for the webhook, until a time, at which it is due again.

        If none is due yet, returns when the next one is; None if none waits.
        """

    def end_delivery(self, taken: TakenWarning, delivery: Delivery, due_ms: int | None = None) -> None:
        """Store the result of an attempt; `due_ms` is the time of the next one, if the warning still waits."""

    def take_over(self, change: Callable[[list[Team], list[Key]], TakenOver]) -> None:
        """Store what `change` returns for the current teams and keys, in one transaction. It may be called twice."""

    def close(self) -> None:
        """Close the store."""
