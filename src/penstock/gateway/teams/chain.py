"""Chain: makes the key of a client from the stored key and its teams, with the accounts in which calls are reserved.

Each budget has an account of its own, because an account has one period. The limits per minute of a team, and of an end
user, have one more. The order is always the same: the key, and its further budgets; its project, team and organisation;
end users. So a call that a key refuses never reaches the account of its organisation, which all share.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple, get_args

from msgspec import structs

from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.keys.keys import Key, KeyLimits
from penstock.gateway.keys.quota import Period, Quota, RateLimits, Spender, user_account
from penstock.gateway.keys.team_path import ancestry
from penstock.gateway.teams.team import Team

_JWT = "jwt:"
# What the key of a client has of the stored key.
_SHARED = [name for name in ClientKey.__struct_fields__ if name in Key.__struct_fields__]


class _Level(NamedTuple):
    """A team, with the quotas of it and of each of its end users."""

    team: Team
    quotas: tuple[Quota, ...]
    user_quotas: tuple[Quota, ...]


class Chain:
    """Teams, for the keys of clients that belong to them."""

    def __init__(self, teams: Iterable[Team]) -> None:
        self._levels: dict[str, _Level] = {}
        for team in teams:
            holder, spender = _holder(team), Spender(team=team.path)
            users = _quotas(team.end_users, f"this end user of {holder}", spender)
            self._levels[team.path] = _Level(team, _quotas(team, holder, spender), users)

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
            refusal = f"{_holder(blocked[0])} of this key is blocked; ask its administrator"
        return structs.replace(
            key,
            quotas=key.quotas + tuple(quota for level in levels for quota in level.quotas),
            user_quotas=key.user_quotas + tuple(quota for level in levels for quota in level.user_quotas),
            team_models=tuple(level.team.models for level in levels if level.team.models),
            team_refusal=refusal,
        )


def end_user_quotas(key: ClientKey, user: str) -> tuple[Quota, ...]:
    """The accounts of an end user of a key."""
    return tuple(_of_user(quota, user) for quota in key.user_quotas)


def _of_user(quota: Quota, user: str) -> Quota:
    spender = structs.replace(quota.spender, user=user)
    return structs.replace(quota, id=spender.account + quota.id.removeprefix(quota.spender.account), spender=spender)


def account_ids(key: str, team: str, user: str) -> list[str]:
    """The ids of all accounts in which a call may have been reserved, whatever limits there were at that time."""
    return [
        id for scope in scopes(key, team, user) for id in (scope, *(f"{scope}:{period}" for period in get_args(Period)))
    ]


def scopes(key: str, team: str, user: str) -> list[str]:
    """The spenders for which a call counts, by the ids of their accounts."""
    own = [*filter(None, (key,)), *(f"team:{path}" for path in ancestry(team))]
    return own + [user_account(scope, user) for scope in own] if user else own


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


def _holder(team: Team) -> str:
    return f"the {team.level} {team.path}"
