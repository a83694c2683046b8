"""Selection: which calls a filter means, as SQL. What is looked for goes in as parameters alone, and matches whole.

Where a filter has several conditions, the calls are looked up by one of them, the *lead*, and tried for the others.
"""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from penstock.core.losses import LOSSES
from penstock.gateway.billing.book import Filter
from penstock.stores.book.database import Value
from penstock.stores.book.rows import LONGEST_NAME, has_loss, number, text

_COLUMNS = ("key", "model", "outcome")


class Lead(NamedTuple):
    """One condition: a column of `calls` and its value, or a trait's kind and name."""

    kind: str
    name: str

    @property
    def trait(self) -> bool:
        """Whether calls are found by it in `call_traits`."""
        return self.kind not in _COLUMNS


def leads(wanted: Filter) -> list[Lead]:
    """By what the calls that are meant can be looked up."""
    names = {"key": wanted.keys, "model": wanted.models, "outcome": wanted.outcomes, "provider": wanted.providers}
    found = [Lead(kind, text(values[0])) for kind, values in names.items() if len(values) == 1]
    if len(wanted.targets) == 1:
        found.append(Lead("target", "/".join(_taken_apart(wanted.targets[0]))))
    if wanted.repair:
        found.append(Lead("repair", text(wanted.repair)))
    if wanted.loss in LOSSES:
        found.append(Lead("loss", wanted.loss))
    return found + [Lead(f"tag:{text(name, most=LONGEST_NAME)}", text(value)) for name, value in wanted.tags.items()]


class Selection:
    """Conditions on `calls c`, and their parameters, in the same order. `at` is where the time of a call stands.

    Those of a lead that is a trait are left out: `c` is joined to it. No index is used for other columns than the lead.
    `behind` is a place, in SQL, behind which all calls are that are meant. PostgreSQL does not conclude by itself that
    what belongs to them is behind it too, and would look through all of it.
    """

    def __init__(
        self, wanted: Filter, *, at: str = "c.at_ms", lead: Lead | None = None, behind: str | None = None
    ) -> None:
        self._conditions: list[str] = []
        self.parameters: list[Value] = []
        if wanted.since_ms is not None:
            self.add(f"{at} >= ?", number(wanted.since_ms))
        if wanted.until_ms is not None:
            self.add(f"{at} < ?", number(wanted.until_ms))
        for column, names in zip(_COLUMNS, (wanted.keys, wanted.models, wanted.outcomes), strict=True):
            if names:
                hidden = " || ''" if lead is not None and lead.kind != column else ""
                self.add(f"c.{column}{hidden} IN {marks(names)}", *map(text, names))
        led = lead.kind if lead is not None else ""
        if behind is not None:
            self.add(f"c.place > {behind}")

        def has(table: str, condition: str) -> str:
            there = f" AND x.call > {behind}" if behind is not None else ""
            return f"EXISTS (SELECT 1 FROM {table} x WHERE x.call = c.place{there} AND {condition})"

        if wanted.providers and led != "provider":
            self.add(has("attempts", f"x.provider IN {marks(wanted.providers)}"), *map(text, wanted.providers))
        if wanted.attempts or (wanted.targets and led != "target"):
            either = " OR ".join(["x.provider = ? AND x.model = ?"] * len(wanted.targets))
            ended = f"x.outcome IN {marks(wanted.attempts)}" if wanted.attempts else ""
            both = " AND ".join(filter(None, (f"({either})" if either else "", ended)))
            whom = chain.from_iterable(map(_taken_apart, wanted.targets))
            self.add(has("attempts", both), *whom, *map(text, wanted.attempts))
        if wanted.repair and led != "repair":
            self.add(has("call_repairs", "x.code = ?"), text(wanted.repair))
        if wanted.loss and led != "loss":
            self.add(has_loss("?"), text(wanted.loss))
        for name, value in wanted.tags.items():
            stored = text(name, most=LONGEST_NAME)
            if led != f"tag:{stored}":
                self.add(has("call_tags", "x.name = ? AND x.value = ?"), stored, text(value))

    def add(self, condition: str, *parameters: Value) -> None:
        """One condition more."""
        self._conditions.append(condition)
        self.parameters += parameters

    @property
    def where(self) -> str:
        """All conditions together."""
        return "WHERE " + " AND ".join(self._conditions) if self._conditions else ""


def marks(values: Sequence[object]) -> str:
    """As many marks as there are values: `(?, ?, ?)`."""
    return f"({', '.join('?' * len(values))})"


def _taken_apart(target: str) -> tuple[str, str]:
    """A provider and its model, as they are stored."""
    provider, _, model = target.partition("/")
    return text(provider), text(model)
