"""The report on teams, for the command line and the admin API: their limits, their spending, their keys."""

from collections import Counter
from collections.abc import Mapping, Sequence

from penstock.amounts import money
from penstock.gateway.keys.quota import Period, Spender
from penstock.gateway.keys.report import budgets, facts, spent_in
from penstock.gateway.keys.team_path import ancestry
from penstock.gateway.teams.store import TeamStore
from penstock.gateway.teams.team import Team


def report_teams(store: TeamStore, teams: Sequence[Team], now_ms: int) -> list[dict[str, object]]:
    """The public data of teams, as JSON fields. Their spending is read together."""
    spent = spent_in(store, [(Spender(team=team.path), ("month", *team.budgets)) for team in teams], now_ms)
    keys = Counter(
        path for key in store.key_names() if key.team and not key.unusable(now_ms) for path in ancestry(key.team)
    )
    return [_report(team, each, keys[team.path], now_ms) for team, each in zip(teams, spent, strict=True)]


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
