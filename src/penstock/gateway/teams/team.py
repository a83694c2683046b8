"""Team: a group of keys, with budgets and limits that apply to all of them together.

Teams form a tree of at most three levels, by their paths: the organisation `acme`, its team `acme/search`, and the
project `acme/search/prod`. A key belongs to a team of any level. A path is never renamed: ledger entries have it.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from penstock.gateway.keys.keys import NO_LIMITS, EndUserLimits, Period
from penstock.gateway.teams.path import level_of


class Team(Struct, frozen=True, kw_only=True):
    """A team, as it is stored. A limit of None is no limit. Times are in milliseconds since 1970."""

    path: str
    created_ms: int
    budgets: Mapping[Period, int] = {}
    """In nanodollars, by period. All apply at once."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    models: tuple[str, ...] = ()
    """Patterns of the models that its keys may use; empty for all."""
    end_users: EndUserLimits = NO_LIMITS
    """The limits of each end user of its keys."""
    blocked_ms: int | None = None
    """Since when it is blocked; None if it is not."""
    deleted_ms: int | None = None
    """Since when it is deleted; None if it is not. Its record stays, because entries have its path."""

    @property
    def level(self) -> str:
        """The name of its level."""
        return level_of(self.path)


def existing(teams: Iterable[Team]) -> set[str]:
    """The paths of teams that are not deleted."""
    return {team.path for team in teams if team.deleted_ms is None}
