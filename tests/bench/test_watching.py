"""The benchmark of the live view: a client really watches, and the timed code is the relay's own."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.turns.pairs import median_range
from bench.watching import unwatched
from bench.watching.watcher import Seen, Watcher
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import HELLO
from tests.faults.upstream import Upstream, chunk, for_ever, head
from tests.promptness import Late, prompt
from tests.serve.support import AdminClient
from tests.streams import says, sse


@pytest.fixture
def served(tmp_path: Path) -> Iterator[AdminClient]:
    with Upstream() as upstream:
        upstream.play([head(), chunk(HELLO), for_ever(sse(says("word ")), 0.01)], "talks")
        with Gateway(tmp_path, upstream, settings(upstream.url, 0, admin={"content": True})) as gateway:
            yield AdminClient(gateway)


@prompt
def test_the_watcher_follows_the_feed_and_reads_along(served: AdminClient) -> None:
    with served.gateway.begin("main/talks", stream=True) as client:
        client.read_until(b"word ")
        with Watcher(served.port, served.token) as watcher:
            time.sleep(2)
    if watcher.seen.messages < 2 or watcher.seen.pieces < 20:
        raise Late(f"in two seconds it saw {watcher.seen}")


def test_who_finds_no_one_to_watch_has_seen_nothing(served: AdminClient) -> None:
    with Watcher(served.port, "no-token-at-all") as watcher:
        time.sleep(0.5)
    assert watcher.seen == Seen(0, 0)


def test_what_observing_an_event_takes_can_be_measured() -> None:
    assert -1_000 < unwatched.idle_us() < 1_000  # only that it is measured; the benchmark reports how much it is


def test_a_relay_that_was_changed_is_not_timed() -> None:
    with pytest.raises(ValueError, match="update bench/watching/unwatched"):
        unwatched.unobserved("def _on_chunk(self): ...")


def test_the_median_lies_within_its_range() -> None:
    low, high = median_range([-0.2, -0.1, 0.0, 0.01, 0.02, 0.03, 0.04, 0.3])
    assert -0.2 <= low < 0.015 < high <= 0.3
    assert median_range([0.01] * 5) == (0.01, 0.01)
