"""The requests of the views to the admin API, and the time until a browser shows the answer."""

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from playwright.sync_api import Browser, Page, sync_playwright

from bench.page.site import Site
from penstock.serve.admin.access import COOKIE
from tests.stores.many_calls import OLD_PROVIDER, RARE_KEY, RARE_REPAIR

ROUNDS = 5
_COMMON_KEY = "key_000000000003"
# The requests, and the milliseconds in which they should be answered.
LIST_MS, SUM_MS = 100, 100
# The milliseconds for which a request may hold the event loop.
BLOCKED_MS = 5
LISTS = {
    "newest": "",
    "deep in, by keyset": "before={deep}",
    "outcome failed": "outcome=failed",
    "outcome that never was": "outcome=orphaned",
    "model": "model=fast",
    "model that never was": "model=none",
    "provider": "provider=groq",
    "provider, deep in": "provider=groq&before={deep}",
    "provider of long ago": f"provider={OLD_PROVIDER}",
    "provider that never was": "provider=none",
    "key": f"key={_COMMON_KEY}",
    "key that is hardly used": f"key={RARE_KEY}",
    "repair": "repair=no-done",
    "repair that is rare": f"repair={RARE_REPAIR}",
    "repair that never was": "repair=bom",
    "tag": "tag=team%3Dsearch",
    "tag that never was": "tag=team%3Dnone",
    "a day, three weeks ago": "since=21d&until=20d",
    "provider, outcome and a week": "provider=mistral&outcome=timed_out&since=7d",
    "rare key and outcome": f"key={RARE_KEY}&outcome=completed",
    "provider, repair and an hour": "provider=groq&repair=no-done&since=1h",
    "two keys": f"key={_COMMON_KEY}&key={RARE_KEY}",
    "two models": "model=fast&model=smart",
    "two outcomes": "outcome=timed_out&outcome=orphaned",
    "two providers": f"provider=mistral&provider={OLD_PROVIDER}",
    "team with all below it": "team=acme",
    "two teams": "team=acme/team-2&team=acme/team-4",
    "end user": "user=u_000300",
    "end user that never was": "user=none",
    "failed attempt": "attempt=timed_out",
    "failed attempt at a target": "attempt=timed_out&target=mistral/mistral-large",
    "loss": "loss=media-dropped",
    "search: a part of a model": "find=smollm",
    "search: an error": "find=overloaded",
    "search: a key": "find=client%209",
    "search: an id": "find=req_000000000000000000000005",
    "search: a tag": "find=team%3Dt3",
    "search: nothing is found": "find=zzz",
}
HEALTH = {"an hour": "since=1h&bucket=1m", "a day": "since=24h&bucket=30m", "a week": "since=7d&bucket=3h"}
HEALTH |= {"a month": "since=30d&bucket=12h"}
SPEND = {
    f"by {by}, {span}": f"by={by}&since={span}"
    for by in ("key", "team", "model", "provider", "day")
    for span in ("24h", "30d")
}
OTHERS = {
    "Keys: 500, with budgets": "keys?limit=500",
    "Keys: the last 500": "keys?limit=500&after={after}",
    "Keys: names of all": "keys?names=1&all=1&limit=10000",
    "Keys: one": f"keys/{_COMMON_KEY}",
    "Keys: 50 of a search": "keys?limit=50&find=client%201",
    "Keys: 50, by name": "keys?limit=50&sort=name",
    "Keys: 50, those that spent most": "keys?limit=50&sort=-spent",
    "Keys: 50, budgets used most": "keys?limit=50&sort=-used",
    "Keys: 50 of a team": "keys?limit=50&team=acme/team-1",
    "Teams": "teams",
    "Teams: 50": "teams?limit=50",
    "Teams: 50, those that spent most": "teams?limit=50&sort=-spent",
    "Holds": "holds",
    "State": "state",
    "Warnings": "warnings",
    "Audit": "audit",
    "Tokens": "tokens",
    "Setup": "setup",
    "Models": "models",
    "Provider keys": "provider-keys",
    "Rejections": "rejections",
    "Sessions": "sessions",
    "User": "me",
    "Calls of an hour as CSV": "export?since=1h",
}
# The views, and the selector of an element that exists once the data is shown.
PAGES = {
    "Calls": ("calls", "tbody tr"),
    "Calls of a provider": (f"calls?provider={OLD_PROVIDER}", "tbody tr"),
    "A call": ("calls/{id}", "dl.facts"),
    "Health, an hour": ("health?since=1h", "section.provider"),
    "Health, a day": ("health", "section.provider"),
    "Health, a week": ("health?since=7d", "section.provider"),
    "Health, a month": ("health?since=30d", "section.provider"),
    "Spend, a month": ("spend", "tbody tr"),
    "Spend by key": ("spend?by=key", "tbody tr"),
}


