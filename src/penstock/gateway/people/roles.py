"""Roles: what a user of the admin API may do. Principal: an authenticated user with its roles.

A role is global, or it is a role in a team. A team is a path, such as `acme/search`; a role in `acme` includes all
teams and projects below it. A permission that no role has is denied.

| role | may |
|---|---|
| `provisioner` | provision people and groups over SCIM; nothing else |
| `viewer` | read usage, calls, keys, health and state; no content |
| `operator` | also read content, stop calls, and use the playground |
| `admin` | everything |
| `member` of a team | create, rotate and revoke its own keys; read their calls, and those of the team's JWT clients |
| `team_admin` of a team | the same for all keys and calls of the team |
"""

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from penstock.gateway.keys.keys import Key, KeyName
from penstock.gateway.keys.owner import user_parts
from penstock.gateway.keys.team_path import within

GlobalRole: TypeAlias = Literal["provisioner", "viewer", "operator", "admin"]
TeamRole: TypeAlias = Literal["member", "team_admin"]
Role: TypeAlias = Literal["provisioner", "viewer", "operator", "admin", "member", "team_admin"]
Permission: TypeAlias = Literal["identify", "read", "operate", "content", "provision", "manage"]
"""`identify`: see and end one's own session. `read`: everything but content. `provision`: people and groups over SCIM.
`manage`: keys, tokens, users, audit."""
Via: TypeAlias = Literal["admin token", "API token", "session", "proxy", "command line", "gateway", "none"]

GLOBAL_ROLES: tuple[str, ...] = get_args(GlobalRole)
TEAM_ROLES: tuple[str, ...] = get_args(TeamRole)

PERMISSIONS: Mapping[GlobalRole, frozenset[Permission]] = {
    "provisioner": frozenset({"identify", "provision"}),
    "viewer": frozenset({"identify", "read"}),
    "operator": frozenset({"identify", "read", "operate", "content"}),
    "admin": frozenset({"identify", "read", "operate", "content", "provision", "manage"}),
}
# The order of strength: of several roles, a user has the strongest.
_STRENGTH: Mapping[str, int] = {role: number for number, role in enumerate((*TEAM_ROLES, *GLOBAL_ROLES))}


class RoleGrant(Struct, frozen=True):
    """A role, and the team in which it applies; empty for a global role."""

    role: Role
    team: str = ""


class Scope(Struct, frozen=True, kw_only=True):
    """The keys that a user with roles in teams only may see and change."""

    owner: str
    """The user, as recorded."""
    teams: Mapping[str, TeamRole]

    def role_in(self, team: str) -> TeamRole | None:
        """The strongest role in a team, from it or from a team above it."""
        found = [role for path, role in self.teams.items() if team and within(team, path)]
        return max(found, key=_STRENGTH.__getitem__, default=None)

    @property
    def only_team_admin(self) -> bool:
        """Whether all calls of the teams may be seen, whatever their keys."""
        return all(role == "team_admin" for role in self.teams.values())

    def covers(self, key: Key | KeyName) -> bool:
        """Whether a key is one of them."""
        role = self.role_in(key.team)
        return role == "team_admin" or (role == "member" and user_parts(key.owner)[1] == user_parts(self.owner)[1])


class Principal(Struct, frozen=True, kw_only=True):
    """An authenticated user of the admin API."""

    name: str
    via: Via
    role: GlobalRole | None = None
    teams: Mapping[str, TeamRole] = {}
    """The roles in teams, by the team's path."""

    @property
    def ambient(self) -> bool:
        """Whether a browser sends the credentials by itself, so that changes need a proof of our own page (CSRF)."""
        return self.via in ("session", "proxy")

    def may(self, permission: Permission) -> bool:
        """Whether its global role has a permission."""
        return self.role is not None and permission in PERMISSIONS[self.role]

    @property
    def scope(self) -> Scope:
        """What its roles in teams include."""
        return Scope(owner=self.name, teams=self.teams)

    @classmethod
    def of(cls, name: str, via: Via, grants: Iterable[RoleGrant]) -> "Principal":
        """A user with these roles; of several global roles, and of several roles in a team, it has the strongest."""
        role: GlobalRole | None = None
        teams: dict[str, TeamRole] = {}
        for grant in sorted(grants, key=lambda each: _STRENGTH[each.role]):
            if grant.role == "member" or grant.role == "team_admin":
                if grant.team:
                    teams[grant.team] = grant.role
            elif not grant.team:
                role = grant.role
        return cls(name=name, via=via, role=role, teams=teams)
