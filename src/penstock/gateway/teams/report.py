"""The report on teams, for the command line and the admin API: their limits, their spending, their keys."""

from collections import Counter
from collections.abc import Mapping, Sequence

from penstock.amounts import money
from penstock.gateway.keys.owner import user_parts
from penstock.gateway.keys.quota import Period, Spender
from penstock.gateway.keys.report import budgets, facts, spent_in
from penstock.gateway.keys.team_path import ancestry, within
from penstock.gateway.teams.members import MemberLimits, limits_of_member
from penstock.gateway.teams.store import TeamStore
from penstock.gateway.teams.team import Team


def report_teams(store: TeamStore, teams: Sequence[Team], now_ms: int) -> list[dict[str, object]]:
    """The public data of teams, as JSON fields. Their spending is read together."""
    spent = spent_in(store, [(Spender(team=team.path), ("month", *team.budgets)) for team in teams], now_ms)
    keys = active_keys(store, now_ms)
    return [_report(team, each, keys[team.path], now_ms) for team, each in zip(teams, spent, strict=True)]


def active_keys(store: TeamStore, now_ms: int) -> Counter[str]:
    """The number of usable keys of each team and all below it, by path."""
    return Counter(
        path for key in store.key_names() if key.team and not key.unusable(now_ms) for path in ancestry(key.team)
    )


def report_members(
    store: TeamStore,
    team: Team,
    owners: Mapping[str, str],
    own: Mapping[tuple[str, str], MemberLimits],
    now_ms: int,
) -> list[dict[str, object]]:
    """The public data of members of a team, by name: their limits and spending over all their keys. `owners` are the
    members, as recorded, by their ids; `own` the limits of single ones."""
    limits = {id: limits_of_member(team, own.get((team.path, id))) for id in owners}
    asked = [(Spender(team=team.path, member=id), ("month", *each.budgets)) for id, each in limits.items()]
    spent = dict(zip(owners, spent_in(store, asked, now_ms), strict=True))
    keys = Counter(
        user_parts(key.owner)[1]
        for key in store.key_names()
        if key.owner and within(key.team, team.path) and not key.unusable(now_ms)
    )
    rows = [
        {
            "team": team.path,
            "member": id,
            "name": user_parts(owners[id])[0],
            "keys": keys[id],
            "raised": (team.path, id) in own,
            **facts(each),
            "budgets": budgets(each.budgets, spent[id], now_ms),
            "spent_this_month": money(spent[id]["month"]),
        }
        for id, each in limits.items()
    ]
    return sorted(rows, key=lambda row: (str(row["name"]), str(row["member"])))


def _report(team: Team, spent: Mapping[Period, int], keys: int, now_ms: int) -> dict[str, object]:
    shown = facts(team)
    del shown["deleted"]
    return shown | {
        "level": team.level,
        "managed_by": team.managed_by or None,
        "state": "active" if team.blocked_ms is None else "blocked",
        "budgets": budgets(team.budgets, spent, now_ms),
        "spent_this_month": money(spent["month"]),
        "keys": keys,
    }
