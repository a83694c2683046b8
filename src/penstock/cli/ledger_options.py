"""Shared by `penstock usage` and `penstock ledger`: the options that select entries, and access to the book."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
from msgspec import Struct

from penstock.cli.amounts import parse_moment
from penstock.cli.options import config_option
from penstock.errors import BookError, ConfigError
from penstock.gateway.billing.book import Book, Filter
from penstock.gateway.billing.entry import Outcome
from penstock.gateway.config import default_file, load
from penstock.gateway.keys.keys import Key
from penstock.stores.book.open import open_book

F = TypeVar("F", bound=Callable[..., Any])


class EntryQuery(Struct, frozen=True):
    """The options that select entries. `keys` are ids or names."""

    file: Path | None
    since: str
    until: str
    keys: tuple[str, ...]
    models: tuple[str, ...]
    providers: tuple[str, ...]
    outcomes: tuple[str, ...]
    repair: str
    loss: str
    tags: tuple[str, ...]

    def filter(self, keys: list[Key], now: datetime | None = None) -> Filter:
        """The filter for the book. A name selects every key with that name."""
        now = now or datetime.now(UTC)
        try:
            return Filter(
                since_ms=parse_moment(self.since, now) if self.since else None,
                until_ms=parse_moment(self.until, now, end=True) if self.until else None,
                keys=tuple(id for wanted in self.keys for id in _ids(wanted, keys)),
                models=self.models,
                providers=self.providers,
                outcomes=tuple(map(_outcome, self.outcomes)),
                repair=self.repair,
                loss=self.loss,
                tags=dict(_tag(tag) for tag in self.tags),
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from error


_OPTIONS = (
    config_option,
    click.option("--since", metavar="TIME", default="", help="Calls since then: 7d, 12h, 2026-11-01 (UTC)."),
    click.option("--until", metavar="TIME", default="", help="Calls until then; a day is included."),
    click.option("--key", "keys", metavar="KEY", multiple=True, help="Calls of this key (id or name)."),
    click.option("--model", "models", metavar="NAME", multiple=True, help="Calls of this model, as clients name it."),
    click.option("--provider", "providers", metavar="NAME", multiple=True, help="Calls that tried this provider."),
    click.option(
        "--outcome", "outcomes", metavar="NAME", multiple=True, help="Calls with this outcome, such as truncated."
    ),
    click.option("--repair", metavar="CODE", default="", help="Calls with this repair."),
    click.option("--loss", metavar="CODE", default="", help="Calls with this loss."),
    click.option("--tag", "tags", metavar="NAME=VALUE", multiple=True, help="Calls with this tag."),
)


def takes_filter(function: F) -> F:
    """Add the options that select entries to a command, which gets them as `query`."""

    @wraps(function)
    def taking(*arguments: Any, **named: Any) -> Any:
        query = EntryQuery(**{field: named.pop(field) for field in EntryQuery.__struct_fields__})
        return function(*arguments, query=query, **named)

    for option in reversed(_OPTIONS):
        taking = option(taking)
    return taking  # type: ignore[return-value]


@contextmanager
def reading(file: Path | None) -> Iterator[Book]:
    """Open the book of a configuration for reading. Its errors become one-line messages."""
    try:
        # The check for a missing key is skipped: nothing is served.
        config = load(file or default_file(), os.environ, has_stored_keys=lambda _: True)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    try:
        book = open_book(config.ledger, os.environ, readonly=True)
        try:
            yield book
        finally:
            book.close()
    except BookError as error:
        raise click.ClickException(str(error)) from error


def key_names(keys: list[Key]) -> dict[str, str]:
    """The name of each key by its id; the id itself if it has no name."""
    return {key.id: key.name or key.id for key in keys}


def _ids(wanted: str, keys: list[Key]) -> list[str]:
    return [key.id for key in keys if wanted in (key.id, key.name)] or [wanted]


def _outcome(name: str) -> str:
    known = get_args(Outcome)
    if name not in known:
        raise ValueError(f"there is no outcome {name!r}: choose one of {', '.join(known)}")
    return name


def _tag(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"{text!r} is no tag: write --tag team=search")
    return name, value
