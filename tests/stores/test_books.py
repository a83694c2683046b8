"""Which book a configuration opens."""

from pathlib import Path

import pytest

from penstock.errors import BookError
from penstock.gateway.billing.queries import Filter
from penstock.gateway.config import LedgerSettings, Secret
from penstock.stores.book.open import open_book, state_folder
from tests.stores.entries import FULL
from tests.stores.postgres import PostgresServer

EVERYTHING = {"PENSTOCK_STATE": "/p", "XDG_STATE_HOME": "/x", "HOME": "/h"}
FOLDERS: dict[str, tuple[str, dict[str, str], str]] = {
    "as configured": ("/c", EVERYTHING, "/c"),
    "as the environment says": ("", EVERYTHING, "/p"),
    "in the folder for state": ("", {"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/penstock"),
    "never in a relative one": ("", {"XDG_STATE_HOME": "x", "HOME": "/h"}, "/h/.local/state/penstock"),
    "at home": ("", {"HOME": "/h"}, "/h/.local/state/penstock"),
    "empty is unset": ("", {"PENSTOCK_STATE": "", "XDG_STATE_HOME": "", "HOME": "/h"}, "/h/.local/state/penstock"),
}


@pytest.mark.parametrize(("folder", "environment", "expected"), FOLDERS.values(), ids=FOLDERS)
def test_the_folder_is(folder: str, environment: dict[str, str], expected: str) -> None:
    assert state_folder(LedgerSettings(folder=folder), environment) == Path(expected)


def test_a_folder_is_made_for_its_owner_alone_and_the_book_in_it_is_found_again(tmp_path: Path) -> None:
    settings = LedgerSettings(folder=str(tmp_path / "a" / "b"))
    book = open_book(settings, {})
    book.append([FULL])
    book.close()
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    book = open_book(settings, {}, readonly=True)
    assert book.entry("call_1") == FULL
    book.close()


def test_a_reader_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(BookError, match="no gateway has kept a ledger here yet"):
        open_book(LedgerSettings(folder=str(tmp_path / "a")), {}, readonly=True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BookError, match="cannot be made: Not a directory; set folder in"):
        open_book(LedgerSettings(folder=str(tmp_path / "file" / "a")), {})


def test_a_database_takes_the_place_of_the_file(postgres: PostgresServer, tmp_path: Path) -> None:
    url = postgres.new_database()
    settings = LedgerSettings(folder=str(tmp_path), postgres=Secret(url))
    book = open_book(settings, {})
    book.append([FULL])
    reader = open_book(settings, {}, readonly=True)
    assert [found for _, found in reader.entries(Filter(), limit=2)] == [FULL]
    with pytest.raises(BookError, match="read-only transaction"):
        reader.append([FULL])
    reader.close()
    book.close()
    assert list(tmp_path.iterdir()) == []


def test_no_book_is_opened_where_none_is_kept(tmp_path: Path) -> None:
    with pytest.raises(BookError, match="enabled = false"):
        open_book(LedgerSettings(enabled=False, folder=str(tmp_path)), {})
