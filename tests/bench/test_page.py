"""The parts of `scripts/bench-page` work: the book, the gateway on it, its requests, and the streams."""

import array
import time
from pathlib import Path

import pytest

from bench.page import book
from bench.page.site import Site, delays
from bench.page.views import ask_all
from penstock.gateway.billing.queries import Filter
from penstock.gateway.config import LedgerSettings
from penstock.stores.book.open import open_book
from tests.stores import many_calls

_CALLS = 2_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("page") / "state"
    book.make(made, _CALLS)
    return made


def test_the_book_has_calls_of_every_kind(folder: Path) -> None:
    opened = open_book(LedgerSettings(folder=str(folder)), {}, readonly=True)
    now_ms = time.time_ns() / 1e6
    (newest, _), oldest = opened.entries(Filter(), limit=1)[0], opened.following(Filter(), 0, limit=1)[0][1]
    assert newest == _CALLS
    assert now_ms - oldest.at_ms == pytest.approx(many_calls.DAYS * many_calls.DAY_MS, rel=0.01)
    assert {row.group[0] for row in opened.usage(Filter(), ["outcome"])} == {name for name, _ in many_calls.ENDINGS}
    for wanted in (
        Filter(providers=(many_calls.OLD_PROVIDER,)),
        Filter(repair=many_calls.RARE_REPAIR),
        Filter(keys=(many_calls.RARE_KEY,)),
    ):
        assert 0 < opened.usage(wanted, [])[0].calls < 0.01 * _CALLS, wanted
    opened.close()


def test_the_gateway_answers_what_views_ask_while_streams_run(folder: Path, tmp_path: Path) -> None:
    with Site(folder, tmp_path) as site:
        crowd = site.crowd(30, 20)
        began = time.monotonic()
        took = list(ask_all(site))
        assert len({each.what for each in took}) == len(took) > 30
        _, reported = site.ask("/admin/health?since=30d&bucket=12h")
        assert sum(row["attempts"] for row in reported["rows"]) >= 0.95 * _CALLS
        assert site.cpu_s() > 0
        assert site.megabytes() > 10
        ended = time.monotonic()
        seen = crowd.end()
        reported_delays = delays(seen, began, ended)
        assert reported_delays.events >= 30 * (ended - began) / 0.020 * 0.02  # a busy machine may send few of them
        assert 0 < reported_delays.p50 <= reported_delays.p99 <= reported_delays.most < 60_000


def test_delays_are_of_their_time() -> None:
    seen = array.array("d", [1.0, 0.001, 2.0, 0.003, 2.5, 0.002, 9.0, 0.5])
    assert delays(seen, 2.0, 9.0) == (2, 3.0, 3.0, 3.0)
    assert delays(seen, 20.0, 21.0).events == 0
