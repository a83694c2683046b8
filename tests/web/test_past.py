"""Old calls, frequent calls and long names: each is shown as it was, and nothing overflows the page."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.gateway.record.entry import AttemptEntry, Entry
from penstock.stores.book.open import FILE
from penstock.stores.book.sqlite import SqliteBook
from tests.faults.gateway import Gateway, settings
from tests.faults.upstream import Upstream, chunk, for_ever, head
from tests.streams import begins, says, sse
from tests.web.conftest import Visitor
from tests.web.site import Site, until

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
# The folder for pictures; none are made if it is not set.
PICTURES = os.environ.get("PENSTOCK_PICTURES", "")
_OVERFLOW = "document.body.scrollWidth - document.body.clientWidth"
_SEEN = """(() => {
    const [row, scroll] = [document.querySelector('tbody tr'), document.querySelector('.scroll')];
    return row.querySelector('.name').clientWidth > 100 && scroll.scrollWidth <= scroll.clientWidth;
})()"""


@pytest.fixture(scope="module")
def past(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:  # noqa: ARG001 - it comes first
    """A gateway whose ledger is written by each test."""
    with Upstream() as upstream:
        configuration = settings(upstream.url, 0, admin={"content": True})
        with Gateway(tmp_path_factory.mktemp("past"), upstream, configuration) as gateway:
            yield Site(gateway)


def book(site: Site, *calls: Entry) -> None:
    """Book calls beside the gateway."""
    ledger = SqliteBook.open(site.gateway.file.parent / "state" / FILE)
    ledger.append(calls)
    ledger.close()


def call(id: str, at_ms: float, model: str, **fields: object) -> Entry:
    attempt = AttemptEntry(provider="old", model=model, outcome="completed", cost=1)
    given = {"id": id, "at_ms": int(at_ms), "model": f"old/{model}", "outcome": "completed", "attempts": (attempt,)}
    return Entry(**given | fields)  # type: ignore[arg-type]


def test_the_first_part_of_a_time_is_shown_and_leads_to_its_own_calls(past: Site, visit: Visitor) -> None:
    while time.time() % 1800 > 1790:
        time.sleep(0.1)  # until the next half hour, as this one is over before it is looked at
    began = (time.time() * 1000 - _DAY_MS) // (30 * _MINUTE_MS) * 30 * _MINUTE_MS
    book(past, call("in", began + 30 * _MINUTE_MS - 1, "first"), call("out", began, "first"))
    page = visit("health?since=24h", elsewhere=past)
    section = page.get_by_role("region", name="old first")
    section.get_by_role("link", name="1 attempt").wait_for()
    assert section.locator("svg .completed-fill").count() == 1
    section.locator("summary").click()
    section.locator("table").get_by_role("link", name="1", exact=True).click()
    page.get_by_text("1 call", exact=True).wait_for()


def test_a_repair_that_is_made_often_is_counted_in_so_many_attempts(past: Site, visit: Visitor) -> None:
    now = time.time() * 1000
    often = call("often", now - 5 * _MINUTE_MS, "often", repairs={"tool-id-repeated": 40})
    book(past, often, call("once", now - 20 * _MINUTE_MS, "often", repairs={"tool-id-repeated": 10}))
    page = visit("health?since=1h", elsewhere=past)
    cells = (
        page.get_by_role("region", name="old often").get_by_role("img", name="tool-id-repeated").locator(".warn-fill")
    )
    cells.first.wait_for(state="attached")
    titles = [title.partition(": ")[2] for title in cells.locator("title").all_text_contents()]
    assert titles == ["10 times in 1 attempt", "40 times in 1 attempt"]
    weak, strong = (float(each.get_attribute("fill-opacity") or 0) for each in cells.all())
    assert weak < strong == 1


def test_notices_stand_apart_from_repairs(past: Site, visit: Visitor) -> None:
    now = time.time() * 1000
    both = {"role-repeated": 40, "no-done": 1, "created-changed": 2}
    book(past, call("habit", now - 5 * _MINUTE_MS, "habit", repairs={"role-repeated": 2}))
    book(past, call("both", now - 5 * _MINUTE_MS, "habit", repairs=both))
    page = visit("health?since=1h", elsewhere=past)
    region = page.get_by_role("region", name="old habit")
    region.get_by_role("img", name="no-done").wait_for(state="attached")
    assert region.get_by_role("img", name="role-repeated").count() == 0
    assert region.get_by_text("Notices: ").inner_text() == "Notices: role-repeated ×42, created-changed ×2"
    page.goto(f"{past.url}/#/calls?model=old/habit")
    until(page, "document.querySelectorAll('tbody tr').length === 2")
    cells = [row.locator("td").last.inner_text() for row in page.locator("tbody tr").all()]
    assert sorted(cells) == ["1 notice", "no-done"]
    page.goto(f"{past.url}/#/calls/both")
    page.get_by_role("heading", name="Notices").wait_for()
    reported = [each.inner_text() for each in page.locator("dl.meanings dt").all()]
    assert reported == ["no-done", "role-repeated ×40", "created-changed ×2"]
    assert page.locator("dl.meanings.soft dt").count() == 2
    page.goto(f"{past.url}/#/calls/habit")
    page.get_by_text("No repairs were needed.").wait_for()


def test_days_are_those_of_the_ledger_wherever_they_are_read(past: Site, visit: Visitor) -> None:
    today = int(time.time() * 1000) // _DAY_MS * _DAY_MS
    book(past, call("day", today, "day"))
    page = visit("inspect", elsewhere=past)
    page.context.new_cdp_session(page).send("Emulation.setTimezoneOverride", {"timezoneId": "America/Los_Angeles"})
    page.goto(f"{past.url}/#/spend?since=7d")
    page.reload()  # the zone is asked for once
    marks = page.locator("figure .axis span")
    marks.first.wait_for()
    assert marks.last.inner_text() == f"{datetime.fromtimestamp(today / 1000, UTC):%-d %b}"


def test_all_times_are_in_utc_and_the_page_says_so(past: Site, visit: Visitor) -> None:
    now = datetime.now(UTC)
    noon = datetime(now.year, now.month, now.day, 12, 34, 56, tzinfo=UTC)
    book(past, call("noon", noon.timestamp() * 1000, "noon"))
    book(past, call("noon-before", noon.timestamp() * 1000 - _DAY_MS, "yesterday"))  # today's noon may be to come
    page = visit("inspect", elsewhere=past)
    page.context.new_cdp_session(page).send("Emulation.setTimezoneOverride", {"timezoneId": "America/Los_Angeles"})
    page.goto(f"{past.url}/#/calls?model=old/noon")
    page.reload()  # the page creates its formats when it is loaded
    page.get_by_text("Times in UTC").wait_for()
    assert page.locator("tbody time").inner_text() == "12:34:56"
    assert page.locator("tbody time").get_attribute("title") == f"{noon:%-d %b %Y}, 12:34:56 UTC"
    assert page.locator("th").first.inner_text() == "Time (UTC)"
    page.goto(f"{past.url}/#/calls/noon")
    page.get_by_text(f"{noon:%-d %b %Y}, 12:34:56 UTC").wait_for()
    page.goto(f"{past.url}/#/health?since=7d")
    section = page.get_by_role("region", name="old yesterday")
    section.locator("summary").click()
    assert section.locator("th").first.inner_text() == "From (UTC)"
    assert "12:00" in section.locator("tbody td").first.inner_text()


def test_a_day_that_is_cut_leads_to_what_was_counted_of_it(past: Site, visit: Visitor) -> None:
    cut = time.time() * 1000 - 7 * _DAY_MS
    book(past, call("week-in", cut + _MINUTE_MS, "week"), call("week-out", cut - _MINUTE_MS, "week"))
    page = visit("spend?by=day&since=7d", elsewhere=past)
    row = page.locator("tbody tr").last
    row.wait_for()
    counted = row.locator("[data-what=calls] a")
    number = counted.inner_text()
    counted.click()
    page.get_by_text(f"{number} call", exact=True).wait_for()


def test_times_are_rounded_as_a_whole(past: Site, visit: Visitor) -> None:
    took = {119_600: "2 min 0 s", 59_990: "1 min 0 s", 61_400: "1 min 1 s", 9_000: "9.00 s", 59_000: "59.0 s"}
    book(past, *(call(f"took-{ms}", 1, "took", duration_ms=ms) for ms in took))
    page = visit("calls?model=old/took", elsewhere=past)
    until(page, f"document.querySelectorAll('tbody tr').length === {len(took)}")
    assert {each.inner_text() for each in page.locator("[data-what=took]").all()} == set(took.values())


@pytest.mark.parametrize("width", [1280, 390])
def test_long_names_push_nothing_out_of_sight(past: Site, visit: Visitor, width: int) -> None:
    model = f"main/{'m' * 240}"
    key = past.ask("POST", "/admin/keys", {"name": f"{width:k>200}", "budget": "1", "period": "day"})
    now, long = time.time() * 1000, "l" * 256
    attempts = tuple(AttemptEntry(provider=long, model=long, outcome="completed", price=long) for _ in range(2))
    fields = {"key": key["id"], "repairs": {"no-done": 1}, "tags": {"team": long}, "user": long, "code": long}
    book(past, call(f"long-{width}", now, long, attempts=attempts, **fields))
    past.upstream.play([head(), chunk(sse(begins())), for_ever(sse(says("drop ")), 0.02)], model.removeprefix("main/"))
    page, found = visit("inspect", elsewhere=past, width=width), {}
    views = ["live", "calls", f"calls/long-{width}", "health", f"health?provider={long}", "spend", "spend?by=key", long]
    with past.begin(model):
        for view in [*views, f"playground?model={model}"]:
            page.goto(f"{past.url}/#/{view}")
            page.reload()
            until(page, "document.querySelector('h1') && !document.querySelector('main [aria-busy=true]')")
            if view == "live":
                page.locator("tbody tr", has_text="streaming").first.get_by_role("link").press("Enter")
                page.get_by_role("log").get_by_text("drop drop").wait_for()
            if view == "calls":
                page.locator("tbody tr").first.wait_for()
                assert page.evaluate(_SEEN), "the model or the repairs are out of sight"
            if more := page.evaluate(_OVERFLOW):
                found[view] = more
            if PICTURES:
                name = view.partition("?")[0][:12].replace("/", "-")
                page.screenshot(path=Path(PICTURES) / f"long-{name}-{width}.png", full_page=True)
    assert not found, found


def test_a_provider_that_is_down_now_stands_out_after_a_good_day(past: Site, visit: Visitor) -> None:
    now = time.time() * 1000
    good = [call(f"good-{number}", now - 3 * _HOUR_MS, "wobbly") for number in range(98)]
    failed = AttemptEntry(provider="old", model="wobbly", outcome="failed", code="upstream_http_500")
    bad = [call(f"bad-{number}", now - 20_000, "wobbly", outcome="failed", attempts=(failed,)) for number in range(2)]
    fine = AttemptEntry(provider="other", model="calm", outcome="completed", cost=1)
    book(past, *good, *bad, call("calm", now - 20_000, "calm", attempts=(fine,)))
    page = visit("health?since=24h", elsewhere=past)
    section = page.locator("section.now")
    row = section.get_by_role("row").filter(has_text="old/wobbly")
    row.get_by_text("down now").wait_for()
    assert "2 of 2 (100%)" in row.inner_text()
    assert "2.0%" in row.inner_text(), "the share of the day is beside it"
    assert section.get_by_role("row").filter(has_text="other/calm").count() == 0
    book(past, call("again", time.time() * 1000, "wobbly"))
    row.get_by_text("67% errors now").wait_for()  # it refreshes itself
    row.get_by_role("link", name="old/wobbly").click()
    until(page, "document.querySelectorAll('tbody tr').length === 3")
