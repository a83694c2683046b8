"""`penstock tokens`: creates, lists and revokes API tokens for the admin API, in the book of the configuration."""

import sys
from pathlib import Path

import click

from penstock.cli.book import opened
from penstock.cli.options import config_option, json_option
from penstock.cli.table import Column, Table
from penstock.cli.text import one_line, to_json
from penstock.gateway.people.roles import GLOBAL_ROLES, TEAM_ROLES
from penstock.gateway.people.tokens import DEFAULT_EXPIRY, TokenTerms, token_json

_COLUMNS = (
    Column("id"),
    Column("name"),
    Column("token"),
    Column("state", styles={"active": "green"}),
    Column("role"),
    Column("team", spare=1),
    Column("expires"),
    Column("created by", spare=2),
)


@click.group(short_help="Create, list and revoke API tokens of the admin API.")
def command() -> None:
    """Manage API tokens, with which programs use the admin API (docs/people.md).

    A token has one role and expires. The ledger stores a digest: a token is shown only once, when it is created.
    """


@command.command("create", short_help="Create a token.")
@config_option
@click.option("--name", required=True, help="Its name; unique among active tokens.")
@click.option("--role", type=click.Choice([*GLOBAL_ROLES, *TEAM_ROLES]), required=True, help="What it may do.")
@click.option("--team", default="", metavar="PATH", help="The team of a member or team_admin, such as acme/search.")
@click.option(
    "--expires",
    default=DEFAULT_EXPIRY,
    metavar="WHEN",
    show_default=True,
    help="When it expires: 30d, 2027-01-01, or never.",
)
@json_option
def create_command(file: Path | None, *, as_json: bool, **terms: str) -> None:
    """Create a token and print it: TOKEN=$(penstock tokens create --name grafana --role viewer)."""
    if sys.stdout is None:  # the shell closed it
        raise click.ClickException("standard output is closed, so the token could not be shown; nothing was changed")
    with opened(file) as (book, now):
        new = book.people.create_token(TokenTerms(**terms), book.actor, now)  # type: ignore[arg-type]  # click checks it
    click.echo(to_json({"secret": new.secret, **token_json(new.token, now)}) if as_json else new.secret)
    if not as_json and sys.stderr.isatty():
        what = f"This is the token {new.token.id} ({new.token.name}). It is shown only once: store it safely."
        click.echo(one_line(what), err=True)


@command.command("list", short_help="List tokens.")
@config_option
@click.option("--all", "dead", is_flag=True, help="Include revoked and expired tokens.")
@json_option
def list_command(file: Path | None, *, dead: bool, as_json: bool) -> None:
    """List the active tokens with their roles."""
    with opened(file) as (book, now):
        tokens = [token_json(each, now) for each in book.people.tokens() if dead or not each.unusable(now)]
    if as_json:
        click.echo(to_json({"tokens": tokens}))
        return
    keys = ("id", "name", "hint", "state", "role", "team", "expires", "created_by")
    rows = [[f"…{each[key]}" if key == "hint" else str(each[key] or "") for key in keys] for each in tokens]
    Table(_COLUMNS).show(rows)


@command.command("revoke", short_help="Revoke a token.")
@click.argument("which", metavar="ID|NAME")
@config_option
@json_option
def revoke_command(which: str, file: Path | None, *, as_json: bool) -> None:
    """Revoke a token. The next request with it is refused."""
    with opened(file) as (book, now):
        found = token_json(book.people.revoke_token(which, book.actor, now), now)
    click.echo(to_json(found) if as_json else one_line(f"revoked {found['id']} ({found['name']})"))
