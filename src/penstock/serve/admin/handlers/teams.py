"""The handlers for teams. They query the book."""

from operator import attrgetter

from penstock.gateway.teams import changes
from penstock.gateway.teams.report import active_keys, report_teams
from penstock.gateway.teams.team import Team
from penstock.serve.admin.lists import in_order, page_of_teams
from penstock.serve.admin.request import AdminRequest
from penstock.serve.admin.visible import visible_teams
from penstock.stores.book.sql_book import Book


def list_teams(book: Book, request: AdminRequest) -> object:
    """List [teams](teams.md), by path unless `sort` says otherwise: all of them, or with `limit` a page. `total` counts
    all that were found."""
    teams, now_ms = _visible(book, request), request.now_ms
    page = page_of_teams(book, teams, active_keys(book, now_ms), request.query, now_ms)
    if request.query.flag("names"):
        return {"teams": [{"path": path} for path in page.ids], "next": page.next, "total": page.total}
    found = in_order(teams, page.ids, attrgetter("path"))
    return {"teams": report_teams(book, found, now_ms), "next": page.next, "total": page.total}


def create_team(book: Book, request: AdminRequest) -> object:
    """Create a team. `path` is required; the teams above it must exist."""
    return _report(book, request, changes.create(book, request.read_body(changes.TeamTerms), request.now_ms))


def show_team(book: Book, request: AdminRequest) -> object:
    """Return one team. The path has slashes: `/admin/teams/acme/search`."""
    return _report(book, request, changes.find(_visible(book, request), request.name))


def update_team(book: Book, request: AdminRequest) -> object:
    """Change a team, or block it: the fields that are given, and nothing else."""
    update = request.read_body(changes.TeamUpdate)
    return _report(book, request, changes.update(book, request.name, update, request.now_ms))


def delete_team(book: Book, request: AdminRequest) -> object:
    """Delete a team that has neither active keys nor teams below it; otherwise 409 `team_in_use`."""
    changes.delete(book, request.name, request.now_ms)
    return {"path": request.name, "deleted": True}


def _visible(book: Book, request: AdminRequest) -> list[Team]:
    """The teams that the user may see."""
    return [team for team in visible_teams(book, request) if team.deleted_ms is None]


def _report(book: Book, request: AdminRequest, team: Team) -> object:
    return report_teams(book, [team], request.now_ms)[0]
