"""A table: columns and rows, plain for a pipe, in colour on a terminal. Whatever is in a cell is made safe to show."""

import sys
from collections.abc import Mapping, Sequence

import click
from msgspec import Struct

from penstock.cli.text import one_line

_GAP = "  "
# What may be broken gets no narrower than this.
_NARROW = 12


class Column(Struct, frozen=True):
    """A heading; numbers stand to the right; `styles` are of certain cells, or of all (""), in rich's words."""

    head: str
    right: bool = False
    styles: Mapping[str, str] = {}
    spare: int = 0
    """Where a terminal is too narrow, the column that is the most to spare goes first; 0 stays."""
    wraps: bool = False
    """Whether it may be broken into several lines."""


class Table:
    """Rows that may be printed in several parts: the heading comes once, and columns never get narrower."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._widths = [len(column.head) for column in columns]
        self._headed = False

    def show(self, rows: Sequence[Sequence[str]], total: Sequence[str] | None = None) -> None:
        """Print rows, and perhaps a last one that sums them up."""
        safe = [[one_line(cell) for cell in row] for row in (*rows, *([total] if total else []))]
        self._widths = [max(width, *map(len, cells)) for width, *cells in zip(self._widths, *safe, strict=True)]
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
        kept = self._fitting(console.width)
        table = RichTable(box=None, pad_edge=False, padding=(0, len(_GAP), 0, 0), header_style="dim")
        table.show_header = not self._headed
        for index in kept:
            column = self._columns[index]
            table.add_column(
                Text(column.head),
                justify="right" if column.right else "left",
                no_wrap=not column.wraps,
                min_width=self._least(index),
                overflow="fold" if column.wraps else "ellipsis",
            )
        for number, row in enumerate(rows, 1):
            styles = [self._columns[index].styles for index in kept]
            table.add_row(
                *(
                    Text(row[index], style.get(row[index], style.get("", "")))
                    for index, style in zip(kept, styles, strict=True)
                ),
                style="bold" if summed and number == len(rows) else "",
            )
        console.print(table)

    def _fitting(self, width: int) -> list[int]:
        """The columns that there is room for, by their numbers."""
        kept = list(range(len(self._columns)))
        while sum(self._least(index) + len(_GAP) for index in kept) - len(_GAP) > width:
            spare = max(kept, key=lambda index: self._columns[index].spare)
            if not self._columns[spare].spare:
                break
            kept.remove(spare)
        return kept

    def _least(self, index: int) -> int:
        return min(self._widths[index], _NARROW) if self._columns[index].wraps else self._widths[index]
