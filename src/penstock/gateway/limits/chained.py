"""ChainedAccounts: reserves a call in several accounts, all or none.

The accounts are asked one after another, in a fixed order. If one denies, the reservations in those before it are
released. Until then they count, so that another call may be denied that would have fitted a moment later; but no limit
is ever exceeded. What a call may cost is what all of its accounts have granted: the least of these amounts.
"""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import structs

from penstock.gateway.keys.quota import Quota
from penstock.gateway.limits.accounts import Accounts
from penstock.gateway.limits.admission import Decision, Denial, Gauge, Grant, Reservation


class ChainedAccounts:
    """Reserves and extends in several accounts."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def reserve(self, chain: Sequence[Quota], reservation: Reservation, then: Callable[[Decision], None]) -> None:
        """Admit a call in all accounts of a chain, or in none."""
        self._reserve_next(chain, reservation, None, then)

    def _reserve_next(
        self,
        chain: Sequence[Quota],
        reservation: Reservation,
        before: Grant | None,
        then: Callable[[Decision], None],
        at: int = 0,
    ) -> None:
        def decided(answer: Decision) -> None:
            if isinstance(answer, Denial):
                for account in chain[:at]:
                    self._accounts.release(account.id, reservation.id, undo=True)
                then(answer)
                return
            granted = _least(before, answer)
            if at + 1 == len(chain):
                then(granted)
            else:
                rest = structs.replace(reservation, cost=granted.cost) if granted.cost else reservation
                self._reserve_next(chain, rest, granted, then, at + 1)

        self._accounts.reserve(chain[at], reservation, decided)

    def extend(
        self,
        chain: Sequence[Quota],
        id: str,
        cost: int,
        tokens: int,
        then: Callable[[Decision], None],
        before: Grant | None = None,
    ) -> None:
        """Raise the reservation of a running call to this total in all accounts of a chain.

        If one denies, those before it keep what they have granted, until the call is settled.
        """
        self._accounts.extend(chain[0], id, cost, tokens, partial(self._extended, chain, id, tokens, before, then))

    def _extended(
        self,
        chain: Sequence[Quota],
        id: str,
        tokens: int,
        before: Grant | None,
        then: Callable[[Decision], None],
        answer: Decision,
    ) -> None:
        if isinstance(answer, Denial):
            then(answer)
            return
        granted = _least(before, answer)
        if len(chain) == 1:
            then(granted)
        else:
            self.extend(chain[1:], id, granted.cost, tokens, then, granted)

    def release(self, chain: Sequence[Quota], id: str) -> None:
        """Remove the reservation of a call that has ended without cost."""
        for account in chain:
            self._accounts.release(account.id, id)


def _least(first: Grant | None, second: Grant) -> Grant:
    """What two accounts grant together."""
    if first is None:
        return second
    return Grant(
        _lower(first.requests, second.requests), _lower(first.tokens, second.tokens), min(first.cost, second.cost)
    )


def _lower(first: Gauge | None, second: Gauge | None) -> Gauge | None:
    if first is None or second is None:
        return first or second
    return first if first.remaining <= second.remaining else second
