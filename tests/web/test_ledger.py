"""Calls, spend and health: every booked call can be found, and every number links to its calls."""

import csv
import json
import re
import shlex
import signal
import time
from pathlib import Path

from playwright.sync_api import Page

from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import HELLO, whole
from tests.faults.upstream import Upstream, chunk, hang, head
from tests.web.conftest import Visitor
from tests.web.site import Site, until
from tests.web.traffic import CUT, FAILED, REPAIRED, STALLED, WHOLE, call_with

# One more than a page has.
_KEYS = 501
_ROWS = "document.querySelectorAll('tbody tr')"


def rows(page: Page) -> int:
    page.locator("tbody tr").first.wait_for()
    return page.locator("tbody tr").count()


def test_calls_are_listed_and_older_ones_after_them(visit: Visitor) -> None:
    page = visit("calls")
    assert rows(page) == 100
    page.get_by_role("link", name="Older").click()
    page.get_by_role("link", name="Newest").wait_for()
    older = page.url
    assert "before=" in older
    assert 0 < rows(page) < 100
    page.reload()
    page.get_by_role("link", name="Newest").wait_for()
    assert page.url == older
    page.go_back()
    page.get_by_role("link", name="Older").wait_for()


def test_filters_stand_in_the_address_and_survive_a_reload(site: Site, visit: Visitor) -> None:
    page = visit("calls")
    truncated = site.truncated()
    page.get_by_label("Outcome", exact=True).select_option("truncated")
    page.get_by_text(truncated, exact=True).wait_for()
    assert rows(page) == int(truncated.split()[0])
    assert "outcome=truncated" in page.url
    page.reload()
    page.get_by_text(truncated, exact=True).wait_for()
    assert page.get_by_label("Outcome", exact=True).input_value() == "truncated"
    assert page.get_by_role("link", name=CUT).count() == 1
    page.get_by_label("Model").fill("main/none")
    page.get_by_label("Model").press("Enter")
    page.get_by_text("No calls match this filter").wait_for()
    page.get_by_text("need the exact name").wait_for()
    page.go_back()
    page.get_by_text(truncated, exact=True).wait_for()
    page.get_by_role("link", name="Clear filters").click()
    page.get_by_role("link", name="Older").wait_for()


def test_what_is_in_the_book_is_offered(visit: Visitor) -> None:
    page = visit("calls")
    for label, expected in (("Model", WHOLE), ("Provider", "main")):
        page.get_by_label(label).focus()
        offered = page.locator(f"datalist#known-{label.lower()} option")
        offered.first.wait_for(state="attached")
        assert expected in offered.evaluate_all("options => options.map(({value}) => value)")


def test_each_filter_finds_its_calls(site: Site, visit: Visitor) -> None:
    page = visit("calls")
    for query, model in (
        ("repair=no-done", REPAIRED),
        ("outcome=failed", FAILED),
        ("key=ci", WHOLE),
        ("provider=spare", "pair-0"),
        ("target=main%2Fpair-0-a&attempt=failed", "pair-0"),
        (f"model={STALLED}&since=1h", STALLED),
        ("tag=team%3Dred", WHOLE),
    ):
        page.goto(f"{site.url}/#/calls?{query}")
        until(page, f"{_ROWS}.length === 1 && {_ROWS}[0].innerText.includes('{model}')")


def test_repairs_that_were_met_are_offered_first(visit: Visitor) -> None:
    page = visit(f"calls?model={REPAIRED}")
    assert rows(page) == 1
    offered = page.get_by_label("Repair").locator("option").all_inner_texts()
    assert page.locator("a.chip").inner_text() == offered[1]
    assert offered[0] == "Any"
    assert len(offered) == len(set(offered))


def test_a_call_tells_of_its_attempts_on_one_clock(visit: Visitor) -> None:
    page = visit("calls?provider=spare")
    page.get_by_role("link", name="pair-0").click()
    page.get_by_role("heading", name="Attempts").wait_for()
    bars = page.locator(".fall svg")
    assert bars.count() == 2
    assert "main: started at" in (bars.nth(0).get_attribute("aria-label") or "")
    assert "failed after" in (bars.nth(0).get_attribute("aria-label") or "")
    assert "completed after" in (bars.nth(1).get_attribute("aria-label") or "")
    assert page.get_by_text("reported by the provider").count() == 1
    assert page.get_by_text("not billed: nothing was generated").count() == 1
    assert page.get_by_text("configured").count() == 2


def test_a_call_that_stalled_shows_where(visit: Visitor) -> None:
    page = visit(f"calls?model={STALLED}")
    page.get_by_role("link", name=STALLED).click()
    story = page.locator(".fall svg").first
    story.wait_for()
    assert "1 stall" in (story.get_attribute("aria-label") or "")
    reported = re.fullmatch(r"no data for ([0-9.]+) s", story.locator("title").text_content() or "")
    assert reported
    assert float(reported[1]) >= 1.0  # of 1.1 s: the data before the stall may have been read late


