"""`penstock keys`: creates, shows, changes, rotates and revokes client keys, in the book of the configuration.

No gateway needs to run. A running gateway accepts a new key at once, and applies other changes within a second.
"""

import os
import sys
from pathlib import Path
from typing import Any

import click

from penstock.amounts import clock_ms, moment
from penstock.cli.book import book_of, load_config, opened
from penstock.cli.field_options import field_options, given_options, read_fields
from penstock.cli.invocation import invocation
from penstock.cli.key_tables import details, table
from penstock.cli.key_updates import read_file
from penstock.cli.options import config_option, json_option
from penstock.cli.text import counted, one_line, to_json
from penstock.gateway.config import Config
from penstock.gateway.keys import changes as key_changes
from penstock.gateway.keys.access_keys import access_key
from penstock.gateway.keys.changes import KeyChange
from penstock.gateway.keys.fields import KEY_FIELDS
from penstock.gateway.keys.report import report, reports
from penstock.gateway.keys.terms import KeyTerms, KeyUpdate
from penstock.stores.book.open import state_folder
from penstock.stores.book.sql_book import Book

# Printed on standard error, so that KEY=$(…) gets only the key.
_CLOSED = """\
Until now the gateway needed no key. From now on every client has to send one, also on this machine:
    curl -H "Authorization: Bearer $KEY" {url}/models
    export OPENAI_API_KEY=$KEY       # OpenAI clients send it by themselves"""
_LAST = """\
That was the last key. The gateway stays closed: every call is a 401 until you create another key ({create}).
To run without keys again, start the gateway with another ledger: [ledger] folder, or the variable PENSTOCK_STATE."""
_STOPPING = "Every gateway stops the running calls within a second, or when it can read the ledger again."

_FILE_HELP = "A file of changes: JSON lines, or CSV with a header. All are made, or none."

_which = click.argument("which", metavar="ID|NAME")
_stop_option = click.option(
    "--stop-calls", "stop", is_flag=True, help="Stop the running calls too, on all gateways that use the ledger."
)


@click.group(short_help="Create, list, rotate and revoke client keys.")
def command() -> None:
    """Manage the keys of clients, with their budgets and limits (docs/ledger.md).

    The ledger stores a digest of each key: a key is shown only once, when it is created. A running gateway applies
    changes within a second.
    """


@command.command("create", short_help="Create a key.")
@config_option
@field_options(KEY_FIELDS)
@json_option
def create_command(file: Path | None, *, as_json: bool, **options: Any) -> None:
    """Create a key and print it: KEY=$(penstock keys create --name ci).

    Without an option there is no limit of that kind.
    """
    _check_output()
    config = load_config(file)
    with book_of(config) as book:
        terms = read_fields(given_options(options), KeyTerms)
        now = clock_ms()
        open_before = not book.keys() and not config.server.keys and config.auth.jwt is None
        closes = open_before and config.server.address.local
        _print_secret(book, key_changes.create(book, terms, now), now, as_json=as_json)
    if closes:
        click.echo(_CLOSED.format(url=_base_url(config)), err=True)


def _base_url(config: Config) -> str:
    """The base URL for clients: if it is not set, that of the running gateway, whose port may be another one."""
    from penstock.serve.admin.endpoint import read_client_url  # noqa: PLC0415 - half a gateway, of which --help needs nothing

    if config.server.public_url:
        return config.server.base_url
    return read_client_url(state_folder(config.ledger, os.environ)) or config.server.base_url


@command.command("list", short_help="List keys.")
@config_option
@click.option("--all", "dead", is_flag=True, help="Include revoked and expired keys.")
@json_option
def list_command(file: Path | None, *, dead: bool, as_json: bool) -> None:
    """List the active keys with their limits and what they have spent."""
    with opened(file) as (book, now):
        keys = book.keys()
        listed = reports(book, [key for key in keys if dead or not key.unusable(now)], now)
    if as_json:
        click.echo(to_json({"keys": listed}))
    elif listed or not sys.stdout.isatty():
        table(listed)
    else:
        click.echo("There are no keys. Create one: penstock keys create --name NAME")


@command.command("show", short_help="Show one key.")
@_which
@config_option
@json_option
def show_command(which: str, file: Path | None, *, as_json: bool) -> None:
    """Show a key: its limits, what it has spent in the current period, and what is left."""
    with opened(file) as (book, now):
        found = report(book, key_changes.find(book.keys(), which, now), now)
    click.echo(to_json(found) if as_json else details(found))


@command.command("revoke", short_help="Revoke a key.")
@_which
@config_option
@_stop_option
@json_option
def revoke_command(which: str, file: Path | None, *, stop: bool, as_json: bool) -> None:
    """Revoke a key. Running calls continue, except with --stop-calls, and its entries stay in the ledger.

    Revoking the last key does not open the gateway: calls still need a key.
    """
    config = load_config(file)
    with book_of(config) as book:
        now = clock_ms()
        key = key_changes.revoke(book, which, now)
        if stop:
            book.stop_calls([key], now)
        found = report(book, key, now)
        keys = book.keys()
        last = not config.server.keys and all(key.unusable(now) for key in keys)
    click.echo(to_json(found) if as_json else one_line(f"revoked {found['id']} ({found['name']})"))
    if stop:
        click.echo(_STOPPING, err=True)
    if last:
        click.echo(_LAST.format(create=invocation("keys", "create", "--name", "NAME")), err=True)


