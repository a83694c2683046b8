"""Live: running streams are listed, read as they arrive, and stopped."""

import json
import re
import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page

from tests.faults.gateway import Gateway, settings
from tests.faults.upstream import Gate, Upstream, chunk, for_ever, hang, head
from tests.promptness import Late, in_time, prompt
from tests.serve.support import AdminClient, events
from tests.streams import begins, says, sse
from tests.web.conftest import Visitor
from tests.web.site import Site, until
from tests.web.traffic import endless, finite

_STOP_S = 0.1
_WAIT_S = 30.0
_MANY = 230
_COUNT_NEW_ROWS = """() => {
    window.made = 0;
    new MutationObserver((changes) => { for (const {addedNodes} of changes) window.made += addedNodes.length; })
        .observe(document.querySelector('tbody'), {childList: true});
}"""


def test_with_no_traffic_it_says_what_it_is_and_how_to_begin(visit: Visitor) -> None:
    page = visit("live")
    page.get_by_text("No calls are running").wait_for()
    page.get_by_role("link", name="Send a test prompt").click()
    page.get_by_role("heading", name="Playground").wait_for()
    assert page.locator("#prompt").input_value()
    until(page, "document.querySelector('[list=known-models]')?.value")


def test_tokens_appear_while_a_stream_runs(site: Site, visit: Visitor) -> None:
    page, model = visit("live"), endless(site)
    with site.begin(model):
        row = row_of(page, model)
        reach(page, row, 4)
        row.evaluate("row => { row.mark = 1; }")
        reach(page, row, tokens(row) + 5)
        assert row.evaluate("row => row.mark") == 1, "the row was made anew"
        assert "streaming" in row.inner_text()
        until(page, "document.querySelector('.spark path').getAttribute('d').includes('L')")
    row.get_by_text("cancelled").wait_for()
    page.get_by_text("No calls are running").wait_for()


def test_its_text_is_read_as_it_arrives(site: Site, visit: Visitor) -> None:
    gate = Gate()
    page, model = visit("live"), finite(site, 80, 0.01, gate)
    with site.begin(model) as client:
        row_of(page, model).get_by_role("link").click()
        log = page.get_by_role("log")
        log.get_by_text(re.compile(r"w(\d+) w\d+ w\d+")).wait_for()
        assert "w79" not in log.inner_text()
        here = page.url
        page.reload()
        log.get_by_text(re.compile(r"^w0 w1 w2 ")).wait_for()  # all of it, though it was opened late
        assert "no longer kept" not in log.inner_text()
        assert page.url == here
        gate.open()
        log.get_by_text("w78 w79").wait_for()
        client.response()
    site.booked(f"/admin/entries?model={model}", len)
    page.get_by_role("link", name="View call").click()
    page.get_by_role("heading", name="Attempts").wait_for()


@pytest.mark.parametrize("width", [1280, 390])
def test_a_row_shows_its_key_and_its_longest_gap(site: Site, visit: Visitor, width: int) -> None:
    page, model = visit("live", width=width), endless(site)
    key = site.ask("POST", "/admin/keys", {"name": f"live-{width}"})
    known_by = time.monotonic() + _WAIT_S
    while (client := site.begin(model, key["secret"])).read_until(b"\r\n").startswith(b"HTTP/1.1 401"):
        client.close()  # a new key is known to all workers a moment later
        assert time.monotonic() < known_by
    with client:
        row = row_of(page, model)
        row.get_by_role("link").click()
        page.get_by_role("log").get_by_text("drop drop").wait_for()
        row.get_by_text(f"live-{width}").wait_for()
        row.locator(".gap span").get_by_text(re.compile(r"^\d+ ms$")).wait_for()
        assert row.evaluate("row => [...row.cells].every((cell) => cell.scrollWidth <= cell.clientWidth)"), "cut off"


def test_what_each_choice_has_sent_is_together(site: Site, visit: Visitor) -> None:
    sent_text = [
        chunk(sse(says(f"{name}{number} ", index=index))) for number in range(9) for index, name in enumerate("ab")
    ]
    name = site.upstream.play([head(), chunk(sse(begins(), begins(1))), *sent_text, hang()])
    with site.begin(f"main/{name}") as client:
        client.read_until(b"b8")
        page = visit("live")
        row_of(page, name).get_by_role("link").click()
        log = page.get_by_role("log")
        log.get_by_text("a0 a1 a2 a3 a4 a5 a6 a7 a8").wait_for()
        log.get_by_role("heading", name="Choice 2").wait_for()
        log.get_by_text("b0 b1 b2 b3 b4 b5 b6 b7 b8").wait_for()


