"""SharedAccountClient: how one of several processes changes shared accounts. `shared_accounts.py` runs it in a thread.

It loads an account, does what is to be done, and swaps it in; if another process was faster, it begins again with what
that one left. It remembers its own holds (`AccountView.mine`) until they are booked, because a storage may lose them:

| what it finds | what it does |
|---|---|
| no account | makes one, seeded from the ledger, with its own holds |
| an account of another generation: somebody made it anew | puts its own holds back, but not those in the seed |
| an account that is stale, or of a period that it has no sum of | asks the ledger for the sum |
| the storage fails | goes on alone, see below; then asks the ledger for the sum, and puts its own holds back |

The ledger is asked between loading and swapping. So a call that is booked meanwhile is either in the sum, by its name
too; or it is booked after the swap, and its hold is there. No call counts twice, and none is lost.

*Alone*, it has the last it saw of the account, with the sum that the ledger knows, and takes no more than a share of
what is left there of each limit. What it does goes into an account of its own. Calls that are booked meanwhile are in
the ledger, which is asked afterwards.
"""

import random
import secrets
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct, field, structs

from penstock.errors import BookError
from penstock.gateway.billing.book import Spent
from penstock.gateway.keys.keys import Key
from penstock.gateway.limits.account import SEED_IDS_MS, Account, Hold, rehold, seed, touch, unhold, wants_seed
from penstock.gateway.limits.admission import Answer, Denial, portion
from penstock.gateway.limits.period import span
from penstock.stores.accounts.operations import Booked, Extend, Invalidate, Operation, Release, Reserve, perform
from penstock.stores.accounts.storage import Found, Storage, StorageError

# Asks the ledger for a key's sum since a time, and for the ids of its calls that ended after another: `Book.spent`.
Seed: TypeAlias = Callable[[Key, int, int], Spent]

# Each try fails only because another process got its own done. After the first few, they make room for one another.
_TRIES = 200
_PATIENT_TRIES = 3
_ROOM_S = 0.002
# How long a ledger that does not answer is left alone.
_LEDGER_AGAIN_MS = 1000
_WAIT_S = 5.0
# So many accounts are looked at in one go: each takes a tenth of a millisecond, and calls wait meanwhile.
_MOST_WATCHED = 200


class OfflineState(Struct):
    """What a process goes by while it cannot reach the storage: the last it saw, and what it did since."""

    base: Account
    own: Account


class AccountView(Struct):
    """What this process knows of one account."""

    key: Key | None = None
    found: Found = None
    generation: str = ""
    mine: dict[str, Hold] = field(default_factory=dict)
    """Holds of this process that are not booked yet."""
    doubtful: set[str] = field(default_factory=set)
    """Calls that may be held in the storage since an outage. They have no place there unless they are in `mine`."""
    outage: int = 0
    """The last outage after which it was put right."""
    alone: OfflineState | None = None


