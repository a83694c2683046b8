"""Signing in with OpenID Connect, against a real provider (oidc-provider, run by Node), in a real browser."""

import http.client
import json
import sqlite3
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from penstock.serve.admin.access import COOKIE
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import whole
from tests.faults.upstream import Upstream
from tests.judges.packages import oidc_home
from tests.web.site import Site, secret_of, until
from tests.web.traffic import WHOLE, call_with

_PROVIDER = Path(__file__).parent / "oidc/provider.mjs"
_WAIT_MS = 30_000
_CONFIGURATION = """
[admin.oidc]
issuer = "{issuer}"
client_id = "penstock"
client_secret = "a-secret-of-the-client"
scopes = ["email", "groups"]

[admin.groups.platform]
role = "admin"

[admin.groups.readers]
role = "viewer"

[admin.groups.search]
role = "member"
team = "acme/search"

[admin.group_patterns.llm]
pattern = 'llm-(?<team>.+)-(admin|member)'
team = "labs/{{team}}"
create_teams = true
"""


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class SignInSite:
    """A gateway whose users sign in with a provider."""

    def __init__(self, site: Site, issuer: str) -> None:
        self.site = site
        self.url = site.url
        self.issuer = issuer
        self.ledger = site.gateway.file.parent / "state" / "ledger.db"

    def ask(
        self, method: str, path: str, cookie: str = "", headers: Mapping[str, str] | None = None, body: str = ""
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.site.port, timeout=30)
        try:
            given = {"Cookie": cookie} if cookie else {}
            connection.request(method, path, body or None, given | dict(headers or {}))
            response = connection.getresponse()
            received = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, received, response.read())
        finally:
            connection.close()

    def from_page(self, method: str, path: str, cookie: str, body: str = "") -> Answer:
        """A request as our own page sends it."""
        return self.ask(method, path, cookie, {"Origin": self.url, "X-Penstock-Page": "1"}, body)

    def audit(self) -> list[tuple[str, str]]:
        connection = sqlite3.connect(self.ledger)
        try:
            return connection.execute("SELECT action, who FROM audit ORDER BY place").fetchall()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def issuer(chromium: str) -> Iterator[str]:  # noqa: ARG001 - it comes first
    home = oidc_home()
    pipe = subprocess.PIPE
    command = ["node", str(_PROVIDER), str(home)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout
        yield process.stdout.readline().strip()
        process.terminate()


@pytest.fixture(scope="module")
def sign_in_site(issuer: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SignInSite]:
    with Upstream() as upstream:
        configuration = settings(upstream.url, 0) + _CONFIGURATION.format(issuer=issuer)
        with Gateway(tmp_path_factory.mktemp("sign-in"), upstream, configuration) as gateway:
            yield SignInSite(Site(gateway), issuer)


@pytest.fixture
def window(browser: Browser) -> Iterator[BrowserContext]:
    """A browser that has visited nothing."""
    window = browser.new_context()
    window.set_default_timeout(_WAIT_MS)
    yield window
    window.close()


def sign_in(site: SignInSite, window: BrowserContext, user: str, start: str = "/") -> Page:
    """Sign in as a person does, with the button of the page and the forms of the provider."""
    page = window.new_page()
    page.goto(site.url + start)
    if start == "/":
        page.get_by_role("link", name="Sign in").click()
    page.wait_for_selector("input[name=login]")
    assert page.url.startswith(site.issuer)
    page.fill("input[name=login]", user)
    page.fill("input[name=password]", "any")
    page.click("button[type=submit]")
    page.get_by_role("button", name="Continue").click()
    page.wait_for_url(f"{site.url}/**")
    page.wait_for_load_state()
    return page


def session_of(window: BrowserContext) -> dict[str, Any] | None:
    return next((dict(cookie) for cookie in window.cookies() if cookie.get("name") == COOKIE), None)


def cookie_of(window: BrowserContext) -> str:
    session = session_of(window)
    assert session is not None
    return f"{COOKIE}={session['value']}"


def test_a_user_signs_in_and_out_and_a_stolen_cookie_is_of_no_use(
    sign_in_site: SignInSite, window: BrowserContext
) -> None:
    page = sign_in(sign_in_site, window, "platform.ann")
    page.goto(f"{sign_in_site.url}/#/audit")
    row = page.locator("tbody tr", has_text="Signed in").filter(has_text="platform.ann").first
    assert "roles: role admin" in row.inner_text()
    page.goto(f"{sign_in_site.url}/#/live")
    assert page.url.partition("#")[0] == f"{sign_in_site.url}/"
    until(page, "document.getElementById('user').textContent === 'platform.ann@example.com'")
    session = session_of(window)
    assert session is not None
    assert (session["httpOnly"], session["sameSite"], session["path"]) == (True, "Lax", "/")
    cookie = cookie_of(window)
    user = sign_in_site.ask("GET", "/admin/me", cookie).json
    assert (user["name"], user["role"], user["via"]) == ("platform.ann@example.com", "admin", "session")
    assert sign_in_site.from_page("POST", "/admin/keys", cookie, '{"name": "by-ann"}').status == 201
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("link", name="Sign in").wait_for()
    assert session_of(window) is None
    for path in ("/admin/state", "/admin/me", "/"):
        assert sign_in_site.ask("GET", path, cookie).status == 401
    assert sign_in_site.from_page("POST", "/admin/keys", cookie, '{"name": "stolen"}').status == 401
    acts = [action for action, who in sign_in_site.audit() if who.startswith("platform.ann@example.com <")]
    assert acts == ["session.start", "key.create", "session.end"]


def test_groups_give_roles(sign_in_site: SignInSite, window: BrowserContext, browser: Browser) -> None:
    sign_in(sign_in_site, window, "readers.bob")
    viewer = cookie_of(window)
    assert sign_in_site.ask("GET", "/admin/usage", viewer).status == 200
    assert sign_in_site.from_page("POST", "/admin/keys", viewer, '{"name": "x"}').status == 403
    other = browser.new_context()
    other.set_default_timeout(_WAIT_MS)
    sign_in(sign_in_site, other, "search.cleo")
    member = cookie_of(other)
    other.close()
    for path in ("acme", "acme/search"):
        sign_in_site.site.ask("POST", "/admin/teams", {"path": path})
    made = sign_in_site.from_page("POST", "/admin/keys", member, '{"name": "cleos"}').json
    assert (made["team"], made["owner"]) == ("acme/search", "search.cleo@example.com <search.cleo>")
    assert [key["name"] for key in sign_in_site.ask("GET", "/admin/keys", member).json["keys"]] == ["cleos"]
    assert sign_in_site.ask("GET", "/admin/state", member).status == 403


@pytest.mark.parametrize(
    ("user", "views", "buttons"),
    [
        ("readers.hal", ["Start", "Live", "Calls", "Health", "Spend", "Keys"], []),
        ("search.ida", ["Start", "Calls", "Spend", "Keys"], ["Create key", "Rotate", "Revoke"]),
    ],
)
def test_the_page_shows_what_the_role_allows(
    sign_in_site: SignInSite, window: BrowserContext, user: str, views: list[str], buttons: list[str]
) -> None:
    site = sign_in_site.site
    if "acme/search" not in [team["path"] for team in site.ask("GET", "/admin/teams")["teams"]]:
        site.ask("POST", "/admin/teams", {"path": "acme"})
        site.ask("POST", "/admin/teams", {"path": "acme/search"})
    page = sign_in(sign_in_site, window, user)
    page.locator("h1").first.wait_for()
    assert page.inner_text("h1") == ("Live" if "Live" in views else "Start")
    assert page.locator(".bar nav a").all_inner_texts() == views
    if buttons:
        key = sign_in_site.from_page("POST", "/admin/keys", cookie_of(window), '{"name": "idas"}').json["id"]
    else:
        key = site.ask("POST", "/admin/keys", {"name": "hals"})["id"]
    refused: list[str] = []
    page.on("response", lambda response: refused.append(response.url) if response.status == 403 else None)
    shown: list[str] = []
    for place in (*views, f"Keys/{key}", "Teams/acme%2Fsearch"):
        page.goto(f"{sign_in_site.url}/#/{place[0].lower()}{place[1:]}")
        view, _, id = place.partition("/")
        until(page, f"document.title === '{view} · Penstock'")
        if id:
            page.locator(f"main .head a[href='#/{view.lower()}']").wait_for()
        until(page, "!document.querySelector('main [aria-busy=true]')")
        assert page.locator("main [role=alert]").count() == 0, place
        shown += page.locator("main button").all_inner_texts()
    acts = ("Create key", "Create team", "Edit", "Rotate", "Block", "Revoke", "Delete", "Stop", "Test")
    assert [act for act in acts if act in shown] == buttons
    assert refused == []
    for place in ("audit", "playground"):
        page.goto(f"{sign_in_site.url}/#/{place}")
        until(page, "document.querySelector('main h1')?.textContent === 'Not allowed'")


@pytest.mark.parametrize(
    ("user", "message"), [("others.eve", "none of your groups"), ("platform.unverified", "missing or not verified")]
)
def test_a_user_without_a_role_or_a_name_gets_no_session(
    sign_in_site: SignInSite, window: BrowserContext, user: str, message: str
) -> None:
    page = sign_in(sign_in_site, window, user)
    assert message in page.inner_text("[role=alert]")
    assert session_of(window) is None
    if "none" in message:
        deadline = time.monotonic() + _WAIT_MS / 1000
        while ("session.refuse", "others.eve@example.com <others.eve>") not in sign_in_site.audit():
            assert time.monotonic() < deadline  # it is recorded after the answer


def test_a_session_expires_on_the_server(sign_in_site: SignInSite, window: BrowserContext) -> None:
    page = sign_in(sign_in_site, window, "readers.dan")
    cookie = cookie_of(window)
    assert sign_in_site.ask("GET", "/admin/state", cookie).status == 200
    connection = sqlite3.connect(sign_in_site.ledger)
    with connection:
        connection.execute("UPDATE admin_sessions SET expires_ms = 1 WHERE who LIKE 'readers.dan@example.com <%'")
    connection.close()
    assert sign_in_site.ask("GET", "/admin/state", cookie).status == 401
    page.goto(f"{sign_in_site.url}/")
    page.get_by_role("link", name="Sign in").wait_for()


def test_an_administrator_ends_the_session_of_another_user(sign_in_site: SignInSite, window: BrowserContext) -> None:
    sign_in(sign_in_site, window, "readers.gil")
    cookie, site = cookie_of(window), sign_in_site.site
    assert "readers.gil@example.com <readers.gil>" in [
        each["who"] for each in site.ask("GET", "/admin/sessions")["sessions"]
    ]
    assert sign_in_site.from_page("DELETE", "/admin/sessions/readers.gil@example.com", cookie).status == 403
    assert site.ask("DELETE", "/admin/sessions/readers.gil@example.com") == {"ended": 1}
    assert sign_in_site.ask("GET", "/admin/state", cookie).status == 401
    assert ("session.end", "admin token") in sign_in_site.audit()


def test_no_other_page_uses_the_session(sign_in_site: SignInSite, window: BrowserContext) -> None:
    """The provider's page is of the same site, so the browser sends the cookie with its requests."""
    page = sign_in(sign_in_site, window, "platform.fay")
    cookie = cookie_of(window)
    page.goto(f"{sign_in_site.issuer}/.well-known/openid-configuration")
    send = """async ([url, method]) => {
      const options = {method, mode: 'no-cors', credentials: 'include', body: '{"name": "by-another-page"}'};
      await fetch(url, options).catch(() => null);
    }"""
    page.evaluate(send, [f"{sign_in_site.url}/admin/keys", "POST"])
    page.evaluate(send, [f"{sign_in_site.url}/admin/session", "DELETE"])
    for headers in ({}, {"Origin": sign_in_site.issuer, "X-Penstock-Page": "1"}, {"Origin": sign_in_site.url}):
        assert sign_in_site.ask("POST", "/admin/keys", cookie, headers, '{"name": "by-another-page"}').status == 403
    names = [key["name"] for key in sign_in_site.ask("GET", "/admin/keys", cookie).json["keys"]]
    assert "by-another-page" not in names


def test_the_browser_is_sent_to_the_page_and_nowhere_else(sign_in_site: SignInSite, window: BrowserContext) -> None:
    page = sign_in(
        sign_in_site, window, "readers.gil", "/login?next=//evil.example&redirect_uri=https://evil.example&state=x"
    )
    assert page.url.partition("#")[0] == f"{sign_in_site.url}/"
    for query in ("", "?code=1&state=2&next=//evil.example", "?error=access_denied&state=2"):
        answer = sign_in_site.ask("GET", f"/login/callback{query}")
        assert answer.status == 403
        assert "location" not in answer.headers
    evil = sign_in_site.ask("GET", "/login", headers={"Host": "evil.example"})
    assert evil.status == 403


def test_a_browser_is_not_signed_in_by_another(sign_in_site: SignInSite, browser: Browser) -> None:
    """An attacker's own callback, opened by a victim: without the cookie of this sign-in it does nothing (CSRF)."""
    attacker, victim = browser.new_context(), browser.new_context()
    urls: list[str] = []
    attacker.set_default_timeout(_WAIT_MS)
    attacker.on("request", lambda request: urls.append(request.url))
    sign_in(sign_in_site, attacker, "platform.mallory")
    (callback,) = (url for url in urls if "/login/callback" in url)
    page = victim.new_page()
    page.goto(callback)
    assert "another browser" in page.inner_text("[role=alert]")
    # Nor with the cookie of a sign-in of its own: the state is another.
    page.goto(f"{sign_in_site.url}/login")
    page.wait_for_selector("input[name=login]")
    page.goto(callback)
    assert "failed" in page.inner_text("[role=alert]")
    assert session_of(victim) is None
    attacker.close()
    victim.close()


def test_a_team_is_onboarded_without_a_file(sign_in_site: SignInSite, window: BrowserContext) -> None:
    """Its group at the identity provider is enough: the first member makes the team, a key, and a call."""
    site = sign_in_site.site
    site.upstream.play(whole(), "whole")
    window.grant_permissions(["clipboard-read", "clipboard-write"])
    page = sign_in(sign_in_site, window, "llm-robots-member.mia")
    page.get_by_role("heading", name="Start").wait_for()
    page.get_by_text("Member of labs/robots").wait_for()
    page.get_by_role("button", name="Create key").click()
    page.get_by_label("Name", exact=True).fill("mias-laptop")
    page.get_by_role("button", name="Create key").last.click()
    call_with(site, WHOLE, secret_of(page))
    (team,) = site.ask("GET", "/admin/teams?find=labs/robots")["teams"]
    assert (team["path"], team["keys"]) == ("labs/robots", 1)
    assert [key["owner"].partition(" ")[0] for key in site.ask("GET", "/admin/keys?team=labs")["keys"]] == [
        "llm-robots-member.mia@example.com"
    ]
