"""`penstock usage`: sums of tokens and cost, by groups."""

from typing import get_args

import click

from penstock.amounts import Currency, money, table_dollars
from penstock.cli.book import book_of, load_config
from penstock.cli.ledger_options import EntryQuery, key_names, note_archived_sums, takes_filter, takes_month
from penstock.cli.table import Column, Table
from penstock.cli.text import to_json
from penstock.gateway.billing.csv_rows import FIGURES, group_of, usage_csv
from penstock.gateway.billing.queries import Grouping, UsageRow, read_groups, with_teams

# Columns of the table that are omitted if all values are zero.
_OPTIONAL = ("cached", "cache_write", "reasoning", "unpriced", "estimated", "approximate")
_UNCERTAIN = {"": "yellow", "0": "dim"}
_STYLES = {"unpriced": _UNCERTAIN, "estimated": _UNCERTAIN, "approximate": _UNCERTAIN}
# The order in which columns are dropped on a narrow terminal, highest first.
_SPARE = {"cache_write": 6, "reasoning": 5, "cached": 4, "estimated": 3, "approximate": 3, "input": 2, "output": 1}
_HEADS = {"cache_write": "cache write"}


@click.command(short_help="Sum up tokens and cost.")
@click.option(
    "--by",
    metavar="GROUPS",
    default="model",
    help=f"One or more, with commas: {', '.join(get_args(Grouping))}=NAME.",
)
@takes_filter
@takes_month
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per group.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
def command(query: EntryQuery, by: str, *, as_json: bool, as_csv: bool) -> None:
    """Sum up the calls in the ledger: tokens and cost, by model or other groups."""
    if as_json and as_csv:
        raise click.UsageError("use either --json or --csv")
    groups, tag = _groups(by)
    config = load_config(query.file)
    currency = config.finance.shown
    with book_of(config, readonly=True) as book:
        keys = book.keys()
        selected = with_teams(query.filter(keys), book.teams())
        rows = book.usage(selected, groups, tag=tag)
        total = book.usage(selected, [])[0]
        archived = book.archived()
    if not {"day", "month", "tree"} & {*groups}:
        rows.sort(key=lambda row: (-row.cost, -row.output - row.input, row.group))
    heads = [tag if group == "tag" else group for group in groups]
    if as_json:
        for row in rows:
            click.echo(to_json(group_of(heads, row, key_names(keys)) | _figures(row, currency)))
    elif as_csv:
        click.echo(usage_csv(heads, rows, key_names(keys), currency), nl=False)
    elif not total.calls:
        click.echo("No calls.")
    else:
        _show(heads, rows, total, (groups, key_names(keys), currency))
        if currency is not None:
            click.echo(f"{currency.code}: converted at {currency.rate} for a dollar.")
    note_archived_sums(archived, selected, groups)


def _groups(text: str) -> tuple[list[Grouping], str]:
    """The groupings, and the name of the tag if there is one."""
    try:
        return read_groups(text.split(","), "=")
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _figures(row: UsageRow, currency: Currency | None) -> dict[str, object]:
    converted = {f"cost_{currency.code.lower()}": currency.converted(row.cost)} if currency is not None else {}
    amounts = {"cost_usd": money(row.cost), "saved_usd": money(row.saved)}
    return {name: getattr(row, name) for name in FIGURES} | amounts | converted


def _show(
    heads: list[str],
    rows: list[UsageRow],
    total: UsageRow,
    shown: tuple[list[Grouping], dict[str, str], Currency | None],
) -> None:
    groups, names, currency = shown
    figures = [name for name in FIGURES if name not in _OPTIONAL or getattr(total, name)]
    caches = bool(total.cached or total.saved)
    table = Table(
        (
            *(Column(head, wraps=True) for head in heads or [""]),
            *(
                Column(_HEADS.get(name, name), True, _STYLES.get(name, {}), spare=_SPARE.get(name, 0))
                for name in figures
            ),
            *((Column("hit rate", True, spare=7), Column("saved", True, spare=8)) if caches else ()),
            Column("cost", True, {"unpriced": "yellow", "": "green"}),
            *([Column(currency.code, True)] if currency is not None else []),
        )
    )
    table.show(
        [[*_names(row, groups, names), *_numbers(row, figures, currency, caches=caches)] for row in rows]
        if groups
        else [],
        total=["total", *[""] * (len(heads) - 1), *_numbers(total, figures, currency, caches=caches)],
    )


def _names(row: UsageRow, groups: list[Grouping], names: dict[str, str]) -> list[str]:
    """The names of a row's groups. `–` means no key, no tag, or no provider."""
    return [
        (names.get(name, name) if group == "key" else name) or "–"
        for group, name in zip(groups, row.group, strict=True)
    ]


def _numbers(row: UsageRow, figures: list[str], currency: Currency | None, *, caches: bool) -> list[str]:
    cost = "unpriced" if row.unpriced and not row.cost else table_dollars(row.cost)  # an unknown cost is not zero
    converted = [currency.table_text(row.cost)] if currency is not None else []
    rate = f"{row.cached / row.input:.1%}" if row.input else ""
    of_caches = [rate, table_dollars(row.saved)] if caches else []
    return [*(f"{getattr(row, name):,}" for name in figures), *of_caches, cost, *converted]
