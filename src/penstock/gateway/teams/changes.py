"""Creates, changes and deletes teams in a book, for the command line and the admin API."""

from msgspec import UNSET, UnsetType, structs

from penstock.errors import AdminError
from penstock.gateway.keys.fields import updated
from penstock.gateway.keys.keys import Key
from penstock.gateway.keys.team_path import ancestry, check_team_path, within
from penstock.gateway.keys.terms import LimitedUpdate, LimitTerms, PolicyTerms
from penstock.gateway.teams.store import TeamStore
from penstock.gateway.teams.team import Team


class TeamSettings(LimitedUpdate, frozen=True, kw_only=True):
    """What a file for `penstock apply` declares of a team."""

    members: LimitTerms = LimitTerms()
    member_keys: PolicyTerms = PolicyTerms()


class TeamUpdate(TeamSettings, frozen=True, kw_only=True):
    """Changes of a team: what is given replaces the present value, and null removes a limit. Also the body of
    `PATCH /admin/teams/PATH`."""

    managed_by: str | UnsetType | None = UNSET


class TeamTerms(TeamUpdate, frozen=True, kw_only=True):
    """A new team. Also the body of `POST /admin/teams`."""

    path: str


def create(store: TeamStore, terms: TeamTerms, now_ms: int) -> Team:
    """Create a team. The teams above it must exist. One that was deleted gets new settings, and keeps its history."""
    new = updated(Team(path=check_team_path(terms.path), created_ms=now_ms), terms, now_ms)

    def change(teams: list[Team], _keys: list[Key]) -> list[Team]:
        existing = {team.path for team in teams if team.deleted_ms is None}
        if new.path in existing:
            raise AdminError(f"there is a team {new.path}", code="name_taken", param="path")
        for above in ancestry(new.path)[:0:-1]:
            if above not in existing:
                raise AdminError(f"there is no team {above}: create it first", code="team_not_found", param="path")
        return [new]

    return store.change_teams(change)[0]


def update(store: TeamStore, path: str, given: TeamUpdate, now_ms: int) -> Team:
    """Change a team."""
    return store.change_teams(lambda teams, _keys: [updated(find(teams, path), given, now_ms)])[0]


def delete(store: TeamStore, path: str, now_ms: int) -> Team:
    """Delete a team that has neither usable keys nor teams below it. Its calls stay in the ledger."""

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
        return [structs.replace(team, deleted_ms=now_ms)]

    return store.change_teams(change)[0]


def find(teams: list[Team], path: str) -> Team:
    """The team with this path."""
    found = next((team for team in teams if team.path == path and team.deleted_ms is None), None)
    if found is None:
        raise AdminError(f"there is no team {path[:200]}", code="team_not_found")
    return found
