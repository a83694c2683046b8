"""`penstock ledger`: lists settled calls, the newest last, follows new ones, or shows one in full."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from penstock.amounts import table_dollars, table_moment
from penstock.cli.backup import backup_command, restore_command
from penstock.cli.book import content_of, load_config, reading, record
from penstock.cli.ledger_archive import describe, export, prune
from penstock.cli.ledger_options import EntryQuery, key_names, note_archived_calls, takes_filter
from penstock.cli.options import config_option, json_option
from penstock.cli.table import Column, Table
from penstock.cli.text import counted, one_line, seconds, to_json
from penstock.core.hub.losses import LOSSES
from penstock.core.hub.repairs import REPAIRS, by_level
from penstock.errors import BookError, BookUnusableError
from penstock.gateway.billing.queries import Filter, with_teams
from penstock.gateway.record.entry import AttemptEntry, Entry, Tokens
from penstock.stores.book.sql_book import Book
from penstock.stores.content.call_record import call_record

_POLL_S = 0.5
_PAGE = 500
_LABEL_WIDTH = 10
OUTCOMES = {
    "completed": "green",
    "truncated": "yellow",
    "cancelled": "yellow",
    "failed": "red",
    "timed_out": "red",
    "refused": "magenta",
    "orphaned": "red",
}
_COLUMNS = (
    Column("time (UTC)", styles={"": "dim"}),
    Column("call"),
    Column("key", spare=2, wraps=True),
    Column("model", wraps=True),
    Column("outcome", styles=OUTCOMES),
    Column("input", True, spare=3),
    Column("output", True, spare=3),
    Column("cost", True),
    Column("took", True, spare=4),
    Column("notes", styles={"": "yellow"}, spare=1, wraps=True),
)
_ATTEMPTS = (
    Column("attempt", wraps=True),
    Column("outcome", styles=OUTCOMES),
    Column("status", True),
    Column("input", True, spare=1),
    Column("output", True, spare=1),
    Column("cost", True),
    Column("first event", True, spare=4),
    Column("took", True, spare=2),
    Column("tokens", styles={"estimated": "yellow"}, spare=3),
    Column("price", styles={"": "dim"}, spare=5, wraps=True),
)


class LedgerGroup(click.Group):
    """Lists its commands in one paragraph of the help, which has many options above it."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names of the commands."""
        formatter.write_paragraph()
        formatter.write(f"Commands: {', '.join(self.list_commands(ctx))}; each has --help\n")


@click.group(
    cls=LedgerGroup, short_help="List the calls in the ledger, or show one in full.", invoke_without_command=True
)
@takes_filter
@click.option(
    "-n",
    "--number",
    metavar="N",
    type=click.IntRange(0, 100_000),
    default=20,
    help="The number of calls.  [default: 20]",
)
@click.option("-f", "--follow", is_flag=True, help="Then show new calls, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per call.")
@click.pass_context
def command(ctx: click.Context, query: EntryQuery, number: int, *, follow: bool, as_json: bool) -> None:
    """List the calls in the ledger, the newest last, without running ones."""
    if ctx.invoked_subcommand is not None:
        return
    with reading(query.file) as book:
        keys = book.keys()
        selected, names = with_teams(query.filter(keys), book.teams()), key_names(keys)
        table = None if as_json else Table(_COLUMNS)
        last = book.last()
        listed = [entry for _, entry in reversed(book.entries(selected, limit=number))] if number else []
        # Read before anything is shown: after that, a store that is unreachable is waited for.
        archived = book.archived() if len(listed) < number else None
        if not listed and not follow:
            click.echo("No calls.", err=True)
        _show(listed, table, names)
        if archived is not None:
            note_archived_calls(archived, selected)
        if follow:
            # A call may have been booked between `last` and the listing.
            seen = {entry.id for entry in listed}

            def show_new(new: list[Entry]) -> None:
                if any(entry.key not in names for entry in new):  # a key was created since
                    names.update(key_names(book.keys()))
                _show([entry for entry in new if entry.id not in seen], table, names)

            _follow(book, selected, last, show_new)


