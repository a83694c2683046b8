"""The page is accessible: by keyboard and screen reader, in light and dark, on a phone; quick, stable, private."""

import re
import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.tables import FULL
from tests.web.conftest import Visitor
from tests.web.site import AUDIT, PICTURES, Site, until
from tests.web.traffic import CUT, REPAIRED, endless

VIEWS = (
    "live",
    "start",
    "requests",
    "calls",
    "call",
    "inspect",
    "health?since=24h",
    "spend",
    "keys",
    "teams",
    "providers",
    "playground",
    "audit",
)
# How much longer than an empty page the page may take, and for how long a quiet moment is waited for.
_PAINT_MS = 180
_TRY_S = 60.0
_EMPTY = "data:text/html,<title>empty</title><p>empty"
_SHIFT = 0.02

# Where the focus is; whether that is seen; whether it is further down than before.
_FOCUS = """() => {
    const here = document.activeElement;
    if (here === document.body) return null;
    const style = getComputedStyle(here);
    const after = window.last ? window.last.compareDocumentPosition(here) & 4 : 4;
    window.last = here;
    const seen = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
    return [here.outerHTML.slice(0, 80), seen, Boolean(after)];
}"""
_WRONG = """() => document.querySelector('main').append(...[
    ['button'], ['svg'], ['p', {class: 'faint'}], ['a', {tabindex: 3}], ['h1'], ['h4'], ['i', {id: 'main'}],
].map(([tag, attributes = {}]) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (attributes.class) { made.textContent = 'faint'; made.style.color = '#eee'; }
    return made;
}))"""
# The next Tab begins at the top.
_BEGINNING = """() => {
    document.body.tabIndex = -1;
    document.body.focus();
    document.body.removeAttribute('tabindex');
    window.last = null;
}"""
_PAINTED = """() => new Promise((done) => new PerformanceObserver((list) => {
    const first = list.getEntries().find(({name}) => name === 'first-contentful-paint');
    if (first) done(first.startTime);
}).observe({type: 'paint', buffered: true}))"""
_MOVED = """() => new Promise((done) => {
    let sum = 0;
    new PerformanceObserver((list) => { for (const {value} of list.getEntries()) sum += value; })
        .observe({type: 'layout-shift', buffered: true});
    setTimeout(() => done(sum), 50);
})"""


def show(site: Site, page: Page, view: str) -> None:
    """Go to a view, and have it show something."""
    if view == "call":
        view = f"calls/{site.ask('GET', '/admin/entries?provider=spare')['entries'][0]['id']}"
    page.goto(f"{site.url}/#/{view}")
    name = re.split("[/?]", view)[0].capitalize()
    until(page, f"document.title === '{name} · Penstock'")
    until(page, "document.querySelector('h1') && !document.querySelector('main > [aria-busy=true]')")
    if view == "live":
        page.locator("tbody tr", has_text="streaming").first.get_by_role("link").click()
        page.get_by_role("log").get_by_text("drop drop").wait_for()
    elif view == "inspect":
        page.get_by_role("button", name="Show an example").click()
        page.locator("mark").first.wait_for(state="attached")
    elif view == "playground":
        page.locator("datalist option[value=pair-0]").wait_for(state="attached")


# Colours and widths do not depend on each other: a usual run has each once.
LOOKS = [("light", 1280), ("dark", 390), *[("dark", 1280), ("light", 390)] * FULL]


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_every_view_is_for_everybody(site: Site, visit: Visitor, scheme: str, width: int) -> None:
    found = {}
    page = visit("calls", scheme=scheme, width=width)
    with site.begin(endless(site)), site.begin(endless(site)):
        for view in VIEWS:
            show(site, page, view)
            if complaints := page.evaluate(AUDIT):
                found[view] = complaints
            if not page.evaluate("document.querySelector('.bar').getBoundingClientRect().right === innerWidth"):
                found[f"{view}, right edge"] = "the header does not reach it"
            if PICTURES:
                name = f"{view.partition('?')[0]}-{scheme}-{width}.png"
                page.screenshot(path=Path(PICTURES) / name, full_page=view != "calls")
    assert not found, found


def test_what_is_wrong_for_somebody_is_found(visit: Visitor) -> None:
    page = visit("playground")
    page.evaluate(_WRONG)
    complaints = page.evaluate(AUDIT)
    for what in (
        "no name",
        "without words",
        "contrast 1.",
        "jumps the queue",
        "skips a level",
        "there twice",
        "2 of h1",
    ):
        assert any(what in complaint for complaint in complaints), what


def test_everything_can_be_reached_by_keyboard_and_is_seen_to_be(site: Site, visit: Visitor) -> None:
    page = visit("calls")
    for view in VIEWS[1:]:
        show(site, page, view)
        page.evaluate(_BEGINNING)
        stops: list[str] = []
        for _ in range(30):
            page.keyboard.press("Tab")
            at = page.evaluate(_FOCUS)
            if at is None:
                break
            text, visible, in_order = at
            if stops and text == stops[0]:
                break  # the browser begins again at the top
            assert visible, f"{view}: the focus is not seen on {text}"
            assert in_order, f"{view}: the focus went back to {text}"
            stops.append(text)
        assert len(stops) >= 8, stops
        assert "skip" in stops[0]
        shared = page.locator("#tabs a").count()  # views that share a tab: after the buttons of the bar
        bar, row = stops[1:9], stops[11 : 11 + shared]
        assert all("#/" in stop for stop in (*bar, *row)), "\n".join(stops)


