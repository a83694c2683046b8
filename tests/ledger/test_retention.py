"""A gateway with `keep_days` archives old calls by itself, and what they spent stays spent, also after a restart."""

import time
from contextlib import closing
from pathlib import Path

import pytest

from penstock.gateway.billing.queries import Filter
from penstock.gateway.config import LedgerSettings
from penstock.gateway.keys.key_secret import digest_of, new_secret
from penstock.gateway.keys.keys import Key
from penstock.stores.book.open import open_book
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import whole
from tests.faults.upstream import Upstream
from tests.ledger.support import ask
from tests.serve.support import AdminClient
from tests.stores.entries import DAY_MS, entry

pytestmark = pytest.mark.slow


def test_a_spent_budget_stays_spent_after_pruning_and_a_restart(tmp_path: Path) -> None:
    secret, now = new_secret(), time.time_ns() // 1_000_000
    key = Key(id="key_spent", name="a", digest=digest_of(secret), hint="", created_ms=1, budget=10, period="total")
    ledger = LedgerSettings(folder=str(tmp_path / "state"))
    with closing(open_book(ledger, {})) as book:
        book.change_keys(lambda *_: [key])
        book.append([entry(f"call {number}", now - 5 * DAY_MS, key=key.id) for number in range(10)])
    with Upstream() as upstream:
        model = upstream.play(whole())
        config = settings(upstream.url, 0, ledger={"keep_days": 1})
        for _ in range(2):
            with Gateway(tmp_path, upstream, config) as gateway:
                with closing(open_book(ledger, {}, readonly=True)) as book:
                    deadline = time.monotonic() + 20
                    while book.entries(Filter(until_ms=now), limit=1):
                        assert time.monotonic() < deadline, "old calls are not archived"
                        time.sleep(0.05)
                    assert book.spent(key.id, 0).total == 10
                refused = ask(gateway, secret, f"main/{model}", stream=False, max_tokens=5)
                assert (refused.status, refused.error["code"]) == (429, "insufficient_quota")
                admin = AdminClient(gateway)
                used = admin.get("/admin/usage?by=key,outcome&outcome=completed")
                assert [(row["calls"], row["group"]["key"]) for row in used["usage"]] == [(10, key.id)]
                assert (used["archived_before"] is not None, used["archived_included"]) == (True, True)
                assert admin.get("/admin/entries?since=1h")["archived_before"] is None
                assert admin.get("/admin/entries")["archived_before"] == used["archived_before"]