class Took(NamedTuple):
    """How long something took, in milliseconds: the median and the worst. Of a request also: the CPU of all threads of
    the gateway, of the database's processes and of the loop, the worst of a callback of the loop, and how long the loop
    was usually blocked."""

    what: str
    usual: float
    worst: float
    cpu: float | None = None
    database: float = 0
    loop: float = 0
    callback: float = 0
    blocked: float = 0
    wanted: float | None = None

    def __str__(self) -> str:
        late = self.wanted is not None and (self.usual > self.wanted or max(self.callback, self.blocked) > BLOCKED_MS)
        figures = (self.cpu, self.database, self.loop, self.callback, self.blocked)
        cpu = "" if self.cpu is None else "".join(f"{figure:9.1f}" for figure in figures)
        return f"  {self.what:44}{self.usual:9.1f}{self.worst:9.1f}{cpu}{'   slower than wanted' if late else ''}"


def ask_all(site: Site) -> Iterator[Took]:
    """Measure each request of each view."""
    _, page = site.ask("/admin/entries?until=15d&limit=1")
    deep, id = page["next"], page["entries"][0]["id"]
    for name, query in LISTS.items():
        yield _asked(site, f"Calls: {name}", f"/admin/entries?{query.format(deep=deep)}", LIST_MS)
    yield _asked(site, "Calls: one call", f"/admin/entries/{id}", LIST_MS)
    for name, query in HEALTH.items():
        yield _asked(site, f"Health: {name}", f"/admin/health?{query}", SUM_MS)
    for name, query in SPEND.items():
        yield _asked(site, f"Spend: {name}", f"/admin/usage?{query}", SUM_MS)
    _, names = site.ask("/admin/keys?names=1&limit=10000")
    after = names["keys"][-min(501, len(names["keys"]))]["id"]
    for name, path in OTHERS.items():
        yield _asked(site, name, f"/admin/{path.format(after=after)}", LIST_MS)
    yield _asked(site, "Metrics", "/metrics", LIST_MS)


def _asked(site: Site, what: str, path: str, wanted: float) -> Took:
    clocks = (site.cpu_s, site.database_s, site.loop_s)
    before = [clock() for clock in clocks]
    times, callbacks, blocks = list[float](), list[float](), list[float]()
    for _ in range(ROUNDS):
        site.delays.write()
        times.append(site.ask(path)[0])
        callback, blocking = site.delays.read()
        callbacks.append(callback)
        blocks.append(blocking)
    cpu, database, loop = (1e3 * (clock() - began) / ROUNDS for clock, began in zip(clocks, before, strict=True))
    usual, blocked = statistics.median(times), statistics.median(blocks)
    return Took(what, usual, max(times), cpu, database, loop, max(callbacks), blocked, wanted)


@contextmanager
def browser(chromium: str) -> Iterator[Browser]:
    """A browser."""
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


def sign_in(opened: Browser, site: Site) -> Page:
    """A page that is signed in."""
    window = opened.new_context(viewport={"width": 1280, "height": 800})
    window.add_cookies([{"name": COOKIE, "value": site.session, "url": site.url}])
    return window.new_page()


def open_all(page: Page, site: Site) -> Iterator[Took]:
    """Each view, from the beginning of loading the page until its data is there."""
    _, newest = site.ask("/admin/entries?until=15d&limit=1")
    for name, (view, selector) in PAGES.items():
        times = []
        for _ in range(3):
            page.goto("about:blank")
            began = time.perf_counter()
            page.goto(f"{site.url}/#/{view.format(id=newest['entries'][0]['id'])}", wait_until="commit")
            page.wait_for_selector(selector, timeout=30_000)
            times.append(1e3 * (time.perf_counter() - began))
        yield Took(f"{name}", statistics.median(times), max(times))
