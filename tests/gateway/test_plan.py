"""Plans are made once for each name, and are correct for each kind of call, also when prices change."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from penstock.gateway.billing.ledger import Ledger
from penstock.gateway.billing.price_table import Clause, ModelRow, PriceTable, Seller, Term
from penstock.gateway.billing.prices import PriceBook
from penstock.gateway.calls.plan import Plan, Plans
from penstock.gateway.config import Config, load
from penstock.gateway.limits.accounts import LocalAccounts
from penstock.gateway.record.price import Price, Rates
from penstock.stores.journal import Journal

TEXT = """
[server]
heartbeat_s = 5
record = "everything"
[providers.acme]
base_url = "https://acme.example/v1"
api_key = "sk-acme-0123456789"
abort = "drain"
drain_s = 7
[providers.able]
base_url = "https://able.example/v1"
embeddings = "/embeddings"
include_usage = false
[routes.both]
targets = ["acme/a", "able/b"]
set = { temperature = 0 }
record = ""
[routes.slow]
targets = ["acme/a"]
timeouts = { first_event_s = 2, total_s = 30 }
"""
ONE = Price(Rates(input=1))


def config(folder: Path) -> Config:
    file = folder / "penstock.toml"
    file.write_text(TEXT, encoding="utf-8")
    return load(file, {})


def found(plans: Plans, name: str) -> tuple[Plan, ...]:
    made = plans[name]
    assert made is not None
    assert plans[name] is made
    return made


def test_each_target_of_a_route_has_its_plan(tmp_path: Path) -> None:
    acme, able = found(Plans(config(tmp_path), "streamed", recorded=True), "both")
    assert (acme.provider, acme.model, acme.secrets) == ("acme", "a", ("sk-acme-0123456789",))
    assert (able.provider, able.model, able.secrets) == ("able", "b", ())
    assert (acme.destination.include_usage, able.destination.include_usage) == (True, False)
    assert acme.alternatives == able.alternatives == (acme.target, able.target)
    assert acme.destination.overrides == able.destination.overrides == {"temperature": 0}
    assert repr(acme) == "Plan('acme/a')"
    assert (acme.record, acme.timeouts.drain_s, able.timeouts.drain_s) == ("", 7, 0)


def test_a_route_has_its_own_timeout(tmp_path: Path) -> None:
    plans = Plans(config(tmp_path), "streamed", recorded=False)
    ((slow,), (usual,)) = found(plans, "slow"), found(plans, "acme/a")
    assert (slow.timeouts.first_check_s, slow.timeouts.first_event_s, slow.timeouts.total_s) == (2, 2, 30)
    assert (usual.timeouts.first_check_s, usual.timeouts.first_event_s, usual.timeouts.total_s) == (5, 60, 900)
    assert slow.record == ""  # there is no recorder


def test_an_answer_that_is_not_streamed_may_come_late_and_be_large(tmp_path: Path) -> None:
    (whole,) = found(Plans(config(tmp_path), "whole", recorded=True), "acme/a")
    assert (whole.timeouts.first_event_s, whole.timeouts.first_check_s) == (600, 600)
    assert (whole.max_event, whole.record, whole.opening_template) == (32_000_000, "everything", None)


def test_embeddings_are_asked_of_those_that_have_them(tmp_path: Path) -> None:
    plans = Plans(config(tmp_path), "embeddings", recorded=False)
    (able,) = found(plans, "both")
    assert (able.provider, able.alternatives, able.timeouts.first_event_s) == ("able", (able.target,), 60)
    assert found(plans, "acme/a") == ()


def test_only_so_many_names_of_clients_are_remembered_and_every_route(tmp_path: Path) -> None:
    plans = Plans(config(tmp_path), "streamed", recorded=False)
    for number in range(1_500):
        assert plans[f"acme/{number}"] is not None
        assert plans[f"nobody/{number}"] is None
    assert len(plans) == 1_000
    assert found(plans, "acme/0") != found(plans, "both")
    assert plans["acme/1499"] is not plans["acme/1499"]
    ((first,), (last,)) = found(plans, "acme/0"), plans["acme/1499"] or ()
    assert first.opening_template is not None
    assert last.opening_template is None
    assert len(plans) == 1_001


def test_names_that_a_pattern_matches_are_remembered_only_so_far(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(f'{TEXT}[routes."x-*"]\ntargets = ["acme/*"]\n', encoding="utf-8")
    settings = load(tmp_path / "penstock.toml", {})
    plans = Plans(settings, "streamed", recorded=False)
    for number in range(1_500):
        (plan,) = plans[f"x-{number}"] or ()
        assert (plan.route, plan.model) == (f"x-{number}", f"x-{number}")
    assert len(plans) == 1_000


def test_a_full_name_is_found_without_being_remembered(tmp_path: Path) -> None:
    plans = Plans(config(tmp_path), "streamed", recorded=False)
    assert [plans.full_name(name) for name in ("acme/a", "both", "smollm2", "unknown")] == [
        "acme/a",
        "both",
        "local/smollm2",
        "unknown",
    ]
    assert not plans
    assert found(plans, "smollm2")[0].route == plans.full_name("smollm2") == "local/smollm2"


# Prices


@contextmanager
def kept(folder: Path, prices: PriceBook, providers: Config) -> Iterator[Ledger]:
    journal = Journal(folder / "journal", 65_536)
    try:
        yield Ledger(journal, LocalAccounts(), prices, providers.providers)
    finally:
        journal.close()


def sold(*terms: Term) -> PriceTable:
    rows = msgspec.msgpack.encode((ModelRow(Clause("equals", "a"), terms),))
    return PriceTable("table", (Seller("acme", "https://nowhere", None, (), msgspec.Raw(rows)),))


def test_a_plan_goes_by_the_prices_that_hold_now(tmp_path: Path) -> None:
    """A reload changes prices while calls of the previous configuration are still in progress."""

    async def run() -> None:
        settings = config(tmp_path)
        plans = list(found(Plans(settings, "streamed", recorded=False), "acme/a"))
        with kept(tmp_path, PriceBook(PriceTable()), settings) as ledger:
            assert ledger.affordable(plans) == []
            ledger.prices = PriceBook(PriceTable(), {"acme/*": ONE})
            assert ledger.affordable(plans) == plans
            ledger.prices = PriceBook(PriceTable())
            assert ledger.affordable(plans) == []

    asyncio.run(run())


@pytest.mark.slow
def test_a_price_is_looked_up_again_when_it_changes(tmp_path: Path) -> None:
    async def run() -> None:
        settings = config(tmp_path)
        plans = list(found(Plans(settings, "streamed", recorded=False), "acme/a"))
        changes_s = int(time.time()) + 2
        table = sold(Term(None), Term(ONE, since_s=changes_s))
        with kept(tmp_path, PriceBook(table), settings) as ledger:
            assert ledger.affordable(plans) == []
            await asyncio.sleep(changes_s - time.time() + 0.01)
            assert ledger.affordable(plans) == plans

    asyncio.run(run())
