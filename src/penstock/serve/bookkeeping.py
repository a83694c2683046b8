"""Bookkeeping: builds the ledger of one process from its parts: journal, book writer, accounts and client keys."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

from penstock.amounts import clock_ms, dollars
from penstock.errors import BookError, BookUnusableError
from penstock.gateway.billing.ledger import BATCH_S, Ledger
from penstock.gateway.billing.prices import PriceBook, PriceChanges
from penstock.gateway.config import Config, LedgerSettings
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.keys.key_ring import KeyRing, configured
from penstock.gateway.keys.quota import Quota
from penstock.gateway.keys.store import Spent
from penstock.gateway.limits.account import BudgetUse
from penstock.gateway.limits.accounts import Accounts, LocalAccounts
from penstock.gateway.limits.warnings import BudgetWarning, BudgetWatch
from penstock.gateway.record.entry import Entry
from penstock.serve.auth import Authenticator
from penstock.serve.batches import batch_s
from penstock.serve.key_looks import KeyLooks
from penstock.stores.accounts.client import FetchSpent
from penstock.stores.accounts.shared_accounts import SharedAccounts
from penstock.stores.accounts.sqlite import SqliteAccounts, remove_old
from penstock.stores.accounts.storage import Storage
from penstock.stores.book.open import archive_folder, key_changes, open_book, state_folder
from penstock.stores.book.snapshot import LocalSnapshot
from penstock.stores.book.sql_book import Book
from penstock.stores.book.writer import BookWriter, Keys, Retention, SpentAccounts
from penstock.stores.journal import Journal, recover
from penstock.upstream.local.model import RuntimeFolder

# How long the start waits for the keys. If the book cannot be reached by then, the gateway starts without them.
_START_S = 5.0
_CLOSE_S = 5.0
# How often the spending of keys is read from the book, if other machines write to it too.
_REFRESH_S = 5.0
# How long after a call is booked the budgets of its accounts are compared with what is spent.
_CHECK_S = 0.5
_STORE_DOWN = (
    "the store of keys' limits ({}) does not respond: until it does, each process uses its own share (local_share)"
)
_STORE_UP = "the store of keys' limits ({}) responds again"


def check(config: Config, environment: Mapping[str, str]) -> None:
    """Raise `BookError` if the ledger cannot work with this configuration. An unreachable book is accepted."""
    if not config.ledger.enabled:
        return
    Journal(state_folder(config.ledger, environment) / "journal", config.ledger.journal).close()
    try:
        open_book(config.ledger, environment).close()
    except BookUnusableError:
        raise
    except BookError:
        return  # it may become reachable later


class Bookkeeping:
    """The ledger of one process. Used by the event loop's thread."""

    def __init__(self, config: Config, environment: Mapping[str, str], warn: Callable[[str], None]) -> None:
        """Raises `BookError` if the ledger cannot work with this configuration."""
        settings = config.ledger
        folder = state_folder(settings, environment) / "journal"
        prices = PriceBook.load(environment, config.prices, warn, PriceChanges.of(config.finance))
        self._journal = Journal(folder, settings.journal)
        self._warn = warn
        self._shared = _shared_accounts(config, environment)
        open_users = partial(_end_user_accounts, config, environment)
        self._accounts: Accounts = self._shared if self._shared is not None else LocalAccounts(open_users=open_users)
        self._stored: list[ClientKey] = []
        self._stored_ring = KeyRing([])
        self._budgeted: Mapping[str, Quota] = {}
        # By key: its accounts besides its own.
        self._further: Mapping[str, Sequence[str]] = {}
        self._configured: list[ClientKey] = []
        self._team_keys: Mapping[str, ClientKey] = {}
        self._jwt_teams: frozenset[str] = frozenset()
        self.ledger = Ledger(
            self._journal, self._accounts, prices, config.providers, batch_s=batch_s(environment, BATCH_S)
        )
        self.authenticator = Authenticator()
        """Checks clients' keys against those of the configuration and of the book."""
        # Whether the keys of the book have been read. Until then, an unknown key may be a valid one.
        self._keys_known = False
        # Whether a key is required even if there is none any more: removing the book must not disable authentication.
        self._key_required = False
        self.open_book = partial(open_book, settings, environment)
        """Opens the book in another thread, to read it."""
        self._book_writer = BookWriter(
            self.open_book,
            self.ledger.booked,
            self._on_keys,
            warn,
            # Other machines spend too. Without Redis, only the book shows it.
            reread_s=_REFRESH_S if settings.postgres is not None and settings.redis is None else None,
            retention=_retention(settings, environment),
        )
        self._book_writer.on_spent = self._on_spent
        if settings.postgres is not None:
            self._book_writer.snapshot = LocalSnapshot(state_folder(settings, environment))
            # The accounts of one process end with it.
            self._book_writer.snapshot_budgets = self._shared is not None
        self.key_looks = KeyLooks(self._book_writer, key_changes(settings, environment))
        """Reads the keys of the book before a request is judged by keys that may be out of date."""
        self.ledger.book_writer = self._book_writer
        self.ledger.on_booked = self._on_booked
        self._budgets = BudgetWatch()
        # Accounts with a budget in which calls were booked since they were last checked.
        self._unchecked: set[str] = set()
        self._check_timer: asyncio.TimerHandle | None = None
        self.on_warnings: Callable[[], None] | None = None
        """Called when this process has stored budget warnings."""
        self.on_calls_stopped: Callable[[set[str]], None] | None = None
        """Called with the ids of keys whose running calls an administrator stops."""
        self._stopped: Mapping[str, int] | None = None
        self._book_writer.on_warned = self._on_warned
        self.ledger.watch_budgets(self._on_exhausted)
        self.use(config)
        self.orphans: list[Entry] = []
        """Calls that a gateway had not settled when it died."""
        adopted: list[Entry] = []
        for left in recover(folder):
            adopted += self.ledger.adopt(left.settled, left.open, left.last_ms)
            if not self._journal.intact:
                break  # calls that do not fit into our journal stay in theirs until the next start
        self.orphans = [entry for entry in adopted if entry.outcome == "orphaned"]
        try:
            self._book_writer.start(adopted, _START_S)
        except BookError:
            self._journal.close()
            raise

    def use(self, config: Config) -> None:
        """Apply a configuration."""
        self.ledger.providers = config.providers
        self.ledger.secrets = config.secrets()
        self.ledger.prices = PriceBook(self.ledger.prices.table, config.prices, PriceChanges.of(config.finance))
        self._configured = configured(config.server.keys)
        self._budgets.delivery = "waiting" if config.budgets.webhook is not None else "none"
        jwt = config.auth.jwt
        self._jwt_teams = frozenset(jwt.teams.values() if jwt is not None else ())
        # A new one is accepted when the limits of its team are known.
        self._team_keys = {team: key for team, key in self._team_keys.items() if team in self._jwt_teams}
        self._book_writer.use_jwt_teams(self._jwt_teams)
        self._update_authenticator()

    @property
    def can_authenticate(self) -> bool:
        """Whether any key can be accepted by now: the keys of the book are known, those of the local snapshot, or the
        configuration has some."""
        return self._keys_known or bool(self._configured or self._stored)

    def has_usable_key(self) -> bool:
        """Whether any stored key can be used now."""
        return any(not key.unusable(time.time() * 1000) for key in self._stored)

    async def written(self) -> None:
        """Wait until the calls that have been settled are in the book, or cannot be written now."""
        done = asyncio.Event()
        self.ledger.flush()
        self._book_writer.look(lambda _: done.set())
        await done.wait()

    @property
    def trouble(self) -> str:
        """Why the book does not answer; empty while it does."""
        return self._book_writer.trouble

    def state(self) -> dict[str, object]:
        """The state of the ledger, for the admin API."""
        return {
            "enabled": True,
            "ready": self.ledger.ready,
            "degraded": self.ledger.degraded or None,
            "trouble": self.trouble or None,
            "waiting": self._journal.waiting,
        }

    def watch(self, on_commit: Callable[[float], None], on_store: Callable[[str, bool], None]) -> None:
        """Set the callbacks: after each commit of the book with its duration, and when the store of limits goes down or
        comes up again.
        """
        self._book_writer.on_commit = on_commit

        def changed(store: str, up: bool) -> None:
            self._warn(_STORE_UP.format(store) if up else _STORE_DOWN.format(store))
            on_store(store, up)

        if self._shared is not None:
            self._shared.on_change = changed

    @property
    def limits_store(self) -> dict[str, int]:
        """The store of shared limits: 1 or 0 for up or down, by its name. Empty if limits are not shared."""
        return {self._shared.store: 0 if self._shared.degraded else 1} if self._shared is not None else {}

    @property
    def waiting(self) -> tuple[int, int]:
        """How many settled calls are not in the book yet, and how many of them wait because it cannot be written."""
        return self._journal.waiting, self._journal.waiting if self._book_writer.trouble else 0

    def holds(self) -> dict[str, int]:
        """The amounts held for calls that are not booked yet, in nanodollars, by id of their keys that have a budget.

        It is the reserved cost of a call in progress, and the actual cost of one that has ended.
        """
        quotas = [self._budgeted[id] for id in self._accounts.reserving() if id in self._budgeted]
        return {quota.id: amount for quota in quotas if (amount := self._accounts.used(quota).reserved)}

    def key_name(self, id: str) -> str:
        """The name of a stored key; its id if it has none, or is not known."""
        return next((key.name for key in self._stored if key.id == id), "") or id

    def budgets(self) -> dict[tuple[str, str, str], float]:
        """The remaining part of each budget of usable keys and of teams, by kind, name and period. It may be called in
        another thread, because that takes tens of milliseconds for ten thousand keys."""
        return self._budgets.remaining(self._accounts.used, time.time() * 1000)

    async def close(self) -> None:
        """Write the remaining entries to the book, if possible; otherwise they stay in the journal."""
        if self._check_timer is not None:
            self._check_timer.cancel()
        self.ledger.close()
        await asyncio.get_running_loop().run_in_executor(None, self._book_writer.close, _CLOSE_S)
        await asyncio.sleep(0)  # lets the callbacks of the last commit run
        self._journal.close()
        self._accounts.close()

    def _update_authenticator(self) -> None:
        keys = self._stored_ring.with_keys(self._configured)
        closed = self._key_required or bool(self._jwt_teams)
        self.authenticator.use(keys, known=self._keys_known, closed=closed, teams=self._team_keys)

    def _on_keys(self, keys: Keys) -> None:
        self._stored, self._stored_ring, self._budgeted = keys.keys, keys.ring, keys.budgeted
        self._keys_known = self._keys_known or keys.stopped is not None
        self._key_required = self._key_required or bool(self._stored)
        self._team_keys = {key.team: key for key in keys.of_jwts if key.team in self._jwt_teams}
        self._update_authenticator()
        if keys.stopped is not None:
            self._stop_calls(keys.stopped)
        self._further = keys.further
        self._budgets.use(keys.budgets)

    def _on_spent(self, found: SpentAccounts) -> None:
        self._budgets.use(found.budgets)
        for account, spent in found.accounts:
            self._accounts.seed(account, spent)
            self._check_budget(account.id, spent.total)

    def _stop_calls(self, stopped: Mapping[str, int]) -> None:
        """Stop the calls of keys for which that is new to this process. By now, it refuses keys that were blocked."""
        before, self._stopped = self._stopped, stopped
        if before is not None and self.on_calls_stopped is not None:
            self.on_calls_stopped({id for id, at_ms in stopped.items() if before.get(id) != at_ms})

    def _on_booked(self, booked: Sequence[tuple[Entry, Sequence[str]]]) -> None:
        """Read accounts again that were added after these calls were admitted, and so do not count them."""
        if self._further:
            missed = {id for entry, accounts in booked for id in self._further.get(entry.key, ()) if id not in accounts}
            for id in missed:
                self._book_writer.reread(id)
        if self._budgets:
            self._unchecked.update(id for _, accounts in booked for id in accounts if id in self._budgets)
            if self._unchecked and self._check_timer is None:
                self._check_timer = asyncio.get_running_loop().call_later(_CHECK_S, self._check_budgets)

    def _check_budgets(self) -> None:
        """Compare what is spent with the budgets of accounts in which calls were booked.

        Shared accounts may not have counted these calls yet. So an account with reservations is checked again.
        """
        self._check_timer = None
        for id in tuple(self._unchecked):
            account = self._budgets.account(id)
            used = self._accounts.used(account) if account is not None else BudgetUse()
            if not used.reserved:
                self._unchecked.discard(id)
            if used.spent is not None:
                self._check_budget(id, used.spent)
        if self._unchecked:
            self._check_timer = asyncio.get_running_loop().call_later(_CHECK_S, self._check_budgets)

    def _check_budget(self, id: str, spent: int, *, refused: bool = False) -> None:
        if warnings := self._budgets.check(id, spent, clock_ms(), refused=refused):
            self._book_writer.warn(warnings)

    def _on_exhausted(self, id: str) -> None:
        """A call was refused. While the store of limits is down, this process refuses more than it should."""
        account = self._budgets.account(id)
        if account is not None and not self._accounts.degraded:
            self._check_budget(id, self._accounts.used(account).spent or 0, refused=True)

    def _on_warned(self, warnings: Sequence[BudgetWarning]) -> None:
        for warning in warnings:
            whose = f"{warning.kind} {warning.title}"
            what = f"calls of {whose} are refused" if warning.refused else f"the {whose} has spent {warning.percent} %"
            self._warn(
                f"{what}: {dollars(warning.spent)} of its budget of {dollars(warning.budget)} for {warning.label}"
            )
        if self.on_warnings is not None:
            self.on_warnings()


