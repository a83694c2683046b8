"""Opens the book that the configuration means: a file in the folder for state, or a database of PostgreSQL."""

from collections.abc import Mapping
from pathlib import Path

from penstock.errors import BookError
from penstock.gateway.billing.book import Book
from penstock.gateway.config import LedgerSettings
from penstock.stores.book.postgres import PostgresBook
from penstock.stores.book.sqlite import SqliteBook

FILE = "ledger.db"


def open_book(settings: LedgerSettings, environment: Mapping[str, str], *, readonly: bool = False) -> Book:
    """The book. `readonly` only looks at one that is there; else it is made where it is missing."""
    if not settings.enabled:
        raise BookError("no ledger is kept: the configuration has enabled = false in [ledger]")
    if settings.postgres is not None:
        return PostgresBook.open(settings.postgres, readonly=readonly)
    folder = state_folder(settings, environment)
    if not readonly:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise BookError(
                f"{folder} cannot be made: {error.strerror}; set folder in [ledger], or PENSTOCK_STATE"
            ) from error
    return SqliteBook.open(folder / FILE, readonly=readonly)


def has_living_key(settings: LedgerSettings, environment: Mapping[str, str], now_ms: float) -> bool:
    """Whether the book has a key that opens something. Raises `BookError` where that cannot be told."""
    if settings.postgres is None and not (state_folder(settings, environment) / FILE).exists():
        return False
    book = open_book(settings, environment, readonly=True)
    try:
        keys = book.keys()
        return any(not key.unusable(now_ms) for key in keys)
    finally:
        book.close()


def state_folder(settings: LedgerSettings, environment: Mapping[str, str]) -> Path:
    """Where this machine keeps what must not be lost: as configured, as $PENSTOCK_STATE says, or where others do."""
    if named := settings.folder or environment.get("PENSTOCK_STATE"):
        return Path(named).expanduser()
    shared = environment.get("XDG_STATE_HOME", "")
    # One that is relative is to be ignored, by the specification that it is from.
    if Path(shared).is_absolute():
        return Path(shared) / "penstock"
    try:
        home = Path(environment["HOME"]) if environment.get("HOME") else Path.home()
    except RuntimeError:
        raise BookError("nobody's home: set folder in [ledger], or PENSTOCK_STATE") from None
    return home / ".local" / "state" / "penstock"
