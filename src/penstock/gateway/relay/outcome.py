"""Outcome: what a relay reports of its attempt."""

from typing import TypeAlias

from msgspec import Struct

from penstock.core.hub.failure import Failure


class Committed(Struct, frozen=True):
    """The answer has reached its commit point: no other target can be tried."""


class Completed(Struct, frozen=True):
    """The committed answer is complete."""


class Failed(Struct, frozen=True):
    """The attempt has failed: after the commit point, or before it, so that another target may be tried."""

    failure: Failure
    committed: bool = False
    goes_on: bool = False
    """Whether the client's stream is left open, so that another target goes on with the answer."""


Outcome: TypeAlias = Committed | Completed | Failed
