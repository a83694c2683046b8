"""What is logged and booked of the calls of a killed gateway: how many, how long they took, and whose account paid."""

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


OWN = "sk-ant-oat01-canary-of-the-subscription-51f0"


@pytest.mark.parametrize(("basis", "free"), [("free", True), ("list", False)])
def test_a_call_with_a_credential_of_the_client_keeps_its_cost_basis(
    tmp_path_factory: pytest.TempPathFactory, basis: str, free: bool
) -> None:
    folder = tmp_path_factory.mktemp("killed")
    with Upstream() as upstream:
        text = settings(upstream.url, 0, server={"keys": []}).replace(
            "[providers.main]", f'[providers.main]\nclient_credentials = {{ subscription = "{basis}" }}', 1
        )
        model = upstream.play([head(), chunk(HELLO), sleep(30.0)])
        with Gateway(folder, upstream, text) as first, first.client() as client:
            headers = {"Host": "localhost", "Authorization": f"Bearer {OWN}", "x-penstock-key": "any"}
            client.send(post(body(f"main/{model}", stream=True), headers))
            client.read_until(b"Hello")
            first.stop(signal.SIGKILL)
        assert not any(OWN.encode() in file.read_bytes() for file in folder.rglob("*") if file.is_file())
        with Gateway(folder, upstream, text) as second:
            second.until(lambda: taken_over(second) and [*second.book.entries()], _WAIT_S)
            (entry,) = second.book.entries()
    (attempt,) = entry.attempts
    assert (entry.outcome, attempt.tokens.input > 0, attempt.cost == 0) == ("orphaned", True, free)
    assert (entry.tags["credentials"], attempt.price) == ("client", "client" if free else "configured")
