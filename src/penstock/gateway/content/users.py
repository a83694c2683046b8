"""UserStore: the port of the table that maps end users to their pseudonyms. It is a part of the content store.

An end user is the person that a client names in a request (`user`, or the dialect's own field). The ledger and its
archives have only the pseudonym, which is random: without this table it leads to no one. So erasing a user here covers
every copy of the ledger. A user has one pseudonym, and further ones only if calls got them while the store did not
answer.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct


class Pseudonym(Struct, frozen=True):
    """A pseudonym, the name of its user, and when it was first and last used, in milliseconds since 1970.

    The time of the last use is accurate to a day.
    """

    id: str
    name: str
    at_ms: int
    used_ms: int


class ClaimedPseudonyms(Struct, frozen=True):
    """The pseudonyms of users, by name. `erasures` is a number that changes with each erasure."""

    by_name: Mapping[str, str]
    erasures: int


class ErasedUser(Struct, frozen=True):
    """What was erased: the pseudonyms of the user, and the number of kept records."""

    pseudonyms: tuple[str, ...]
    records: int


class UserStore(Protocol):
    """The users in an open content store. It blocks, so only threads use it. Failures raise `BookError`."""

    def claim(self, proposed: Mapping[str, str], further: Mapping[str, str]) -> ClaimedPseudonyms:
        """The pseudonyms of users. A user without one gets the one that `proposed` has for its name.

        `further` are names by pseudonyms that calls got already: they are added to those of their users.
        """

    def erasures(self) -> int:
        """A number that changes with each erasure."""

    def find(self, name: str) -> Sequence[Pseudonym]:
        """The pseudonyms of a user, the one in use first. `name` can be a pseudonym, too."""

    def erase(self, name: str) -> ErasedUser:
        """Delete a user's pseudonyms and the records that are kept about it. `name` can be a pseudonym, too."""

    def prune(self, unused_since_ms: int, most: int) -> int:
        """Delete pseudonyms that have not been used since then, at most `most`. Returns how many were deleted."""
