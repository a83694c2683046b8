"""The report on teams, for the command line and the admin API: their limits, their spending, their keys."""

from collections import Counter
from collections.abc import Mapping, Sequence

from penstock.amounts import moment, money
from penstock.gateway.billing.book import Book
from penstock.gateway.keys.keys import Period, Spender
from penstock.gateway.keys.report import budgets, end_users, spent_in
from penstock.gateway.teams.path import ancestry
from penstock.gateway.teams.team import Team


def report_teams(book: Book, teams: Sequence[Team], now_ms: int) -> list[dict[str, object]]:
    """The public data of teams, as JSON fields. Their spending is read together."""
    spent = spent_in(book, [(Spender(team=team.path), ("month", *team.budgets)) for team in teams], now_ms)
    keys = Counter(
        path for key in book.key_names() if key.team and not key.unusable(now_ms) for path in ancestry(key.team)
    )
    return [_report(team, each, keys[team.path], now_ms) for team, each in zip(teams, spent, strict=True)]


def _report(team: Team, spent: Mapping[Period, int], keys: int, now_ms: int) -> dict[str, object]:
    return {
        "path": team.path,
        "level": team.level,
        "state": "active" if team.blocked_ms is None else "blocked",
        "created": moment(team.created_ms),
        "blocked": moment(team.blocked_ms),
        "budgets": budgets(team.budgets, spent, now_ms),
        "spent_this_month": money(spent["month"]),
        "requests_per_minute": team.requests_per_minute,
        "tokens_per_minute": team.tokens_per_minute,
        "concurrent": team.concurrent,
        "models": list(team.models),
        "end_users": end_users(team.end_users),
        "keys": keys,
    }
