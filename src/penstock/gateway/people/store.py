"""PeopleStore: the tokens, the sessions and the audit log, as the gateway uses them. A `Book` has one.

Every method blocks, and raises `BookError` as those of the book do. Every change is recorded in the audit log, in the
same transaction.
"""

from typing import Protocol

from msgspec import Struct, structs

from penstock.amounts import moment
from penstock.gateway.people.audit import Actor, AuditEntry
from penstock.gateway.people.roles import RoleGrant
from penstock.gateway.people.tokens import ApiToken, NewToken, TokenTerms


class AdminSession(Struct, frozen=True, kw_only=True):
    """A session of a user who signed in with a browser. `id` is a digest of the secret in the cookie."""

    id: str
    who: str
    grants: tuple[RoleGrant, ...]
    created_ms: int
    expires_ms: int


def session_json(session: AdminSession) -> dict[str, object]:
    """The public data of a session."""
    return {
        "id": session.id,
        "who": session.who,
        "roles": [structs.asdict(grant) for grant in session.grants],
        "created": moment(session.created_ms),
        "expires": moment(session.expires_ms),
    }


class AuditFilter(Struct, frozen=True, kw_only=True):
    """Selects entries of the audit log. An empty field does not filter."""

    since_ms: int | None = None
    until_ms: int | None = None
    who: str = ""
    """A user, or its name without the id."""
    action: str = ""
    """An action, or the first part of one, such as `key`."""
    subject: str = ""


class PeopleStore(Protocol):
    """The store of tokens, sessions and the audit log."""

    def tokens(self) -> list[ApiToken]:
        """All tokens, the oldest first."""

    def token(self, digest: bytes, now_ms: int) -> ApiToken | None:
        """The usable token with this digest."""

    def create_token(self, terms: TokenTerms, actor: Actor, now_ms: int) -> NewToken:
        """Create a token."""

    def revoke_token(self, which: str, actor: Actor, now_ms: int) -> ApiToken:
        """Revoke a token. One that is revoked already stays unchanged."""

    def session(self, id: str, now_ms: int) -> AdminSession | None:
        """The session with this id, unless it has expired."""

    def version(self) -> int:
        """A number that changes with every change of tokens and sessions; cheap to read."""

    def start_session(self, session: AdminSession, actor: Actor) -> None:
        """Store a session, and delete those that have expired."""

    def sessions(self, now_ms: int) -> list[AdminSession]:
        """The sessions that have not expired, the oldest first."""

    def end_session(self, id: str, actor: Actor, now_ms: int) -> None:
        """Delete the session of the actor."""

    def end_sessions(self, which: str, actor: Actor, now_ms: int) -> int:
        """Delete the session with this id, or those of the user with this name or id; returns their number."""

    def record(self, entry: AuditEntry, keep_days: int | None = None) -> None:
        """Append to the audit log, and delete the entries that are older than `keep_days`."""

    def audit(self, wanted: AuditFilter, *, limit: int, before: int | None = None) -> list[tuple[int, AuditEntry]]:
        """Entries, the newest first, each with its place; `before` continues from such a place."""
