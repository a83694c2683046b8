"""`penstock users`: finds the pseudonym of an end user, or erases the user, in the content store of the configuration.

No gateway needs to run. A running gateway applies an erasure within a second.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import click

from penstock.amounts import table_moment
from penstock.cli.book import content_of, load_config, record
from penstock.cli.options import config_option, json_option
from penstock.cli.text import counted, one_line, to_json
from penstock.gateway.billing.tags import clean_text
from penstock.stores.content.end_users import user_subject
from penstock.stores.content.sql_users import SqlUsers

_user = click.argument("user", metavar="USER|PSEUDONYM")


@click.group(short_help="Find or erase an end user.")
def command() -> None:
    """Find or erase an end user: a person that a client names in its requests (docs/privacy.md).

    The ledger and its archives have only pseudonyms. The names behind them are in a table beside the ledger.
    """


@command.command("find", short_help="Show the pseudonym of a user.")
@_user
@config_option
@json_option
def find_command(user: str, file: Path | None, *, as_json: bool) -> None:
    """Show the name and the pseudonyms of a user, the one in use first.

    `penstock ledger --user USER` lists the calls.
    """
    with _users(file, user, "user.find") as (users, name):
        found = list(users.find(name))
    if not found:
        raise _unknown(user)
    name, since = found[0].name, min(each.at_ms for each in found)
    used = max(each.used_ms for each in found)
    if as_json:
        ids = [each.id for each in found]
        click.echo(to_json({"name": name, "pseudonyms": ids, "since_ms": since, "last_used_ms": used}))
        return
    click.echo(one_line(f"{found[0].id}  {name}  since {table_moment(since)}, last used {table_moment(used)[:10]} UTC"))
    for each in found[1:]:
        click.echo(each.id)


@command.command("erase", short_help="Erase a user.")
@_user
@config_option
@json_option
def erase_command(user: str, file: Path | None, *, as_json: bool) -> None:
    """Erase a user: delete its name, so that no entry or archive leads to it, and what is kept of its calls.

    Entries stay, with a pseudonym that belongs to no one. If the user calls again, it gets a new one.
    """
    with _users(file, user, "user.erase") as (users, name):
        erased = users.erase(name)
    if not erased.pseudonyms and not erased.records:
        raise _unknown(user)
    if as_json:
        click.echo(to_json({"erased": True, "pseudonyms": erased.pseudonyms, "records": erased.records}))
        return
    ids = ", ".join(erased.pseudonyms)
    click.echo(f"erased{f' {ids}' if ids else ''}, with {counted(erased.records, 'kept record')}")


class _OpenUsers(NamedTuple):
    users: SqlUsers
    name: str
    """The name as it is stored: shortened, and without secrets."""


@contextmanager
def _users(file: Path | None, user: str, action: str) -> Iterator[_OpenUsers]:
    """Open the store, for an act on a user, which is recorded."""
    config = load_config(file)
    with content_of(config) as store:
        if store is None:
            raise _unknown(user)
        record(config, action, user_subject(user))
        yield _OpenUsers(store.users, clean_text(user, config.secrets()))


def _unknown(user: str) -> click.ClickException:
    return click.ClickException(f"no user has the name or pseudonym {one_line(user)} here")