def _retention(settings: LedgerSettings, environment: Mapping[str, str]) -> Retention | None:
    """How long calls and their sums are kept; None if for good."""
    if settings.keep_days is None:
        return None
    return Retention(archive_folder(settings, environment), settings.keep_days, settings.keep_sums_days)


def _spent_query(open_book: Callable[[], Book]) -> FetchSpent:
    """Queries the book for what was spent. Used by one thread: the one that calls it first, which opens the book."""
    opened = cache(open_book)
    return lambda who, since_ms, recent_since_ms: opened().spent(who, since_ms, recent_since_ms=recent_since_ms)


def _shared_accounts(config: Config, environment: Mapping[str, str]) -> SharedAccounts | None:
    """The accounts of keys that this process shares with other workers or machines; None if it shares none."""
    settings = config.ledger
    if settings.redis is None and config.server.workers == 1:
        return None
    query = _spent_query(partial(open_book, settings, environment))
    return SharedAccounts(shared_storage(config, environment), query, _share(config))


def _end_user_accounts(config: Config, environment: Mapping[str, str]) -> SharedAccounts:
    """The accounts of end users of a gateway that is one process. Older ones are removed: the book has the sums."""
    folder = state_folder(config.ledger, environment)
    remove_old(folder)
    query = _spent_query(partial(open_book, config.ledger, environment))
    return SharedAccounts(SqliteAccounts(folder), query, 1.0)


def own_accounts(config: Config, home: RuntimeFolder) -> Accounts:
    """The accounts of providers' keys for a gateway without a ledger. Its workers share them."""
    if config.server.workers == 1:
        return LocalAccounts()
    return SharedAccounts(
        SqliteAccounts(home.subfolder("limits")),
        lambda *_: Spent(total=0, recent=frozenset()),
        1 / config.server.workers,
    )


def _share(config: Config) -> float:
    """The share of each limit that this process uses while the storage does not answer. Without Redis, the workers of
    this gateway are all that share it."""
    share = config.ledger.local_share
    return share if config.ledger.redis is not None else min(share, 1 / config.server.workers)


def shared_storage(config: Config, environment: Mapping[str, str]) -> Storage:
    """The storage for shared accounts. Raises `ConfigError` if the configuration of it is invalid."""
    if config.ledger.redis is None:
        return SqliteAccounts(state_folder(config.ledger, environment))
    from penstock.stores.accounts.redis import RedisAccounts  # noqa: PLC0415 - an extra

    return RedisAccounts(config.ledger.redis)
