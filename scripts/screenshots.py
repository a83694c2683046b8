"""Makes pictures of the page from a real gateway whose providers are scripted; see `scripts/screenshots --help`."""

import argparse
import os
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = str(ROOT / "src")

from playwright.sync_api import Browser, Page, sync_playwright  # noqa: E402

from penstock.serve.admin.access import COOKIE  # noqa: E402
from tests.faults.gateway import Gateway  # noqa: E402
from tests.faults.upstream import Op, Upstream, chunk, head, last_chunk, sleep, status  # noqa: E402
from tests.streams import DONE, begins, bill, counts, delta, finishes, says, sse  # noqa: E402
from tests.web.site import Site  # noqa: E402

NAMES = (os.environ.get("PENSTOCK_CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
LARGEST = 200_000
CONFIGURATION = """
[server]
listen = "127.0.0.1:0"
log = "json"
keys = ["pictured-and-used-for-nothing-else"]
[admin]
content = true
[providers.harbour]
base_url = "{url}"
api_key = "none"
[providers.meadow]
base_url = "{url}"
api_key = "none"
[prices."*/heron-*"]
input = 0.6
output = 2.4
[prices."*/otter-*"]
input = 3
output = 15
[routes.fast]
targets = ["harbour/heron-small"]
[routes.smart]
targets = ["meadow/otter-large", "harbour/heron-large"]
[routes.drafts]
targets = ["meadow/otter-small"]
[routes.summaries]
targets = ["harbour/heron-large"]
"""
THOUGHT = "The question is about the pipe before a turbine. First what it is, then why it is steep, then one figure."
ANSWER = """\
A penstock is the pipe that leads water from a reservoir down to a turbine. It is where the height of the lake \
becomes pressure: every ten metres of fall add about one bar.

Two things matter when one is built:

1. It must be short and steep. Length costs head, because water rubs along the wall.
2. It must stand the hammer. When the valve closes, the moving column of water has to stop, and its momentum turns \
into a wave of pressure that runs back up the pipe. A surge tank near the lower end takes that wave in.

A pipe of one metre across that carries two cubic metres a second over a fall of 150 metres gives close to three \
megawatts, less what the wall, the bends and the turbine keep for themselves. """
# Who is asked by which name, the target, who asks, seconds between two events, and how many events come at once.
RUNNING = (
    ("fast", "heron-small", "search", 0.035, 60),
    ("summaries", "heron-large", "ci", 0.06, 240),
    ("fast", "heron-small", "support", 0.05, 90),
    ("smart", "otter-large", "support", 0.09, 150),
    ("drafts", "otter-small", "editorial", 0.16, 40),
    ("smart", "otter-large", "search", 0.11, 200),
    ("fast", "heron-small", "ci", 0.045, 120),
    ("smart", "otter-large", "editorial", 0.05, 60),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/screenshots", description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "images", help="where they go (docs/images)")
    parser.add_argument("--all", action="store_true", help="all views, light and dark, wide and on a phone")
    options = parser.parse_args()
    chromium = next(filter(None, (shutil.which(name) for name in NAMES if name)), None)
    if chromium is None:
        print("no Chromium: apt install chromium, or PENSTOCK_CHROMIUM=/path/to/chromium", file=sys.stderr)
        return 1
    options.folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = stack.enter_context(Upstream())
        _play(upstream)
        site = Site(stack.enter_context(Gateway(folder, upstream, CONFIGURATION.format(url=upstream.url))))
        keys = {name: site.ask("POST", "/admin/keys", terms)["secret"] for name, terms in _terms().items()}
        _book(site, keys)
        browser = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=chromium, args=["--no-sandbox"]
        )
        for number, (model, target, key, gap_s, ahead) in enumerate(RUNNING):
            upstream.play(_script(Random(number), gap_s, ahead), target)
            stack.enter_context(site.begin(model, keys[key]))
            upstream.asked(target, sum(running[1] == target for running in RUNNING[: number + 1]))
        page = _open(browser, site, "light", 1280, 740)
        page.locator("tbody tr", has_text="editorial").filter(has_text="smart").get_by_role("link").click()
        page.get_by_role("log").get_by_text("close to three").wait_for(timeout=60_000)
        page.mouse.move(0, 0)
        live, inspect = options.folder / "live.png", options.folder / "inspect.png"
        page.screenshot(path=live)
        watched = page.url.partition("#")[2]
        page.goto(f"{site.url}/#/inspect")
        _inspect(page)
        page.screenshot(path=inspect)
        sizes = {picture: picture.stat().st_size for picture in (live, inspect)}
        for picture, size in sizes.items():
            print(f"{picture}: {size:,} bytes")
        if options.all:
            _all(browser, site, watched, options.folder)
        browser.close()
    return 0 if max(sizes.values()) <= LARGEST else 1


def _terms() -> dict[str, dict[str, object]]:
    budgets = {"search": "40", "support": "25", "ci": "5", "editorial": "60"}
    return {name: {"name": name, "budget": budget, "period": "month"} for name, budget in budgets.items()}


def _play(upstream: Upstream) -> None:
    """What the providers say at once: well, not so well, and not at all."""
    usage = bill(**counts(212, 38))
    whole = sse(begins(), says("Water runs "), says("downhill."), finishes(), usage, DONE)
    upstream.play([head(), chunk(whole), last_chunk()], "heron-brief")
    odd = sse(begins(), says("Water "), says("runs."), finishes("eos"))
    upstream.play([head(), chunk(odd), last_chunk()], "otter-brief")
    upstream.play([status(503, {"content-type": "application/json"}, b'{"error": {"message": "busy"}}')], "otter-busy")


def _script(chance: Random, gap_s: float, ahead: int) -> list[Op]:
    thought = [sse(delta({"reasoning_content": word})) for word in _words(THOUGHT)]
    spoken = [sse(says(word)) for word in islice(cycle(_words(ANSWER)), 3_000)]
    ops: list[Op] = [sleep(chance.uniform(0.2, 0.7)), head(), chunk(sse(begins()))]
    for number, event in enumerate([*thought, *spoken]):
        ops.append(chunk(event))
        if number >= ahead:
            slow = 4 if number // 25 % 3 == 0 else 1
            ops.append(sleep(gap_s * slow * chance.uniform(0.4, 1.6)))
    return ops


def _words(text: str) -> list[str]:
    return [f"{word} " for word in text.split(" ")]


def _book(site: Site, keys: dict[str, str]) -> None:
    """Some calls for the other views."""
    deadline = time.monotonic() + 5
    while site.call("harbour/heron-brief", keys["ci"]).status != 200:
        assert time.monotonic() < deadline, "a key that was made is not known"
    models = ["harbour/heron-brief"] * 9 + ["meadow/otter-brief"] * 3 + ["meadow/otter-busy"]
    names = list(keys)
    for number in range(60):
        site.call(models[number * 7 % len(models)], keys[names[number * 5 % len(names)]])
    site.booked("/admin/entries?limit=500", lambda entries: len(entries) >= 60)


def _open(browser: Browser, site: Site, scheme: str, width: int, height: int) -> Page:
    window = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
    )
    window.add_cookies([{"name": COOKIE, "value": site.session, "url": site.url}])
    page = window.new_page()
    page.goto(f"{site.url}/#/live")
    page.wait_for_selector("tbody tr")
    return page


def _inspect(page: Page) -> None:
    page.get_by_role("button", name="Show an example").click()
    page.get_by_role("heading", name="Findings", exact=True).wait_for()


def _all(browser: Browser, site: Site, live: str, folder: Path) -> None:
    entry = site.ask("GET", "/admin/entries?limit=1")["entries"][0]["id"]
    views = {
        "live": "/live",
        "read": live,
        "calls": "/calls",
        "call": f"/calls/{entry}",
        "inspect": "/inspect",
        "health": "/health?since=1h",
        "spend": "/spend",
        "start": "/start",
        "keys": "/keys",
        "teams": "/teams",
        "requests": "/requests",
        "providers": "/providers",
        "audit": "/audit",
        "playground": "/playground?model=fast&prompt=What is a penstock?",
    }
    for scheme in ("light", "dark"):
        for width, height in ((1280, 800), (390, 800)):
            page = _open(browser, site, scheme, width, height)
            for name, view in views.items():
                page.mouse.move(0, 0)
                page.goto(f"{site.url}/#{view}")
                page.wait_for_timeout(1_500)
                if name == "inspect":
                    _inspect(page)
                page.screenshot(path=folder / f"{name}-{scheme}-{width}.png", full_page=True)
            page.close()


if __name__ == "__main__":
    sys.exit(main())
