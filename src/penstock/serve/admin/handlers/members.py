"""The handlers for members of teams: their limits over all keys that each created. They query the book."""

from msgspec import structs

from penstock.gateway.keys.fields import updated
from penstock.gateway.keys.keys import KeyLimits
from penstock.gateway.keys.owner import user_parts
from penstock.gateway.teams import changes
from penstock.gateway.teams.members import MemberLimits, MemberUpdate, find_member, owners_in
from penstock.gateway.teams.report import report_members
from penstock.gateway.teams.team import Team
from penstock.serve.admin.request import AdminRequest
from penstock.serve.admin.visible import visible_teams
from penstock.stores.book.sql_book import Book


def list_members(book: Book, request: AdminRequest) -> object:
    """List the [members](teams.md#members) of teams, by team and name: who created keys in it or below it, the limits
    over all these keys, and what is spent. A member sees itself."""
    teams = [each for each in visible_teams(book, request) if each.deleted_ms is None]
    if wanted := request.query.one("team"):
        teams = [changes.find(teams, wanted)]
    found: list[dict[str, object]] = []
    for team in teams:
        owners, scope = _owners(book, team), request.scope
        if scope is not None and scope.role_in(team.path) == "member":
            owners = {user_parts(scope.owner)[1]: scope.owner}
        found += _reports(book, team, owners, request.now_ms)
    return {"members": found}


def update_member(book: Book, request: AdminRequest) -> object:
    """Change the limits of one member of a team: the fields that are given, and nothing else. `null` takes the limit
    that the team has for all members again. `team` and `member`, an id or a name, are required."""
    given = request.read_body(MemberUpdate)
    team = changes.find(book.teams(), given.team)
    who = find_member(_owners(book, team), given.member)
    change_limits(book, team, who, given, request.now_ms)
    return _reports(book, team, {user_parts(who)[1]: who}, request.now_ms)[0]


def change_limits(book: Book, team: Team, who: str, given: MemberUpdate, now_ms: int) -> None:
    """Change the limits of one member, as recorded."""
    id = user_parts(who)[1]
    known = {(each.team, each.member): each for each in book.members()}
    before = known.get((team.path, id), MemberLimits(team=team.path, member=id, who=who))
    book.change_member(structs.replace(updated(before, given, now_ms), who=who), now_ms)


def has_limits(limits: KeyLimits) -> bool:
    """Whether any limit is set."""
    return any(getattr(limits, name) for name in KeyLimits.__struct_fields__)


def _owners(book: Book, team: Team) -> dict[str, str]:
    own = {each.member: each.who for each in book.members() if each.team == team.path and has_limits(each)}
    return own | owners_in(book.key_names(), team.path)


def _reports(book: Book, team: Team, owners: dict[str, str], now_ms: int) -> list[dict[str, object]]:
    own = {(each.team, each.member): each for each in book.members() if has_limits(each)}
    return report_members(book, team, owners, own, now_ms)
