"""Chain: the accounts in which a call of a key is reserved, besides that of the key itself.

Each budget has an account of its own, because an account has one period. The limits per minute of a team, and of an end
user, have one more. The order is always the same: further budgets of the key; its project, team and organisation; end
users. So a call that a key refuses never reaches the account of its organisation, which all share.

| account | id |
|---|---|
| a further budget of a key | `key_1:day` |
| limits, and a budget, of a team | `team:acme/search`, `team:acme/search:month` |
| limits, and a budget, of an end user of a key or a team | `user:key_1:DIGEST`, `user:team:acme:DIGEST:day` |
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import get_args

from msgspec import structs

from penstock.gateway.keys.keys import EndUserLimits, Key, Period, Spender
from penstock.gateway.limits.accounts import END_USER
from penstock.gateway.teams.path import ancestry
from penstock.gateway.teams.team import Team

_DIGEST_BYTES = 16


def resolve(keys: Iterable[Key], teams: Iterable[Team]) -> list[Key]:
    """The keys, with the accounts, models and state of their teams."""
    by_path = {team.path: team for team in teams}
    accounts = {
        path: _accounts(f"team:{path}", team, _holder(team), Spender(team=path)) for path, team in by_path.items()
    }
    return [_resolved(key, by_path, accounts) for key in keys]


def _resolved(key: Key, teams: Mapping[str, Team], accounts: Mapping[str, tuple[Key, ...]]) -> Key:
    if not (key.team or key.budgets or key.end_users):
        return key
    path = [teams[each] for each in ancestry(key.team) if each in teams]
    own = tuple(
        structs.replace(_account(f"{key.id}:{period}", "this key", Spender(key=key.id)), budget=budget, period=period)
        for period, budget in key.budgets.items()
    )
    users = [(_account(key.id, "this key", Spender(key=key.id)), key.end_users)]
    users += [(_account(f"team:{team.path}", _holder(team), Spender(team=team.path)), team.end_users) for team in path]
    return structs.replace(
        key,
        further=own + tuple(account for team in path for account in accounts[team.path]),
        user_limits=tuple((account, limits) for account, limits in users if limits),
        team_models=tuple(team.models for team in path if team.models),
        team_refusal=_refusal(key.team, path),
    )


def _refusal(path: str, teams: list[Team]) -> str:
    if len(teams) < len(ancestry(path)) or any(team.deleted_ms is not None for team in teams):
        return f"the team {path} of this key was deleted; ask for another key"
    blocked = next((team for team in teams if team.blocked_ms is not None), None)
    return f"{_holder(blocked)} of this key is blocked; ask its administrator" if blocked is not None else ""


def end_user_accounts(key: Key, user: str) -> tuple[Key, ...]:
    """The accounts of an end user of a key."""
    return tuple(
        account
        for scope, limits in key.user_limits
        for account in _accounts(
            _user_scope(scope.id, user),
            limits,
            f"this end user of {scope.holder}",
            structs.replace(scope.spender or Spender(key=scope.id), user=user),
        )
    )


def account_ids(key: str, team: str, user: str) -> list[str]:
    """The ids of all accounts in which a call may have been reserved, whatever limits there were at that time."""
    return [
        id for scope in scopes(key, team, user) for id in (scope, *(f"{scope}:{period}" for period in get_args(Period)))
    ]


def scopes(key: str, team: str, user: str) -> list[str]:
    """The spenders for which a call counts, as the ids of their accounts name them, without a period."""
    own = [*filter(None, (key,)), *(f"team:{path}" for path in ancestry(team))]
    return own + [_user_scope(scope, user) for scope in own] if user else own


def scope_of(who: Spender) -> str:
    """A spender, as `scopes` names it."""
    scope = f"team:{who.team}" if who.team else who.key
    return _user_scope(scope, who.user) if who.user else scope


def _user_scope(scope: str, user: str) -> str:
    return f"{END_USER}{scope}:{_digest(user)}"


def _accounts(id: str, limits: Team | EndUserLimits, holder: str, spender: Spender) -> tuple[Key, ...]:
    """The accounts of a team or an end user: one for its limits, if it has any, and one for each budget."""
    account = _account(id, holder, spender)
    per_minute = structs.replace(
        account,
        requests_per_minute=limits.requests_per_minute,
        tokens_per_minute=limits.tokens_per_minute,
        concurrent=limits.concurrent,
        period="total",
    )
    limited = any(
        limit is not None for limit in (limits.requests_per_minute, limits.tokens_per_minute, limits.concurrent)
    )
    return ((per_minute,) if limited else ()) + tuple(
        structs.replace(account, id=f"{id}:{period}", budget=budget, period=period)
        for period, budget in limits.budgets.items()
    )


def _account(id: str, holder: str, spender: Spender) -> Key:
    return Key(id=id, name=id, digest=b"", hint="", created_ms=0, holder=holder, spender=spender)


def _holder(team: Team) -> str:
    return f"the {team.level} {team.path}"


def _digest(user: str) -> str:
    return blake2b(user.encode("utf-8", "replace"), digest_size=_DIGEST_BYTES).hexdigest()
