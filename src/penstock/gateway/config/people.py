"""The settings for users of the admin API: the roles of their groups."""

from typing import Annotated

from msgspec import Meta, Struct

from penstock.gateway.config.problems import Problems
from penstock.gateway.people.roles import TEAM_ROLES, Role
from penstock.gateway.people.teams import is_team


class GroupSettings(Struct, frozen=True, kw_only=True):
    """The role of the users in a group."""

    role: Annotated[Role, Meta(description="viewer, operator, admin, or in a team: member or team_admin.")]
    team: Annotated[str, Meta(description="The team in which the role applies, such as acme/search.")] = ""


def check_group(name: str, given: dict[str, object], problems: Problems) -> GroupSettings | None:
    """The settings of a group; None if they are wrong."""
    path = ("admin", "groups", name)
    role, team = given.get("role"), str(given.get("team", ""))
    if role is None:
        problems.error(path, "needs a role: viewer, operator, admin, member or team_admin")
        return None
    if (role in TEAM_ROLES) != bool(team):
        problems.error(path, f"the role {role} needs a team" if not team else f"the role {role} has no team")
        return None
    if team and not is_team(team):
        problems.error((*path, "team"), "must be the path of a team, such as acme/search")
        return None
    return GroupSettings(**given)  # type: ignore[arg-type]  # read by the same types
