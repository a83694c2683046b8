"""The lists of keys and teams are searched, sorted and turned over page by page; the gateway does it."""

from pathlib import Path

from tests.faults.gateway import Gateway, settings
from tests.faults.upstream import Upstream
from tests.web.conftest import Visitor
from tests.web.site import Site, until

_NAMES = "[...document.querySelectorAll('tbody tr a')].map((link) => link.textContent)"
_ROWS = "document.querySelectorAll('tbody tr').length"


def test_a_key_is_found_among_many_and_its_list_has_pages(visit: Visitor, tmp_path: Path) -> None:
    with Upstream() as upstream, Gateway(tmp_path, upstream, settings(upstream.url, 0)) as gateway:
        there = Site(gateway)
        for path in ("acme", "acme/search"):
            there.ask("POST", "/admin/teams", {"path": path})
        for number in range(60):
            there.ask("POST", "/admin/keys", {"name": f"client {number:02d}", "team": "acme/search"})
        page = visit("keys", elsewhere=there)
        page.get_by_text("50 of 60 keys").first.wait_for()
        page.get_by_role("link", name="Next page").click()
        until(page, f"{_ROWS} === 10")
        assert page.get_by_role("link", name="Next page").count() == 0
        page.get_by_label("Sort").focus()
        page.get_by_label("Sort").select_option(label="Newest first")  # begins with the first page
        until(page, f"{_ROWS} === 50 && {_NAMES}[0] === 'client 59'")
        assert page.evaluate("document.activeElement.id") == "f-sort", "the focus was lost"
        page.get_by_label("Search").fill("CLIENT 3")
        page.keyboard.press("Enter")
        until(page, f"{_ROWS} === 10 && {_NAMES}[0] === 'client 39'")
        page.reload()
        until(page, f"{_ROWS} === 10")
        page.get_by_label("Search").fill("none of them")
        page.keyboard.press("Enter")
        page.get_by_text("No keys match this filter.").wait_for()
        page.get_by_role("link", name="Show all keys").click()
        until(page, f"{_ROWS} === 50")
        page.goto(f"{there.url}/#/teams?find=SEARCH")
        until(page, f"{_NAMES}[0] === 'acme/search'")  # its whole path: those above it are not there
        page.get_by_role("link", name="acme/search").click()
        page.get_by_role("link", name="All 60 keys").click()
        page.get_by_text("50 of 60 keys").first.wait_for()
        page.get_by_text("Team acme/search").wait_for()
        page.close()  # before its gateway ends
