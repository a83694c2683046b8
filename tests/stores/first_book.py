"""A book of version 1: its rows, and what the current version reads of them."""

from msgspec import structs

from penstock.stores.book.schema import MIGRATIONS
from tests.stores.entries import FULL, KEY
from tests.stores.places import Place, SqlitePlace

FIRST_ROWS = """
INSERT INTO calls VALUES (
    5, 'call_1', 1700000000123, 1700000004444, 'key_abc', 'chat', 'smart', 1, 'truncated', 200, 'cut-off', 210, 4321,
    100, 51, 20, 10, 7, 123456789, 1, 'estimated', '{"no-done":1,"usage-twice":3}',
    '{"team":"search","q\\"uo.te":"ü\\t%_"}', 'somebody'
);
INSERT INTO attempts VALUES
    (5, 0, 'groq', 'llama', 'failed', 503, 'overloaded', 'void', 0, 0, 0, 0, 0, 0, '', 0, NULL, 90, 0),
    (5, 1, 'openai', 'gpt/5', 'truncated', 200, 'cut-off', 'estimated', 100, 50, 20, 10, 7, 123456789,
     'built-in 2026-11-01', 95, 115, 4200, 48),
    (5, 2, 'openai', 'new', 'truncated', 0, '', 'reported', 0, 1, 0, 0, 0, NULL, '', 0, NULL, 0, 0);
INSERT INTO call_tags VALUES (5, 'team', 'search'), (5, 'q"uo.te', 'ü\t%_');
INSERT INTO call_repairs VALUES (5, 'no-done', 1), (5, 'usage-twice', 3);
INSERT INTO keys VALUES (
    'key_abc', 'Search', '000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f', 'wxyz', 5, 10000000000,
    'week', 60, 10000, 3, '["groq/*","smart"]', '{"team":"search"}', 99, 98, 'key_def'
);
"""
# The call and the key, as this version knows them: what version 1 did not know of them is not made up.
FIRST_CALL = structs.replace(
    FULL,
    error="",
    losses={},
    attempts=tuple(
        structs.replace(
            attempt,
            longest_gap_ms=0,
            stalls=(),
            approximate=False,
            tier="",
            tokens=structs.replace(attempt.tokens, audio_input=0, audio_output=0, cache_write_1h=0),
        )
        for attempt in FULL.attempts
    ),
)
FIRST_KEY = structs.replace(KEY, strict=False, rotated_ms=None, previous=b"", previous_until_ms=None)


def begin(place: Place) -> None:
    """Make a book of version 1, with what is in it."""
    place.open(migrations=MIGRATIONS[:1]).close()
    given = "" if isinstance(place, SqlitePlace) else " OVERRIDING SYSTEM VALUE"
    rows = FIRST_ROWS.replace("INSERT INTO calls", f"INSERT INTO calls{given}")
    place.execute(*(statement for statement in rows.split(";\n") if statement.strip()))
