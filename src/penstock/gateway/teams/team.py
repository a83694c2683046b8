"""Team: a group of keys, with budgets and limits that apply to all of them together.

Teams form a tree of at most three levels, by their paths: the organisation `acme`, its team `acme/search`, and the
project `acme/search/prod`. A key belongs to a team of any level. A path is never renamed: ledger entries have it.
"""

from collections.abc import Iterable

from penstock.gateway.keys.keys import NO_LIMITS, KeyLimits, KeyPolicy, Limited
from penstock.gateway.keys.team_path import level_of

NO_POLICY = KeyPolicy()


class Team(Limited, frozen=True, kw_only=True):
    """A team, as it is stored."""

    path: str
    members: KeyLimits = NO_LIMITS
    """The limits of each member, over all keys that it created in the team and below it."""
    member_keys: KeyPolicy = NO_POLICY
    """What such a key may have."""
    deleted_ms: int | None = None
    """Since when it is deleted; None if it is not. Its record stays, because entries have its path."""

    @property
    def holder(self) -> str:
        """What it is called in messages for clients."""
        return f"the {self.level} {self.path}"

    @property
    def level(self) -> str:
        """The name of its level."""
        return level_of(self.path)


def existing(teams: Iterable[Team]) -> set[str]:
    """The paths of teams that are not deleted."""
    return {team.path for team in teams if team.deleted_ms is None}
