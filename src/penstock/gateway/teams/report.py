"""The report on a team, for the command line and the admin API: its limits, its spending, its keys."""

from collections.abc import Sequence

from penstock.gateway.billing.book import Book
from penstock.gateway.keys.keys import Key, Spender
from penstock.gateway.keys.report import budgets, end_users, moment, money
from penstock.gateway.limits.period import period_at
from penstock.gateway.teams.team import Team, within


def report_team(book: Book, team: Team, keys: Sequence[Key], now_ms: int) -> dict[str, object]:
    """The public data of a team, as JSON fields."""
    who = Spender(team=team.path)
    return {
        "path": team.path,
        "level": team.level,
        "state": "active" if team.blocked_ms is None else "blocked",
        "created": moment(team.created_ms),
        "blocked": moment(team.blocked_ms),
        "budgets": budgets(book, who, team.budgets, now_ms),
        "spent_this_month": money(book.spent(who, period_at("month", now_ms).since).total),
        "requests_per_minute": team.requests_per_minute,
        "tokens_per_minute": team.tokens_per_minute,
        "concurrent": team.concurrent,
        "models": list(team.models),
        "end_users": end_users(team.end_users),
        "keys": sum(within(key.team, team.path) and not key.unusable(now_ms) for key in keys),
    }
