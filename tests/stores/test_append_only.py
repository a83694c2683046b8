"""No program can change what is booked, and old calls can be deleted only as far as the book allows."""

import pytest

from penstock.gateway.billing.queries import Filter
from penstock.stores.book.sql_book import Book
from tests.stores.entries import FULL, entry
from tests.stores.places import Place, PostgresPlace


@pytest.mark.parametrize("table", ["calls", "attempts"])
@pytest.mark.parametrize("change", ["UPDATE {table} SET {column} = {column}", "DELETE FROM {table}"])
def test_the_database_refuses_changes(place: Place, book: Book, table: str, change: str) -> None:
    book.append([FULL])
    column = "model" if table == "calls" else "call"
    with pytest.raises(Exception, match="neither changed nor removed"):
        place.execute(change.format(table=table, column=column))
    assert book.entry("call_1") == FULL


def test_nor_is_a_table_emptied(place: Place, book: Book) -> None:
    if isinstance(place, PostgresPlace):  # SQLite has no TRUNCATE
        book.append([FULL])
        with pytest.raises(Exception, match="neither changed nor removed"):
            place.execute("TRUNCATE calls, attempts")
        assert book.entry("call_1") == FULL


def test_what_is_older_than_the_book_is_kept_for_may_be_removed_whole(place: Place, book: Book) -> None:
    kept = FULL.at_ms + FULL.duration_ms + 1
    book.append([FULL, entry("young", kept)])
    place.execute(f"UPDATE meta SET value = {kept} WHERE name = 'kept'", f"DELETE FROM calls WHERE settled_ms < {kept}")
    assert [found.id for _, found in book.entries(Filter(), limit=9)] == ["young"]
    assert [row.group for row in book.usage(Filter(), ["provider"])] == [("p",)]
    with pytest.raises(Exception, match="neither changed nor removed"):
        place.execute("DELETE FROM calls")
