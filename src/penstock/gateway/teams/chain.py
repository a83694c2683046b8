"""Chain: makes the key of a client from the stored key and its teams, with the accounts in which calls are reserved.

Each budget has an account of its own, because an account has one period. The limits per minute of a team, a member
and an end user have one more. The order is always the same: the key, and its further budgets; its project, team and
organisation, each after the owner of the key as a member of it; end users. So a call that a key refuses never reaches
the account of its organisation, which all share.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, get_args

from msgspec import structs

from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.keys.keys import NO_LIMITS, Key, KeyLimits
from penstock.gateway.keys.owner import user_parts
from penstock.gateway.keys.quota import Period, Quota, RateLimits, Spender, member_account, user_account
from penstock.gateway.keys.team_path import ancestry
from penstock.gateway.teams.members import MemberLimits, limits_of_member
from penstock.gateway.teams.team import Team

_JWT = "jwt:"
# What the key of a client has of the stored key.
_SHARED = [name for name in ClientKey.__struct_fields__ if name in Key.__struct_fields__]


class _Level(NamedTuple):
    """A team, with the quotas of it and of each of its end users; those of its members depend on the key."""

    team: Team
    quotas: tuple[Quota, ...]
    user_quotas: tuple[Quota, ...]


class Chain:
    """Teams, for the keys of clients that belong to them."""

    def __init__(self, teams: Iterable[Team], members: Iterable[MemberLimits] = ()) -> None:
        """`members`: the limits of single members, in place of those of all."""
        self._levels: dict[str, _Level] = {}
        self._members = {(each.team, each.member): each for each in members}
        for team in teams:
            spender = Spender(team=team.path)
            users = _quotas(team.end_users, f"this end user of {team.holder}", spender)
            self._levels[team.path] = _Level(team, _quotas(team, team.holder, spender), users)

    def client_key(self, key: Key) -> ClientKey:
        """A stored key, with the accounts, models and state of its teams."""
        spender = Spender(key=key.id)
        own = Quota(id=key.id, spender=spender, budget=key.budget, period=key.period, **_rates(key))
        client = ClientKey(
            quotas=(own, *_budgets(key, "this key", spender)) if key.budgets else (own,),
            user_quotas=_quotas(key.end_users, "this end user of this key", spender),
            **{name: getattr(key, name) for name in _SHARED},
        )
        return self._in_team(client) if key.team else client

    def jwt_key(self, team: str) -> ClientKey:
        """The key to which the calls of clients with a JWT belong, of which each team has one. It is in no store."""
        name = jwt_key_name(team)
        return self._in_team(
            ClientKey(id=name, name=name, team=team, quotas=(Quota(id=name, spender=Spender(key=name)),))
        )

    def _in_team(self, key: ClientKey) -> ClientKey:
        paths = ancestry(key.team)
        levels = [self._levels[path] for path in paths if path in self._levels]
        refusal = ""
        if len(levels) < len(paths) or any(level.team.deleted_ms is not None for level in levels):
            refusal = f"the team {key.team} of this key was deleted; ask for another key"
        elif blocked := [level.team for level in levels if level.team.blocked_ms is not None]:
            refusal = f"{blocked[0].holder} of this key is blocked; ask its administrator"
        quotas = [(*self._member_quotas(level.team, key.owner), *level.quotas) for level in levels]
        return structs.replace(
            key,
            quotas=key.quotas + tuple(quota for each in quotas for quota in each),
            user_quotas=key.user_quotas + tuple(quota for level in levels for quota in level.user_quotas),
            team_models=tuple(level.team.models for level in levels if level.team.models),
            team_refusal=refusal,
        )

    def _member_quotas(self, team: Team, owner: str) -> tuple[Quota, ...]:
        """The quotas of the owner of a key, over all its keys in a team."""
        if not owner:
            return ()
        member = user_parts(owner)[1]
        limits = limits_of_member(team, self._members.get((team.path, member)))
        if limits == NO_LIMITS:
            return ()
        return _quotas(limits, f"this member of {team.holder}", Spender(team=team.path, member=member))


def end_user_quotas(key: ClientKey, user: str) -> tuple[Quota, ...]:
    """The accounts of an end user of a key."""
    return tuple(_of_user(quota, user) for quota in key.user_quotas)


def _of_user(quota: Quota, user: str) -> Quota:
    spender = structs.replace(quota.spender, user=user)
    return structs.replace(quota, id=spender.account + quota.id.removeprefix(quota.spender.account), spender=spender)


def account_ids(key: str, team: str, user: str, owner: str) -> list[str]:
    """The ids of all accounts in which a call may have been reserved, whatever limits there were at that time."""
    return [
        id
        for scope in scopes(key, team, user, owner)
        for id in (scope, *(f"{scope}:{period}" for period in get_args(Period)))
    ]


def scopes(key: str, team: str, user: str, owner: str = "") -> list[str]:
    """The spenders for which a call counts, by the ids of their accounts. `owner` is that of its key."""
    teams = ancestry(team)
    own = [*filter(None, (key,)), *(f"team:{path}" for path in teams)]
    users = [user_account(scope, user) for scope in own] if user else []
    members = [member_account(path, user_parts(owner)[1]) for path in teams] if owner else []
    return own + users + members


def jwt_key_name(team: str) -> str:
    """The name and id of the key of a team's clients with a JWT."""
    return f"{_JWT}{team}"


def _quotas(limits: KeyLimits, holder: str, spender: Spender) -> tuple[Quota, ...]:
    """The quotas of a team or an end user: one for its rates, if it has any, and one for each budget."""
    rates = _rates(limits)
    limited = any(rate is not None for rate in rates.values())
    own = (Quota(id=spender.account, holder=holder, spender=spender, **rates),) if limited else ()
    return own + _budgets(limits, holder, spender)


def _budgets(limits: KeyLimits, holder: str, spender: Spender) -> tuple[Quota, ...]:
    return tuple(
        Quota(id=f"{spender.account}:{period}", holder=holder, spender=spender, budget=budget, period=period)
        for period, budget in limits.budgets.items()
    )


def _rates(limits: KeyLimits) -> dict[str, Any]:
    return {name: getattr(limits, name) for name in RateLimits.__struct_fields__}


def allows_model(teams: Iterable[Team], path: str, model: str) -> bool:
    """Whether a team and those above it allow a model."""
    limited = [team.models for team in teams if team.path in ancestry(path) and team.models]
    return all(any(fnmatchcase(model, pattern) for pattern in models) for models in limited)
