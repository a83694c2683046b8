"""A table that is printed in parts, as a command that follows the ledger does."""

import pytest

from penstock.cli.table import Column, Table


def test_the_header_is_printed_once_and_columns_never_get_narrower(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table((Column("model"), Column("calls", right=True)))
    table.show([["a-longer-name", "1"]])
    table.show([["b", "22"]], total=["total", "23"])
    assert capsys.readouterr().out.splitlines() == [
        "model          calls",
        "a-longer-name      1",
        "b                 22",
        "total             23",
    ]
