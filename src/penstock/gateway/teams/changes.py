"""Creates, changes and deletes teams in a book, for the command line and the admin API."""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, Struct, UnsetType, structs

from penstock.errors import AdminError
from penstock.gateway.billing.book import Book
from penstock.gateway.keys.keys import Key, Period
from penstock.gateway.keys.terms import (
    Amount,
    EndUserTerms,
    blocking,
    check_limit,
    check_models,
    merged_budgets,
    merged_limits,
)
from penstock.gateway.teams.path import ancestry, check_team_path, within
from penstock.gateway.teams.team import Team

_LIMITS = ("requests_per_minute", "tokens_per_minute", "concurrent")


class TeamUpdate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes of a team: what is given replaces the present value, and null removes a limit. Also the body of
    `PATCH /admin/teams/PATH`."""

    budgets: Mapping[Period, Amount | None] = {}
    requests_per_minute: int | UnsetType | None = UNSET
    tokens_per_minute: int | UnsetType | None = UNSET
    concurrent: int | UnsetType | None = UNSET
    models: tuple[str, ...] | UnsetType = UNSET
    end_users: EndUserTerms = EndUserTerms()
    blocked: bool | UnsetType = UNSET


class TeamTerms(TeamUpdate, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new team. Also the body of `POST /admin/teams`."""

    path: str


def create(book: Book, terms: TeamTerms, now_ms: int) -> Team:
    """Create a team. The teams above it must exist. One that was deleted gets new settings, and keeps its history."""
    new = _updated(Team(path=check_team_path(terms.path), created_ms=now_ms), terms, now_ms)

    def change(teams: list[Team], _keys: list[Key]) -> list[Team]:
        existing = {team.path for team in teams if team.deleted_ms is None}
        if new.path in existing:
            raise AdminError(f"there is a team {new.path}", code="name_taken", param="path")
        for above in ancestry(new.path)[:0:-1]:
            if above not in existing:
                raise AdminError(f"there is no team {above}: create it first", code="team_not_found", param="path")
        return [new]

    book.change_teams(change)
    return new


def update(book: Book, path: str, given: TeamUpdate, now_ms: int) -> Team:
    """Change a team."""
    changed: list[Team] = []

    def change(teams: list[Team], _keys: list[Key]) -> list[Team]:
        changed[:] = [_updated(find(teams, path), given, now_ms)]
        return changed

    book.change_teams(change)
    return changed[0]


def delete(book: Book, path: str, now_ms: int) -> Team:
    """Delete a team that has neither usable keys nor teams below it. Its calls stay in the ledger."""
    deleted: list[Team] = []

    def change(teams: list[Team], keys: list[Key]) -> list[Team]:
        team = find(teams, path)
        below = [
            other.path
            for other in teams
            if other.path != path and other.deleted_ms is None and within(other.path, path)
        ]
        active = [key.id for key in keys if key.team == path and not key.unusable(now_ms)]
        if below or active:
            what = f"the team {below[0]} below it" if below else f"the key {active[0]}"
            raise AdminError(f"{path} has {what}: delete or move that first", code="team_in_use")
        deleted[:] = [structs.replace(team, deleted_ms=now_ms)]
        return deleted

    book.change_teams(change)
    return deleted[0]


def find(teams: list[Team], path: str) -> Team:
    """The team with this path."""
    found = next((team for team in teams if team.path == path and team.deleted_ms is None), None)
    if found is None:
        raise AdminError(f"there is no team {path[:200]}", code="team_not_found")
    return found


def _updated(team: Team, given: TeamUpdate, now_ms: int) -> Team:
    values: dict[str, Any] = {
        name: check_limit(getattr(given, name), name) for name in _LIMITS if getattr(given, name) is not UNSET
    }
    if given.models is not UNSET:
        values["models"] = check_models(given.models)
    return structs.replace(
        team,
        budgets=merged_budgets(team.budgets, given.budgets),
        end_users=merged_limits(team.end_users, given.end_users),
        **values,
        **blocking(team, given.blocked, now_ms),
    )
