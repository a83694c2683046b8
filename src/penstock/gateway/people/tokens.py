"""API tokens: credentials of programs for the admin API, with one role, optionally in a team, and an expiry time.

Only a digest is stored. The secret is `pst-`, 32 random bytes in base64url, and a checksum.
"""

import secrets
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from penstock.errors import AdminError
from penstock.gateway.keys.client_key import AnyKey
from penstock.gateway.keys.key_secret import digest_of, new_secret
from penstock.gateway.keys.owner import named_user
from penstock.gateway.keys.report import facts
from penstock.gateway.keys.team_path import check_team_path
from penstock.gateway.keys.terms import check_name, parse_expiry
from penstock.gateway.people.roles import TEAM_ROLES, Principal, Role, RoleGrant

TOKEN_PREFIX = "pst-"
DEFAULT_EXPIRY = "90d"
NEVER = "never"


class ApiToken(Struct, AnyKey, frozen=True, kw_only=True):
    """A token, as it is stored."""

    id: str
    """Public: `tok_` and twelve characters."""
    name: str
    digest: bytes
    hint: str
    role: Role
    team: str
    """The team of the role; empty for a global role."""
    created_ms: int
    created_by: str
    expires_ms: int | None
    revoked_ms: int | None = None

    @property
    def principal(self) -> Principal:
        """The user that it stands for. A later token with the same name is another user."""
        name = named_user(f"token:{self.name}", self.id)
        return Principal.of(name, "API token", [RoleGrant(self.role, self.team)])


class TokenTerms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a new token. Also the body of `POST /admin/tokens`."""

    name: str
    role: Role
    team: str = ""
    expires: str = DEFAULT_EXPIRY


class NewToken(NamedTuple):
    """A token that was just created. `secret` is shown once; it is not stored."""

    secret: str
    token: ApiToken


def make_token(terms: TokenTerms, created_by: str, now_ms: int) -> NewToken:
    """A new token with these settings."""
    in_team = terms.role in TEAM_ROLES
    if in_team != bool(terms.team):
        message = "needs a team" if in_team else "is global: leave out the team"
        raise AdminError(f"the role {terms.role} {message}", param="team")
    secret = new_secret(TOKEN_PREFIX)
    token = ApiToken(
        id=f"tok_{secrets.token_hex(6)}",
        name=check_name(terms.name),
        digest=digest_of(secret),
        hint=secret[-4:],
        role=terms.role,
        team=check_team_path(terms.team) if in_team else "",
        created_ms=now_ms,
        created_by=created_by,
        expires_ms=None if terms.expires == NEVER else parse_expiry(terms.expires, now_ms),
    )
    return NewToken(secret, token)


def check_new(tokens: Iterable[ApiToken], new: ApiToken) -> None:
    """Raise if a usable token has the name of a new one."""
    for other in tokens:
        if other.name == new.name and not other.unusable(new.created_ms):
            raise AdminError(f"there is a token with that name, {other.id}", code="name_taken", param="name")


def find_token(tokens: Iterable[ApiToken], which: str, now_ms: int) -> ApiToken:
    """The token with that id, else the newest usable one with that name, else the newest with it."""
    tokens = list(tokens)
    matches = [token for token in tokens if token.id == which] or [token for token in tokens if token.name == which]
    if not matches:
        raise AdminError("there is no token with that id or name", code="token_not_found")
    return max(matches, key=lambda token: (not token.unusable(now_ms), token.created_ms))


def token_json(token: ApiToken, now_ms: int) -> dict[str, object]:
    """The public data of a token. Never a digest."""
    return facts(token) | {"state": token.state(now_ms), "team": token.team or None}
