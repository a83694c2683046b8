"""`penstock audit`: lists the audit log of the admin API and the commands."""

from pathlib import Path
from typing import Any

import click

from penstock.cli.book import reading
from penstock.cli.options import config_option, json_option, moment_option
from penstock.cli.table import Column, Table
from penstock.cli.text import one_line, to_json
from penstock.gateway.people.audit import AuditEntry, AuditFilter, audit_json

_COLUMNS = (
    Column("time (UTC)"),
    Column("who"),
    Column("by", spare=2),
    Column("from", spare=1),
    Column("action"),
    Column("subject"),
    Column("change", wraps=True, spare=3),
)


@click.command(short_help="List who changed what, and who looked at content.")
@config_option
@moment_option("--since", "Since then: 7d, 12h, 2026-11-01 (UTC).")
@moment_option("--until", "Before then.")
@click.option("--who", default="", metavar="NAME", help="Acts of this user.")
@click.option("--action", default="", metavar="ACTION", help="Such as key.create, or key for all acts on keys.")
@click.option("--subject", default="", metavar="ID", help="Acts on this key, token, call or user.")
@click.option(
    "-n", "--last", "count", type=click.IntRange(1, 100_000), default=100, show_default=True, help="How many."
)
@json_option
def command(file: Path | None, *, count: int, as_json: bool, **wanted: Any) -> None:
    """List the audit log, the newest entry first: administrative acts, and looks at content (docs/people.md)."""
    with reading(file) as book:
        entries = [entry for _, entry in book.people.audit(AuditFilter(**wanted), limit=count)]
    if as_json:
        click.echo(to_json({"entries": [audit_json(entry) for entry in entries]}))
    else:
        Table(_COLUMNS).show([_row(entry) for entry in entries])


def _row(entry: AuditEntry) -> list[str]:
    at = str(audit_json(entry)["at"])[:19].replace("T", " ")
    return [at, entry.who, entry.via, entry.address, entry.action, entry.subject, _change(entry)]


def _change(entry: AuditEntry) -> str:
    """The changed fields: `budget: 5 → 10`; of what was created, only those that have a value."""
    if not entry.before:
        return one_line(", ".join(f"{name}: {value}" for name, value in entry.after.items() if value not in (None, "")))
    pairs = (f"{name}: {entry.before.get(name)} → {value}" for name, value in entry.after.items())
    return one_line(", ".join(pairs))
