"""What an administrator does on a Monday morning, in few clicks, and a member who needs more. Fields cost no click."""

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page

from penstock.gateway.record.entry import AttemptEntry, Entry
from penstock.serve.admin.access import COOKIE
from penstock.stores.book.open import FILE
from penstock.stores.book.sqlite import SqliteBook
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import whole
from tests.faults.upstream import Upstream
from tests.web.site import AUDIT, Site, secret_of, until
from tests.web.traffic import WHOLE, call_with

_HOUR_MS = 3_600_000
_WAIT_MS = 30_000
_GROUPS = """
[admin.groups.search-developers]
role = "member"
team = "acme/search"
[admin.groups.search-leads]
role = "team_admin"
team = "acme/search"
"""
_PROXY = {
    "content": True,
    "proxies": ["127.0.0.1"],
    "user_header": "X-Forwarded-User",
    "groups_header": "X-Forwarded-Groups",
}


def _call(id: str, at_ms: float, key: str, team: str, outcome: str = "completed") -> Entry:
    code = "" if outcome == "completed" else "upstream_http_500"
    attempt = AttemptEntry(provider="main", model="whole", outcome=outcome, code=code, cost=10**9)  # type: ignore[arg-type]
    return Entry(
        id=id,
        at_ms=int(at_ms),
        key=key,
        team=team,
        surface="chat",
        model=WHOLE,
        outcome=outcome,  # type: ignore[arg-type]
        code=code,
        attempts=(attempt,),
    )


