"""Rows: converts entries and keys to the values of their columns, and back.

A value that cannot be stored is changed, because otherwise it would be lost with its whole batch. Text has no NUL, no
lone surrogates, and at most 512 characters (an index entry of PostgreSQL is limited to 2,704 bytes); the name of a tag
has at most 64. Numbers are limited to `LARGEST`.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, cast

import msgspec

from penstock.core.usage import Tokens
from penstock.gateway.billing.entry import AttemptEntry, Entry, Measure, Outcome
from penstock.gateway.keys.keys import NO_LIMITS, EndUserLimits, Key, Period
from penstock.gateway.teams.team import Team
from penstock.stores.book.database import Row, Value


def _columns(names: str) -> tuple[str, ...]:
    return tuple(names.split())


# Texts are adjacent, and so are numbers, because `_texts` and `_numbers` check them together.
CALL = _columns(
    "id key surface model code end_user error team at_ms settled_ms status duration_ms input output cached"
    " cache_write reasoning cost unpriced approximate stream outcome measure first_event_ms repairs losses tags"
)
ATTEMPT = _columns(
    "number provider model code price tier status began_ms duration_ms events longest_gap_ms input output cached"
    " cache_write reasoning audio_input audio_output cache_write_1h approximate cost first_event_ms outcome measure"
    " stalls"
)
KEY = _columns(
    "id name digest hint created_ms budget period requests_per_minute tokens_per_minute concurrent models tags"
    " strict expires_ms revoked_ms rotated_ms previous previous_until_ms blocked_ms team owner budgets"
    " end_users"
)
TEAM = _columns(
    "path created_ms budgets requests_per_minute tokens_per_minute concurrent models end_users blocked_ms deleted_ms"
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
        int(entry.cost is None),
        int(entry.approximate),
        int(entry.stream),
        entry.outcome,
        entry.measure,
        _number(entry.first_event_ms),
        _counted(entry.repairs),
        _counted(entry.losses),
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
        ),
        _number(attempt.cost),
        _number(attempt.first_event_ms),
        attempt.outcome,
        attempt.measure,
        _json([(number(at), number(took)) for at, took in attempt.stalls]) if attempt.stalls else "[]",
    )


def tags(entry: Entry) -> dict[str, str]:
    """An entry's tags as they are stored."""
    return {text(name, most=LONGEST_NAME): text(value) for name, value in entry.tags.items()}


def read_entries(rows: Sequence[Row]) -> list[tuple[int, Entry]]:
    """Read entries from rows of a place, the columns of `CALL` and of `ATTEMPT`; the rows of an entry are adjacent."""
    return [(cast(int, place), _read_entry(list(group))) for place, group in groupby(rows, lambda row: row[0])]


def _read_entry(rows: list[Row]) -> Entry:
    call = dict(zip(CALL, rows[0][1:], strict=False))
    return Entry(
        id=cast(str, call["id"]),
        at_ms=cast(int, call["at_ms"]),
        key=cast(str, call["key"]),
        surface=cast(str, call["surface"]),
        model=cast(str, call["model"]),
        stream=bool(call["stream"]),
        outcome=cast(Outcome, call["outcome"]),
        status=cast(int, call["status"]),
        code=cast(str, call["code"]),
        error=cast(str, call["error"]),
        first_event_ms=cast("int | None", call["first_event_ms"]),
        duration_ms=cast(int, call["duration_ms"]),
        repairs=msgspec.json.decode(cast(str, call["repairs"]), type=dict[str, int]),
        losses=msgspec.json.decode(cast(str, call["losses"]), type=dict[str, int]),
        tags=msgspec.json.decode(cast(str, call["tags"]), type=dict[str, str]),
        user=cast(str, call["end_user"]),
        team=cast(str, call["team"]),
        attempts=tuple(
            _read_attempt(dict(zip(ATTEMPT, row[1 + len(CALL) :], strict=True)))
            for row in rows
            if row[1 + len(CALL)] is not None
        ),
    )


def _read_attempt(row: Mapping[str, Value]) -> AttemptEntry:
    return AttemptEntry(
        provider=cast(str, row["provider"]),
        model=cast(str, row["model"]),
        outcome=cast(Outcome, row["outcome"]),
        status=cast(int, row["status"]),
        code=cast(str, row["code"]),
        measure=cast(Measure, row["measure"]),
        tokens=Tokens(
            input=cast(int, row["input"]),
            output=cast(int, row["output"]),
            cached=cast(int, row["cached"]),
            cache_write=cast(int, row["cache_write"]),
            reasoning=cast(int, row["reasoning"]),
            audio_input=cast(int, row["audio_input"]),
            audio_output=cast(int, row["audio_output"]),
            cache_write_1h=cast(int, row["cache_write_1h"]),
        ),
        cost=cast("int | None", row["cost"]),
        approximate=bool(row["approximate"]),
        price=cast(str, row["price"]),
        tier=cast(str, row["tier"]),
        began_ms=cast(int, row["began_ms"]),
        first_event_ms=cast("int | None", row["first_event_ms"]),
        duration_ms=cast(int, row["duration_ms"]),
        events=cast(int, row["events"]),
        longest_gap_ms=cast(int, row["longest_gap_ms"]),
        stalls=msgspec.json.decode(cast(str, row["stalls"]), type=tuple[tuple[int, int], ...]),
    )