@prompt
def test_stop_ends_the_upstream_within_a_tenth_of_a_second(site: Site, visit: Visitor) -> None:
    page, model = visit("live"), endless(site)
    with site.begin(model) as client:
        _clicks_are_timed(page)
        page.get_by_role("button", name=f"Stop {model}").click()
        connection = site.upstream.connection(model.removeprefix("main/"))
        site.upstream.until(lambda: connection.closed_at)
        closed_s = connection.closed_at + time.time() - time.monotonic()
        took = closed_s - page.evaluate("window.clicked") / 1000
        response = client.response()
        assert response.complete
        assert b"stopped_by_operator" in response.body
        assert b"[DONE]" not in response.body
    assert took >= 0
    in_time(took, _STOP_S)


def test_one_that_is_read_can_be_stopped_there(site: Site, visit: Visitor) -> None:
    page, model = visit("live"), endless(site)
    with site.begin(model):
        row_of(page, model).get_by_role("link").click()
        page.get_by_role("log").get_by_text("drop drop").wait_for()
        page.get_by_role("complementary").get_by_role("button", name="Stop").click()
        connection = site.upstream.connection(model.removeprefix("main/"))
        site.upstream.until(lambda: connection.closed_at)
        page.get_by_role("link", name="View call").wait_for()


def test_a_pause_holds_the_list_still(site: Site, visit: Visitor) -> None:
    page, model = visit("live"), endless(site)
    with site.begin(model):
        row = row_of(page, model)
        reach(page, row, 4)
        page.get_by_role("button", name="Pause").click()
        paused_at = tokens(row)
        page.wait_for_timeout(1_200)
        assert tokens(row) == paused_at
        page.get_by_role("button", name="Resume").click()
        reach(page, row, paused_at + 1)


def test_where_content_is_not_allowed_it_says_how_to_allow_it(visit: Visitor, tmp_path: Path) -> None:
    with Upstream() as upstream, Gateway(tmp_path, upstream, settings(upstream.url, 0)) as gateway:
        private = Site(gateway)
        page, model = visit("live", elsewhere=private), endless(private)
        with private.begin(model):
            row_of(page, model).get_by_role("link").click()
            page.get_by_role("log").get_by_text("set content = true under [admin]").wait_for()
            page.wait_for_timeout(600)
            assert "drop" not in page.locator("main").inner_text()
        page.close()  # before its gateway ends, which it would look for


