"""What a user may see of keys, teams and calls: everything, or what its roles in teams include."""

from msgspec import structs

from penstock.gateway.billing.queries import Filter, with_teams
from penstock.gateway.keys.keys import KeyName
from penstock.gateway.record.entry import Entry
from penstock.gateway.teams.chain import jwt_key_name
from penstock.gateway.teams.team import Team
from penstock.serve.admin.request import AdminRequest
from penstock.stores.book.sql_book import Book

# The id of no key, and the path of no team.
_NONE = "(none)"


def visible_filter(book: Book, request: AdminRequest, entry_filter: Filter) -> Filter:
    """The filter with names of keys replaced by their ids, and the keys whose name or id contains its text; limited to
    the calls that the user may see. Teams include those below them."""
    entry_filter = with_teams(entry_filter, book.teams()) if entry_filter.teams else entry_filter
    scope = request.scope
    if not entry_filter.keys and not entry_filter.text and scope is None:
        return entry_filter
    teams = [team.path for team in visible_teams(book, request)]
    of_jwts = [KeyName(id=name, name=name) for name in map(jwt_key_name, teams)]
    keys = [*visible_keys(book, request), *of_jwts]
    part = entry_filter.text.lower()
    wanted = [*entry_filter.keys, *(key.id for key in keys if key.name in entry_filter.keys)]
    found = [key.id for key in keys if part in key.name.lower() or part in key.id] if part else []
    if scope is not None:
        # An empty filter would select the calls of all teams, or all keys.
        teams = [path for path in teams if not entry_filter.teams or path in entry_filter.teams] or [_NONE]
        entry_filter = structs.replace(entry_filter, teams=tuple(teams))
        if not scope.only_team_admin:
            wanted = [key.id for key in keys if not entry_filter.keys or key.id in wanted] or [_NONE]
    return structs.replace(entry_filter, keys=tuple(dict.fromkeys(wanted)), text_keys=tuple(found))


def is_visible(book: Book, request: AdminRequest, entry: Entry) -> bool:
    """Whether the user may see a call: the same as `visible_filter` selects."""
    wanted = visible_filter(book, request, Filter())
    return (not wanted.teams or entry.team in wanted.teams) and (not wanted.keys or entry.key in wanted.keys)


def visible_keys(book: Book, request: AdminRequest) -> list[KeyName]:
    """The keys that the user may see."""
    keys, scope = book.key_names(), request.scope
    return keys if scope is None else [key for key in keys if scope.covers(key)]


def visible_teams(book: Book, request: AdminRequest) -> list[Team]:
    """The teams that the user may see, including deleted ones, which have calls."""
    teams, scope = book.teams(), request.scope
    return teams if scope is None else [team for team in teams if scope.role_in(team.path) is not None]
