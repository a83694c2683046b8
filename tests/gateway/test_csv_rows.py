"""CSV: no cell begins a row of its own, and none is a formula."""

import csv
import io

import pytest

from penstock.gateway.billing.csv_rows import csv_cell

CELLS = {
    "a formula": ("=1+1", "'=1+1"),
    "a lone carriage return": ("m\r=HYPERLINK(1)", "m\\r=HYPERLINK(1)"),
    "it, at the start": ("\r=cmd|x", "\\r=cmd|x"),
    "a line": ("a\n=b", '"a\n=b"'),
    "plain": ("gpt-4.1", "gpt-4.1"),
}


@pytest.mark.parametrize(("text", "written"), CELLS.values(), ids=CELLS)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_cell_stays_one(text: str, written: str, end: str) -> None:
    file = io.StringIO()
    csv.writer(file, lineterminator=end).writerow([csv_cell(text)])
    assert file.getvalue() == written + end
