"""What is asked of the ledger's store, and its answers: filters, sums, health. `stores/book/` answers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias, get_args

from msgspec import Struct, structs

from penstock.gateway.keys.keys import Key
from penstock.gateway.keys.team_path import within
from penstock.gateway.record.entry import Entry
from penstock.gateway.teams.team import Team

Grouping: TypeAlias = Literal[
    "key", "owner", "team", "tree", "model", "provider", "day", "month", "outcome", "user", "tag"
]


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

    def covers_archived(self, by: Sequence[Grouping] = ()) -> bool:
        """Whether sums with this filter, by these groups, include archived calls."""
        unknown = self.targets or self.attempts or self.repair or self.loss or self.users or self.text
        return not unknown and "user" not in by


def with_teams(wanted: Filter, teams: Iterable[Team]) -> Filter:
    """The filter, with all teams below the ones that it names."""
    if not wanted.teams:
        return wanted
    below = [team.path for team in teams if any(within(team.path, named) for named in wanted.teams)]
    return structs.replace(wanted, teams=tuple(dict.fromkeys((*wanted.teams, *below))))


def read_groups(words: Iterable[str], separator: str) -> tuple[list[Grouping], str]:
    """The groups of a list such as `key, month, tag=team`, and the name of the tag; raises `ValueError` with what is
    wrong."""
    groups: list[Grouping] = []
    tag = ""
    for word in filter(None, (word.strip() for word in words)):
        name, _, value = word.partition(separator)
        known = next((group for group in get_args(Grouping) if group == name), None)
        if known in groups:
            again = "two tags" if name == "tag" else f"{name!r} twice"
            raise ValueError(f"cannot sum up by {again}: name each group once")
        if known is None or (known == "tag") != bool(value):
            names = ", ".join(get_args(Grouping))
            raise ValueError(f"cannot sum up by {word[:80]!r}: choose from {names}{separator}NAME")
        groups.append(known)
        tag = value or tag
    return groups, tag


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
    saved: int
    """What prompt caches and shared answers have saved, in nanodollars."""
    unpriced: int
    """Calls with an attempt without a price."""
    estimated: int
    """Calls with an attempt whose tokens are estimated."""
    approximate: int
    """Calls whose cost is approximate."""


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
