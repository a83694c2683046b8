"""What the tests of the page share: one gateway with its upstream and its ledger, and one browser.

The gateway lives for the whole run. Playwright lives for a module: while it does, no other test of the process could
run an event loop of its own.
"""

import os
import shutil
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from penstock.serve.admin.access import COOKIE
from tests.faults.gateway import Gateway, settings
from tests.faults.upstream import Upstream
from tests.web.site import Site
from tests.web.traffic import fill

# The names that scripts/lib.sh looks for, too.
_NAMES = (os.environ.get("PENSTOCK_CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
_WAIT_MS = 30_000  # far longer than it takes: a busy machine may need seconds to draw a page
_HOW = "no Chromium: apt install chromium, or PENSTOCK_CHROMIUM=/path/to/chromium"


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of Chromium. Without it, the tests of the page are skipped."""
    found = next(filter(None, (shutil.which(name) for name in _NAMES if name)), None)
    if found is None:
        pytest.skip(_HOW)
    return found


@pytest.fixture(scope="session")
def site(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:  # noqa: ARG001 - it comes first
    with Upstream() as upstream:
        configuration = settings(upstream.url, 2, admin={"content": True})
        with Gateway(tmp_path_factory.mktemp("web"), upstream, configuration) as gateway:
            site = Site(gateway)
            fill(site)
            yield site


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def windows() -> dict[tuple[int, str], BrowserContext]:
    """One window for each width and colour, with what the browser keeps; made when it is wanted."""
    return {}


Visitor = Callable[..., Page]


@pytest.fixture
def visit(site: Site, browser: Browser, windows: dict[tuple[int, str], BrowserContext]) -> Iterator[Visitor]:
    """Opens views, each in a page of its own. Nothing may be wrong on any of them, but what a test asks for."""
    pages: list[Page] = []
    wrong: list[str] = []

    def visit(
        view: str, *, width: int = 1280, scheme: str = "light", expected: str = "", elsewhere: Site | None = None
    ) -> Page:
        there = elsewhere or site
        if (width, scheme) not in windows:
            windows[width, scheme] = browser.new_context(
                viewport={"width": width, "height": 800},
                color_scheme="dark" if scheme == "dark" else "light",
                permissions=["clipboard-read", "clipboard-write"],
                reduced_motion="reduce",
            )
        window = windows[width, scheme]
        window.add_cookies([{"name": COOKIE, "value": there.session, "url": there.url}])
        page = window.new_page()
        pages.append(page)
        page.set_default_timeout(_WAIT_MS)
        page.on("pageerror", lambda error: wrong.append(f"{view}: {error}"))

        def note(sent_text: ConsoleMessage) -> None:
            if sent_text.type in ("error", "warning") and not (expected and expected in sent_text.text):
                wrong.append(f"{view}: {sent_text.type} {sent_text.text}")

        page.on("console", note)
        page.goto(f"{there.url}/#/{view}")
        page.wait_for_selector("h1")
        return page

    yield visit
    for page in pages:
        page.close()
    assert not wrong, wrong
