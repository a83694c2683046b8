"""A table: plain text in a pipe, in colour on a terminal. The text of cells is escaped."""

import sys
from collections.abc import Mapping, Sequence

import click
from msgspec import Struct

from penstock.cli.text import one_line

_GAP = "  "
# The minimum width of a column that wraps.
_MIN_WIDTH = 12


class Column(Struct, frozen=True):
    """A column. `right` aligns numbers. `styles` are rich styles by the text of a cell, or for all cells ("")."""

    head: str
    right: bool = False
    styles: Mapping[str, str] = {}
    spare: int = 0
    """The order in which columns are dropped on a narrow terminal, highest first; 0 is never dropped."""
    wraps: bool = False
    """Whether cells may wrap."""


class Table:
    """A table that may be printed in parts: the header is printed once, and columns never get narrower."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._widths = [len(column.head) for column in columns]
        self._headed = False

    def show(self, rows: Sequence[Sequence[str]], total: Sequence[str] | None = None) -> None:
        """Print rows, and optionally a row with their total."""
        safe = [[one_line(cell) for cell in row] for row in (*rows, *([total] if total else []))]
        self._widths = [max([width, *map(len, cells)]) for width, *cells in zip(self._widths, *safe, strict=True)]
        if sys.stdout is not None and sys.stdout.isatty():
            self._pretty(safe, summed=total is not None)
        else:
            heads = [] if self._headed else [[column.head for column in self._columns]]
            for row in (*heads, *safe):
                click.echo(self._plain(row))
        self._headed = True

    def _plain(self, row: Sequence[str]) -> str:
        cells = zip(self._columns, self._widths, row, strict=True)
        line = (cell.rjust(width) if column.right else cell.ljust(width) for column, width, cell in cells)
        return _GAP.join(line).rstrip()

    def _pretty(self, rows: Sequence[Sequence[str]], *, summed: bool) -> None:
        from rich.console import Console  # noqa: PLC0415 - takes time, and only a terminal needs it
        from rich.table import Table as RichTable  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        console = Console(highlight=False)
        fitting = self._fitting(console.width)
        table = RichTable(box=None, pad_edge=False, padding=(0, len(_GAP), 0, 0), header_style="dim")
        table.show_header = not self._headed
        for index in fitting:
            column = self._columns[index]
            table.add_column(
                Text(column.head),
                justify="right" if column.right else "left",
                no_wrap=not column.wraps,
                min_width=self._min_width(index),
                overflow="fold" if column.wraps else "ellipsis",
            )
        for number, row in enumerate(rows, 1):
            styles = [self._columns[index].styles for index in fitting]
            table.add_row(
                *(
                    Text(row[index], style.get(row[index], style.get("", "")))
                    for index, style in zip(fitting, styles, strict=True)
                ),
                style="bold" if summed and number == len(rows) else "",
            )
        console.print(table)

    def _fitting(self, width: int) -> list[int]:
        """The indexes of the columns that fit."""
        fitting = list(range(len(self._columns)))
        while sum(self._min_width(index) + len(_GAP) for index in fitting) - len(_GAP) > width:
            spare = max(fitting, key=lambda index: self._columns[index].spare)
            if not self._columns[spare].spare:
                break
            fitting.remove(spare)
        return fitting

    def _min_width(self, index: int) -> int:
        return min(self._widths[index], _MIN_WIDTH) if self._columns[index].wraps else self._widths[index]