def test_a_gateway_that_dies_is_looked_for_and_what_was_read_stays(visit: Visitor, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        admin = {"content": True, "listen": f"127.0.0.1:{free.getsockname()[1]}"}
    with Upstream() as upstream:
        configuration = settings(upstream.url, 0, admin=admin)
        with Gateway(tmp_path, upstream, configuration) as gateway:
            there = Site(gateway)
            page, model = visit("live", elsewhere=there, expected="Failed to load resource"), endless(there)
            asking = visit(f"playground?model={model}", elsewhere=there, expected="Failed to load resource")
            asking.get_by_label("Prompt", exact=True).fill("Say something")
            asking.get_by_role("button", name="Send").click()
            asking.get_by_role("log").get_by_text("drop drop").wait_for()
            asked = there.begin(model)
            row_of(page, model).get_by_role("link").first.click()
            page.get_by_role("log").get_by_text("drop drop").wait_for()
            gateway.stop(signal.SIGKILL)
        asked.close()
        for each in (page, asking):
            each.get_by_role("alert").get_by_text("gateway is not responding").first.wait_for()
            assert "has a defect" not in each.locator("main").inner_text()
            assert "drop drop" in each.get_by_role("log").inner_text()
        page.get_by_role("log").get_by_text("Connection lost").wait_for()
        page.get_by_text("this page reconnects by itself").wait_for()
        with Gateway(tmp_path, upstream, configuration):
            page.get_by_role("link", name="View call").wait_for()
            assert "its outcome is not known" in page.locator("aside footer").inner_text()
            row = page.locator("tbody tr.chosen")
            assert "ended" in row.inner_text()
            assert "streaming" not in row.inner_text()
            assert not row.get_by_role("button", name="Stop").is_visible()
            assert "drop drop" in page.get_by_role("log").inner_text()
            assert not page.get_by_role("alert").count()
            page.close()  # before its gateway ends, which it would look for


def test_a_text_that_broke_off_is_read_on(site: Site, visit: Visitor) -> None:
    gate = Gate()
    page, model = visit("live", expected="Failed to load resource"), finite(site, 40, 0.01, gate)
    with site.begin(model) as client:
        page.route("**/text", lambda route: route.abort("connectionreset"), times=1)
        row_of(page, model).get_by_role("link").click()
        log = page.get_by_role("log")
        log.get_by_text("Connection lost").wait_for()
        log.get_by_text(re.compile(r"^w0 w1 w2 ")).wait_for()
        gate.open()
        log.get_by_text("w38 w39").wait_for()
        assert not log.get_by_text("Connection lost").count()
        client.response()


def test_more_than_can_be_listed_stay_usable(site: Site, visit: Visitor) -> None:
    page, model = visit("live"), endless(site, gap_s=1.0)
    with ExitStack() as streams:
        for _ in range(_MANY):
            streams.enter_context(site.begin(model))
        page.get_by_text(f"Showing the newest 200 of {_MANY} running calls.").wait_for()
        page.evaluate(_COUNT_NEW_ROWS)
        reach(page, page.locator("tbody tr:not(.over)").first, 2)
        page.wait_for_timeout(1_000)
        assert page.locator("tbody tr:not(.over)").count() == 200
        assert page.evaluate("window.made") == 0, "rows were made anew"
        page.locator("tbody tr:not(.over)").last.get_by_role("link").click()
        page.get_by_role("log").get_by_text("drop").wait_for()


def test_any_of_more_than_can_be_listed_is_reached(site: Site, visit: Visitor) -> None:
    page, many, gate = visit("live"), endless(site, gap_s=1.0), Gate()
    name = site.upstream.play([head(), chunk(sse(begins())), gate, for_ever(sse(says("drop ")), 0.1)])
    wanted = f"main/{name}"
    rows = page.locator("tbody tr:not(.over)")
    with ExitStack() as streams:
        streams.enter_context(site.begin(wanted))
        for _ in range(_MANY):
            streams.enter_context(site.begin(many))
        page.get_by_text(f"Showing the newest 200 of {_MANY + 1} running calls.").wait_for()
        assert not row_of(page, wanted).count()
        page.get_by_role("link", name="Older").click()
        row_of(page, wanted).wait_for()
        until(page, f"document.querySelectorAll('tbody tr:not(.over)').length === {_MANY + 1 - 200}")
        assert page.get_by_role("link", name="Older").count() == 0
        page.reload()
        row_of(page, wanted).wait_for()
        gate.open()  # so it is listed before it has said anything, and out of sight
        reach(page, row_of(page, wanted), 2)
        page.get_by_role("link", name="Newest").click()
        page.get_by_text(f"Showing the newest 200 of {_MANY + 1} running calls.").wait_for()
        page.get_by_label("Search").fill(wanted.upper())
        row_of(page, wanted).wait_for()
        until(page, "document.querySelectorAll('tbody tr:not(.over)').length === 1")
        page.get_by_text(f"Showing 1 of {_MANY + 1} running calls.").wait_for()
        row_of(page, wanted).get_by_role("link").click()
        page.get_by_role("log").get_by_text("drop").wait_for()
        assert rows.count() == 1
        page.get_by_label("Search").fill("nobody")
        page.get_by_text("No running calls match this filter.").wait_for()


def test_the_newest_stay_first_while_others_end(site: Site, visit: Visitor) -> None:
    page, model = visit("live"), endless(site, gap_s=1.0)
    with ExitStack() as streams:
        clients = [streams.enter_context(site.begin(model)) for _ in range(_MANY)]
        page.get_by_text(f"Showing the newest 200 of {_MANY} running calls.").wait_for()
        order = ids(page)
        page.get_by_role("link", name="Older").click()
        until(page, f"document.querySelectorAll('tbody tr:not(.over)').length === {_MANY - 200}")
        order += ids(page)
        page.get_by_role("link", name="Newest").click()
        page.get_by_text(f"Showing the newest 200 of {_MANY} running calls.").wait_for()
        until(page, "document.querySelectorAll('tbody tr:not(.over)').length === 200")
        for client in clients[60::20]:
            client.close()
        left = len(clients) - len(clients[60::20])
        page.get_by_text(f"Showing the newest 200 of {left} running calls.").wait_for()
        until(page, "document.querySelectorAll('tbody tr:not(.over)').length === 200")
        listed = ids(page)
        assert listed == [id for id in order if id in set(listed)]


def test_a_page_can_be_turned_and_calls_be_found_during_a_pause(site: Site, visit: Visitor) -> None:
    page, one, other = visit("live"), endless(site), endless(site)
    with site.begin(one), site.begin(other):
        row_of(page, one).wait_for()
        page.get_by_role("button", name="Pause").click()
        page.goto(page.url.partition("#")[0] + f"#/live?find={one}")
        row_of(page, one).wait_for()
        row_of(page, other).wait_for(state="detached")
        page.get_by_label("Search").fill(other)
        row_of(page, other).wait_for()
        page.go_back()  # the cursor is still in the field
        row_of(page, one).wait_for()
        assert page.get_by_label("Search").input_value() == one


def test_who_leaves_while_they_search_is_not_called_back(site: Site, visit: Visitor) -> None:
    with site.begin(endless(site)):
        page = visit("live?find=main")
        page.locator("tbody tr").first.wait_for()
        page.get_by_label("Search").fill("main/")
        page.get_by_role("navigation").get_by_role("link", name="Calls").click()
        page.get_by_role("heading", name="Calls").wait_for()
        page.wait_for_timeout(400)
        assert page.title() == "Calls · Penstock"


@prompt
def test_the_focus_is_never_lost_among_calls_that_end(site: Site, visit: Visitor) -> None:
    page, model, other = visit("live"), endless(site), endless(site)
    with site.begin(model), site.begin(other):
        row = row_of(page, model)
        row.get_by_role("link").press("Enter")
        page.get_by_role("log").get_by_text("drop").first.wait_for()
        page.get_by_role("button", name="Close").press("Enter")
        until(page, "!document.querySelector('aside')")
        assert focused(page) == model
        row.get_by_role("button", name="Stop").press("Enter")
        row.get_by_text("failed").or_(row.get_by_text("cancelled")).wait_for()
        focus = focused(page)
        if not row.count():
            raise Late("the row of the ended call is gone already")
        assert focus == model
        row.wait_for(state="detached")
        assert focused(page) == other
        row_of(page, other).get_by_role("link").press("Enter")
        page.get_by_role("complementary").get_by_role("button", name="Stop").press("Enter")
        page.get_by_role("link", name="View call").wait_for()
        assert focused(page) == "✕"


def focused(page: Page) -> str:
    text: str = page.evaluate("document.activeElement.textContent")
    return text


def ids(page: Page) -> list[str]:
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('tbody tr:not(.over)')].map((row) => row.dataset.id)"
    )
    return found


