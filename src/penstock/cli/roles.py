"""`penstock roles`: says which roles a user with some groups gets, by the configuration and the directory."""

from pathlib import Path
from typing import Any

import click
from msgspec import structs

from penstock.cli.book import book_of, load_config
from penstock.cli.options import config_option, json_option
from penstock.cli.table import Column, Table
from penstock.cli.text import one_line, to_json
from penstock.errors import AdminError
from penstock.gateway.config import Config
from penstock.gateway.people.directory import Membership
from penstock.gateway.people.group_roles import Granted
from penstock.gateway.people.roles import Principal, RoleGrant
from penstock.gateway.teams.team import existing

_COLUMNS = (Column("group"), Column("decided by", spare=1), Column("role"))
_NOTHING = 1


@click.command(short_help="Say which roles a user with some groups gets.")
@click.argument("groups", metavar="[GROUP]…", nargs=-1)
@click.option(
    "--person", default="", metavar="NAME", help="Add the groups that the directory (SCIM) has for this user."
)
@config_option
@json_option
@click.pass_context
def command(ctx: click.Context, groups: tuple[str, ...], person: str, file: Path | None, *, as_json: bool) -> None:
    """Say which roles a user with these groups gets, and which part of the configuration decides.

    \b
    Exit status:  0  the user gets a role
                  1  it gets none, and cannot sign in
    """
    if not groups and not person:
        raise click.UsageError("name a group, or a user: penstock roles --person ann@example.com")
    config = load_config(file)
    membership, teams = _stored(config, person)
    found = config.admin.group_roles.of((*groups, *membership.groups))
    user = Principal.of(person, "session", (each.grant for each in found if each.grant is not None))
    if membership.deactivated:
        user = Principal.of(person, "session", ())
    if as_json:
        click.echo(to_json({"groups": [_json(each) for each in found], "role": user.role, "teams": user.teams}))
    else:
        Table(_COLUMNS).show([[each.group, each.by or "nothing", _what(each, teams)] for each in found])
        click.echo(one_line(f"\n{_together(user, person, membership)}".lstrip("\n")))
    ctx.exit(0 if user.role or user.teams else _NOTHING)


def _stored(config: Config, person: str) -> tuple[Membership, set[str] | None]:
    """What the directory knows of a user, and the paths of the teams; None if there is no ledger."""
    if not config.ledger.enabled:
        if person:
            raise AdminError("--person needs the ledger, which has the directory; name groups", param="person")
        return Membership(), None
    with book_of(config) as book:
        return book.directory.membership(person) if person else Membership(), existing(book.teams())


def _what(given: Granted, teams: set[str] | None) -> str:
    if given.grant is None:
        return f"none: {given.problem}" if given.problem else "none"
    missing = teams is not None and given.grant.team and given.grant.team not in teams
    note = " (the team is created at the sign-in)" if given.creates_team else " (there is no such team yet)"
    return f"{_role(given.grant)}{note if missing else ''}"


def _role(grant: RoleGrant) -> str:
    return f"{grant.role} of {grant.team}" if grant.team else grant.role


def _together(user: Principal, person: str, membership: Membership) -> str:
    if membership.deactivated:
        return f"{person} is deactivated in the directory, and cannot sign in."
    roles = [*([user.role] if user.role else []), *(f"{role} of {team}" for team, role in sorted(user.teams.items()))]
    return f"In all: {', '.join(roles)}." if roles else "In all: no role. Such a user cannot sign in."


def _json(given: Granted) -> dict[str, Any]:
    return {
        "group": given.group,
        "by": given.by or None,
        "role": structs.asdict(given.grant) if given.grant is not None else None,
        "problem": given.problem or None,
        "creates_team": given.creates_team,
    }
