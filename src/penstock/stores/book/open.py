"""Opens the book that is configured: a file in the state folder, or a PostgreSQL database."""

from collections.abc import Callable, Mapping
from pathlib import Path

from penstock.errors import BookError
from penstock.gateway.config import LedgerSettings
from penstock.stores.book.sql_book import Book
from penstock.stores.book.sqlite import SqliteBook, watch_changes

FILE = "ledger.db"


def open_book(settings: LedgerSettings, environment: Mapping[str, str], *, readonly: bool = False) -> Book:
    """Open the book. `readonly` opens an existing one only; otherwise it is created if it is missing."""
    if not settings.enabled:
        raise BookError("no ledger is kept: the configuration has enabled = false in [ledger]")
    if settings.postgres is not None:
        from penstock.stores.book.postgres import PostgresBook  # noqa: PLC0415 - few ledgers are there

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


def key_changes(settings: LedgerSettings, environment: Mapping[str, str]) -> Callable[[], bytes] | None:
    """Reads the mark of the last change of keys, without opening the book; None if only a query can tell."""
    if settings.postgres is not None:
        return None
    return watch_changes(state_folder(settings, environment) / FILE)


def archive_folder(settings: LedgerSettings, environment: Mapping[str, str]) -> Path:
    """The folder for archives of old calls."""
    return state_folder(settings, environment) / "archive"


def has_usable_key(settings: LedgerSettings, environment: Mapping[str, str], now_ms: float) -> bool:
    """Whether the book has a usable key. Raises `BookError` if the book cannot be read."""
    if settings.postgres is None and not (state_folder(settings, environment) / FILE).exists():
        return False
    book = open_book(settings, environment, readonly=True)
    try:
        keys = book.keys()
        return any(not key.unusable(now_ms) for key in keys)
    finally:
        book.close()


def state_folder(settings: LedgerSettings, environment: Mapping[str, str]) -> Path:
    """The folder for persistent state: as configured, `PENSTOCK_STATE`, or by the XDG base directory specification."""
    if named := settings.folder or environment.get("PENSTOCK_STATE"):
        return Path(named).expanduser()
    shared = environment.get("XDG_STATE_HOME", "")
    # The XDG specification requires that a relative path is ignored.
    if Path(shared).is_absolute():
        return Path(shared) / "penstock"
    try:
        home = Path(environment["HOME"]) if environment.get("HOME") else Path.home()
    except RuntimeError:
        raise BookError("this user has no home folder: set folder in [ledger], or PENSTOCK_STATE") from None
    return home / ".local" / "state" / "penstock"
