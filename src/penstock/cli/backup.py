"""`penstock ledger backup` and `restore`: a copy of the ledger in SQLite, while the gateway runs; and back."""

import os
from pathlib import Path

import click

from penstock.cli.book import book_errors, load_config
from penstock.cli.options import config_option
from penstock.cli.text import counted, one_line
from penstock.errors import BookError
from penstock.gateway.config import LedgerSettings

_NOT_SQLITE = "the ledger is in PostgreSQL: use {}, as docs/deploy.md shows"


@click.command("backup", short_help="Copy the ledger to a file, while the gateway runs.")
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path))
@config_option
def backup_command(target: Path, file: Path | None) -> None:
    """Copy the ledger to FILE, which must not exist. The gateway may run meanwhile.

    FILE has all calls and keys that were booked when the command started, in one consistent state. It is a ledger
    itself, and only its owner can read it.
    """
    from penstock.stores.book.backup import back_up  # noqa: PLC0415 - seldom needed
    from penstock.stores.book.open import FILE, state_folder  # noqa: PLC0415

    with book_errors():
        settings = _sqlite_settings(file, "pg_dump")
        calls = back_up(state_folder(settings, os.environ) / FILE, target)
    click.echo(one_line(f"{target}: {counted(calls, 'call')}"))


@click.command("restore", short_help="Replace the ledger by a backup, while no gateway runs.")
@click.argument("source", metavar="FILE", type=click.Path(path_type=Path))
@config_option
def restore_command(source: Path, file: Path | None) -> None:
    """Replace the ledger by the backup FILE. No gateway may use the ledger meanwhile.

    The old ledger stays beside the new one, under another name. What was booked after the backup is not in the ledger
    any more; keys that were revoked since then are valid again.
    """
    from penstock.stores.book.backup import restore  # noqa: PLC0415 - seldom needed
    from penstock.stores.book.open import state_folder  # noqa: PLC0415

    with book_errors():
        settings = _sqlite_settings(file, "pg_restore")
        calls, old = restore(source, state_folder(settings, os.environ))
    click.echo(f"restored {counted(calls, 'call')}")
    if old is not None:
        click.echo(one_line(f"the old ledger is {old}"), err=True)


def _sqlite_settings(file: Path | None, program: str) -> LedgerSettings:
    """The settings of the ledger; an error if it is not in SQLite."""
    settings = load_config(file).ledger
    if settings.postgres is not None:
        raise BookError(_NOT_SQLITE.format(program))
    if not settings.enabled:
        raise BookError("no ledger is kept: the configuration has enabled = false in [ledger]")
    return settings
