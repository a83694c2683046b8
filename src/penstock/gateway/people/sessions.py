"""AdminSession: a session of a user who signed in with a browser."""

from msgspec import Struct, structs

from penstock.amounts import moment
from penstock.gateway.people.roles import RoleGrant


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
