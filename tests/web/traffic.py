"""Traffic: calls of every kind, so that each view has something to show; and streams that run until stopped."""

import time

from tests.faults.scripts import ERROR_BODY, HELLO, REST, WORLD, stream, whole
from tests.faults.upstream import JSON, Op, chunk, for_ever, head, last_chunk, rst, sleep, status
from tests.streams import DONE, begins, finishes, says, sse
from tests.web.site import Site

WHOLE, CUT, FAILED, REPAIRED, STALLED = "main/whole", "main/cut", "main/failed", "main/repaired", "main/stalled"
TEAM = {"team": "red"}
SECRET_BUDGET = "0.02"
# Enough for a second page of the ledger.
MANY = 104
_WAIT_S = 30.0


def fill(site: Site) -> None:
    """Book some calls."""
    play = site.upstream.play
    play(whole(), "whole")
    play([head(), chunk(HELLO), rst()], "cut")
    play([status(500, JSON, ERROR_BODY)], "failed")
    play(stream(sse(begins(), says("Hello"), says("!"), finishes("eos"))), "repaired")
    play([head(), chunk(HELLO), sleep(1.1), chunk(WORLD), chunk(REST), last_chunk()], "stalled")
    play([status(503, JSON, ERROR_BODY)], "pair-0-a")
    play(whole(), "pair-0-b")
    key = site.ask("POST", "/admin/keys", {"name": "ci", "budget": SECRET_BUDGET, "period": "day", "tags": TEAM})
    call_with(site, WHOLE, key["secret"])
    with site.begin(STALLED) as stalled:
        models = [CUT, FAILED, REPAIRED, "pair-0", *[WHOLE] * MANY]
        for model in models:
            site.call(model)
        stalled.response()
    site.booked("/admin/entries?limit=500", lambda entries: len(entries) == len(models) + 2)


def call_with(site: Site, model: str, key: str) -> None:
    """Ask a model with a key that was made just now: it is known a moment later."""
    until = time.monotonic() + _WAIT_S
    while site.call(model, key).status != 200:
        assert time.monotonic() < until
        time.sleep(0.02)


def endless(site: Site, gap_s: float = 0.02, word: str = "drop ") -> str:
    """A model that never ends; returns its name as a client has it."""
    name = site.upstream.play([head(), chunk(sse(begins())), for_ever(sse(says(word)), gap_s)])
    return f"main/{name}"


def finite(site: Site, words: int, gap_s: float, gate: Op | None = None) -> str:
    """A model that takes its time over an answer, and waits at a gate in the middle of it, if there is one."""
    pieces = [op for number in range(words) for op in (chunk(sse(says(f"w{number} "))), sleep(gap_s))]
    if gate is not None:
        pieces.insert(len(pieces) // 2, gate)
    name = site.upstream.play([head(), chunk(sse(begins())), *pieces, chunk(sse(finishes(), DONE)), last_chunk()])
    return f"main/{name}"
