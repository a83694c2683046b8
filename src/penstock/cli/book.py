"""The book of the configuration, for commands. An error of the configuration or of the book becomes a message."""

import getpass
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click

from penstock.amounts import clock_ms
from penstock.cli.text import one_line
from penstock.errors import AdminError, BookError, ConfigError
from penstock.gateway.config import Config, default_file, load
from penstock.gateway.people.audit import Actor, entry_of
from penstock.stores.book.open import open_book
from penstock.stores.book.sql_book import Book
from penstock.stores.content.open import has_content, open_content
from penstock.stores.content.sql_content import SqlContent

_UNREADABLE = 2


def load_config(file: Path | None) -> Config:
    """Load the configuration. The check for a missing key is skipped: nothing is served. An error ends the program."""
    try:
        return load(file or default_file(), os.environ, has_stored_keys=lambda _: True)
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(_UNREADABLE)


@contextmanager
def book_of(config: Config, *, readonly: bool = False) -> Iterator[Book]:
    """Open the book, whose changes the audit log attributes to the user of the command."""
    with book_errors(), closing(open_book(config.ledger, os.environ, readonly=readonly)) as book:
        book.actor = actor(config)
        yield book


@contextmanager
def opened(file: Path | None) -> Iterator[tuple[Book, int]]:
    """Open the book of a configuration for changes; and the time of them."""
    with book_of(load_config(file)) as book:
        yield book, clock_ms()


@contextmanager
def reading(file: Path | None) -> Iterator[Book]:
    """Open the book of a configuration for reading."""
    with book_of(load_config(file), readonly=True) as book:
        yield book


@contextmanager
def content_of(config: Config) -> Iterator[SqlContent | None]:
    """Open the content store of a configuration; None if there is no such file."""
    if config.ledger.postgres is None and not has_content(config.ledger, os.environ):
        yield None
        return
    with book_errors(), closing(open_content(config.ledger, os.environ)) as store:
        yield store


def actor(config: Config) -> Actor:
    """The user who runs the command."""
    try:
        who = getpass.getuser()
    except (OSError, KeyError):  # a container may have no name for its user
        who = "unknown"
    return Actor(who, "command line", "", config.admin.audit_days)


def record(config: Config, action: str, subject: str) -> None:
    """Append to the audit log. A command that looks at content does so first."""
    with book_of(config) as book:
        book.people.record(entry_of(book.actor, clock_ms(), action, subject), book.actor.keep_days)


@contextmanager
def book_errors() -> Iterator[None]:
    """Report an error of the book as a message of one line, without a traceback."""
    try:
        yield
    except (BookError, AdminError) as error:
        raise click.ClickException(one_line(str(error))) from error
