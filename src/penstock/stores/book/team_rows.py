"""The rows of teams and of single members, as every change of them writes them."""

from collections.abc import Iterable, Sequence

from penstock.gateway.keys.report import facts
from penstock.gateway.keys.team_path import ancestry
from penstock.gateway.people.audit import Actor, entry_of, team_change
from penstock.gateway.teams.members import MemberLimits
from penstock.gateway.teams.team import Team
from penstock.stores.book.database import Queryable, Transaction, replacement, texts
from penstock.stores.book.key_rows import KEYS_CHANGED
from penstock.stores.book.people import append
from penstock.stores.book.rows import TEAMS, RowMapper

_PUT = replacement("teams", "path", TEAMS.columns)
_TEAMS = f"SELECT {', '.join(TEAMS.columns)} FROM teams ORDER BY path"
_MEMBERS = RowMapper(MemberLimits)
_PUT_MEMBER = replacement("member_limits", "team, member", _MEMBERS.columns)


def member_tables() -> Sequence[str]:
    """The statements that create the table of members."""
    return (
        f"""
        CREATE TABLE member_limits (
            {texts("team member who budgets")},
            requests_per_minute BIGINT,
            tokens_per_minute BIGINT,
            concurrent BIGINT,
            PRIMARY KEY (team, member)
        )
        """,
    )


def read_members(reader: Queryable) -> list[MemberLimits]:
    """The members who have limits of their own, by team."""
    sql = f"SELECT {', '.join(_MEMBERS.columns)} FROM member_limits ORDER BY team, member"
    return [_MEMBERS.read(row) for row in reader.fetch(sql)]


def change_member(transaction: Transaction, changed: MemberLimits, actor: Actor, now_ms: int) -> None:
    """Store the limits of one member."""
    before = next(
        (each for each in read_members(transaction) if (each.team, each.member) == (changed.team, changed.member)), None
    )
    transaction.execute_each(_PUT_MEMBER, [_MEMBERS.write(changed)])
    transaction.fetch(KEYS_CHANGED)
    old, new = ({} if each is None else facts(each) for each in (before, changed))
    names = [name for name in new if new[name] != old.get(name)]
    subject = f"{changed.team} {changed.member}"
    append(
        transaction,
        actor,
        entry_of(
            actor, now_ms, "member.update", subject, {n: old[n] for n in names if n in old}, {n: new[n] for n in names}
        ),
    )


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