def test_on_a_phone_the_time_of_a_call_has_its_place(visit: Visitor) -> None:
    page = visit("calls", width=390)
    rows(page)
    below = "row => row.querySelector('time').getBoundingClientRect().top > row.querySelector('.name').offsetTop + 10"
    left = "row => row.querySelector('time').getBoundingClientRect().left"
    assert page.evaluate(f"[...{_ROWS}].every({below})")
    assert page.evaluate(f"new Set([...{_ROWS}].map({left})).size") == 1


def test_on_a_phone_nothing_of_a_call_is_cut(visit: Visitor) -> None:
    page = visit("calls?provider=spare", width=390)
    page.get_by_role("link", name="pair-0").click()
    page.get_by_role("heading", name="Usage and price").wait_for()
    assert page.evaluate(
        "[...document.querySelectorAll('.scroll')].every((each) => each.scrollWidth <= each.clientWidth)"
    )
    assert "reported by the provider" in page.locator("tbody").inner_text()


def test_repairs_are_reported_with_their_meaning(visit: Visitor) -> None:
    page = visit("calls?repair=no-done")
    page.get_by_role("link", name=REPAIRED).click()
    page.get_by_text("The marker of the end is missing: [DONE], the event message_stop").wait_for()
    assert page.get_by_text("estimated: the provider reported no usage").count() == 1


def test_a_call_is_copied_as_a_request_like_it(site: Site, visit: Visitor) -> None:
    page = visit("calls?outcome=truncated")
    page.get_by_role("link", name=CUT).click()
    page.get_by_role("button", name="Copy as curl").click()
    page.get_by_role("button", name="Copied").wait_for()
    words = shlex.split(page.evaluate("navigator.clipboard.readText()").replace("\\\n", " "))
    assert f"http://127.0.0.1:{site.gateway.port}/v1/chat/completions" in words
    sent = json.loads(words[words.index("-d") + 1])
    assert (sent["model"], sent["stream"]) == (CUT, True)


def test_a_call_that_is_not_there_says_what_to_do(visit: Visitor) -> None:
    page = visit("calls/req_none", expected="404")
    page.get_by_text("There is no entry with this id").wait_for()
    page.get_by_text("A call is listed a moment after it ends").wait_for()


def test_spend_leads_to_the_calls_behind_it(visit: Visitor) -> None:
    page = visit("spend?by=key")
    page.get_by_role("link", name="Provider", exact=True).click()
    page.get_by_role("heading", name="By provider").wait_for()
    assert "by=provider" in page.url
    page.reload()
    row = page.locator("tbody tr", has_text="spare")
    row.get_by_role("link", name="1", exact=True).click()
    page.get_by_role("heading", name="Calls").wait_for()
    assert rows(page) == 1
    page.go_back()
    page.get_by_role("heading", name="By provider").wait_for()


def test_spend_of_a_month_of_the_calendar_rolls_teams_up(visit: Visitor, site: Site) -> None:
    month = time.strftime("%Y-%m", time.gmtime())
    page = visit(f"spend?by=tree&month={month}")
    page.get_by_role("heading", name="By team, with the teams below").wait_for()
    assert page.get_by_label("Month", exact=True).input_value() == month
    with page.expect_download() as started:
        page.get_by_role("link", name="Export CSV").click()
    lines = list(csv.DictReader(started.value.path().read_text(encoding="utf-8").splitlines()))
    reported = site.ask("GET", f"/admin/usage?by=tree&month={month}")["usage"]
    assert {line["tree"]: int(line["calls"]) for line in lines} == {
        row["group"]["tree"]: row["calls"] for row in reported
    }
    page.get_by_role("link", name="Month", exact=True).click()
    page.get_by_label("Month", exact=True).select_option("")
    page.get_by_role("link", name=month, exact=True).click()
    page.get_by_role("heading", name="By day").wait_for()
    assert page.url.endswith(f"spend?by=day&month={month}")
    assert rows(page) >= 1


def test_budgets_say_what_is_spent_and_left(visit: Visitor) -> None:
    page = visit("spend")
    budget = page.locator(".budget").filter(has_text="$0.02 per day")
    budget.wait_for()
    assert "ci" in budget.inner_text()
    assert "$0.000011 spent" in budget.inner_text()
    assert re.search(r"renews .* 00:00:00 UTC", budget.inner_text())
    assert "left" in (budget.locator("svg").get_attribute("aria-label") or "")
    budget.get_by_role("link", name="ci").click()
    page.get_by_role("heading", name="Calls").wait_for()
    assert rows(page) == 1


