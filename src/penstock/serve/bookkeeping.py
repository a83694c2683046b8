"""Bookkeeping: the ledger of one process, put together: its journal, scribe and accounts, and the keys of clients."""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial

from penstock.errors import BookError, BookUnusableError
from penstock.gateway.billing.book import Book, Spent
from penstock.gateway.billing.entry import Entry
from penstock.gateway.billing.ledger import Ledger
from penstock.gateway.billing.prices import PriceBook
from penstock.gateway.config import Config
from penstock.gateway.keys.keys import Key, KeyRing, configured
from penstock.gateway.limits.accounts import Accounts, LocalAccounts
from penstock.serve.auth import Authenticator
from penstock.stores.accounts.shared_accounts import SharedAccounts
from penstock.stores.accounts.sqlite import SqliteAccounts
from penstock.stores.accounts.storage import Storage
from penstock.stores.book.open import open_book, state_folder
from penstock.stores.book.writer import BookWriter, Keys
from penstock.stores.journal import Journal, recover

# How long a start waits for the keys: a book that cannot be reached by then is waited for beside the calls.
_START_S = 5.0
_CLOSE_S = 5.0
# How often the book is asked what keys have spent, where other machines may write it too.
_AGAIN_S = 5.0
_LOST = (
    "the store of keys' limits ({}) does not answer: each process goes by its share of them (local_share) until it does"
)
_FOUND = "the store of keys' limits ({}) answers again"


def check(config: Config, environment: Mapping[str, str]) -> None:
    """Raises `BookError` where no ledger can be kept as the configuration says, now or later."""
    if not config.ledger.enabled:
        return
    Journal(state_folder(config.ledger, environment) / "journal", config.ledger.journal).close()
    try:
        open_book(config.ledger, environment).close()
    except BookUnusableError:
        raise
    except BookError:
        return  # it is waited for