def test_one_can_walk_through_by_keyboard_alone(site: Site, visit: Visitor) -> None:
    page = visit("live")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    _tab_to(page, "Calls", back=True)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Calls").wait_for()
    page.locator("tbody tr").first.wait_for()
    assert page.evaluate("document.activeElement.tagName") == "H1", "the focus is not on the new view"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Export CSV"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.labels?.[0]?.textContent") == "Search"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.labels?.[0]?.textContent") == "Outcome"
    page.keyboard.type("trunc")
    page.get_by_text(site.truncated(), exact=True).wait_for()
    assert page.evaluate("document.activeElement.labels?.[0]?.textContent") == "Outcome", "the focus was lost"
    _tab_to(page, CUT)
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Copy as curl").wait_for()
    _tab_to(page, "Copy as curl")
    page.keyboard.press("Space")
    page.get_by_role("button", name="Copied").wait_for()


def test_changes_are_announced(site: Site, visit: Visitor) -> None:
    page = visit("calls?outcome=truncated")
    until(page, f"document.getElementById('announcer').textContent === '{site.truncated()} listed'")
    page = visit(f"calls?model={REPAIRED}x")
    until(page, "document.getElementById('announcer').textContent === 'No calls'")


def test_colours_can_be_chosen_and_are_kept(visit: Visitor) -> None:
    page = visit("calls", scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    button = page.get_by_role("button", name="Theme")
    button.click()
    assert page.evaluate(ground) == light
    button.click()
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    page.wait_for_selector("h1")
    assert page.evaluate(ground) == dark
    assert button.inner_text() == "Dark"
    button.click()
    assert page.evaluate(ground) == light


def test_it_is_painted_at_once_and_nothing_jumps(visit: Visitor) -> None:
    page = visit("calls")
    address, empty_ms, page_ms = page.url, float("inf"), float("inf")
    deadline = time.monotonic() + _TRY_S  # the machine may have much else to do
    while not page_ms < empty_ms + _PAINT_MS < float("inf"):
        assert time.monotonic() < deadline, (page_ms, empty_ms)
        page.goto(_EMPTY)
        empty_ms = min(empty_ms, page.evaluate(_PAINTED))  # what the browser and the machine take for any page
        page.goto(address)
        page.locator("tbody tr").first.wait_for()
        page_ms = min(page_ms, page.evaluate(_PAINTED))
    for view in ("calls", "health", "spend", "playground", "live", "inspect"):
        page = visit(view)
        until(page, "!document.querySelector('main > [aria-busy=true]')")
        page.wait_for_timeout(150)
        moved = page.evaluate(_MOVED)
        assert moved <= _SHIFT, f"{view} jumps: {moved}"


def test_strangers_are_shown_the_way_to_a_link(site: Site, browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(site.url)
    page.get_by_text("penstock open").wait_for()
    assert page.evaluate("fetch('/admin/entries').then(({status}) => status)") == 401
    context.close()


def test_a_visit_that_has_ended_says_what_to_do(visit: Visitor) -> None:
    page = visit("calls", expected="401")
    page.locator("tbody tr").first.wait_for()
    page.context.clear_cookies()
    page.get_by_label("Outcome", exact=True).select_option("failed")
    page.get_by_text("Your session has expired").wait_for()
    assert "penstock open" in page.get_by_role("alert").inner_text()


def test_nothing_comes_from_anywhere_else(site: Site, visit: Visitor) -> None:
    asked: list[str] = []
    page = visit("live")
    page.on("request", lambda request: asked.append(request.url))
    for view in VIEWS:
        if view != "call":
            page.goto(f"{site.url}/#/{view}")
            page.wait_for_timeout(100)
    assert asked
    assert all(url.startswith(f"{site.url}/") for url in asked), asked


def _tab_to(page: Page, name: str, *, back: bool = False) -> None:
    for _ in range(60):
        page.keyboard.press("Shift+Tab" if back else "Tab")
        if page.evaluate("document.activeElement.textContent").strip() == name:
            return
    raise AssertionError(f"{name} is not reached")


def test_an_address_of_nothing_says_so(visit: Visitor) -> None:
    page = visit("nosuch")
    for view in ("nosuch", "constructor"):
        page.evaluate(f"location.hash = '#/{view}'")
        until(page, f"document.querySelector('main').innerText.includes('{view}')")
        page.get_by_role("heading", name="Page not found").wait_for()
        assert page.title() == "Page not found · Penstock"
        assert page.locator("nav [aria-current]").count() == 0
    page.get_by_role("main").get_by_role("link", name="Calls").click()
    page.get_by_role("heading", name="Calls").wait_for()


def test_the_focus_is_never_lost_in_the_calls(visit: Visitor) -> None:
    page = visit(f"calls?model={REPAIRED}")
    page.locator("a.chip").first.focus()
    page.keyboard.press("Enter")
    until(page, "location.hash.includes('repair=')")
    until(page, "document.activeElement.tagName === 'H1'")
    page.get_by_role("link", name="Clear filters").focus()
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Older").wait_for()
    assert page.evaluate("document.activeElement.tagName") == "H1"
    page.get_by_role("link", name="Older").focus()
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Newest").wait_for()
    assert page.evaluate("document.activeElement.tagName") == "H1"