class SharedAccountClient:
    """Does operations on shared accounts, and goes on without the storage if it must."""

    def __init__(self, storage: Storage, ask: Seed, share: float, clock: Callable[[], int]) -> None:
        self._storage = storage
        self._ask = ask
        self._share = share
        self._clock = clock
        self._views: dict[str, AccountView] = {}
        # Keys in whose account something was held when it was seen last; first who was not looked at for longest.
        self._holding: dict[str, None] = {}
        self._outages = 0
        self._ledger_again = 0
        self.degraded = ""
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(Account).decode

    def apply(self, key_id: str, operations: Sequence[Operation]) -> list[Answer | None]:
        """Do these, in their order, and say what came of each."""
        view = self._views.get(key_id)
        if view is None:
            view = self._views[key_id] = AccountView(outage=self._outages)
        for operation in operations:
            if isinstance(operation, Reserve | Extend | Invalidate):
                view.key = operation.key
        if not self.degraded:
            try:
                return self._together(key_id, view, operations)
            except StorageError:
                view.doubtful.update(operation.id for operation in operations if isinstance(operation, Reserve))
                self._lose()
        return self._go_alone(view, operations)

    def recover(self) -> None:
        """The storage answers again: put back what it may have lost. If it fails once more, nothing is lost by that."""
        self.degraded = ""
        for key_id, view in list(self._views.items()):
            if not self.degraded and view.outage != self._outages and (view.mine or view.doubtful):
                self.apply(key_id, ())

    @property
    def holding(self) -> bool:
        """Whether something was held in an account when it was seen last."""
        return bool(self._holding)

    def watch(self) -> None:
        """Look again at accounts in which something is held: others may have let go of it, for `seen` to tell; and the
        storage may have lost what is held here for calls that take long, which the others need to know of.
        """
        for key_id in list(self._holding)[:_MOST_WATCHED]:
            if self.degraded:
                return
            view = self._views[key_id]
            try:
                found = self._storage.load(key_id)
            except StorageError:
                self._lose()
                return
            if found is None or view.found is None or found[0] != view.found[0]:
                account = self._read(found)
                if view.mine and (account is None or account.generation != view.generation):
                    self.apply(key_id, ())
                    continue
                view.found = found
                self._note(key_id, account)
            else:
                self._holding[key_id] = self._holding.pop(key_id)  # the others are next

    def check(self) -> None:
        """Find out whether the storage answers, while no call would tell."""
        if not self.degraded:
            try:
                self._storage.load("")
            except StorageError:
                self._lose()

    def seen(self, key_id: str) -> Account | None:
        """The account as it was when it was used last. May be asked from any thread."""
        view = self._views.get(key_id)
        return self._read(view.found) if view is not None else None

    def forget(self, key_id: str) -> None:
        """The key is gone."""
        self._views.pop(key_id, None)
        self._holding.pop(key_id, None)

    def _lose(self) -> None:
        """The storage does not answer."""
        self._outages += 1
        self.degraded = self._storage.name

    def _note(self, key_id: str, account: Account | None) -> None:
        """This account was seen."""
        self._holding.pop(key_id, None)
        if account is not None and account.held:
            self._holding[key_id] = None

    def _together(self, key_id: str, view: AccountView, operations: Sequence[Operation]) -> list[Answer | None]:
        found = view.found or self._storage.load(key_id)
        for tried in range(_TRIES):
            account = self._read(found)
            if account is None:
                if view.key is None:
                    return [None] * len(operations)  # whoever needs the account will seed it
                account = Account(generation=secrets.token_hex(8))
            mine, answers = self._attempt(view, account, operations)
            version, data = secrets.token_bytes(8), self._encode(account)
            swapped, found = self._storage.swap(key_id, found[0] if found else None, version, data)
            if swapped:
                view.found, view.generation, view.mine = (version, data), account.generation, mine
                view.outage, view.alone = self._outages, None
                view.doubtful.clear()
                self._note(key_id, account)
                return answers
            if tried >= _PATIENT_TRIES:
                time.sleep(random.random() * _ROOM_S)
        raise StorageError("others were faster each time")

    def _read(self, found: Found) -> Account | None:
        """The account, unless there is none, or one that another version wrote."""
        if found is None:
            return None
        try:
            return self._decode(found[1])
        except msgspec.MsgspecError:
            return None

    def _attempt(
        self, view: AccountView, account: Account, operations: Sequence[Operation]
    ) -> tuple[dict[str, Hold], list[Answer | None]]:
        suspect = view.outage != self._outages
        lost = suspect or account.generation != view.generation
        touch(account, self._clock())
        if suspect:
            unhold(account, view.doubtful - view.mine.keys())
            account.stale = True
        missing = self._seed(account, view.key)
        if lost:
            rehold(account, view.mine)
        mine = dict(view.mine)
        answers: list[Answer | None] = []
        for operation in operations:
            id = operation.id
            if id in mine and id not in account.held:
                rehold(account, {id: mine[id]})
            if missing is not None and isinstance(operation, Reserve):
                answers.append(missing)
                continue
            answers.append(perform(account, operation))
            _remember(mine, id, account)
        return mine, answers

    def _seed(self, account: Account, key: Key | None) -> Denial | None:
        """Ask the ledger, if need be. The denial is for those who want to spend what nobody knows the rest of."""
        now = self._clock()
        if key is None or not wants_seed(account, key, now):
            return None
        period = span(key.period, now)
        if now >= self._ledger_again:
            try:
                seed(account, period, self._ask(key, period.since, now - SEED_IDS_MS), now)
            except BookError:
                self._ledger_again = now + _LEDGER_AGAIN_MS
        if period.label in account.spent:
            return None
        message = "the ledger does not say what is left of this key's budget: try again in a few seconds"
        return Denial(limit="ledger", code="ledger_unavailable", message=message, retry_after_s=_WAIT_S)

    def _go_alone(self, view: AccountView, operations: Sequence[Operation]) -> list[Answer | None]:
        if view.alone is None:
            seen = self._read(view.found)
            base = seen if seen is not None else Account()
            base.stale = True  # others have spent since: the ledger knows what, if it can be asked
            self._seed(base, view.key)
            if seen is None:
                rehold(base, view.mine)
            view.alone, view.found = OfflineState(base, Account()), None
        return [self._do_alone(view, view.alone, operation) for operation in operations]

    def _do_alone(self, view: AccountView, alone: OfflineState, operation: Operation) -> Answer | None:
        id, answer = operation.id, None
        account = alone.base if id in alone.base.held else alone.own
        if isinstance(operation, Reserve) and account is alone.own:
            missing = self._seed(alone.base, operation.key)
            if missing is not None:
                return missing
            key, now = operation.key, operation.demand.now
            alone.own.spent.setdefault(span(key.period, now).label, 0)
            answer = perform(alone.own, operation, portion(alone.base, key, self._share, now))
            if isinstance(answer, Denial):
                answer = self._explained(answer)
        elif isinstance(operation, Extend) and account is alone.own:
            key, now = operation.key, operation.now
            answer = perform(alone.own, operation, portion(alone.base, key, self._share, now))
        else:
            answer = perform(account, operation)
        if isinstance(operation, Booked | Release) and account is alone.base:
            view.doubtful.add(id)
        _remember(view.mine, id, account)
        return answer

    def _explained(self, denial: Denial) -> Denial:
        message = "the gateway cannot reach what it shares this key's limits through, and may use only a part of them"
        wait = _WAIT_S if denial.retry_after_s is None else min(denial.retry_after_s, _WAIT_S)
        return structs.replace(denial, message=f"{message}: try again in a few seconds", retry_after_s=wait)


def _remember(mine: dict[str, Hold], id: str, account: Account) -> None:
    hold = account.held.get(id)
    if hold is not None:
        mine[id] = hold
    else:
        mine.pop(id, None)
