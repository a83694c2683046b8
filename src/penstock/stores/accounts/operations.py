"""Operation: a change of an account, as a value, so that it can be queued and applied again after a conflict."""

from typing import TypeAlias

from msgspec import Struct

from penstock.gateway.keys.quota import Quota
from penstock.gateway.limits.account import Account, book, release, settle
from penstock.gateway.limits.admission import Decision, Reservation, extend, reserve


class Reserve(Struct, frozen=True):
    """Admit a call."""

    quota: Quota
    reservation: Reservation

    @property
    def id(self) -> str:
        """The id of the call."""
        return self.reservation.id


class Extend(Struct, frozen=True):
    """Raise the hold of a running call to this total."""

    quota: Quota
    id: str
    cost: int
    tokens: int
    now: int


class Settle(Struct, frozen=True):
    """Record the final cost of a call that has ended."""

    id: str
    cost: int
    tokens: int
    now: int


class Release(Struct, frozen=True):
    """Remove the hold of a call that has ended without cost; with `undo`, it does not count as a request either."""

    id: str
    now: int
    undo: bool = False


class Booked(Struct, frozen=True):
    """Turn a hold into spending: the call's entry is in the ledger."""

    id: str
    now: int


class Invalidate(Struct, frozen=True):
    """Mark the account as stale, because the quota is new or has changed: it is seeded again."""

    quota: Quota
    id: str = ""


Operation: TypeAlias = Reserve | Extend | Settle | Release | Booked | Invalidate


def apply_operation(account: Account, operation: Operation, quota: Quota | None = None) -> Decision | None:
    """Apply an operation to an account. `quota` is used instead of the operation's own, if it is given."""
    match operation:
        case Reserve():
            return reserve(account, quota or operation.quota, operation.reservation)
        case Extend(own, id, cost, tokens, now):
            return extend(account, quota or own, id, cost, tokens, now)
        case Settle(id, cost, tokens, now):
            settle(account, id, cost, tokens, now)
        case Release(id, now, undo):
            release(account, id, now, undo=undo)
        case Booked(id, now):
            book(account, (id,), now)
        case Invalidate():
            account.stale = True
    return None
