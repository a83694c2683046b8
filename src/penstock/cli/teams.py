"""`penstock teams`: creates, shows, changes and deletes teams, in the book of the configuration.

No gateway needs to run. A running gateway applies changes within a second.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from penstock.cli.book import opened
from penstock.cli.field_options import field_options, given_options, read_fields
from penstock.cli.key_tables import limits, limits_of, policy, renewed, user_limits
from penstock.cli.options import config_option, json_option
from penstock.cli.table import Column, Table
from penstock.cli.text import one_line, to_json
from penstock.gateway.keys.fields import TEAM_FIELDS
from penstock.gateway.teams import changes
from penstock.gateway.teams.report import report_teams

_path = click.argument("path")


@click.group(short_help="Create, list, change and delete teams.")
def command() -> None:
    """Manage teams of keys, with budgets and limits at every level (docs/teams.md).

    A path names a team: the organisation acme, its team acme/search, the project acme/search/prod. A call must fit into
    the limits of its key and of every level above it.
    """


@command.command("create", short_help="Create a team.")
@_path
@config_option
@field_options(TEAM_FIELDS)
@json_option
def create_command(path: str, file: Path | None, *, as_json: bool, **options: Any) -> None:
    """Create the team PATH. The teams above it must exist. Without an option there is no limit of that kind."""
    with opened(file) as (book, now):
        team = changes.create(book, read_fields({"path": path} | given_options(options), changes.TeamTerms), now)
        _print(report_teams(book, [team], now)[0], as_json=as_json)


@command.command("update", short_help="Change a team.")
@_path
@config_option
@field_options(TEAM_FIELDS)
@json_option
def update_command(path: str, file: Path | None, *, as_json: bool, **options: Any) -> None:
    """Change what is given, and nothing else. The value none removes a limit (none/day: a budget) or all models."""
    with opened(file) as (book, now):
        team = changes.update(book, path, read_fields(given_options(options), changes.TeamUpdate), now)
        _print(report_teams(book, [team], now)[0], as_json=as_json)


@command.command("list", short_help="List teams.")
@config_option
@json_option
def list_command(file: Path | None, *, as_json: bool) -> None:
    """List all teams with their limits and what they have spent."""
    with opened(file) as (book, now):
        reports = report_teams(book, [team for team in book.teams() if team.deleted_ms is None], now)
    if as_json:
        click.echo(to_json({"teams": reports}))
    elif reports or not sys.stdout.isatty():
        _table(reports)
    else:
        click.echo("There are no teams. Create one: penstock teams create NAME")


@command.command("show", short_help="Show one team.")
@_path
@config_option
@json_option
def show_command(path: str, file: Path | None, *, as_json: bool) -> None:
    """Show a team: its limits, what it has spent with all below it, and what is left."""
    with opened(file) as (book, now):
        _print(report_teams(book, [changes.find(book.teams(), path)], now)[0], as_json=as_json)


@command.command("block", short_help="Block a team until it is unblocked.")
@_path
@config_option
def block_command(path: str, file: Path | None) -> None:
    """Refuse the calls of all keys of a team, and of the teams below it, until it is unblocked."""
    with opened(file) as (book, now):
        changes.update(book, path, changes.TeamUpdate(blocked=True), now)
    click.echo(one_line(f"blocked {path}"))


@command.command("unblock", short_help="Unblock a team.")
@_path
@config_option
def unblock_command(path: str, file: Path | None) -> None:
    """Accept the calls of a blocked team again."""
    with opened(file) as (book, now):
        changes.update(book, path, changes.TeamUpdate(blocked=False), now)
    click.echo(one_line(f"unblocked {path}"))


@command.command("delete", short_help="Delete a team.")
@_path
@config_option
def delete_command(path: str, file: Path | None) -> None:
    """Delete a team without keys and without teams below it. Its calls stay in the ledger."""
    with opened(file) as (book, now):
        changes.delete(book, path, now)
    click.echo(one_line(f"deleted {path}"))


def _print(report: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(to_json(report))
        return
    rows = {
        report["level"]: report["path"],
        "state": report["state"],
        "keys": report["keys"],
        **{
            f"per {each['period']}" if each["period"] != "total" else "in total": (
                f"${each['spent']} spent of ${each['budget']}; ${each['left']} left{renewed(each)}"
            )
            for each in report["budgets"]
        },
        "spent": f"${report['spent_this_month']} this month",
        "limits": limits(report) or "none",
        "models": ", ".join(report["models"]) or "all",
        "per user": user_limits(report) or "no limits",
        "per member": limits_of(report["members"]) or "no limits",
        "member keys": policy(report["member_keys"]) or "no policy",
        **({"managed by": report["managed_by"]} if report["managed_by"] else {}),
    }
    for label, value in rows.items():
        click.echo(one_line(f"{label:<14}{value}"))


def _table(reports: list[dict[str, Any]]) -> None:
    heads = ("team", "state", "keys", "spent this month", "budgets", "limits", "models")
    Table([Column(head, wraps=head in ("budgets", "limits", "models")) for head in heads]).show(
        [
            [
                report["path"],
                report["state"],
                str(report["keys"]),
                f"${report['spent_this_month']}",
                ", ".join(f"${each['left']} left of ${each['budget']}/{each['period']}" for each in report["budgets"]),
                limits(report),
                ", ".join(report["models"]),
            ]
            for report in reports
        ]
    )
