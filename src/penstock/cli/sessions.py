"""`penstock sessions`: lists and ends the sessions of users who signed in, in the book of the configuration."""

from pathlib import Path

import click

from penstock.cli.book import opened
from penstock.cli.options import config_option, json_option
from penstock.cli.table import Column, Table
from penstock.cli.text import counted, one_line, to_json
from penstock.gateway.people.sessions import session_json

_COLUMNS = (Column("who"), Column("roles", spare=1), Column("signed in"), Column("expires"))


@click.group(short_help="List and end the sessions of users who signed in.")
def command() -> None:
    """Manage the sessions of users who signed in on the page (docs/people.md)."""


@command.command("list", short_help="List sessions.")
@config_option
@json_option
def list_command(file: Path | None, *, as_json: bool) -> None:
    """List the sessions that have not expired, the oldest first."""
    with opened(file) as (book, now):
        sessions = book.people.sessions(now)
    if as_json:
        click.echo(to_json({"sessions": [session_json(each) for each in sessions]}))
        return
    rows = []
    for each in sessions:
        shown = session_json(each)
        roles = ", ".join(f"{grant.role} of {grant.team}" if grant.team else grant.role for grant in each.grants)
        rows.append([each.who, roles, str(shown["created"]), str(shown["expires"])])
    Table(_COLUMNS).show(rows)


@command.command("end", short_help="End the sessions of a user.")
@click.argument("who", metavar="USER|ID")
@config_option
def end_command(who: str, file: Path | None) -> None:
    """End every session of a user, or one session by its id. The next request with it is refused."""
    with opened(file) as (book, now):
        ended = book.people.end_sessions(who, book.actor, now)
    if not ended:
        raise click.ClickException(one_line(f"{who} has no session; list them: penstock sessions list"))
    click.echo(one_line(f"ended {counted(ended, 'session')} of {who}"))
