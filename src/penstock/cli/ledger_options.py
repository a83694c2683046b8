"""Shared by `penstock usage` and `penstock ledger`: the options that select entries, and notes on archived ones."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
from msgspec import Struct

from penstock.amounts import table_moment
from penstock.cli.book import content_of, load_config
from penstock.cli.options import config_option
from penstock.errors import AdminError
from penstock.gateway.billing.book import Archived, Filter
from penstock.gateway.billing.entry import Outcome
from penstock.gateway.billing.tags import clean_text
from penstock.gateway.keys.keys import Key
from penstock.gateway.keys.terms import parse_moment

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
    users: tuple[str, ...]
    teams: tuple[str, ...]
    tags: tuple[str, ...]

    def filter(self, keys: list[Key], now: datetime | None = None) -> Filter:
        """The filter for the book. A name selects every key with that name."""
        now_ms = round((now or datetime.now(UTC)).timestamp() * 1000)
        try:
            return Filter(
                since_ms=parse_moment(self.since, now_ms, "--since", past=True) if self.since else None,
                until_ms=parse_moment(self.until, now_ms, "--until", past=True) if self.until else None,
                keys=tuple(id for wanted in self.keys for id in _ids(wanted, keys)),
                models=self.models,
                providers=self.providers,
                outcomes=tuple(map(_outcome, self.outcomes)),
                repair=self.repair,
                loss=self.loss,
                users=self._users(),
                teams=self.teams,
                tags=dict(_tag(tag) for tag in self.tags),
            )
        except (ValueError, AdminError) as error:
            raise click.UsageError(str(error)) from error

    def _users(self) -> tuple[str, ...]:
        """The users as entries have them: the pseudonyms of each, and its name, which earlier entries have."""
        if not self.users:
            return ()
        config = load_config(self.file)
        names = [clean_text(name, config.secrets()) for name in self.users]
        with content_of(config) as store:
            found = [each.id for name in names for each in store.users.find(name)] if store is not None else []
        return tuple(dict.fromkeys((*names, *found)))


_OPTIONS = (
    config_option,
    click.option("--since", metavar="TIME", default="", help="Calls since then: 7d, 12h, 2026-11-01 (UTC)."),
    click.option("--until", metavar="TIME", default="", help="Calls before then: 2026-12-01 is the end of November."),
    click.option("--key", "keys", metavar="KEY", multiple=True, help="Calls of this key (id or name)."),
    click.option("--model", "models", metavar="NAME", multiple=True, help="Calls of this model, as clients name it."),
    click.option("--provider", "providers", metavar="NAME", multiple=True, help="Calls that tried this provider."),
    click.option(
        "--outcome", "outcomes", metavar="NAME", multiple=True, help="Calls with this outcome, such as truncated."
    ),
    click.option("--repair", metavar="CODE", default="", help="Calls with this repair."),
    click.option("--loss", metavar="CODE", default="", help="Calls with this loss."),
    click.option("--user", "users", metavar="USER", multiple=True, help="Calls of this end user (name or pseudonym)."),
    click.option("--team", "teams", metavar="PATH", multiple=True, help="Calls of this team and of those below it."),
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


def note_archived_calls(archived: Archived, selected: Filter) -> None:
    """Report on stderr that calls are not listed because they are archived."""
    if archived.before_ms > (selected.since_ms or 0):
        day = table_moment(archived.before_ms)[:10]
        click.echo(f"Calls before {day} are archived: `penstock ledger export` has them.", err=True)


def note_archived_sums(archived: Archived, selected: Filter) -> None:
    """Report on stderr which sums do not have all calls."""
    since_ms = selected.since_ms or 0
    if archived.before_ms > since_ms and not selected.covers_archived:
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
