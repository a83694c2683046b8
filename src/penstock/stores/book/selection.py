"""Selection: the SQL condition of a filter. Values are passed as parameters only, and must match exactly.

Where a filter has several conditions, the query is driven by one of them, the *lead*, which uses its index; the others
are checked for each call that the lead finds.
"""

import re
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from penstock.core.losses import LOSSES
from penstock.gateway.billing.book import Filter
from penstock.stores.book.database import Value
from penstock.stores.book.rows import LONGEST_NAME, has_loss, number, text

_COLUMNS = ("key", "model", "outcome")
# The columns in which a text is searched, besides tags, providers and keys.
TEXT_COLUMNS = ("id", "model", "end_user", "code", "error")


class Lead(NamedTuple):
    """One condition: a column of `calls` and its value, or a trait's kind and name."""

    kind: str
    name: str

    @property
    def trait(self) -> bool:
        """Whether its index is `call_traits`."""
        return self.kind not in _COLUMNS


def leads(wanted: Filter) -> list[Lead]:
    """The conditions of a filter that have an index."""
    names = {"key": wanted.keys, "model": wanted.models, "outcome": wanted.outcomes, "provider": wanted.providers}
    conditions = [Lead(kind, text(values[0])) for kind, values in names.items() if len(values) == 1]
    if len(wanted.targets) == 1:
        conditions.append(Lead("target", "/".join(_split_target(wanted.targets[0]))))
    if wanted.repair:
        conditions.append(Lead("repair", text(wanted.repair)))
    if wanted.loss in LOSSES:
        conditions.append(Lead("loss", wanted.loss))
    return conditions + [
        Lead(f"tag:{text(name, most=LONGEST_NAME)}", text(value)) for name, value in wanted.tags.items()
    ]


class Selection:
    """Conditions on `calls c`, and their parameters, in the same order. `at` is the column with the time of a call.

    The condition of a lead that is a trait is left out: `c` is joined to it. The other columns are written so that the
    database does not use their indexes. `after` is a place, in SQL, that all matching calls come after. The condition
    is repeated for attempts, tags and repairs: PostgreSQL does not infer it, and would scan the whole tables.
    """

    def __init__(
        self, wanted: Filter, *, at: str = "c.at_ms", lead: Lead | None = None, after: str | None = None
    ) -> None:
        self._conditions: list[str] = []
        self.parameters: list[Value] = []
        if wanted.since_ms is not None:
            self.add(f"{at} >= ?", number(wanted.since_ms))
        if wanted.until_ms is not None:
            self.add(f"{at} < ?", number(wanted.until_ms))
        for column, names in zip(_COLUMNS, (wanted.keys, wanted.models, wanted.outcomes), strict=True):
            if names:
                no_index = " || ''" if lead is not None and lead.kind != column else ""
                self.add(f"c.{column}{no_index} IN {marks(names)}", *map(text, names))
        if wanted.teams:
            self.add(f"c.team <> '' AND c.team IN {marks(wanted.teams)}", *map(text, wanted.teams))
        if wanted.users:
            self.add(f"c.end_user IN {marks(wanted.users)}", *map(text, wanted.users))
        led = lead.kind if lead is not None else ""
        if after is not None:
            self.add(f"c.place > {after}")

        def has(table: str, condition: str) -> str:
            after_place = f" AND x.call > {after}" if after is not None else ""
            return f"EXISTS (SELECT 1 FROM {table} x WHERE x.call = c.place{after_place} AND {condition})"

        if wanted.providers and led != "provider":
            self.add(has("attempts", f"x.provider IN {marks(wanted.providers)}"), *map(text, wanted.providers))
        if wanted.attempts or (wanted.targets and led != "target"):
            target_condition = " OR ".join(["x.provider = ? AND x.model = ?"] * len(wanted.targets))
            outcome_condition = f"x.outcome IN {marks(wanted.attempts)}" if wanted.attempts else ""
            attempt_condition = " AND ".join(
                filter(None, (f"({target_condition})" if target_condition else "", outcome_condition))
            )
            target_values = chain.from_iterable(map(_split_target, wanted.targets))
            self.add(has("attempts", attempt_condition), *target_values, *map(text, wanted.attempts))
        if wanted.repair and led != "repair":
            self.add(has("call_repairs", "x.code = ?"), text(wanted.repair))
        if wanted.loss and led != "loss":
            self.add(has_loss("?"), text(wanted.loss))
        for name, value in wanted.tags.items():
            stored = text(name, most=LONGEST_NAME)
            if led != f"tag:{stored}":
                self.add(has("call_tags", "x.name = ? AND x.value = ?"), stored, text(value))

        if wanted.text:
            like = pattern(wanted.text)
            conditions = [f"LOWER(c.{column}) LIKE ? ESCAPE '~'" for column in TEXT_COLUMNS]
            conditions += ["LOWER(c.tags) LIKE ? ESCAPE '~'", has("attempts", "LOWER(x.provider) LIKE ? ESCAPE '~'")]
            if wanted.text_keys:
                conditions.append(f"c.key IN {marks(wanted.text_keys)}")
            values = (*[like] * len(TEXT_COLUMNS), pattern(tag_text(wanted.text)), like, *map(text, wanted.text_keys))
            self.add(f"({' OR '.join(conditions)})", *values)

    def add(self, condition: str, *parameters: Value) -> None:
        """Add a condition."""
        self._conditions.append(condition)
        self.parameters += parameters

    @property
    def where(self) -> str:
        """The WHERE clause with all conditions; empty if there are none."""
        return "WHERE " + " AND ".join(self._conditions) if self._conditions else ""


def pattern(part: str) -> str:
    """A pattern of LIKE for texts that contain this one. `~` escapes the wildcards."""
    escaped = re.sub("([%_~])", r"~\1", text(part).lower())
    return f"%{escaped}%"


def tag_text(part: str) -> str:
    """A text as it is in the JSON of tags, which has `":"` for the equals sign of `name=value`."""
    return '":"'.join(msgspec.json.encode(each)[1:-1].decode() for each in text(part).split("=", 1))


def marks(values: Sequence[object]) -> str:
    """One parameter mark per value: `(?, ?, ?)`."""
    return f"({', '.join('?' * len(values))})"


def _split_target(target: str) -> tuple[str, str]:
    """A provider and its model, as they are stored."""
    provider, _, model = target.partition("/")
    return text(provider), text(model)
