"""What the bench says of live observation: somebody really watches, and what is timed is the relay's own code."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.gateway import observation
from bench.gateway.watcher import Seen, Watcher
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import HELLO
from tests.faults.upstream import Upstream, chunk, for_ever, head
from tests.serve.test_admin import Served
from tests.streams import says, sse


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Upstream() as upstream:
        upstream.play([head(), chunk(HELLO), for_ever(sse(says("word ")), 0.01)], "talks")
        with Gateway(tmp_path, upstream, settings(upstream.url, 0, admin={"content": True})) as gateway:
            yield Served(gateway)


def test_the_watcher_follows_the_feed_and_reads_along(served: Served) -> None:
    with served.gateway.begin("main/talks", stream=True) as client:
        client.read_until(b"word ")
        with Watcher(served.port, served.token) as watcher:
            time.sleep(2)
    assert watcher.seen.messages >= 2
    assert watcher.seen.pieces >= 20


def test_who_finds_nobody_to_watch_has_seen_nothing(served: Served) -> None:
    with Watcher(served.port, "no-token-at-all") as watcher:
        time.sleep(0.5)
    assert watcher.seen == Seen(0, 0)


def test_what_observing_an_event_takes_can_be_measured() -> None:
    assert -10 < observation.idle_us() < 10  # it is measured: how little it is, the bench says


def test_a_relay_that_was_changed_is_not_timed() -> None:
    with pytest.raises(ValueError, match="look at bench/gateway/observation"):
        observation.unobserved("def _make_shortcut(self): ...")
