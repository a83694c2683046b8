"""`penstock requests`: lists, approves and refuses requests of members for more, in the book of the configuration."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from penstock.cli.book import opened
from penstock.cli.field_options import field_options, given_options, read_fields
from penstock.cli.options import config_option, json_option
from penstock.cli.table import Column, Table
from penstock.cli.text import one_line, to_json
from penstock.gateway.keys.fields import FIELDS, LIMITS, RATES
from penstock.gateway.people.limit_requests import (
    VALID_MS,
    ApprovalTerms,
    LimitRequest,
    Raised,
    RefusalTerms,
    approved,
    refused,
    request_json,
    subjects_of,
)
from penstock.stores.book.sql_book import Book

_COLUMNS = (
    Column("id"),
    Column("state", styles={"open": "yellow", "approved": "green"}),
    Column("who", spare=1),
    Column("for", spare=1),
    Column("now"),
    Column("wanted"),
    Column("reason", spare=2),
)
_MOST = 500
_WANTED = (*LIMITS, FIELDS["models"])
_note = click.option("--note", default="", metavar="TEXT", help="A message for the member.")


@click.group(short_help="List, approve and refuse requests of members for more.")
def command() -> None:
    """Answer members who ask for a larger budget, higher limits or a model (docs/people.md)."""


@command.command("list", short_help="List requests.")
@config_option
@click.option("--all", "every", is_flag=True, help="Include those that were answered or have expired.")
@json_option
def list_command(file: Path | None, *, every: bool, as_json: bool) -> None:
    """List the requests that wait for an answer, the newest first."""
    with opened(file) as (book, now):
        found = book.limit_requests.newest(since_ms=None if every else now - VALID_MS, limit=_MOST)
        rows = _reports(book, [request for _, request in found], now)
    if as_json:
        click.echo(to_json({"requests": rows}))
        return
    Table(_COLUMNS).show(
        [
            [
                row["id"],
                row["state"],
                row["who"],
                row["key_name"] or row["key"] or row["team"],
                _text(row["present"]),
                _text(row["wanted"]),
                row["reason"],
            ]
            for row in rows
        ]
    )


@command.command("approve", short_help="Approve a request.")
@click.argument("id")
@config_option
@field_options(_WANTED)
@_note
@json_option
def approve_command(id: str, file: Path | None, *, note: str, as_json: bool, **options: Any) -> None:
    """Raise the limits as the request ID asks, or to the values that are given. The value none leaves one out."""
    with opened(file) as (book, now):
        terms, who = read_fields({"note": note} | given_options(options), ApprovalTerms), book.actor.who
        answered = book.limit_requests.answer(
            id, lambda request, subject: approved(request, terms, subject, None, who, now), now
        )
        _print(_reports(book, [answered], now)[0], as_json=as_json)


@command.command("refuse", short_help="Refuse a request.")
@click.argument("id")
@config_option
@_note
@json_option
def refuse_command(id: str, file: Path | None, *, note: str, as_json: bool) -> None:
    """Refuse the request ID. Nothing else changes."""
    with opened(file) as (book, now):
        terms, who = RefusalTerms(note=note), book.actor.who
        answered = book.limit_requests.answer(
            id, lambda request, _subject: Raised(refused(request, terms, who, now), None, None), now
        )
        _print(_reports(book, [answered], now)[0], as_json=as_json)


def _reports(book: Book, requests: Sequence[LimitRequest], now_ms: int) -> list[dict[str, Any]]:
    keys = book.keys([each.key for each in requests if each.key])
    subjects = subjects_of(requests, keys, book.teams(), book.members())
    return [request_json(each, subjects.get(each.id), now_ms) for each in requests]


def _print(row: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(to_json(row))
        return
    about = row["key_name"] or row["key"] or f"{row['who']} in {row['team']}"
    raised = f" to {_text(row['granted'])}" if row["granted"] else ""
    click.echo(one_line(f"{row['state']} {row['id']}: {about}{raised}"))


def _text(limits: dict[str, Any] | None) -> str:
    if limits is None:
        return ""
    budgets = [f"${amount}/{period}" for period, amount in limits["budgets"].items()]
    rates = [f"{limits[rate.name]} {rate.unit}" for rate in RATES if limits[rate.name] is not None]
    return ", ".join([*budgets, *rates, *limits["models"]])