@pytest.fixture(scope="module")
def monday(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:  # noqa: ARG001 - it comes first
    """A gateway with teams, keys and calls; the newest calls of its provider fail."""
    with Upstream() as upstream:
        upstream.play(whole(), "whole")
        text = settings(upstream.url, 0, admin=_PROXY, server={"public_url": "https://llm.example.com/v1"}) + _GROUPS
        with Gateway(tmp_path_factory.mktemp("monday"), upstream, text) as gateway:
            site = Site(gateway)
            for path in ("acme", "acme/search", "acme/ads"):
                site.ask("POST", "/admin/teams", {"path": path})
            for number in range(60):
                terms = {"name": f"service {number}", "team": "acme/ads", "budget": "10"}
                site.ask("POST", "/admin/keys", terms)
            key = site.ask("GET", "/admin/keys")["keys"][-1]["id"]
            now = time.time() * 1000
            book = SqliteBook.open(gateway.file.parent / "state" / FILE)
            book.append([_call(f"good-{n}", now - 2 * _HOUR_MS, key, "acme/ads") for n in range(40)])
            book.append([_call(f"bad-{n}", now - 30_000, key, "acme/ads", "failed") for n in range(3)])
            book.close()
            yield site


class User:
    """A user of the page, whose clicks are counted."""

    def __init__(self, window: BrowserContext, url: str) -> None:
        self.page: Page = window.new_page()
        self.page.set_default_timeout(_WAIT_MS)
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.goto(url)
        self.page.wait_for_selector("h1")
        self.clicks = 0

    def click(self, what: Locator) -> None:
        self.clicks += 1
        what.click()

    def link(self, name: str) -> None:
        self.click(self.page.get_by_role("link", name=name, exact=True).first)

    def button(self, name: str) -> None:
        self.click(self.page.get_by_role("button", name=name, exact=True).last)

    def tab(self, name: str) -> None:
        self.click(self.page.locator(".bar nav a", has_text=name))

    def end(self) -> None:
        assert self.wrong == []
        self.page.context.close()


@pytest.fixture
def admin(monday: Site, browser: Browser) -> Iterator[User]:
    window = browser.new_context(
        viewport={"width": 1280, "height": 800}, permissions=["clipboard-read", "clipboard-write"]
    )
    window.add_cookies([{"name": COOKIE, "value": monday.session, "url": monday.url}])
    user = User(window, monday.url)
    yield user
    user.end()


def person(browser: Browser, site: Site, name: str, group: str, width: int = 1280) -> User:
    """A user whom the proxy in front of the page names."""
    window = browser.new_context(
        viewport={"width": width, "height": 800}, permissions=["clipboard-read", "clipboard-write"]
    )
    window.set_extra_http_headers({"X-Forwarded-User": name, "X-Forwarded-Groups": group})
    return User(window, site.url)


def test_who_spent_what(admin: User) -> None:
    admin.tab("Spend")
    admin.link("Team")
    admin.page.get_by_role("table").get_by_text("acme/ads").first.wait_for()
    assert admin.clicks <= 2


def test_what_failed(admin: User) -> None:
    admin.tab("Calls")
    admin.page.get_by_label("Outcome", exact=True).select_option(label="incomplete")
    until(admin.page, "document.querySelectorAll('tbody tr').length === 3")
    assert admin.clicks <= 1


def test_which_provider_is_bad(admin: User) -> None:
    admin.tab("Health")
    row = admin.page.locator("section.now").get_by_role("row").filter(has_text="main/whole")
    row.get_by_text("down now").wait_for()
    assert admin.clicks <= 1


def test_a_key_is_blocked(admin: User, monday: Site) -> None:
    admin.tab("Keys")
    admin.page.get_by_label("Search").fill("service 7")  # not on any page that a click leads to
    admin.page.keyboard.press("Enter")
    admin.link("service 7")
    admin.button("Block")
    admin.button("Block")
    admin.page.get_by_role("button", name="Unblock").wait_for()
    assert admin.clicks <= 4
    (key,) = monday.ask("GET", "/admin/keys?find=service+7")["keys"]
    assert key["state"] == "blocked"


def test_a_budget_is_raised(admin: User, monday: Site) -> None:
    admin.tab("Keys")
    admin.page.get_by_label("Search").fill("service 8")
    admin.page.keyboard.press("Enter")
    admin.link("service 8")
    admin.button("Edit")
    admin.page.get_by_label("Budget in US dollars").fill("25")
    admin.button("Save")
    admin.page.get_by_text("$25.00 per month").wait_for()
    assert admin.clicks <= 4
    (key,) = monday.ask("GET", "/admin/keys?find=service+8")["keys"]
    assert key["budget"] == "25.00"


def test_a_team_is_onboarded_with_a_key(admin: User, monday: Site) -> None:
    admin.tab("Keys")
    admin.link("Teams")
    admin.button("Create team")
    admin.page.get_by_label("Path").fill("acme/maps")
    admin.page.get_by_label("Budget in US dollars, per month").fill("500")
    admin.page.get_by_label("First key").fill("maps-server")
    admin.button("Create team")
    secret = secret_of(admin.page)
    assert admin.clicks <= 5
    admin.page.get_by_role("link", name="maps-server").wait_for()
    call_with(monday, WHOLE, secret)
    (key,) = monday.ask("GET", "/admin/keys?team=acme/maps")["keys"]
    assert (key["name"], key["team"]) == ("maps-server", "acme/maps")


def test_a_member_begins_by_itself_and_asks_for_more(monday: Site, browser: Browser) -> None:
    """A key, the set-up of a client with the public address, a request, and its answers."""
    limits = {"members": {"budgets": {"month": "40"}}, "member_keys": {"budgets": {"month": "20"}}}
    monday.ask("PATCH", "/admin/teams/acme/search", limits)
    ann = person(browser, monday, "ann@example.com", "search-developers")
    ann.page.get_by_role("heading", name="Start").wait_for()
    ann.page.get_by_text("You have no key yet.").wait_for()
    ann.button("Create key")
    ann.page.get_by_label("Name", exact=True).fill("laptop")
    ann.button("Create key")
    ann.page.locator("dialog").get_by_text("https://llm.example.com/v1").wait_for()
    call_with(monday, WHOLE, secret_of(ann.page))
    ann.tab("Start")
    ann.page.get_by_role("row").filter(has_text="laptop").get_by_text("of $20.00 this month").wait_for()
    ann.page.get_by_label("Client").select_option(label="Codex")
    ann.page.get_by_label("Model").fill("main/whole")
    ann.page.get_by_role("button", name="Copy step 2 for Codex").click()
    copied = str(ann.page.evaluate("navigator.clipboard.readText()"))
    assert 'base_url = "https://llm.example.com/v1"' in copied
    assert 'model = "main/whole"' in copied
    ann.page.get_by_label("Client").select_option(label="Claude Code")
    assert "ANTHROPIC_BASE_URL=https://llm.example.com\n" in ann.page.locator(".steps").inner_text()
    assert ann.page.evaluate(AUDIT) == []
    for reason, amount in (("load test on Friday", "60"), ("and another one", "70")):
        ann.page.get_by_role("row").filter(has_text="laptop").get_by_role("button", name="Ask for more").click()
        ann.page.get_by_label("Budget in US dollars, per month").fill(amount)
        ann.page.get_by_label("What you need it for").fill(reason)
        ann.button("Send request")
        ann.page.get_by_role("button", name="Asked").wait_for()
        ann.page.reload()
    ann.page.get_by_role("heading", name="Your keys").wait_for()
    ann.page.get_by_role("row").filter(has_text="laptop").get_by_role("button", name="Ask for more").click()
    ann.page.get_by_label("Budget in US dollars, per month").fill("80")
    ann.page.get_by_label("What you need it for").fill("not really")
    ann.button("Send request")
    ann.page.get_by_role("button", name="Asked").wait_for()
    ann.page.goto(f"{monday.url}/#/requests")
    ann.page.get_by_role("row").filter(has_text="not really").get_by_role("button", name="Withdraw").click()
    ann.button("Withdraw")
    ann.page.locator("#main").get_by_text("The request is withdrawn.").wait_for()
    ann.page.get_by_text("2 open requests").first.wait_for()

    lead = person(browser, monday, "lead@example.com", "search-leads", width=390)
    lead.page.locator(".bar nav a .count").get_by_text("2").wait_for()
    lead.tab("Keys")
    lead.page.locator("#tabs a", has_text="Requests").click()
    row = lead.page.get_by_role("row").filter(has_text="load test on Friday")
    row.get_by_text("$20.00/month").wait_for()
    assert lead.page.evaluate(AUDIT) == []
    assert lead.page.evaluate("document.body.scrollWidth - document.body.clientWidth") <= 0
    row.get_by_role("button", name="Approve").click()
    lead.page.get_by_label("Budget in US dollars, per month").fill("50")  # less than was asked for
    lead.page.get_by_label("Note for the member").fill("50 will do")
    lead.button("Approve")
    lead.page.locator("#main").get_by_text("is approved").wait_for()
    lead.page.get_by_role("row").filter(has_text="another one").get_by_role("button", name="Refuse").click()
    lead.page.get_by_label("Note for the member").fill("one is enough")
    lead.button("Refuse")
    lead.page.get_by_text("No request waits for an answer.").wait_for()
    until(lead.page, "!document.querySelector('.bar .count')")
    lead.end()

    ann.page.goto(f"{monday.url}/#/requests?all=1")
    answered = ann.page.get_by_role("row").filter(has_text="load test on Friday")
    answered.get_by_text("50 will do").wait_for()
    assert "granted $50.00/month" in answered.inner_text()
    ann.page.get_by_role("row").filter(has_text="another one").get_by_text("one is enough").wait_for()
    ann.link("laptop")
    ann.page.get_by_text("$50.00 per month").wait_for()
    acts = [each["action"] for each in monday.ask("GET", "/admin/audit?action=limits")["entries"]]
    assert acts == ["limits.refuse", "limits.approve", "limits.withdraw", *["limits.ask"] * 3]
    ann.end()
