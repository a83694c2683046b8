"""Selection: which calls a filter means, as SQL. What is looked for goes in as parameters alone, and matches whole."""

from collections.abc import Sequence

from penstock.gateway.book import Filter
from penstock.stores.database import Value
from penstock.stores.rows import LONGEST_NAME, number, text


class Selection:
    """Conditions on `calls c`, and their parameters, in the same order."""

    def __init__(self, wanted: Filter) -> None:
        self._conditions: list[str] = []
        self.parameters: list[Value] = []
        if wanted.since_ms is not None:
            self.add("c.at_ms >= ?", number(wanted.since_ms))
        if wanted.until_ms is not None:
            self.add("c.at_ms < ?", number(wanted.until_ms))
        for column, names in (("key", wanted.keys), ("model", wanted.models), ("outcome", wanted.outcomes)):
            if names:
                self.add(f"c.{column} IN {marks(names)}", *map(text, names))
        if wanted.providers:
            self.add(_has("attempts", f"x.provider IN {marks(wanted.providers)}"), *map(text, wanted.providers))
        if wanted.targets:
            pairs = [target.partition("/")[::2] for target in wanted.targets]
            either = " OR ".join(["x.provider = ? AND x.model = ?"] * len(pairs))
            self.add(_has("attempts", f"({either})"), *(text(name) for pair in pairs for name in pair))
        if wanted.repair:
            self.add(_has("call_repairs", "x.code = ?"), text(wanted.repair))
        for name, value in wanted.tags.items():
            self.add(_has("call_tags", "x.name = ? AND x.value = ?"), text(name, most=LONGEST_NAME), text(value))

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


def _has(table: str, condition: str) -> str:
    return f"EXISTS (SELECT 1 FROM {table} x WHERE x.call = c.place AND {condition})"
