"""GroupRoles: the roles of a user by the names of its groups, as the configuration maps them.

| if | then |
|---|---|
| a group has its own row (`[admin.groups.NAME]`) | it has that role, and no pattern is asked |
| several patterns match a group | the first one in the file decides |
| several groups give roles in one team | the strongest role: `team_admin`, `member` |
| several groups give global roles | the strongest role: `admin`, `operator`, `viewer`, `provisioner` |
| a role in a team, and another one in a team below it | there, the stronger of the two |
| a global role, and roles in teams | what either of them allows; lists show what the global role may see |

`Principal.of` and `Scope.role_in` apply the last four rows.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from penstock.gateway.keys.team_path import is_team_path
from penstock.gateway.people.group_pattern import GroupPattern, compile_pattern, matched
from penstock.gateway.people.roles import GLOBAL_ROLES, TEAM_ROLES, Role, RoleGrant

_PLACE = re.compile(r"\{([A-Za-z_]\w*)\}", re.ASCII)
_TEAM, _ROLE = "team", "role"
# What a pattern's word for a role means in a team, unless `roles` says something else.
_WORDS: Mapping[str, Role] = {"member": "member", "admin": "team_admin", "team_admin": "team_admin"}


class GroupSettings(Struct, frozen=True, kw_only=True):
    """The role of the users in a group."""

    role: Role
    """viewer, operator, admin, or in a team: member or team_admin."""
    team: str = ""
    """The team in which the role applies, such as acme/search."""


class PatternSettings(Struct, frozen=True, kw_only=True):
    """The roles of the users in all groups whose names match a pattern."""

    pattern: str
    """A regular expression for whole names, such as 'llm-(?<team>.+)-(admin|member)'."""
    team: str = ""
    """The team in which the roles apply, such as acme/{team}. Default: {team}, if the pattern has a group team."""
    role: Role | None = None
    """The role. Default: the word in the group role of the pattern, or in its only group without a name."""
    roles: Mapping[str, Role] = {}
    """What such words mean. Default: member is member, and admin is team_admin."""
    create_teams: bool = False
    """true creates the team, and those above it, when a user signs in or the group is provisioned over SCIM."""

    @property
    def compiled(self) -> GroupPattern:
        """The pattern."""
        return compile_pattern(self.pattern)

    @property
    def path(self) -> str:
        """The path of the team, with its places for groups of the pattern."""
        return self.team or (f"{{{_TEAM}}}" if _TEAM in self.compiled.names else "")

    @property
    def meanings(self) -> Mapping[str, Role]:
        """The role of each word."""
        return self.roles or (_WORDS if self.path else {})


class Granted(NamedTuple):
    """What a group gives, and why."""

    group: str
    by: str
    """Such as `[admin.groups.platform]`; empty if nothing is known of the group."""
    grant: RoleGrant | None = None
    problem: str = ""
    """Why a pattern that matches gives nothing."""
    creates_team: bool = False


class GroupRoles(Struct, frozen=True):
    """The roles of groups, by their names and by patterns."""

    groups: Mapping[str, GroupSettings] = {}
    patterns: Mapping[str, PatternSettings] = {}

    def of(self, groups: Iterable[str]) -> list[Granted]:
        """What each group gives, in their order."""
        return [self._of(group) for group in dict.fromkeys(groups)]

    def grants(self, groups: Iterable[str]) -> list[RoleGrant]:
        """The roles of a user with these groups."""
        return [each.grant for each in self.of(groups) if each.grant is not None]

    def new_teams(self, groups: Iterable[str]) -> list[str]:
        """The paths of teams that are to be created, if they do not exist, for a user with these groups."""
        found = [each.grant.team for each in self.of(groups) if each.creates_team and each.grant is not None]
        return [*dict.fromkeys(found)]

    def _of(self, group: str) -> Granted:
        if (own := self.groups.get(group)) is not None:
            return Granted(group, f"[admin.groups.{group}]", RoleGrant(own.role, own.team))
        for name, settings in self.patterns.items():
            parts = matched(settings.pattern, group)
            if parts is not None:
                return _granted(group, f"[admin.group_patterns.{name}]", settings, parts)
        return Granted(group, "")


def _granted(group: str, by: str, settings: PatternSettings, parts: Mapping[str | int, str]) -> Granted:
    team = _PLACE.sub(lambda place: parts.get(place[1], ""), settings.path)
    if settings.path and not is_team_path(team):
        return Granted(group, by, problem=f"{team or 'an empty text'} is not the path of a team")
    word = parts.get(settings.compiled.number(_ROLE), "")
    role = settings.role or settings.meanings.get(word)
    if role is None:
        return Granted(group, by, problem=f"{word or 'an empty text'} is not a role")
    return Granted(group, by, RoleGrant(role, team), creates_team=settings.create_teams and bool(team))


def pattern_problems(settings: PatternSettings) -> list[tuple[str, str]]:
    """What is wrong with a pattern: the names of settings, and messages."""
    try:
        compiled = settings.compiled
    except ValueError as error:
        return [("pattern", str(error))]
    path = settings.path
    unknown = [name for name in _PLACE.findall(path) if name not in compiled.names]
    if unknown:
        return [("team", f"{{{unknown[0]}}} is not a group of the pattern; write (?<{unknown[0]}>…) there")]
    if path and not is_team_path(_PLACE.sub("x", path)):
        return [("team", "must be the path of a team, such as acme/{team}")]
    if settings.create_teams and not path:
        return [("create_teams", "needs a team, such as acme/{team}")]
    return _role_problems(settings, compiled)


def _role_problems(settings: PatternSettings, compiled: GroupPattern) -> list[tuple[str, str]]:
    allowed, where = (TEAM_ROLES, "in a team") if settings.path else (GLOBAL_ROLES, "without a team")
    roles = [settings.role] if settings.role is not None else [*settings.roles.values()]
    wrong = [role for role in roles if role not in allowed]
    if wrong:
        name = "role" if settings.role is not None else "roles"
        return [(name, f"{wrong[0]} is not possible {where}; choose {' or '.join(allowed)}")]
    if settings.role is not None:
        return [("roles", "has no effect beside role; remove one of them")] if settings.roles else []
    number = compiled.number(_ROLE)
    if not number:
        return [("pattern", 'has no group for the role: add (?<role>admin|member), or set role = "member"')]
    if not settings.meanings:
        return [("roles", 'is needed without a team: roles = { viewers = "viewer" }')]
    unknown = [word for word in compiled.words(number) if word not in settings.meanings]
    if unknown:
        example = f'roles = {{ {unknown[0]} = "{allowed[0]}" }}'
        return [("roles", f"says nothing of {unknown[0]}, which the pattern allows; add {example}")]
    return []
