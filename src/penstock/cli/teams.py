"""`penstock teams`: creates, shows, changes and deletes teams, in the book of the configuration.

No gateway needs to run. A running gateway applies changes within a second.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from penstock.amounts import clock_ms
from penstock.cli.book import book_of, load_config
from penstock.cli.key_tables import limits, user_limits
from penstock.cli.limit_options import end_user_options, end_user_terms, parse_budgets, parse_number
from penstock.cli.options import config_option, json_option
from penstock.cli.table import Column, Table
from penstock.cli.text import one_line, to_json
from penstock.gateway.teams import changes
from penstock.gateway.teams.report import report_teams

_path = click.argument("path")
_NUMBERS = {"rpm": "requests_per_minute", "tpm": "tokens_per_minute", "concurrent": "concurrent"}
_LIMITS = (
    click.option(
        "--budget",
        "budgets",
        multiple=True,
        metavar="DOLLARS/PERIOD",
        help="A budget for all its keys together, such as 500/month or 50/day. Repeatable: all apply.",
    ),
    click.option("--rpm", metavar="N", help="Maximum requests per minute, of all its keys together."),
    click.option("--tpm", metavar="N", help="Maximum tokens per minute."),
    click.option("--concurrent", metavar="N", help="Maximum concurrent calls."),
    click.option(
        "--model", "models", multiple=True, metavar="PATTERN", help="An allowed model, or groq/*. Repeatable."
    ),
    end_user_options,
)


@click.group(short_help="Create, list, change and delete teams.")
def command() -> None:
    """Manage teams of keys, with budgets and limits at every level (docs/teams.md).

    A path names a team: the organisation acme, its team acme/search, the project acme/search/prod. A call must fit into
    the limits of its key and of every level above it.
    """


def _limit_options(function: Any) -> Any:
    for option in reversed(_LIMITS):
        function = option(function)
    return function


@command.command("create", short_help="Create a team.")
@_path
@config_option
@_limit_options
@json_option
def create_command(path: str, file: Path | None, *, as_json: bool, **options: Any) -> None:
    """Create the team PATH. The teams above it must exist. Without an option there is no limit of that kind."""
    with book_of(load_config(file)) as book:
        now = clock_ms()
        team = changes.create(book, changes.TeamTerms(path=path, **_given(options)), now)
        _print(report_teams(book, [team], now)[0], as_json=as_json)


@command.command("update", short_help="Change a team.")
@_path
@config_option
@_limit_options
@json_option
def update_command(path: str, file: Path | None, *, as_json: bool, **options: Any) -> None:
    """Change what is given, and nothing else. The value none removes a limit (none/day: a budget) or all models."""
    with book_of(load_config(file)) as book:
        now = clock_ms()
        team = changes.update(book, path, changes.TeamUpdate(**_given(options)), now)
        _print(report_teams(book, [team], now)[0], as_json=as_json)


@command.command("list", short_help="List teams.")
@config_option
@json_option
def list_command(file: Path | None, *, as_json: bool) -> None:
    """List all teams with their limits and what they have spent."""
    with book_of(load_config(file)) as book:
        now = clock_ms()
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
    with book_of(load_config(file)) as book:
        _print(report_teams(book, [changes.find(book.teams(), path)], clock_ms())[0], as_json=as_json)


@command.command("block", short_help="Block a team until it is unblocked.")
@_path
@config_option
def block_command(path: str, file: Path | None) -> None:
    """Refuse the calls of all keys of a team, and of the teams below it, until it is unblocked."""
    with book_of(load_config(file)) as book:
        changes.update(book, path, changes.TeamUpdate(blocked=True), clock_ms())
    click.echo(one_line(f"blocked {path}"))


@command.command("unblock", short_help="Unblock a team.")
@_path
@config_option
def unblock_command(path: str, file: Path | None) -> None:
    """Accept the calls of a blocked team again."""
    with book_of(load_config(file)) as book:
        changes.update(book, path, changes.TeamUpdate(blocked=False), clock_ms())
    click.echo(one_line(f"unblocked {path}"))


@command.command("delete", short_help="Delete a team.")
@_path
@config_option
def delete_command(path: str, file: Path | None) -> None:
    """Delete a team without keys and without teams below it. Its calls stay in the ledger."""
    with book_of(load_config(file)) as book:
        changes.delete(book, path, clock_ms())
    click.echo(one_line(f"deleted {path}"))


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The terms of a team in the options of the command line."""
    given: dict[str, Any] = {"end_users": end_user_terms(options), "budgets": parse_budgets(options["budgets"])}
    for option, name in _NUMBERS.items():
        if options[option] is not None:
            given[name] = parse_number(name, options[option])
    if options["models"]:
        given["models"] = () if options["models"] == ("none",) else options["models"]
    return given


def _print(report: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(to_json(report))
        return
    rows = {
        report["level"]: report["path"],
        "state": report["state"],
        "keys": report["keys"],
        **{
            f"per {budget['period']}" if budget["period"] != "total" else "in total": _left(budget)
            for budget in report["budgets"]
        },
        "spent": f"${report['spent_this_month']} this month",
        "limits": limits(report) or "none",
        "models": ", ".join(report["models"]) or "all",
        "per user": user_limits(report) or "no limits",
    }
    for label, value in rows.items():
        click.echo(one_line(f"{label:<14}{value}"))


def _left(budget: Mapping[str, Any]) -> str:
    renewed = f", whole again on {budget['renewed']}" if budget["renewed"] else ""
    return f"${budget['spent']} spent of ${budget['budget']}; ${budget['left']} left{renewed}"


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