def _follow(book: Book, selected: Filter, last: int, show: Callable[[list[Entry]], None]) -> NoReturn:
    """Show new entries until interrupted. While the store is unreachable, wait, and report that once."""
    unreachable = False
    while True:
        sys.stdout.flush()
        try:
            new = book.following(selected, last, limit=_PAGE)
            if new:
                show([entry for _, entry in new])
        except BookUnusableError:
            raise
        except BookError as error:
            if not unreachable:
                click.echo(f"penstock: {error}; waiting", err=True)
            unreachable, new = True, []
        else:
            unreachable = False
        if new:
            last = new[-1][0]
        else:
            time.sleep(_POLL_S)


@command.command("show", short_help="Show one call in full.")
@click.argument("id")
@config_option
@json_option
@click.option("--content", is_flag=True, help="Print its kept request and answer instead, as one JSON object.")
def show(id: str, file: Path | None, *, as_json: bool, content: bool) -> None:
    """Show one call: its attempts, their tokens and prices, what was repaired, and what translations lost."""
    if content:
        _show_content(file, id)
    else:
        _show_one(file, id, as_json=as_json)


for _subcommand in (backup_command, export, prune, restore_command):
    command.add_command(_subcommand)


def _show(entries: Sequence[Entry], table: Table | None, names: dict[str, str]) -> None:
    if table is None:
        for entry in entries:
            click.echo(to_json(describe(entry)))
    elif entries:
        table.show([_line(entry, names) for entry in entries])


def _line(entry: Entry, names: dict[str, str]) -> list[str]:
    tokens = entry.tokens
    return [
        table_moment(entry.at_ms),
        entry.id,
        names.get(entry.key, entry.key) or "–",
        entry.model,
        entry.outcome,
        f"{tokens.input:,}",
        f"{tokens.output:,}",
        table_dollars(entry.priced) if entry.cost is not None else "unpriced",
        seconds(entry.duration_ms / 1000),
        ", ".join(_notes(entry)),
    ]


def _notes(entry: Entry) -> list[str]:
    """What is unusual about a call."""
    repairs, findings, _ = (sum(counts.values()) for counts in by_level(entry.repairs))
    losses = sum(entry.losses.values())
    return [
        *([entry.code] if entry.code else []),
        *([counted(len(entry.attempts), "attempt")] if len(entry.attempts) > 1 else []),
        *(["estimated"] if entry.measure == "estimated" else []),
        *(["approximate cost"] if entry.approximate else []),
        *([counted(repairs, "repair")] if repairs else []),
        *([counted(findings, "finding")] if findings else []),
        *([f"{losses} {'loss' if losses == 1 else 'losses'}"] if losses else []),
    ]


def _show_content(file: Path | None, id: str) -> None:
    config = load_config(file)
    with content_of(config) as store:
        if store is not None:
            record(config, "content.read", id)
        found = call_record(store, id) if store is not None else None
    if found is None:
        raise click.ClickException(f"no content of the call {one_line(id)} is kept; [content] says which calls are")
    click.echo(to_json(found))


