"""Rows: converts entries and keys to the values of their columns, and back.

A value that cannot be stored is changed, because otherwise it would be lost with its whole batch. Text has no NUL, no
lone surrogates, and at most 512 characters (an index entry of PostgreSQL is limited to 2,704 bytes); the name of a tag
has at most 64. Numbers are limited to `LARGEST`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, reduce
from itertools import groupby
from operator import attrgetter, itemgetter, or_
from typing import Any, Generic, Literal, TypeVar, cast, get_origin

import msgspec
from msgspec import Struct, structs

from penstock.core.hub.usage import Tokens
from penstock.gateway.keys.keys import Key
from penstock.gateway.record.entry import AttemptEntry, Entry
from penstock.gateway.teams.team import Team
from penstock.stores.book.database import Row, Value

S = TypeVar("S", bound=Struct)


def _columns(names: str) -> tuple[str, ...]:
    return tuple(names.split())


# Texts are adjacent, and so are numbers, because `_texts` and `_numbers` check them together.
CALL = _columns(
    "id key surface model code end_user error team at_ms settled_ms status duration_ms input output cached"
    " cache_write reasoning cost saved unpriced approximate stream outcome measure first_event_ms repairs losses tags"
)
ATTEMPT = _columns(
    "number provider model code price tier status began_ms duration_ms events longest_gap_ms input output cached"
    " cache_write reasoning audio_input audio_output cache_write_1h approximate saved cost first_event_ms outcome"
    " measure stalls"
)
# A billion dollars, in nanodollars.
LARGEST = 10**18
LONGEST = 512
LONGEST_NAME = 64


def call_row(entry: Entry) -> Row:
    """The columns of `CALL`."""
    tokens, at_ms, took_ms = entry.tokens, entry.at_ms, entry.duration_ms
    return (
        *_texts(entry.id, entry.key, entry.surface, entry.model, entry.code, entry.user, entry.error, entry.team),
        *_numbers(at_ms, number(at_ms) + number(took_ms), entry.status, took_ms, *_counts(tokens), entry.priced),
        number(entry.saved),
        int(entry.cost is None),
        int(entry.approximate),
        int(entry.stream),
        entry.outcome,
        entry.measure,
        _number(entry.first_event_ms),
        _json(_storable(entry.repairs)) if entry.repairs else "{}",
        _json(_storable(entry.losses)) if entry.losses else "{}",
        _json(tags(entry)) if entry.tags else "{}",
    )


def attempt_rows(entry: Entry) -> list[Row]:
    """The columns of `ATTEMPT`, for each attempt."""
    return [_attempt_row(index, attempt) for index, attempt in enumerate(entry.attempts)]


def _attempt_row(index: int, attempt: AttemptEntry) -> Row:
    return (
        index,
        *_texts(attempt.provider, attempt.model, attempt.code, attempt.price, attempt.tier),
        *_numbers(
            attempt.status,
            attempt.began_ms,
            attempt.duration_ms,
            attempt.events,
            attempt.longest_gap_ms,
            *_counts(attempt.tokens),
            attempt.tokens.audio_input,
            attempt.tokens.audio_output,
            attempt.tokens.cache_write_1h,
            int(attempt.approximate),
            attempt.saved,
        ),
        _number(attempt.cost),
        _number(attempt.first_event_ms),
        attempt.outcome,
        attempt.measure,
        _json(_storable(attempt.stalls)) if attempt.stalls else "[]",
    )


def tags(entry: Entry) -> dict[str, str]:
    """An entry's tags as they are stored."""
    return {text(name, most=LONGEST_NAME): text(value) for name, value in entry.tags.items()}


def read_entries(rows: Sequence[Row]) -> list[tuple[int, Entry]]:
    """Read entries from rows of a place, the columns of `CALL` and of `ATTEMPT`; the rows of an entry are adjacent."""
    return [(cast(int, place), _read_entry(list(group))) for place, group in groupby(rows, lambda row: row[0])]


def _read_entry(rows: list[Row]) -> Entry:
    first = 1 + len(CALL)
    attempts = (row[first:] for row in rows if row[first] is not None)
    return _CALLS.read(
        rows[0][1:first], attempts=tuple(_ATTEMPTS.read(row, tokens=_TOKENS.read(row)) for row in attempts)
    )