def row_of(page: Page, model: str) -> Locator:
    return page.locator("tbody tr", has_text=model)


def tokens(row: Locator) -> int:
    return int(row.locator("td.number").first.inner_text().replace(",", ""))


def reach(page: Page, row: Locator, number: int) -> None:
    """Wait until a call has so many tokens. Its row is changed only while it can be seen."""
    row.scroll_into_view_if_needed()
    deadline = time.monotonic() + _WAIT_S
    while tokens(row) < number:
        assert time.monotonic() < deadline, f"it never had {number} tokens"
        page.wait_for_timeout(20)


def _clicks_are_timed(page: Page) -> None:
    page.evaluate("document.addEventListener('click', () => { window.clicked = Date.now(); }, {capture: true})")


def test_the_page_names_what_it_cannot_see(site: Site, visit: Visitor) -> None:
    """A gateway that did not answer, and the text of a call of another gateway."""
    page, model = visit("calls"), endless(site)
    with site.begin(model), events(AdminClient(site.gateway), "/admin/live") as live:
        data = live.until(lambda data: any(call["target"] == model for call in data["calls"]))
    data |= {"gateways": 3, "answered": 2}
    data["calls"] = [call | {"elsewhere": True, "content": False} for call in data["calls"] if call["target"] == model]
    message = f"event: calls\ndata: {json.dumps(data)}\n\n"
    page.route("**/admin/live*", lambda route: route.fulfill(content_type="text/event-stream", body=message))
    page.goto(f"{site.url}/#/live")
    page.get_by_text("2 of 3 gateways answered").wait_for()
    row_of(page, model).get_by_role("link").first.click()
    page.get_by_text("This call runs on another gateway").wait_for()
