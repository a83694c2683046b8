"""A large ledger, made by SQL in a few minutes: thirty days of thousands of keys, a hundred teams, many end users.

Every tenth call is of one busy key. Numbers are hashed, so that values are spread and the same each time. The SQL is
the same for SQLite and PostgreSQL.
"""

import time

from penstock.gateway.config import LedgerSettings
from penstock.gateway.keys.keys import Key
from penstock.gateway.teams.team import Team
from penstock.stores.book.open import open_book
from penstock.stores.book.sql_book import Book
from tests.stores.many_calls import DAY_MS, DAYS, MODELS

BUSY_KEY, TEAMS, USERS = "key_000000000003", 100, 20_000
_SUM_BATCH = 10_000
_NUMBERS = """
WITH RECURSIVE s (i) AS (SELECT CAST(0 AS BIGINT) UNION ALL SELECT i + 1 FROM s WHERE i < {calls} - 1),
n AS (SELECT i, (i * 2654435761) % 4294967296 AS h FROM s)
"""
_CALLS = """
INSERT INTO calls (id, key, surface, model, code, end_user, error, team, at_ms, settled_ms, status, duration_ms, input,
    output, cached, cache_write, reasoning, cost, unpriced, approximate, stream, outcome, measure, first_event_ms,
    repairs, losses, tags)
{numbers}
SELECT 'req_000000000000' || SUBSTR(CAST(1000000000000 + i AS TEXT), 2),
    CASE WHEN i % 10 = 0 THEN '{busy}' ELSE 'key_' || SUBSTR(CAST(1000000000000 + h % {keys} AS TEXT), 2) END, 'chat',
    CASE {models} END, CASE WHEN h % 40 = 0 THEN 'upstream_unavailable' ELSE '' END,
    CASE WHEN h % 3 = 0 THEN 'u_' || SUBSTR(CAST(1000000 + h % {users} AS TEXT), 2) ELSE '' END,
    CASE WHEN h % 40 = 0 THEN 'the provider is overloaded' ELSE '' END,
    CASE WHEN h % 2 = 0 THEN 'acme/team-' || (h % {teams}) ELSE '' END,
    {start} + i * {step}, {start} + i * {step} + 3000, 200, 3000, h % 4000, h % 600, 0, 0, 0, 60 * (h % 4000), 0, 0, 1,
    CASE WHEN h % 40 = 0 THEN 'failed' WHEN h % 97 = 0 THEN 'timed_out' ELSE 'completed' END, 'reported', h % 900,
    CASE WHEN h % 50 = 0 THEN '{{"no-done":1}}' ELSE '{{}}' END, '{{}}', '{{"team":"t' || (h % 5) || '"}}'
FROM n
"""
_ATTEMPTS = """
INSERT INTO attempts (call, number, provider, model, outcome, status, code, measure, input, output, cached, cache_write,
    reasoning, cost, price, began_ms, first_event_ms, duration_ms, events, longest_gap_ms, audio_input, audio_output,
    cache_write_1h, approximate, tier, stalls)
SELECT c.place, 0, CASE {providers} END, c.model, c.outcome, 200, c.code, 'reported', c.input, c.output, 0, 0, 0,
    c.cost, 'bench', 0, c.first_event_ms, 3000, 100, c.input % 300, 0, 0, 0, 0, '', '[]'
FROM calls c
"""


def make_bulk(settings: LedgerSettings, calls: int, keys: int) -> bool:
    """Write a ledger with this many calls until now, all but the last summed up, and its keys and teams; unless it has
    calls: then returns False."""
    book = open_book(settings, {})
    assert isinstance(book, Book)
    if book.last():
        book.close()
        return False
    teams = ["acme", *(f"acme/team-{number}" for number in range(TEAMS))]
    book.change_teams(lambda *_: [Team(path=path, created_ms=1, budgets={"month": 10**13}) for path in teams])
    book.change_keys(lambda *_: [_key(number) for number in range(keys)])
    start = time.time_ns() // 1_000_000 - DAYS * DAY_MS
    models = " ".join(f"WHEN h % 9 = {number} THEN '{row[0]}'" for number, row in enumerate(MODELS))
    providers = " ".join(f"WHEN c.model = '{row[0]}' THEN '{row[1]}'" for row in MODELS)
    names = {"busy": BUSY_KEY, "keys": keys, "users": USERS, "teams": TEAMS, "models": models}
    times = {"start": start, "step": DAYS * DAY_MS // calls, "numbers": _NUMBERS.format(calls=calls)}
    statements = (_CALLS.format(**names, **times), _ATTEMPTS.format(providers=providers))
    with book.database.unlimited():
        for statement in statements:
            book.database.write(lambda transaction, sql=statement: transaction.fetch(sql))  # type: ignore[misc]
        while book.sum_up(_SUM_BATCH):
            continue
    book.close()
    return True


def _key(number: int) -> Key:
    return Key(
        id=f"key_{number:012d}",
        name=f"client {number}",
        digest=number.to_bytes(32, "big"),
        hint="abcd",
        created_ms=number + 1,
        budget=10**13,
        team=f"acme/team-{number % TEAMS}" if number % 2 else "",
    )
