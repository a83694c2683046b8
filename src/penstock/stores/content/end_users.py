"""EndUsers: the pseudonyms of the end users that one process has seen lately. Used in its event loop.

The first call of a user waits for the store, for some milliseconds: users that appear meanwhile are looked up
together. Later calls of the user find its pseudonym here. If the store does not answer within `_WAIT_S`, or fails, the
call gets a new pseudonym all the same, which is added to the user's pseudonyms once the store answers; until then no
other call waits. So no call fails or waits for long because of this, no name is written anywhere but to the store, and
no entry loses its user.

An erasure by any process is noticed within `_CHECK_S`: the user's next call gets a new pseudonym.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from penstock.stores.content.sql_content import SqlContent
from penstock.stores.content.sql_users import ClaimedPseudonyms

PREFIX = "u_"
# The users that are remembered; the oldest is dropped. The same number can wait for the store.
MAX_KNOWN = 10_000
_RANDOM_BYTES = 12
# As long as it may take to connect to a database for the first time.
_WAIT_S = 2.0
_RETRY_S = 2.0
_CHECK_S = 1.0
# A pseudonym is read again after this time, so that the store knows that it is in use.
_FRESH_S = 86_400.0
# Users in one transaction.
_BATCH = 500

T = TypeVar("T")


class Submit(Protocol):
    """Runs work with the content store in a thread, then calls `then` in the event loop."""

    def __call__(self, work: Callable[[SqlContent], T], then: Callable[[T | Exception], None]) -> None: ...


class _KnownUser(Struct, frozen=True):
    pseudonym: str
    read_s: float


class _PendingUser(Struct, eq=False):
    """A user whose pseudonym the store has not confirmed. `used`: whether calls have got it all the same."""

    pseudonym: str
    waiting: list[Callable[[str], None]]
    used: bool = False
    timer: asyncio.TimerHandle | None = None

    def take_waiting(self) -> list[Callable[[str], None]]:
        """The calls that wait, which then wait no more. The timer is cancelled: it would keep the user in memory."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        waiting, self.waiting = self.waiting, []
        return waiting


class EndUsers:
    """Finds the pseudonyms of users, by the names that clients give them."""

    def __init__(self, submit: Submit) -> None:
        self._loop = asyncio.get_running_loop()
        self._submit = submit
        self._known: dict[str, _KnownUser] = {}
        self._pending: dict[str, _PendingUser] = {}
        # Names by the pseudonyms that calls got while the store did not answer, and that the store does not have yet.
        self._further: dict[str, str] = {}
        self._asking = False
        self._failing = False
        self._erasures = 0
        self._check_timer: asyncio.TimerHandle | None = None

    def known(self, name: str) -> str:
        """The pseudonym of a user, if it is known; otherwise empty."""
        found = self._known.get(name)
        if found is None or self._loop.time() - found.read_s > _FRESH_S:
            return ""
        return found.pseudonym

    def close(self) -> None:
        """Ask no more for erasures."""
        if self._check_timer is not None:
            self._check_timer.cancel()

    def find(self, name: str, then: Callable[[str], None]) -> None:
        """Call `then` with the pseudonym of a user, now or soon."""
        pending = self._pending.get(name)
        if pending is None:
            if len(self._pending) + len(self._further) >= MAX_KNOWN:
                then(_new())  # the store has failed for long: this name is never written
                return
            pending = self._pending[name] = _PendingUser(_new(), [])
        if self._failing or pending.used:
            pending.used = True
            then(pending.pseudonym)
        else:
            if not pending.waiting:
                pending.timer = self._loop.call_later(_WAIT_S, self._give_up, pending)
            pending.waiting.append(then)
        self._ask()

    def forget(self) -> None:
        """Forget all users: one was erased, or the store was replaced."""
        self._known.clear()

    @property
    def size(self) -> int:
        """How many users are remembered."""
        return len(self._known) + len(self._pending) + len(self._further)

    def _ask(self) -> None:
        """Look up the users that wait, unless a query is under way or has just failed."""
        if self._asking or not (self._pending or self._further):
            return
        self._asking = True
        proposed = {name: pending.pseudonym for name, pending in islice(self._pending.items(), _BATCH)}
        further = dict(self._further)
        self._submit(
            lambda store: store.users.claim(proposed, further), partial(self._on_claimed, further, [*proposed])
        )

    def _on_claimed(self, further: Mapping[str, str], names: list[str], claimed: ClaimedPseudonyms | Exception) -> None:
        if isinstance(claimed, Exception):
            self._failing = True
            for pending in list(self._pending.values()):
                self._release(pending)
            self._loop.call_later(_RETRY_S, self._retry)
            return
        self._asking = self._failing = False
        self._check(claimed.erasures)
        for id in further:
            self._further.pop(id, None)
        for name in names:
            self._confirm(name, claimed.by_name[name])
        self._ask()
        if self._check_timer is None:
            self._check_timer = self._loop.call_later(_CHECK_S, self._ask_for_erasures)

    def _confirm(self, name: str, pseudonym: str) -> None:
        pending = self._pending.pop(name)
        if pending.used and pending.pseudonym != pseudonym:
            self._further[pending.pseudonym] = name
        self._known.pop(name, None)
        if len(self._known) >= MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[name] = _KnownUser(pseudonym, self._loop.time())
        for then in pending.take_waiting():
            then(pseudonym)

    def _give_up(self, pending: _PendingUser) -> None:
        self._failing = True
        self._release(pending)

    def _release(self, pending: _PendingUser) -> None:
        """The store does not answer: let the calls continue that wait."""
        waiting = pending.take_waiting()
        pending.used = pending.used or bool(waiting)
        for then in waiting:
            then(pending.pseudonym)

    def _retry(self) -> None:
        self._asking = False
        self._ask()

    def _ask_for_erasures(self) -> None:
        self._check_timer = None
        if self._known and not self._failing:
            self._submit(lambda store: store.users.erasures(), self._on_erasures)

    def _on_erasures(self, erasures: Any) -> None:
        if not isinstance(erasures, Exception):
            self._check(erasures)
        if self._check_timer is None:
            self._check_timer = self._loop.call_later(_CHECK_S, self._ask_for_erasures)

    def _check(self, erasures: int) -> None:
        if erasures != self._erasures:
            self._erasures = erasures
            self.forget()


def user_subject(name: str) -> str:
    """How an act on an end user names it: by its pseudonym. A name would outlive the user's erasure here."""
    return name if name.startswith(PREFIX) else "(given by name)"


def _new() -> str:
    return PREFIX + secrets.token_hex(_RANDOM_BYTES)
