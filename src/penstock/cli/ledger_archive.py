"""`penstock ledger prune` and `penstock ledger export`: move old calls to archives, and print calls from everywhere."""

import csv
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event

import click
from msgspec.structs import asdict

from penstock.amounts import DAY_MS, clock_ms, money, table_moment
from penstock.cli.background import in_background
from penstock.cli.book import book_of, load_config
from penstock.cli.ledger_options import EntryQuery, key_names, takes_filter, takes_month
from penstock.cli.options import config_option, moment_option
from penstock.cli.text import counted, to_json
from penstock.gateway.billing.csv_rows import COLUMNS, csv_row
from penstock.gateway.billing.queries import with_teams
from penstock.gateway.config import LedgerSettings
from penstock.gateway.record.entry import AttemptEntry, Entry
from penstock.stores.book.focus_export import focus_csv
from penstock.stores.book.open import archive_folder
from penstock.stores.book.sql_book import Book

# Gateways wait for the transaction of a batch before they book calls. It is short, because on a busy machine this
# thread gets little CPU time.
_BATCH = 25


@click.command("prune", short_help="Move old calls to archives.")
@config_option
@moment_option("--before", "Calls of days before then: 90d, 2026-11-01 (UTC). Default: keep_days.")
@click.option(
    "--duty",
    metavar="PERCENT",
    type=click.IntRange(1, 100),
    default=10,
    show_default=True,
    help="The part of the time in which it works; then it pauses. 100: as fast as possible, if no gateway is running.",
)
@click.option("--dry-run", is_flag=True, help="Only say how many calls that are.")
def prune(file: Path | None, before_ms: int | None, *, duty: int, dry_run: bool) -> None:
    """Move old calls from the ledger to archives, as a gateway with keep_days in [ledger] does by itself.

    Budgets and sums do not change. Calls of the last day stay. A gateway can run meanwhile: the command has the lowest
    priority, and pauses. Press Ctrl-C to end it after the calls that it is moving; the next run continues there.
    """
    config = load_config(file)
    settings = config.ledger
    folder, now_ms = archive_folder(settings, os.environ), clock_ms()
    before_ms = _before_ms(settings, before_ms, now_ms)
    until = f"before {table_moment(before_ms)[:10]}"
    with book_of(config, readonly=dry_run) as book:
        number = book.prunable(before_ms)
        if dry_run:
            click.echo(f"{counted(number, 'call')} {until} to move to {folder}")
            return
        with click.progressbar(length=number, label="Archiving", file=sys.stderr) as bar:
            moved = in_background(partial(_prune, book, folder, before_ms, duty, bar.update))
        if settings.keep_sums_days is not None:
            sums_ms = now_ms - settings.keep_sums_days * DAY_MS
            in_background(lambda ending: _repeat(partial(book.drop_sums, sums_ms), duty, ending))
    click.echo(f"{counted(moved, 'call')} {until} moved to {folder}")


def _prune(
    book: Book, folder: Path, before_ms: int, duty: int, on_moved: Callable[[int], object], ending: Event
) -> int:
    """Archive all calls before a time; returns their number."""
    moved = 0

    def step() -> bool:
        nonlocal moved
        number = book.prune(folder, before_ms, most=_BATCH)
        if number is None:
            raise click.ClickException(
                f"{counted(moved, 'call')} moved; another process is moving calls, or was killed in the last minute: "
                "try again later"
            )
        moved += number
        on_moved(number)
        return bool(number)

    _repeat(step, duty, ending)
    return moved


def _repeat(step: Callable[[], bool], duty: int, ending: Event) -> None:
    """Repeat a step until it returns False, with pauses in proportion to the time that it took."""
    started = time.monotonic()
    while not ending.is_set() and step():
        ending.wait((time.monotonic() - started) * (100 - duty) / duty)
        started = time.monotonic()


def _before_ms(settings: LedgerSettings, wanted: int | None, now_ms: int) -> int:
    """The start of the day before which calls are archived."""
    if wanted is None:
        if settings.keep_days is None:
            raise click.UsageError("set keep_days in [ledger], or give --before TIME")
        wanted = now_ms - settings.keep_days * DAY_MS
    if wanted > now_ms - DAY_MS:
        raise click.UsageError("calls of the last 24 hours stay in the ledger: give an earlier time")
    return wanted // DAY_MS * DAY_MS


@click.command("export", short_help="Print calls, archived ones too, as JSON lines or CSV.")
@takes_filter
@takes_month
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values, one line per call.")
@click.option("--focus", is_flag=True, help="Print the costs of each day as CSV in the format FOCUS 1.2.")
def export(query: EntryQuery, *, as_csv: bool, focus: bool) -> None:
    """Print all calls that match, from the archives and from the ledger: one JSON object per line.

    Archived calls come first. The order is about that of time.
    """
    if as_csv and focus:
        raise click.UsageError("use either --csv or --focus")
    config = load_config(query.file)
    with book_of(config, readonly=True) as book:
        keys = book.keys()
        if focus:
            for part in focus_csv(book, with_teams(query.filter(keys), book.teams())):
                click.echo(part, nl=False)
            return
        write = _csv_writer(key_names(keys)) if as_csv else _write_json
        folder = archive_folder(config.ledger, os.environ)
        missing = book.export(with_teams(query.filter(keys), book.teams()), folder, write)
    if missing:
        raise click.ClickException(
            f"the export is not complete: {folder} does not have {', '.join(missing)}; copy these archives there, from "
            "where they were moved to, or from the machine that wrote them"
        )


def _write_json(entry: Entry) -> None:
    click.echo(to_json(describe(entry)))


def _csv_writer(names: dict[str, str]) -> Callable[[Entry], None]:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    return lambda entry: writer.writerow(csv_row(entry, names.get(entry.key, "")))


def describe(entry: Entry) -> dict[str, object]:
    """The output of `--json` for a call."""
    return asdict(entry) | {
        "attempts": [_describe_attempt(attempt) for attempt in entry.attempts],
        "tokens": asdict(entry.tokens),
        "measure": entry.measure,
        "cost_usd": money(entry.cost),
        "approximate": entry.approximate,
        "priced_usd": money(entry.priced),
    }


def _describe_attempt(attempt: AttemptEntry) -> dict[str, object]:
    fields = asdict(attempt) | {"tokens": asdict(attempt.tokens), "cost_usd": money(attempt.cost)}
    del fields["cost"]
    return fields
