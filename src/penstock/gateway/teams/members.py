"""MemberLimits: the limits of one member of a team, over all keys that it created, in place of those of all members."""

from collections.abc import Iterable, Mapping

from penstock.errors import AdminError
from penstock.gateway.keys.keys import KeyLimits, KeyName
from penstock.gateway.keys.owner import user_parts
from penstock.gateway.keys.quota import RateLimits
from penstock.gateway.keys.team_path import within
from penstock.gateway.keys.terms import LimitTerms
from penstock.gateway.teams.team import Team


class MemberLimits(KeyLimits, frozen=True, kw_only=True):
    """What an administrator has set for one member, such as a larger budget."""

    team: str
    member: str
    """The id of the user (`gateway/keys/owner.py`)."""
    who: str
    """The user, as recorded."""


def limits_of_member(team: Team, own: MemberLimits | None = None) -> KeyLimits:
    """The limits of a member: its own where it has some, else those of all members of the team."""
    if own is None:
        return team.members
    rates = {
        name: getattr(own, name) if getattr(own, name) is not None else getattr(team.members, name)
        for name in RateLimits.__struct_fields__
    }
    return KeyLimits(budgets={**team.members.budgets, **own.budgets}, **rates)


class MemberUpdate(LimitTerms, frozen=True, kw_only=True):
    """Changes of the limits of one member: what is given replaces the present value, and null takes that of all members
    again. Also the body of `PATCH /admin/members`."""

    team: str
    member: str
    """Its id or its name."""


def owners_in(keys: Iterable[KeyName], team: str) -> dict[str, str]:
    """The users who created keys in a team or below it: how each was last recorded, by its id."""
    return {user_parts(key.owner)[1]: key.owner for key in keys if key.owner and within(key.team, team)}


def find_member(known: Mapping[str, str], which: str) -> str:
    """The member with this id or name, as recorded. Raises if there is none, or several have the name."""
    if which in known:
        return known[which]
    named = [who for who in known.values() if user_parts(who)[0] == which or who == which]
    if len(named) == 1:
        return named[0]
    if named:
        raise AdminError("several members have that name: use the id of one", code="ambiguous", param="member")
    raise AdminError("no member of the team has that id or name", code="member_not_found", param="member")