class RowMapper(Generic[S]):
    """Converts structs to the values of their columns, and back. A column has the name of its field, or is `renamed`.

    The type of the field decides how a value is stored: bytes as hexadecimal digits, and what is neither text nor a
    number as JSON. Other columns, and fields without a column, are for the caller.
    """

    def __init__(self, kind: type[S], columns: Sequence[str] = (), **renamed: str) -> None:
        self.columns = tuple(columns or kind.__struct_fields__)
        types = {field.name: field.type for field in structs.fields(kind)}
        named = [(place, renamed.get(column, column)) for place, column in enumerate(self.columns)]
        named = [(place, field) for place, field in named if field in types]
        self._kind: Any = kind
        self._fields = [field for _, field in named]
        self._stored = itemgetter(*(place for place, _ in named))
        self._values = attrgetter(*self._fields)
        self._store = [_STORE.get(types[field], _store_other) for field in self._fields]
        decoders = ((field, _decoder(types[field])) for field in self._fields)
        self._decoders = [(field, decode) for field, decode in decoders if decode is not None]

    def write(self, value: S) -> Row:
        """The values of the columns. Each has to be a field."""
        return tuple([store(field) for store, field in zip(self._store, self._values(value), strict=True)])

    def read(self, row: Row, **others: object) -> S:
        """The struct of a row, with the fields that have no column."""
        values = dict(zip(self._fields, self._stored(row), strict=True))
        for field, decode in self._decoders:
            values[field] = decode(values[field])
        return cast(S, self._kind(**values, **others))


def _decoder(kind: object) -> Callable[[Any], Any] | None:
    """How a stored value is read; None if it is the value of the field."""
    if kind in (bool, bytes):
        return bool if kind is bool else bytes.fromhex
    if kind in _STORE or get_origin(kind) is Literal:
        return None
    # Equal values are decoded once: most are empty, and ten thousand keys are read at a time.
    return lru_cache(maxsize=64)(msgspec.json.Decoder(cast("type[Any]", kind)).decode)


def _store_other(value: object) -> str:
    return value if isinstance(value, str) else _json(_storable(value))


def _storable(value: object) -> object:
    """The value for JSON, with all texts and numbers as they can be stored."""
    match value:
        case str():
            return text(value)
        case int():
            return number(value)
        case tuple():
            return [_storable(each) for each in value]
        case dict():
            return {text(name): _storable(each) for name, each in value.items()}
        case _:
            return value


def text(value: str, *, most: int = LONGEST) -> str:
    """Change a text so that both databases accept it."""
    if len(value) <= most and value.isascii() and value.isprintable():
        return value
    cut = value if len(value) <= most else value[: most - 1] + "…"
    return cut.encode(errors="replace").decode().replace("\0", "\ufffd")


def number(value: int) -> int:
    """Limit a number to what both databases accept."""
    return value if 0 <= value <= LARGEST else max(-LARGEST, min(int(value), LARGEST))


def _texts(*values: str) -> tuple[str, ...]:
    """`text` of each value. One check of all together is enough for nearly all rows, and faster."""
    together = "".join(values)
    if len(together) <= LONGEST and together.isascii() and together.isprintable():
        return values
    return tuple(map(text, values))


def _numbers(*values: int) -> tuple[int, ...]:
    """`number` of each value, with one check of all together: all bits of all values are no number below any of them,
    and negative if one is."""
    return values if 0 <= reduce(or_, values) <= LARGEST else tuple(map(number, values))


def _number(value: int | None) -> int | None:
    return None if value is None else number(value)


def _counts(tokens: Tokens) -> tuple[int, int, int, int, int]:
    return tokens.input, tokens.output, tokens.cached, tokens.cache_write, tokens.reasoning


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


# How a value is stored, by the type of its field.
_STORE: Mapping[object, Callable[[Any], Value]] = {
    str: text,
    int: number,
    int | None: _number,
    bool: int,
    bytes: bytes.hex,
}
KEYS = RowMapper(Key)
TEAMS = RowMapper(Team)
_CALLS = RowMapper(Entry, CALL, end_user="user")
_ATTEMPTS = RowMapper(AttemptEntry, ATTEMPT)
_TOKENS = RowMapper(Tokens, ATTEMPT)