@command.command("rotate", short_help="Give a key a new secret.")
@_which
@config_option
@click.option(
    "--grace", default="0", metavar="DURATION", help="How long the old secret stays valid, such as 24h.  [default: 0]"
)
@json_option
def rotate_command(which: str, file: Path | None, grace: str, *, as_json: bool) -> None:
    """Give a key a new secret and print it. The old secret ends at once, or after --grace.

    The id, the name, the limits and what was spent stay the same.
    """
    _check_output()
    with opened(file) as (book, now):
        _print_secret(book, key_changes.rotate(book, which, grace, now), now, as_json=as_json)


@command.command("aws", short_help="Print the access key with which AWS's SDKs sign.")
@_which
@config_option
@json_option
def aws_command(which: str, file: Path | None, *, as_json: bool) -> None:
    """Print the access key of a key, with which clients of Amazon Bedrock sign their requests (docs/bedrock.md).

    It is derived from the key with access_key_secret in [server], and valid as long as the key's secret is.
    """
    _check_output()
    config = load_config(file)
    if config.server.access_key_secret is None:
        raise click.ClickException("[server] has no access_key_secret; make one with: openssl rand -hex 24")
    with book_of(config) as book:
        key = key_changes.find(book.keys(), which, clock_ms())
    pair = access_key(config.server.access_key_secret.reveal(), key.digest)
    named = {"AWS_ACCESS_KEY_ID": pair.id, "AWS_SECRET_ACCESS_KEY": pair.secret}
    click.echo(to_json(named) if as_json else "\n".join(f"{name}={value}" for name, value in named.items()))


@command.command("update", short_help="Change the settings of a key, or of several.")
@click.argument("which", metavar="ID|NAME", required=False)
@config_option
@click.option("--file", "changes", type=click.Path(path_type=Path, exists=True, dir_okay=False), help=_FILE_HELP)
@field_options(KEY_FIELDS)
@json_option
def update_command(
    which: str | None, file: Path | None, *, changes: Path | None, as_json: bool, **options: Any
) -> None:
    """Change what is given, and nothing else. The value none removes a limit, all models or all tags.

    The key, what it has spent, and its history stay the same.
    """
    given = given_options(options)
    if bool(which) == bool(changes) or bool(which) != bool(given):
        raise click.UsageError("name a key and what to change, or a --file with changes")
    with opened(file) as (book, now):
        wanted = read_file(changes) if changes is not None else [KeyChange(which or "", read_fields(given, KeyUpdate))]
        changed = reports(book, key_changes.update(book, wanted, now), now)
    if as_json:
        click.echo(to_json({"keys": changed} if changes is not None else changed[0]))
    elif changes is not None:
        table(changed)
        click.echo(f"{counted(len(changed), 'key')} changed", err=True)
    else:
        click.echo(details(changed[0]))


@command.command("block", short_help="Block keys until they are unblocked.")
@click.argument("which", metavar="ID|NAME", nargs=-1, required=True)
@config_option
@_stop_option
@json_option
def block_command(which: tuple[str, ...], file: Path | None, *, stop: bool, as_json: bool) -> None:
    """Refuse the calls of keys until they are unblocked. Running calls continue, except with --stop-calls."""
    _set_blocked(which, file, blocked=True, stop=stop, as_json=as_json)


@command.command("unblock", short_help="Unblock keys.")
@click.argument("which", metavar="ID|NAME", nargs=-1, required=True)
@config_option
@json_option
def unblock_command(which: tuple[str, ...], file: Path | None, *, as_json: bool) -> None:
    """Accept the calls of blocked keys again."""
    _set_blocked(which, file, blocked=False, as_json=as_json)


def _set_blocked(
    which: tuple[str, ...], file: Path | None, *, blocked: bool, stop: bool = False, as_json: bool
) -> None:
    with opened(file) as (book, now):
        changes = [KeyChange(each, KeyUpdate(blocked=blocked)) for each in which]
        keys = key_changes.update(book, changes, now)
        if stop:
            book.stop_calls(keys, now)
        changed = reports(book, keys, now)
    if as_json:
        click.echo(to_json({"keys": changed}))
        return
    for found in changed:
        click.echo(one_line(f"{'blocked' if blocked else 'unblocked'} {found['id']} ({found['name']})"))
    if stop:
        click.echo(_STOPPING, err=True)


def _check_output() -> None:
    """Exit before any change if the secret could not be shown."""
    if sys.stdout is None:  # the shell closed it
        raise click.ClickException("standard output is closed, so the key could not be shown; nothing was changed")


def _print_secret(book: Book, new: key_changes.NewKey, now: int, *, as_json: bool) -> None:
    """Print a new key: the secret on stdout, and explanations on stderr."""
    shown = to_json({"secret": new.secret, **report(book, new.key, now)}) if as_json else new.secret
    try:
        click.echo(shown)
    except OSError:
        _report_unprinted(new, now)
        raise
    if not as_json and sys.stderr.isatty():
        what = f"This is the key {new.key.id} ({new.key.name}). It is shown only once: store it safely."
        click.echo(one_line(what), err=True)
        if new.key.previous_until_ms is not None:
            click.echo(_old(new.key.previous_until_ms, now), err=True)


def _report_unprinted(new: key_changes.NewKey, now: int) -> None:
    """Report that the secret could not be printed. It cannot be shown again, but the key exists."""
    until_ms, key = new.key.previous_until_ms, f"The key {new.key.id} ({new.key.name})"
    if until_ms is None:
        what = f"{key} was created, but could not be shown. Revoke it: penstock keys revoke {new.key.id}"
    else:
        old = _old(until_ms, now)
        what = f"{key} was rotated, but could not be shown. {old} Rotate it again: penstock keys rotate {new.key.id}"
    click.echo(one_line(what), err=True)


def _old(until_ms: int, now: int) -> str:
    ends = "is no longer valid" if until_ms <= now else f"is valid until {moment(until_ms)}"
    return f"Its old secret {ends}."
