"""The same tests run on every store."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from penstock.gateway.book import Book
from tests.stores.places import Place, PostgresPlace, SqlitePlace
from tests.stores.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    # Not where pytest keeps its folders: nobody else may look into those, and root's server is somebody else.
    with TemporaryDirectory(prefix="penstock-postgres-") as folder:
        server = PostgresServer(Path(folder))
        server.start()
        yield server
        server.stop()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return SqlitePlace(tmp_path)
    return PostgresPlace(request.getfixturevalue("postgres"))


@pytest.fixture
def book(place: Place) -> Iterator[Book]:
    opened = place.open()
    yield opened
    opened.close()
