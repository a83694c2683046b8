"""Selection: the SQL condition of a filter. Values are passed as parameters only, and must match exactly; only `text`
matches parts of names (`TEXT_COLUMNS`, providers), and whole ids, end users and tags.
"""

import re
from collections.abc import Sequence
from itertools import chain

from penstock.gateway.billing.queries import Filter
from penstock.stores.book.database import Value
from penstock.stores.book.rows import LONGEST_NAME, number, text

# The columns that a filter names values of, by its field. An index of the last two has no empty values.
COLUMNS = {"keys": "key", "models": "model", "outcomes": "outcome", "teams": "team", "users": "end_user"}
SPARSE_COLUMNS = frozenset({"team", "end_user"})
# The columns in which a part of a text is found, besides providers.
TEXT_COLUMNS = ("model", "code", "error")


class Selection:
    """Conditions on `calls c`, and their parameters, in the same order. `at` is the column with the time of a call.

    Unless `indexed`, the other columns are written so that the database does not use their indexes: another condition
    drives the query. `after` is a place, in SQL, that all matching calls come after. The condition is repeated for
    attempts: PostgreSQL does not infer it, and would scan the whole table.
    """

    def __init__(self, wanted: Filter, *, at: str = "c.at_ms", indexed: bool = True, after: str | None = None) -> None:
        self._conditions: list[str] = []
        self.parameters: list[Value] = []
        if wanted.since_ms is not None:
            self.add(f"{at} >= ?", number(wanted.since_ms))
        if wanted.until_ms is not None:
            self.add(f"{at} < ?", number(wanted.until_ms))
        for field, column in COLUMNS.items():
            if names := getattr(wanted, field):
                no_index = "" if indexed else " || ''"
                self.add(f"c.{column}{no_index} IN {marks(names)}", *map(text, names))
                if indexed and column in SPARSE_COLUMNS:
                    self.add(f"c.{column} <> ''")
        if after is not None:
            self.add(f"c.place > {after}")

        def has_attempt(condition: str, call: str = "x.call = c.place") -> str:
            after_place = f" AND x.call > {after}" if after is not None else ""
            return f"EXISTS (SELECT 1 FROM attempts x WHERE {call}{after_place} AND {condition})"

        if wanted.providers:
            self.add(has_attempt(f"x.provider IN {marks(wanted.providers)}"), *map(text, wanted.providers))
        if wanted.attempts or wanted.targets:
            target_condition = " OR ".join(["x.provider = ? AND x.model = ?"] * len(wanted.targets))
            outcome_condition = f"x.outcome IN {marks(wanted.attempts)}" if wanted.attempts else ""
            attempt_condition = " AND ".join(
                filter(None, (f"({target_condition})" if target_condition else "", outcome_condition))
            )
            target_values = chain.from_iterable(map(split_target, wanted.targets))
            self.add(has_attempt(attempt_condition), *target_values, *map(text, wanted.attempts))
        if wanted.repair:
            self.add(_has_member("repairs", "x.key = ?"), text(wanted.repair))
        if wanted.loss:
            self.add(_has_member("losses", "x.key = ?"), text(wanted.loss))
        for name, value in wanted.tags.items():
            self.add(_has_member("tags", "x.key = ? AND x.value = ?"), text(name, most=LONGEST_NAME), text(value))

        if wanted.text:
            part, whole, tag = pattern(wanted.text), text(wanted.text), split_tag(wanted.text)
            conditions = [f"LOWER(c.{column}) LIKE ? ESCAPE '~'" for column in TEXT_COLUMNS]
            # Not by `=`: for one of several alternatives, PostgreSQL would read the whole table into a hash table.
            by_range = "x.call BETWEEN c.place AND c.place"
            conditions.append(has_attempt("LOWER(x.provider) LIKE ? ESCAPE '~'", by_range))
            conditions += ["c.id = ?", "c.end_user = ?"]
            conditions.append(_has_member("tags", "x.value = ? OR x.key = ? AND x.value = ?"))
            if wanted.text_keys:
                conditions.append(f"c.key IN {marks(wanted.text_keys)}")
            parts = [part] * (len(TEXT_COLUMNS) + 1)
            self.add(f"({' OR '.join(conditions)})", *parts, whole, whole, whole, *tag, *map(text, wanted.text_keys))

    def add(self, condition: str, *parameters: Value) -> None:
        """Add a condition."""
        self._conditions.append(condition)
        self.parameters += parameters

    @property
    def where(self) -> str:
        """The WHERE clause with all conditions; empty if there are none."""
        return "WHERE " + " AND ".join(self._conditions) if self._conditions else ""


def _has_member(column: str, condition: str) -> str:
    """The condition that a column with a JSON object has such a member."""
    return f"c.{column} <> '{{}}' AND EXISTS (SELECT 1 FROM json_each(c.{column}) x WHERE {condition})"


def pattern(part: str) -> str:
    """A pattern of LIKE for texts in lower case that contain this one in any case."""
    return containing(text(part).lower())


def containing(part: str) -> str:
    """A pattern of LIKE for texts that contain this one. `~` escapes the wildcards."""
    escaped = re.sub("([%_~])", r"~\1", part)
    return f"%{escaped}%"


def split_tag(given: str) -> tuple[str, str]:
    """The name and the value of a tag that a text is: `name=value`. Both are empty if it is none."""
    name, equals, value = given.partition("=")
    return (text(name, most=LONGEST_NAME), text(value)) if equals else ("", "")


def marks(values: Sequence[object]) -> str:
    """One parameter mark per value: `(?, ?, ?)`."""
    return f"({', '.join('?' * len(values))})"


def split_target(target: str) -> tuple[str, str]:
    """A provider and its model, as they are stored."""
    provider, _, model = target.partition("/")
    return text(provider), text(model)
