"""One gateway per state folder: the second one gets an error that names the first."""

import os
from pathlib import Path

import pytest

from penstock.errors import BookError
from penstock.stores.state_lock import claim


def test_a_second_gateway_learns_of_the_first(tmp_path: Path) -> None:
    claimed = claim(tmp_path / "state")
    with pytest.raises(BookError, match=rf"process {os.getpid()}\).*PENSTOCK_STATE"):
        claim(tmp_path / "state")
    os.close(claimed)
    os.close(claim(tmp_path / "state"))


def test_a_folder_that_cannot_be_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BookError, match="cannot be used"):
        claim(tmp_path / "file" / "state")
