"""Operation: what is to be done to an account, as a value, so that it can wait, and be done once more."""

from typing import TypeAlias

from msgspec import Struct

from penstock.gateway.keys.keys import Key
from penstock.gateway.limits.account import Account, book, release, settle
from penstock.gateway.limits.admission import Answer, Reservation, extend, reserve


class Reserve(Struct, frozen=True):
    """Admit a call."""

    key: Key
    demand: Reservation

    @property
    def id(self) -> str:
        """The call's."""
        return self.demand.id


class Extend(Struct, frozen=True):
    """Hold this much in all for a running call."""

    key: Key
    id: str
    cost: int
    tokens: int
    now: int


class Settle(Struct, frozen=True):
    """A call is over."""

    id: str
    cost: int
    tokens: int
    now: int


class Release(Struct, frozen=True):
    """A call is over, and took nothing."""

    id: str
    now: int


class Booked(Struct, frozen=True):
    """A call is in the ledger."""

    id: str
    now: int


class Invalidate(Struct, frozen=True):
    """The key is new, or has changed."""

    key: Key
    id: str = ""


Operation: TypeAlias = Reserve | Extend | Settle | Release | Booked | Invalidate


def perform(account: Account, operation: Operation, key: Key | None = None) -> Answer | None:
    """Do it. `key` has the limits to go by, if they are not those of the operation's own key."""
    match operation:
        case Reserve():
            return reserve(account, key or operation.key, operation.demand)
        case Extend(own, id, cost, tokens, now):
            return extend(account, key or own, id, cost, tokens, now)
        case Settle(id, cost, tokens, now):
            settle(account, id, cost, tokens, now)
        case Release(id, now):
            release(account, id, now)
        case Booked(id, now):
            book(account, (id,), now)
        case Invalidate():
            account.stale = True
    return None