def test_budgets_beyond_the_first_page_of_keys_are_reported(visit: Visitor, tmp_path: Path) -> None:
    with Upstream() as upstream, Gateway(tmp_path, upstream, settings(upstream.url, 0)) as gateway:
        there = Site(gateway)
        upstream.play(whole(), "whole")
        wanted = [{"name": f"key-{number}", "budget": "1", "period": "day"} for number in range(_KEYS)]
        keys = [there.ask("POST", "/admin/keys", each) for each in wanted]
        call_with(there, WHOLE, keys[-1]["secret"])
        there.booked("/admin/entries?outcome=completed", len)
        page = visit("spend", elsewhere=there)
        page.get_by_text(f"Showing the 200 most used of {_KEYS} budgets.").wait_for()
        budgets = page.locator(".budget header a").all_inner_texts()
        assert len(budgets) == 200
        assert budgets[0] == f"key-{_KEYS - 1}"
        page.close()  # before its gateway ends


def test_code_in_the_meaning_of_a_repair_is_shown_as_code(visit: Visitor) -> None:
    page = visit("calls?repair=no-done")
    page.locator("tbody tr").first.get_by_role("link").first.click()
    meaning = page.locator("dl.meanings dd", has_text="The marker of the end")
    meaning.wait_for()
    assert "`" not in meaning.inner_text()
    assert meaning.locator("code").all_inner_texts() == ["[DONE]", "message_stop", "metadata"]


def test_health_shows_what_each_provider_does(visit: Visitor) -> None:
    page = visit("health?since=1h")
    section = page.get_by_role("region", name="main repaired")
    section.wait_for()
    assert section.get_by_role("link", name="no-done").count() == 1
    missing = section.get_by_role("img", name="usage missing")
    assert "1 time, first at" in (missing.get_attribute("aria-label") or "")
    assert missing.locator(".warn-fill").count() == 1
    assert section.locator(".strip .axis").inner_text().strip()
    dot = section.locator("circle.p50").bounding_box()
    assert dot
    assert min(dot["width"], dot["height"]) >= 6
    assert "longest gap: p50" in section.locator("header").inner_text()
    first_event = section.get_by_role("img", name="Time to first event")
    assert re.fullmatch(r"[\d.]+ m?s", first_event.locator(".scale").text_content() or "")
    assert section.locator(".p50-key").inner_text().startswith("p50 ")
    assert section.locator(".p95-key").inner_text().startswith("p95 ")
    cut = page.get_by_role("region", name="main cut")
    assert "1 truncated" in cut.inner_text()
    assert "1 error (100%)" in cut.inner_text()
    assert cut.locator("svg .truncated-fill").count() == 1
    cut.locator("summary").click()
    cut.locator("table").get_by_role("link", name="1", exact=True).click()
    page.get_by_role("heading", name="Calls").wait_for()
    assert "until=" in page.url
    assert rows(page) == 1  # of this model alone, though many others were asked then
    assert page.get_by_label("Target").input_value() == "main/cut"
    page.go_back()
    page.get_by_role("link", name="7 days").click()
    page.get_by_role("region", name="main repaired").get_by_role("link", name="no-done").click()
    assert rows(page) == 1
    assert "repair=no-done" in page.url


def test_a_call_that_ended_with_its_gateway_took_its_time_and_is_not_blamed_on_its_provider(
    visit: Visitor, tmp_path: Path
) -> None:
    with Upstream() as upstream:
        text = settings(upstream.url, 0)
        upstream.play([head(), chunk(HELLO), hang()], "killed")
        with Gateway(tmp_path, upstream, text) as gateway, gateway.begin("main/killed", stream=True) as client:
            client.read_until(b"Hello")
            gateway.stop(signal.SIGKILL)
        with Gateway(tmp_path, upstream, text) as gateway:
            there = Site(gateway)
            (entry,) = there.booked("/admin/entries?outcome=orphaned", len)
            page = visit(f"calls/{entry['id']}", elsewhere=there)
            page.get_by_role("heading", name="main/killed").wait_for()
            reported = page.locator("main").inner_text()
            assert "gateway_died" in reported
            assert not re.search(r"(Duration|orphaned after)\s+0 ms", reported)
            health = visit("health?since=1h", elsewhere=there)
            section = health.get_by_role("region", name="main killed")
            section.wait_for()
            assert "1 orphaned" in section.inner_text()
            assert "0 errors" in section.inner_text()
            assert "usage missing" not in section.inner_text()
            page.close()  # before its gateway ends
            health.close()


def test_losses_are_reported_with_their_meaning(visit: Visitor, tmp_path: Path) -> None:
    with Upstream() as upstream:
        refusing = f'[providers.old]\nbase_url = "{upstream.url}"\ninclude_usage = false\n'
        with Gateway(tmp_path, upstream, settings(upstream.url, 0, admin={}) + refusing) as gateway:
            there = Site(gateway)
            upstream.play(whole(), "whole")
            with there.begin("old/whole", stream_options={"include_usage": True}) as client:
                assert client.response().headers["x-penstock-losses"] == "option-refused-by-provider=1"
            there.booked("/admin/entries", len)
            page = visit("calls", elsewhere=there)
            page.get_by_role("link", name="old/whole").click()
            page.get_by_role("heading", name="Losses").wait_for()
            assert page.get_by_text("The provider is known to refuse a field that the client sent").count() == 1
            page.close()  # before its gateway ends
