"""The routes of the admin API for teams. They query the book, as those of `routes.py` do."""

import re

from penstock.gateway.billing.book import Book
from penstock.gateway.teams import changes
from penstock.gateway.teams.report import report_teams
from penstock.gateway.teams.team import Team
from penstock.serve.admin.routes import AdminReply, AdminRequest, Work, read_body


def list_teams(book: Book, request: AdminRequest) -> AdminReply:
    """List all teams, by path."""
    request.query.only(())
    return AdminReply(200, {"teams": report_teams(book, _visible(book, request), request.now_ms)})


def create_team(book: Book, request: AdminRequest) -> AdminReply:
    """Create a team."""
    return _reply(book, request, changes.create(book, read_body(request, changes.TeamTerms), request.now_ms), 201)


def show_team(book: Book, request: AdminRequest) -> AdminReply:
    """Show one team."""
    return _reply(book, request, changes.find(_visible(book, request), request.name))


def update_team(book: Book, request: AdminRequest) -> AdminReply:
    """Change a team, or block it."""
    update = read_body(request, changes.TeamUpdate)
    return _reply(book, request, changes.update(book, request.name, update, request.now_ms))


def delete_team(book: Book, request: AdminRequest) -> AdminReply:
    """Delete a team."""
    changes.delete(book, request.name, request.now_ms)
    return AdminReply(200, {"path": request.name, "deleted": True})


def _visible(book: Book, request: AdminRequest) -> list[Team]:
    """The teams that the user may see."""
    teams, scope = [team for team in book.teams() if team.deleted_ms is None], request.scope
    return teams if scope is None else [team for team in teams if scope.role_in(team.path) is not None]


def _reply(book: Book, request: AdminRequest, team: Team, status: int = 200) -> AdminReply:
    return AdminReply(status, report_teams(book, [team], request.now_ms)[0])


TEAM_ROUTES: tuple[tuple[str, re.Pattern[str], Work], ...] = (
    ("GET", re.compile(r"/admin/teams"), list_teams),
    ("POST", re.compile(r"/admin/teams"), create_team),
    ("GET", re.compile(r"/admin/teams/(.+)"), show_team),
    ("PATCH", re.compile(r"/admin/teams/(.+)"), update_team),
    ("DELETE", re.compile(r"/admin/teams/(.+)"), delete_team),
)
