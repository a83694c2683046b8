"""Team: a group of keys, with budgets and limits that apply to all of them together.

Teams form a tree of at most three levels, by their paths: the organisation `acme`, its team `acme/search`, and the
project `acme/search/prod`. A key belongs to a team of any level. A path is never renamed: ledger entries have it.
"""

from collections.abc import Iterable

from penstock.gateway.keys.keys import Limited
from penstock.gateway.keys.team_path import level_of


class Team(Limited, frozen=True, kw_only=True):
    """A team, as it is stored."""

    path: str
    deleted_ms: int | None = None
    """Since when it is deleted; None if it is not. Its record stays, because entries have its path."""

    @property
    def level(self) -> str:
        """The name of its level."""
        return level_of(self.path)


def existing(teams: Iterable[Team]) -> set[str]:
    """The paths of teams that are not deleted."""
    return {team.path for team in teams if team.deleted_ms is None}
