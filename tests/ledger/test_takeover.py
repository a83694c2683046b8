"""What is logged about the calls of a killed gateway: how many were not booked, and how long they took."""

import os
import re
import signal
import time

import pytest

from tests.faults.client import RawClient, body, post
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import HELLO, whole
from tests.faults.support import wait_until_listening, worker_pids
from tests.faults.upstream import Upstream, chunk, head, sleep
from tests.promptness import Late, prompt
from tests.streams import says, sse

_BOOKED = 6
_RAN_S = 1.2
# The last record of a killed gateway may be this old.
_MARK_S = 2.0
_WAIT_S = 30.0
WORD = chunk(sse(says(" on")))
TAKEN = re.compile(r"takes over (\d+) calls?")


def taken_over(gateway: Gateway) -> list[int]:
    return [int(found[1]) for line in gateway.output if (found := TAKEN.search(line))]


def begin(gateway: Gateway, client: RawClient, model: str) -> float:
    """Make calls that are booked, and one that never ends; returns when the latter was made."""
    whole_answer = gateway.upstream.play(whole())
    for _ in range(_BOOKED):
        assert gateway.ask(f"main/{whole_answer}", stream=True).done
    deadline = time.monotonic() + _WAIT_S
    while len(list(gateway.book.entries())) < _BOOKED:
        assert time.monotonic() < deadline, "the calls are not booked"
        time.sleep(0.05)
    began = time.time()
    client.send(post(body(f"main/{model}", stream=True)))
    client.read_until(b"Hello")
    time.sleep(_RAN_S)
    return began


def check_orphan(gateway: Gateway, began: float, killed: float, *, found_s: float) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not (orphans := [entry for entry in gateway.book.entries() if entry.outcome == "orphaned"]):
        assert time.monotonic() < deadline, "the orphan is not booked"
        time.sleep(0.05)
    (entry,) = orphans
    (attempt,) = entry.attempts
    truly_ms = (killed - began) * 1000
    assert entry.duration_ms <= truly_ms + 1000 * found_s
    if entry.duration_ms < truly_ms - 500:
        raise Late("the gateway recorded nothing for half a second before it was killed")
    assert attempt.began_ms + attempt.duration_ms == entry.duration_ms


@prompt
def test_of_a_gateway_that_was_killed_only_what_was_not_booked_is_taken_over(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("killed")
    with Upstream() as upstream:
        text = settings(upstream.url, 0)
        model = upstream.play([head(), chunk(HELLO), *(step for _ in range(99) for step in (sleep(0.2), WORD))])
        with Gateway(folder, upstream, text) as first, first.client() as client:
            began = begin(first, client, model)
            killed = time.time()
            first.stop(signal.SIGKILL)
        time.sleep(_MARK_S)  # it is started again some time later
        with Gateway(folder, upstream, text) as second:
            second.until(lambda: taken_over(second), _WAIT_S)
            assert taken_over(second) == [1]
            check_orphan(second, began, killed, found_s=_MARK_S)
        with Gateway(folder, upstream, text) as third:
            assert taken_over(third) == []


@prompt
def test_a_killed_worker_leaves_its_calls_to_its_successor(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("killed")
    with Upstream() as upstream:
        text = settings(upstream.url, 0)
        silent = upstream.play([head(), chunk(HELLO), sleep(30.0)])
        with Gateway(folder, upstream, text, arguments=("--workers", "2")) as gateway:
            wait_until_listening(gateway, 2)
            with gateway.client() as client:
                began = begin(gateway, client, silent)
                killed = time.time()
                for victim in worker_pids(gateway, 2):
                    os.kill(victim, signal.SIGKILL)
            gateway.until(lambda: taken_over(gateway), _WAIT_S)
            check_orphan(gateway, began, killed, found_s=_MARK_S)
            assert sum(taken_over(gateway)) == 1
