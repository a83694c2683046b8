"""The rows of teams, as every change of teams writes them."""

from collections.abc import Iterable

from penstock.gateway.keys.team_path import ancestry
from penstock.gateway.people.audit import Actor, team_change
from penstock.gateway.teams.team import Team
from penstock.stores.book.database import Queryable, Transaction, replacement
from penstock.stores.book.key_rows import KEYS_CHANGED
from penstock.stores.book.people import append
from penstock.stores.book.rows import TEAMS

_PUT = replacement("teams", "path", TEAMS.columns)
_TEAMS = f"SELECT {', '.join(TEAMS.columns)} FROM teams ORDER BY path"


def read_teams(reader: Queryable) -> list[Team]:
    """All teams, by path, including deleted ones."""
    return [TEAMS.read(row) for row in reader.fetch(_TEAMS)]


def put_teams(transaction: Transaction, teams: Iterable[Team]) -> None:
    """Store new and changed teams."""
    rows = [TEAMS.write(team) for team in teams]
    if rows:
        transaction.execute_each(_PUT, rows)
        transaction.fetch(KEYS_CHANGED)


def create_missing_teams(transaction: Transaction, paths: Iterable[str], actor: Actor, now_ms: int) -> None:
    """Create those of these teams that do not exist, and the teams above them, without limits. A team that an
    administrator deleted, and what would be below it, is not created again."""
    wanted = sorted({path for each in paths for path in ancestry(each)})
    if not wanted:
        return
    known = {team.path: team.deleted_ms is None for team in read_teams(transaction)}
    new: list[Team] = []
    for path in wanted:  # those above come first
        if path not in known:
            known[path] = all(known[above] for above in ancestry(path)[1:])
            new += [Team(path=path, created_ms=now_ms)] if known[path] else []
    put_teams(transaction, new)
    for team in new:
        if entry := team_change(actor, now_ms, None, team):
            append(transaction, actor, entry)
