"""KeptRecord: content that is kept, apart from the ledger, which holds none. `stores/content/` is its store.

A record belongs to one *owner*, a client's key, and no query crosses owners. A record may continue another one (its
`parent`), and then has only what is new. So a conversation takes space in proportion to its length, however many
records it has. All records that continue one another are a *thread*: they are deleted together, some time after the
last of them was added, so that no record outlives what it continues.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct


class KeptRecord(Struct, frozen=True, kw_only=True):
    """Something that is kept. `parts` are texts by name; `kind` tells different uses of the store apart."""

    id: str
    kind: str
    owner: str
    at_ms: int
    """When it was added, in milliseconds since 1970."""
    until_ms: int
    """When it may be deleted. Its whole thread is kept until the latest of these times."""
    parent: str = ""
    """The id of the record that it continues; empty if it starts a thread."""
    parts: Mapping[str, str]
    names: tuple[str, ...] = ()
    """Further names by which its owner finds it. If several records have one, the last one is found."""
    subject: str = ""
    """The pseudonym of the end user that it is about; empty if the request named none."""


class History(Struct, frozen=True):
    """A record and those before it in its thread, the oldest first; `records` is empty if it does not exist.

    `records` is also empty if one before it was deleted (`complete` is False), and if there are more records or bytes
    than the caller allows (`fits` is False).
    """

    records: tuple[KeptRecord, ...] = ()
    complete: bool = True
    fits: bool = True


class HistoryLimits(Struct, frozen=True):
    """What to read of a thread: the names of the parts, and the maximum number of records and of bytes."""

    parts: tuple[str, ...]
    records: int
    size: int
    reserve: Callable[[int], None] | None = None
    """Called with the number of bytes before they are read. It may raise, and then nothing is read."""


def fair_share(sizes: Iterable[int], total: int) -> int:
    """The largest share with which all sizes fit into the total, if those above it are reduced to it.

    What the owners of small sizes do not use is divided among the others (max-min fairness).
    """
    ordered = sorted(sizes)
    for count, size in zip(range(len(ordered), 0, -1), ordered, strict=True):
        if size * count > total:
            return total // count
        total -= size
    return ordered[-1] if ordered else 0