def key_row(key: Key) -> Row:
    """The columns of `KEY`."""
    return (
        text(key.id),
        text(key.name),
        key.digest.hex(),
        text(key.hint),
        number(key.created_ms),
        _number(key.budget),
        key.period,
        _number(key.requests_per_minute),
        _number(key.tokens_per_minute),
        _number(key.concurrent),
        _json([text(model) for model in key.models]),
        _json({text(name): text(value) for name, value in key.tags.items()}),
        int(key.strict),
        _number(key.expires_ms),
        _number(key.revoked_ms),
        _number(key.rotated_ms),
        key.previous.hex(),
        _number(key.previous_until_ms),
        _number(key.blocked_ms),
        text(key.team),
        text(key.owner),
        _json(key.budgets),
        _json(key.end_users),
    )


def read_key(values: Row) -> Key:
    """Read a key from the columns of `KEY`. Ten thousand are read at a time, so nothing empty is decoded."""
    row = dict(zip(KEY, values, strict=True))
    for column, (empty, decode) in _DECODED_OF_KEY.items():
        stored = row[column]
        row[column] = empty if stored in _EMPTY else decode(stored)
    row["strict"] = bool(row["strict"])
    return Key(**cast("dict[str, Any]", row))


# What an empty value of a column is, and how another one is decoded. The other columns are as the fields of a key.
_EMPTY = frozenset({"", "[]", "{}"})
_DECODED_OF_KEY: Mapping[str, tuple[Any, Callable[[Any], Any]]] = {
    "digest": (b"", bytes.fromhex),
    "previous": (b"", bytes.fromhex),
    "models": ((), msgspec.json.Decoder(tuple[str, ...]).decode),
    "tags": ({}, msgspec.json.Decoder(dict[str, str]).decode),
    "budgets": ({}, msgspec.json.Decoder(dict[Period, int]).decode),
    "end_users": (NO_LIMITS, msgspec.json.Decoder(EndUserLimits).decode),
}


def team_row(team: Team) -> Row:
    """The columns of `TEAM`."""
    return (
        text(team.path),
        number(team.created_ms),
        _json(team.budgets),
        _number(team.requests_per_minute),
        _number(team.tokens_per_minute),
        _number(team.concurrent),
        _json([text(model) for model in team.models]),
        _json(team.end_users),
        _number(team.blocked_ms),
        _number(team.deleted_ms),
    )


def read_team(values: Row) -> Team:
    """Read a team from the columns of `TEAM`."""
    row = dict(zip(TEAM, values, strict=True))
    return Team(
        path=cast(str, row["path"]),
        created_ms=cast(int, row["created_ms"]),
        budgets=_budgets(row["budgets"]),
        requests_per_minute=cast("int | None", row["requests_per_minute"]),
        tokens_per_minute=cast("int | None", row["tokens_per_minute"]),
        concurrent=cast("int | None", row["concurrent"]),
        models=msgspec.json.decode(cast(str, row["models"]), type=tuple[str, ...]),
        end_users=_end_users(row["end_users"]),
        blocked_ms=cast("int | None", row["blocked_ms"]),
        deleted_ms=cast("int | None", row["deleted_ms"]),
    )


def _budgets(value: Value) -> dict[Period, int]:
    return msgspec.json.decode(cast(str, value), type=dict[Period, int])


def _end_users(value: Value) -> EndUserLimits:
    return msgspec.json.decode(cast(str, value), type=EndUserLimits)


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
    """`number` of each value, with one check of all together."""
    return values if min(values) >= 0 and max(values) <= LARGEST else tuple(map(number, values))


def _number(value: int | None) -> int | None:
    return None if value is None else number(value)


def _counts(tokens: Tokens) -> tuple[int, int, int, int, int]:
    return tokens.input, tokens.output, tokens.cached, tokens.cache_write, tokens.reasoning


def has_loss(code: str) -> str:
    """A condition, in SQL, on `calls c`: that it has this loss. `code` is SQL as well."""
    return f"c.losses <> '{{}}' AND REPLACE(c.losses, '\"' || {code} || '\":', '') <> c.losses"


def _counted(counts: Mapping[str, int]) -> str:
    """The counts of codes as JSON."""
    return _json({text(code): number(count) for code, count in counts.items()}) if counts else "{}"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
