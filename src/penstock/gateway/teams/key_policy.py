"""The policy for keys that members of teams create for themselves. Pure.

Each level of a team can have a policy (`KeyPolicy`), and a new key has to keep all of them. What the user leaves out is
the most that they allow. A policy does not apply to users who may exceed it: administrators; and with `raised_by =
"team_admin"`, a `team_admin` of the level that has it.
"""

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple, get_args

from msgspec import structs

from penstock.amounts import DAY_MS, dollars
from penstock.errors import AdminError
from penstock.gateway.keys.keys import Key, KeyPolicy
from penstock.gateway.keys.owner import user_parts
from penstock.gateway.keys.quota import Period, RateLimits
from penstock.gateway.keys.team_path import ancestry, within
from penstock.gateway.teams.team import NO_POLICY, Team


class TeamPolicy(NamedTuple):
    """The policy of a team."""

    team: Team
    policy: KeyPolicy


def policies_for(teams: Iterable[Team], path: str, may_raise: Callable[[str], bool]) -> list[TeamPolicy]:
    """The policies that a key of a team has to keep, the innermost first. `may_raise` says whether its creator is a
    `team_admin` of a level."""
    by_path = {team.path: team for team in teams if team.deleted_ms is None}
    levels = [by_path[each] for each in ancestry(path) if each in by_path]
    return [
        TeamPolicy(team, team.member_keys)
        for team in levels
        if team.member_keys != NO_POLICY and not (team.member_keys.raised_by == "team_admin" and may_raise(team.path))
    ]


def within_policies(key: Key, policies: Sequence[TeamPolicy], others: Iterable[Key], now_ms: int) -> Key:
    """A new key with what it leaves out; raises if it exceeds a policy. `others` are all keys."""
    _check_number(key, policies, others, now_ms)
    key = _with_budgets(key, policies)
    for name in RateLimits.__struct_fields__:
        most = _least([(getattr(each.policy, name), each) for each in policies])
        if most is not None:
            limit, team = most
            given = getattr(key, name)
            if given is not None and given > limit:
                raise _refusal(name, f"at most {limit} {name.replace('_', ' ')}", team)
            key = structs.replace(key, **{name: limit if given is None else given})
    most_days = _least([(each.policy.days, each) for each in policies])
    if most_days is not None:
        days, team = most_days
        last_ms = now_ms + days * DAY_MS
        if key.expires_ms is not None and key.expires_ms > last_ms:
            raise _refusal("expires", f"at most {days} days until it expires", team)
        key = structs.replace(key, expires_ms=last_ms if key.expires_ms is None else key.expires_ms)
    return _with_models(key, policies)


def _check_number(key: Key, policies: Sequence[TeamPolicy], others: Iterable[Key], now_ms: int) -> None:
    id = user_parts(key.owner)[1]
    paths = [
        each.team
        for each in others
        if each.owner and each.id != key.id and user_parts(each.owner)[1] == id and not each.unusable(now_ms)
    ]
    for each in policies:
        most = each.policy.number
        if most is not None and sum(within(path, each.team.path) for path in paths) >= most:
            active = "1 active key" if most == 1 else f"{most} active keys"
            raise AdminError(
                f"{each.team.holder} allows a member {active}, which you have: revoke one, or ask for more",
                code="key_policy",
                param="number",
            )


def _with_budgets(key: Key, policies: Sequence[TeamPolicy]) -> Key:
    given = dict(key.budgets)
    for period in get_args(Period):
        most = _least([(each.policy.budgets.get(period), each) for each in policies])
        if most is None:
            continue
        limit, team = most
        own = [key.budget] if key.budget is not None and key.period == period else []
        least = min([*own, *([given[period]] if period in given else [])], default=None)
        if least is not None and least > limit:
            what = "in total" if period == "total" else f"per {period}"
            raise _refusal("budget", f"a budget of at most {dollars(limit)} {what}", team)
        if least is None and key.budget is None:
            key = structs.replace(key, budget=limit, period=period)
        elif least is None:
            given[period] = limit
    return structs.replace(key, budgets={period: given[period] for period in get_args(Period) if period in given})


def _with_models(key: Key, policies: Sequence[TeamPolicy]) -> Key:
    for each in policies:
        allowed = each.policy.models
        if not allowed:
            continue
        if not key.models:
            key = structs.replace(key, models=allowed)
        for model in key.models:
            if model not in allowed and not any(fnmatchcase(model, pattern) for pattern in allowed):
                raise _refusal("models", f"the models {', '.join(allowed)}, and not {model}", each)
    return key


def _least(limits: Iterable[tuple[int | None, TeamPolicy]]) -> tuple[int, TeamPolicy] | None:
    """The smallest limit, and whose it is; None if there is none."""
    known = [(limit, team) for limit, team in limits if limit is not None]
    return min(known, key=lambda each: each[0], default=None)


def _refusal(param: str, allowed: str, policy: TeamPolicy) -> AdminError:
    message = f"{policy.team.holder} allows a key of a member {allowed}: choose less, or ask for more"
    return AdminError(message, code="key_policy", param=param)
