"""Large tables: which rows a usual run plays.

A table of many clients and many cases mostly repeats itself: a case fails for the gateway's own reasons with any
client, and a client has few ways to handle a case. So one client plays every case, and each other client plays one case
in `STEP`, beginning with another one. Every case is played by several clients, and every client plays several cases.
The choice depends on the order of the table only, so it is the same in every run.

With PENSTOCK_FULL_TABLES=1, or `scripts/test --full`, every row is played.
"""

import math
import os
from collections.abc import Collection, Iterable, Sequence
from itertools import count, product
from typing import Any, TypeVar

FULL = os.environ.get("PENSTOCK_FULL_TABLES", "0") not in ("", "0")
STEP = 5

CaseT = TypeVar("CaseT")


def share(number: int, cases: Sequence[CaseT], step: int = STEP) -> Sequence[CaseT]:
    """The cases that the client of this number plays; number 0 plays all."""
    step = min(step, len(cases))
    return cases if FULL or not number or not step else cases[number % step :: step]


def table(clients: Iterable[Any], *axes: Iterable[Any], whole: Collection[Any] = ()) -> list[tuple[Any, ...]]:
    """Rows of a client and a value of each axis. The first client, and those in `whole`, play every case."""
    values = [list(axis) for axis in axes]
    cases = list(product(*values))
    # No divisor in common with an axis, or a client would meet the same value of it each time.
    step = next(n for n in count(STEP) if all(math.gcd(n, len(axis)) == 1 for axis in values[1:]))
    return [
        (client, *case)
        for number, client in enumerate(clients)
        for case in share(0 if client in whole else number, cases, step)
    ]