def _show_one(file: Path | None, id: str, *, as_json: bool) -> None:
    with reading(file) as book:
        entry = book.entry(id)
        names = key_names(book.keys())
        if entry is None:
            note_archived_calls(book.archived(), Filter())
    if entry is None:
        raise click.ClickException(f"there is no call {one_line(id)} in the ledger; a running call is not in it yet")
    if as_json:
        click.echo(to_json(describe(entry)))
        return
    for label, value in _facts(entry, names):
        click.echo(_styled(label.ljust(_LABEL_WIDTH), dim=True) + one_line(value))
    if entry.attempts:
        click.echo()
        Table(_ATTEMPTS).show([_attempt(attempt) for attempt in entry.attempts])
    repairs, findings, notices = by_level(entry.repairs)
    for code, count in repairs.items():
        _show_defect(_styled(one_line(code), fg="yellow"), code, count)
    for code, count in findings.items():
        _show_defect(f"{_styled('finding', fg='yellow')}  {one_line(code)}", code, count)
    for code, count in notices.items():
        _show_defect(f"{_styled('notice', dim=True)}  {one_line(code)}", code, count)
    for code, count in entry.losses.items():
        loss = LOSSES.get(code)
        meaning = f"{loss.meaning} Lost: {loss.lost}" if loss is not None else ""
        _show_code(f"{_styled('loss', fg='yellow')}  {one_line(code)}", count, meaning)


def _show_defect(heading: str, code: str, count: int) -> None:
    defect = REPAIRS.get(code)
    _show_code(heading, count, f"{defect.wrong} {defect.done}" if defect is not None else "")


def _show_code(heading: str, count: int, meaning: str) -> None:
    """`meaning` is empty for an unknown code, which a later version has written."""
    click.echo()
    click.echo(f"{heading}  ×{count}")
    if meaning:
        click.echo(f"  {meaning}")


def _styled(text: str, **style: Any) -> str:
    """Style text, unless NO_COLOR is set. Click removes styles in a pipe, but ignores NO_COLOR."""
    return text if os.environ.get("NO_COLOR") else click.style(text, **style)


def _facts(entry: Entry, names: dict[str, str]) -> list[tuple[str, str]]:
    name = names.get(entry.key, "")
    key = f"{name} ({entry.key})" if name not in ("", entry.key) else entry.key
    first = f", first event after {seconds(entry.first_event_ms / 1000)}" if entry.first_event_ms is not None else ""
    status = f", status {entry.status}" if entry.status else ""
    code = f", {entry.code}" if entry.code else ""
    cost = table_dollars(entry.priced) + ("" if entry.cost is not None else " and what is unpriced")
    cost += ", approximate" if entry.approximate else ""
    tags = ", ".join(f"{name}={value}" for name, value in entry.tags.items())
    facts = [
        ("call", entry.id),
        ("time", f"{table_moment(entry.at_ms)} UTC, took {seconds(entry.duration_ms / 1000)}{first}"),
        ("key", key),
        ("team", entry.team),
        ("model", entry.model),
        ("surface", f"{entry.surface}{', streamed' if entry.stream else ''}"),
        ("outcome", f"{entry.outcome}{status}{code}"),
        ("tokens", _tokens(entry.tokens, entry.measure)),
        ("cost", cost),
        ("tags", tags),
        ("user", entry.user),
    ]
    return [(label, value) for label, value in facts if value]


def _tokens(tokens: Tokens, measure: str) -> str:
    parts = [("cached", tokens.cached), ("cache write", tokens.cache_write)]
    input = ", ".join(f"{count:,} {name}" for name, count in parts if count)
    output = f" ({tokens.reasoning:,} reasoning)" if tokens.reasoning else ""
    return f"{tokens.input:,} input{f' ({input})' if input else ''}, {tokens.output:,} output{output}; {measure}"


def _attempt(attempt: AttemptEntry) -> list[str]:
    return [
        f"{attempt.provider}/{attempt.model}",
        attempt.outcome,
        str(attempt.status or "–"),
        f"{attempt.tokens.input:,}",
        f"{attempt.tokens.output:,}",
        table_dollars(attempt.cost) if attempt.cost is not None else "unpriced",
        seconds(attempt.first_event_ms / 1000) if attempt.first_event_ms is not None else "–",
        seconds(attempt.duration_ms / 1000),
        attempt.measure,
        ", ".join(filter(None, (attempt.price, attempt.tier, "approximate" if attempt.approximate else ""))) or "–",
    ]
