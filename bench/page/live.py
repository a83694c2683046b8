"""Measures the Live view while very many streams run: the speed of the page, and its cost for the gateway."""

import time
from typing import Any, NamedTuple

from playwright.sync_api import Browser

from bench.page.site import Delays, Site, delays
from bench.page.views import sign_in

WATCH_S = 8.0
_SETTLE_S = 2.0
# Records the durations of long tasks of the page's thread, and the times between frames.
_OBSERVE = """() => {
    window.busy = []; window.frames = [];
    new PerformanceObserver((list) => { for (const {duration} of list.getEntries()) window.busy.push(duration); })
        .observe({type: 'longtask'});
    let last = performance.now();
    (function frame(now) { window.frames.push(now - last); last = now; requestAnimationFrame(frame); })(last);
}"""
_TEXT = "() => document.querySelector('.panel .transcript')?.textContent.includes('@')"
_LISTED = "() => [...document.querySelectorAll('tbody tr:not(.over)')].length"


class Watched(NamedTuple):
    """The result of a run."""

    shown: str
    listed: int
    click_ms: float
    older_ms: float
    find_ms: float
    busy: list[float]
    frames: list[float]
    cpu_alone: float
    cpu_watched: float
    alone: Delays
    watched: Delays
    megabytes: float


def watch(opened: Browser, site: Site, streams: int, gap_ms: int) -> Watched:
    """Run streams, first without a page, then with the Live view open."""
    crowd = site.crowd(streams, gap_ms)
    try:
        time.sleep(_SETTLE_S)
        alone, cpu_alone = _span(site)
        page = sign_in(opened, site)
        page.goto(f"{site.url}/#/live")
        page.wait_for_selector("tbody tr")
        time.sleep(_SETTLE_S)
        page.evaluate(_OBSERVE)
        watched, cpu_watched = _span(site)
        busy, frames = page.evaluate("window.busy"), page.evaluate("window.frames")
        shown = page.locator(".figure dd").first.inner_text()
        listed = page.evaluate(_LISTED)
        click_ms = _until(page, lambda: page.locator("tbody tr a").nth(20).click(), _TEXT)
        page.get_by_role("button", name="Close").click()
        first = page.locator("tbody tr").first.get_attribute("data-id")
        other = f"() => document.querySelector('tbody tr')?.dataset.id !== '{first}' && ({_LISTED})() === 200"
        older_ms = _until(page, lambda: page.get_by_role("link", name="Older").click(), other)
        id = page.locator("tbody tr").last.get_attribute("data-id")
        one = f"() => ({_LISTED})() === 1 && document.querySelector('tbody tr').dataset.id === '{id}'"
        find_ms = _until(page, lambda: page.get_by_label("Search").fill(id or ""), one)
        megabytes = site.megabytes()
        page.close()
    finally:
        seen = crowd.end()
    return Watched(
        shown, listed, click_ms, older_ms, find_ms, busy, frames, cpu_alone, cpu_watched,
        delays(seen, *alone), delays(seen, *watched), megabytes,
    )  # fmt: skip


def _span(site: Site) -> tuple[tuple[float, float], float]:
    """Wait for a while; return its start and end, and the share of a core that the gateway used."""
    began, cpu = time.monotonic(), site.cpu_s()
    time.sleep(WATCH_S)
    ended = time.monotonic()
    return (began, ended), (site.cpu_s() - cpu) / (ended - began)


def _until(page: Any, act: Any, true: str) -> float:
    """Milliseconds from an action until a condition of the page is true."""
    began = time.perf_counter()
    act()
    while not page.evaluate(true):
        if time.perf_counter() - began > 20:
            raise SystemExit(f"bench-page: it never came true: {true}")
        time.sleep(0.005)
    return 1e3 * (time.perf_counter() - began)
