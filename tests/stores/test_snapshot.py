"""The local snapshot is its owner's alone, and is not used for longer than a day."""

import time
from pathlib import Path

import pytest

from penstock.gateway.keys.keys import Key, KeyLimits
from penstock.gateway.people.roles import RoleGrant
from penstock.gateway.people.sessions import AdminSession
from penstock.gateway.people.tokens import TokenTerms, make_token
from penstock.gateway.teams.team import Team
from penstock.stores.book.snapshot import MAX_AGE_S, KnownKeys, KnownUsers, LocalSnapshot

KEY = Key(
    id="key_1",
    name="app\nline",
    digest=bytes(range(32)),
    hint="abcd",
    created_ms=1,
    budgets={"day": 5},
    tags={"a": "b"},
    end_users=KeyLimits(budgets={"month": 7}),
)
TEAM = Team(path="acme", created_ms=1)
USERS = KnownUsers(
    [make_token(TokenTerms(name="ci", role="viewer"), "admin", 5).token],
    [AdminSession(id="ab", who="eve", grants=(RoleGrant("viewer", ""),), created_ms=1, expires_ms=9)],
)


def test_what_is_written_is_read_by_another_process_for_a_day(tmp_path: Path) -> None:
    now = [time.time()]
    one, other = LocalSnapshot(tmp_path), LocalSnapshot(tmp_path, lambda: now[0])
    assert (other.keys(), other.users()) == (None, KnownUsers())
    one.write_keys(KnownKeys([KEY, KEY], [TEAM], []))
    one.write_users(USERS)
    assert other.keys() == KnownKeys([KEY, KEY], [TEAM], [])
    assert other.users() == USERS
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    now[0] += MAX_AGE_S + 60
    assert (other.keys(), other.users()) == (None, KnownUsers()), "what was revoked since is not valid for ever"
    other.confirm()
    assert other.users() == USERS


@pytest.mark.parametrize("damage", [b"", b"{", b"[]\n{}\n", b"\xff"])
def test_a_damaged_file_is_as_none(tmp_path: Path, damage: bytes) -> None:
    snapshot = LocalSnapshot(tmp_path)
    snapshot.write_keys(KnownKeys([KEY], [TEAM], []))
    snapshot.write_users(USERS)
    for path in tmp_path.iterdir():
        path.write_bytes(damage)
    assert snapshot.keys() is None
    assert LocalSnapshot(tmp_path).users() == KnownUsers()