class Bookkeeping:
    """The ledger of one process. Belongs to its event loop."""

    def __init__(self, config: Config, environment: Mapping[str, str], say: Callable[[str], None]) -> None:
        """Raises `BookError` where no ledger can be kept as the configuration says."""
        settings = config.ledger
        folder = state_folder(settings, environment) / "journal"
        prices = PriceBook.load(environment, config.prices, say)
        self._journal = Journal(folder, settings.journal)
        self._say = say
        self._shared = _shared_accounts(config, environment)
        self._accounts: Accounts = self._shared if self._shared is not None else LocalAccounts()
        self._stored: list[Key] = []
        self._configured: list[Key] = []
        self.ledger = Ledger(self._journal, self._accounts, prices, config.providers)
        self.door = Authenticator()
        """Where clients show their keys."""
        # Whether the book has told its keys: until then nobody can tell who else is to be let in.
        self._keys_known = False
        # Whether a key is needed, even if there is none any more: a book that is moved away opens no door.
        self._closed = False
        self._scribe = BookWriter(
            partial(open_book, settings, environment),
            self.ledger.booked,
            self._take_keys,
            say,
            # Other machines spend too. Where nothing else tells of it, the book does.
            again_s=_AGAIN_S if settings.postgres is not None and settings.redis is None else None,
        )
        self.ledger.scribe = self._scribe
        self.use(config)
        self.orphans: list[Entry] = []
        """Calls that gateways had not settled which died."""
        adopted: list[Entry] = []
        for left in recover(folder):
            adopted += self.ledger.adopt(left.settled, left.open, left.last_ms)
            if not self._journal.sound:
                break  # what does not fit into our journal stays in its own, for the next start
        self.orphans = [entry for entry in adopted if entry.outcome == "orphaned"]
        try:
            self._scribe.start(adopted, _START_S)
        except BookError:
            self._journal.close()
            raise

    def use(self, config: Config) -> None:
        """Go by this configuration from now on."""
        self.ledger.providers = config.providers
        self.ledger.secrets = config.secrets()
        self.ledger.prices = PriceBook(self.ledger.prices.table, config.prices)
        self._configured = configured(config.server.keys)
        self._show_keys()

    @property
    def lets_in(self) -> bool:
        """Whether anybody may be let in by now: the book has told its keys, or the configuration has some."""
        return self._keys_known or bool(self._configured)

    def has_living_key(self) -> bool:
        """Whether a stored key opens anything now."""
        return any(not key.unusable(time.time() * 1000) for key in self._stored)

    def state(self) -> dict[str, object]:
        """How the ledger is, for the admin API."""
        return {
            "enabled": True,
            "ready": self.ledger.ready,
            "degraded": self.ledger.degraded or None,
            "trouble": self._scribe.trouble or None,
            "waiting": self._journal.waiting,
        }

    def watch(self, on_commit: Callable[[float], None], on_store: Callable[[str, bool], None]) -> None:
        """Have somebody told how long the book takes for entries; and that the store of keys' limits has gone, or come
        back.
        """
        self._scribe.on_commit = on_commit

        def changed(store: str, up: bool) -> None:
            self._say(_FOUND.format(store) if up else _LOST.format(store))
            on_store(store, up)

        if self._shared is not None:
            self._shared.on_change = changed

    @property
    def limits_store(self) -> dict[str, int]:
        """The store through which keys' limits are shared, if they are: whether it answers, 1 or 0, by its name."""
        return {self._shared.store: 0 if self._shared.degraded else 1} if self._shared is not None else {}

    @property
    def waiting(self) -> tuple[int, int]:
        """How many calls are over that the book does not hold yet, and how many of them wait because it cannot."""
        return self._journal.waiting, self._journal.waiting if self._scribe.trouble else 0

    def holds(self) -> dict[str, int]:
        """What is held for calls of each key that has a budget, in nanodollars, by the keys' ids."""
        return {key.id: self._accounts.held(key) for key in self._stored if key.budget is not None}

    def budgets(self) -> dict[str, float]:
        """Which part of its budget each key has left that is in use, by the keys' ids."""
        now = time.time() * 1000
        parts = {key.id: self._accounts.left(key) for key in self._stored if key.budget and not key.unusable(now)}
        return {id: part for id, part in parts.items() if part is not None}

    async def close(self) -> None:
        """Book what is still to be booked, if that is possible now; else the journal keeps it for the next start."""
        self.ledger.hand_over()
        await asyncio.get_running_loop().run_in_executor(None, self._scribe.close, _CLOSE_S)
        await asyncio.sleep(0)  # what was booked last is told by the loop
        self._journal.close()
        self._accounts.close()

    def _show_keys(self) -> None:
        keys = KeyRing([*self._configured, *self._stored])
        self.door.use(keys, known=self._keys_known, closed=self._closed)

    def _take_keys(self, keys: Keys) -> None:
        self._stored = keys.keys
        self._keys_known = True
        self._closed = self._closed or bool(self._stored)
        self._show_keys()
        for key in keys.keys:
            if key.id in keys.spent:
                self._accounts.seed(key, keys.spent[key.id])


class _SpentQuery:
    """Asks the book what a key has spent. Belongs to the thread that asks first."""

    def __init__(self, open_book: Callable[[], Book]) -> None:
        self._open_book = open_book
        self._book: Book | None = None

    def __call__(self, key: Key, since_ms: int, recent_since_ms: int) -> Spent:
        if self._book is None:
            self._book = self._open_book()
        return self._book.spent(key.id, since_ms, recent_since_ms=recent_since_ms)


def _shared_accounts(config: Config, environment: Mapping[str, str]) -> SharedAccounts | None:
    """The accounts of keys that this process shares with its siblings, or with other machines; None if with nobody."""
    settings = config.ledger
    if settings.redis is None and config.server.workers == 1:
        return None
    ask = _SpentQuery(partial(open_book, settings, environment))
    return SharedAccounts(shared_storage(config, environment), ask, settings.local_share)


def shared_storage(config: Config, environment: Mapping[str, str]) -> Storage:
    """Where processes share their accounts. Raises `ConfigError` where that cannot be as the configuration says."""
    if config.ledger.redis is None:
        return SqliteAccounts(state_folder(config.ledger, environment))
    from penstock.stores.accounts.redis import RedisAccounts  # noqa: PLC0415 - an extra

    return RedisAccounts(config.ledger.redis)
