"""Refused requests in the audit log: the first at once, the others counted, and no more entries than are documented."""

import asyncio

from penstock.gateway.people.audit import Actor, AuditEntry
from penstock.serve.admin.refusals import MAX_KINDS, MAX_UNKNOWN, Refusals

ANN = Actor("ann@example.com", "session", "10.0.0.1")


def counts(entries: list[AuditEntry]) -> list[tuple[str, str, int]]:
    return [(entry.who, entry.subject, entry.after["times"]) for entry in entries]


def test_repeated_refusals_become_one_entry_when_the_window_ends() -> None:
    asyncio.run(repeat())


async def repeat() -> None:
    recorded: list[AuditEntry] = []
    ended = asyncio.Event()

    def record(entry: AuditEntry) -> None:
        recorded.append(entry)
        if len(recorded) == 3:
            ended.set()

    refusals = Refusals(record, window_s=0.05)
    for _ in range(1_000):
        refusals.add(ANN, "request.refuse", "GET /admin/audit", "permission_denied")
    refusals.add(ANN, "request.refuse", "GET /admin/tokens", "permission_denied")
    assert counts(recorded) == [(ANN.who, "GET /admin/audit", 1), (ANN.who, "GET /admin/tokens", 1)]
    await asyncio.wait_for(ended.wait(), 20)
    assert counts(recorded[2:]) == [(ANN.who, "GET /admin/audit", 999)]
    # A new window begins with an entry at once.
    refusals.add(ANN, "request.refuse", "GET /admin/audit", "permission_denied")
    assert counts(recorded[3:]) == [(ANN.who, "GET /admin/audit", 1)]
    refusals.flush()
    assert len(recorded) == 4


def test_many_addresses_become_few_entries() -> None:
    recorded = asyncio.run(flood())
    assert len(recorded) <= 2 * (MAX_UNKNOWN + MAX_KINDS + 1)
    assert sum(entry.after["times"] for entry in recorded) == 2 * 2_000
    assert {"(unknown)", "(others)", "user-0", f"user-{MAX_KINDS - 2}"} < {entry.who for entry in recorded}


async def flood() -> list[AuditEntry]:
    recorded: list[AuditEntry] = []
    refusals = Refusals(recorded.append)
    for _ in range(2):
        for number in range(1_000):
            address = f"2001:db8::{number:x}"
            refusals.add(Actor("(unknown)", "none", address), "session.refuse", "", "invalid_admin_token")
            refusals.add(Actor(f"user-{number}", "proxy", address), "request.refuse", "", "permission_denied")
    refusals.flush()
    return recorded
