"""Quota: the limits of one account, by which `gateway/limits/` admits calls.

| account | id |
|---|---|
| a key, and a further budget of it | `key_1`, `key_1:day` |
| limits, and a budget, of a team | `team:acme/search`, `team:acme/search:month` |
| limits, and a budget, of an end user of a key or a team | `user:key_1:DIGEST`, `user:team:acme:DIGEST:day` |
| limits, and a budget, of a member of a team | `member:acme/search:DIGEST`, `member:acme/search:DIGEST:month` |
| a key of a provider | `provider/NAME/KEY` |
"""

from hashlib import blake2b
from typing import Literal, TypeAlias

from msgspec import Struct

Period: TypeAlias = Literal["day", "week", "month", "total"]
"""Of the calendar, in UTC; a week starts on Monday."""
# The start of the ids of end users' accounts.
END_USER = "user:"
_DIGEST_BYTES = 16


class RateLimits(Struct, frozen=True, kw_only=True):
    """Limits that need no sum of the book. None is no limit. `gateway/limits/admission.py` checks each of them."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    """The number of concurrent calls."""


class Spender(Struct, frozen=True):
    """Whose calls a budget is for: those of a key, or of a team and all below it; there, of the keys of one member or
    of one end user, if it is given."""

    key: str = ""
    team: str = ""
    user: str = ""
    member: str = ""
    """The id of a user, as the owner of keys is recorded (`owner.py`)."""

    @property
    def account(self) -> str:
        """The id of its account."""
        if self.member:
            return member_account(self.team, self.member)
        account = f"team:{self.team}" if self.team else self.key
        return user_account(account, self.user) if self.user else account


class Quota(RateLimits, frozen=True, kw_only=True):
    """The limits of an account: of a key, a team, an end user, or a provider's key."""

    id: str
    holder: str = "this key"
    """Whose limits these are, in messages for clients."""
    spender: Spender = Spender()
    """Whose calls count for the budget."""
    budget: int | None = None
    """In nanodollars per period."""
    period: Period = "total"


def user_account(account: str, user: str) -> str:
    """The id of the account of an end user of a key or a team."""
    return f"{END_USER}{account}:{_digest(user)}"


def member_account(team: str, member: str) -> str:
    """The id of the account of a member of a team."""
    return f"member:{team}:{_digest(member)}"


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "replace"), digest_size=_DIGEST_BYTES).hexdigest()
