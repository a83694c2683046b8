"""Shared by `penstock usage` and `penstock ledger`: the options that select entries, and notes on archived ones."""

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
from msgspec import Struct, structs

from penstock.amounts import clock_ms, table_moment
from penstock.cli.book import content_of, load_config
from penstock.cli.options import config_option, moment_option
from penstock.errors import AdminError
from penstock.gateway.billing.queries import Archived, Filter, Grouping
from penstock.gateway.billing.tags import clean_text
from penstock.gateway.keys.keys import Key
from penstock.gateway.keys.terms import parse_month, parse_tag
from penstock.gateway.record.entry import Outcome

F = TypeVar("F", bound=Callable[..., Any])


class EntryQuery(Struct, frozen=True):
    """The options that select entries. `selected` has keys by id or name, and users by name or pseudonym."""

    file: Path | None
    selected: Filter

    def filter(self, keys: list[Key]) -> Filter:
        """The filter for the book. A name selects every key with that name."""
        ids = tuple(id for wanted in self.selected.keys for id in _ids(wanted, keys))
        return structs.replace(self.selected, keys=ids, users=self._users(self.selected.users))

    def _users(self, given: tuple[str, ...]) -> tuple[str, ...]:
        """The users as entries have them: the pseudonyms of each, and its name, which earlier entries have."""
        if not given:
            return ()
        config = load_config(self.file)
        names = [clean_text(name, config.secrets()) for name in given]
        with content_of(config) as store:
            found = [each.id for name in names for each in store.users.find(name)] if store is not None else []
        return tuple(dict.fromkeys((*names, *found)))


def _tags(ctx: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    try:
        return dict(map(parse_tag, given))
    except AdminError as error:
        raise click.UsageError(str(error), ctx) from error


def _names(option: str, help: str, metavar: str = "NAME") -> Callable[[F], F]:
    return click.option(option, f"{option.removeprefix('--')}s", metavar=metavar, multiple=True, help=help)


_OPTIONS = (
    config_option,
    moment_option("--since", "Calls since then: 7d, 12h, 2026-11-01 (UTC)."),
    moment_option("--until", "Calls before then: 2026-12-01 is the end of November."),
    _names("--key", "Calls of this key (id or name).", "KEY"),
    _names("--model", "Calls of this model, as clients name it."),
    _names("--provider", "Calls that tried this provider."),
    click.option(
        "--outcome",
        "outcomes",
        metavar="NAME",
        type=click.Choice(get_args(Outcome)),
        multiple=True,
        help="Calls with this outcome, such as truncated.",
    ),
    click.option("--repair", metavar="CODE", default="", help="Calls with this repair."),
    click.option("--loss", metavar="CODE", default="", help="Calls with this loss."),
    _names("--user", "Calls of this end user (name or pseudonym).", "USER"),
    _names("--team", "Calls of this team and of those below it.", "PATH"),
    click.option("--tag", "tags", metavar="NAME=VALUE", multiple=True, callback=_tags, help="Calls with this tag."),
)
_FIELDS = (
    "since_ms", "until_ms", "keys", "models", "providers", "outcomes", "repair", "loss", "users", "teams", "tags",
)  # fmt: skip


def takes_filter(function: F) -> F:
    """Add the options that select entries to a command, which gets them as `query`."""

    @wraps(function)
    def taking(*arguments: Any, file: Path | None, **named: Any) -> Any:
        selected = Filter(**{field: named.pop(field) for field in _FIELDS})
        return function(*arguments, query=EntryQuery(file, selected), **named)

    for option in reversed(_OPTIONS):
        taking = option(taking)
    return taking  # type: ignore[return-value]


def takes_month(function: F) -> F:
    """Add the option for a month of the calendar to a command that takes a filter."""

    @click.option("--month", metavar="MONTH", help="Calls of a month: 2026-11, this or last (UTC).")
    @wraps(function)
    def taking(*arguments: Any, query: EntryQuery, month: str | None, **named: Any) -> Any:
        if month:
            if query.selected.since_ms is not None or query.selected.until_ms is not None:
                raise click.UsageError("use either --month, or --since and --until")
            try:
                since_ms, until_ms = parse_month(month, clock_ms())
            except AdminError as error:
                raise click.UsageError(str(error)) from error
            selected = structs.replace(query.selected, since_ms=since_ms, until_ms=until_ms)
            query = structs.replace(query, selected=selected)
        return function(*arguments, query=query, **named)

    return taking  # type: ignore[return-value]


def note_archived_calls(archived: Archived, selected: Filter) -> None:
    """Report on stderr that calls are not listed because they are archived."""
    if archived.before_ms > (selected.since_ms or 0):
        day = table_moment(archived.before_ms)[:10]
        click.echo(f"Calls before {day} are archived: `penstock ledger export` has them.", err=True)


def note_archived_sums(archived: Archived, selected: Filter, by: Sequence[Grouping]) -> None:
    """Report on stderr which sums do not have all calls."""
    since_ms = selected.since_ms or 0
    if archived.before_ms > since_ms and not selected.covers_archived(by):
        day = table_moment(archived.before_ms)[:10]
        click.echo(
            f"Without calls before {day}: they are archived, and have no sums by repair, loss or user.", err=True
        )
    elif archived.no_sums_before_ms > since_ms:
        day = table_moment(archived.no_sums_before_ms)[:10]
        click.echo(f"Without calls before {day}: their sums are deleted, see keep_sums_days in [ledger].", err=True)


def key_names(keys: list[Key]) -> dict[str, str]:
    """The name of each key by its id; the id itself if it has no name."""
    return {key.id: key.name or key.id for key in keys}


def _ids(wanted: str, keys: list[Key]) -> list[str]:
    return [key.id for key in keys if wanted in (key.id, key.name)] or [wanted]
