"""LocalSnapshot: a local copy of what authenticates clients and users, for while the ledger's database is away.

With the ledger in PostgreSQL, a process that starts during an outage would know no key, and no process could look up an
API token or a session: `/metrics` would fail just when it is needed. So two files in the state directory have the keys
and teams, and the tokens and sessions, as the database last had them. They have digests of secrets, never secrets, and
only their owner can read them.

1. `BookWriter` writes them within a second after a change, and confirms them once a minute while the database answers.
2. They are used only while the database does not answer, and for at most `MAX_AGE_S` after the last confirmation: what
   was revoked meanwhile, by a gateway that still reaches the database, is not accepted for longer.
3. Acts need the audit log, and so the database: during an outage, a token or a session only reads.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from penstock.gateway.keys.keys import Key
from penstock.gateway.people.sessions import AdminSession
from penstock.gateway.people.tokens import ApiToken
from penstock.gateway.teams.members import MemberLimits
from penstock.gateway.teams.team import Team

MAX_AGE_S = 24 * 3600.0
_KEYS = "known-keys.jsonl"
_USERS = "known-users.json"
T = TypeVar("T")


class KnownUsers(Struct, frozen=True):
    """The API tokens and the sessions."""

    tokens: Sequence[ApiToken] = ()
    sessions: Sequence[AdminSession] = ()


class KnownKeys(NamedTuple):
    """The keys, the teams and their members, without the limits that keys have by them."""

    keys: list[Key]
    teams: list[Team]
    members: list[MemberLimits]


class LocalSnapshot:
    """The files of one state directory. All workers write the same."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self._read_users: tuple[float, KnownUsers] | None = None

    def write_keys(self, known: KnownKeys) -> None:
        """Store keys and teams. A line for each key, so that no long encoding holds the interpreter's lock (GIL)."""
        together = (known.teams, known.members, *known.keys)
        self._write(_KEYS, map(msgspec.json.encode, together))

    def write_users(self, users: KnownUsers) -> None:
        """Store tokens and sessions."""
        self._write(_USERS, [msgspec.json.encode(users)])

    def confirm(self) -> None:
        """Note that the database still has the same."""
        for name in (_KEYS, _USERS):
            with contextlib.suppress(OSError):
                os.utime(self._folder / name, (self._clock(), self._clock()))

    def keys(self) -> KnownKeys | None:
        """The keys and teams; None if there are none that may be used."""
        with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
            if self._confirmed_at(_KEYS):
                teams, members, *keys = (self._folder / _KEYS).read_bytes().splitlines()
                read = msgspec.json.Decoder(Key).decode
                return KnownKeys(
                    [read(line) for line in keys],
                    msgspec.json.decode(teams, type=list[Team]),
                    msgspec.json.decode(members, type=list[MemberLimits]),
                )
        return None

    def users(self) -> KnownUsers:
        """The tokens and sessions that may be used."""
        with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
            if at := self._confirmed_at(_USERS):
                if self._read_users is None or self._read_users[0] != at:
                    self._read_users = at, msgspec.json.decode((self._folder / _USERS).read_bytes(), type=KnownUsers)
                return self._read_users[1]
        return KnownUsers()

    def _confirmed_at(self, name: str) -> float:
        """When a file was last confirmed; 0 if that is too long ago."""
        at = (self._folder / name).stat().st_mtime
        return at if self._clock() - at <= MAX_AGE_S else 0.0

    def _write(self, name: str, lines: Iterable[bytes]) -> None:
        """Replace a file at once. A disk that is full only makes the snapshot old."""
        temporary = self._folder / f".{name}.{os.getpid()}"
        with contextlib.suppress(OSError):
            try:
                with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                    file.writelines(line + b"\n" for line in lines)
                temporary.replace(self._folder / name)
            finally:
                temporary.unlink(missing_ok=True)
