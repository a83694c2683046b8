"""Gaps between events are counted on every path of the relay: their number, their length, and the stalls."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from math import inf

import pytest

from penstock.gateway.billing.accounting import entry_of
from penstock.gateway.record.attempt import GAP_BOUNDS, MAX_STALLS
from tests.gateway.support import VARIANTS, Clock, Relayed


@pytest.fixture
def loop() -> Clock:
    return Clock()


def relayed(loop: Clock, drive: Callable[[Relayed], None]) -> Relayed:
    async def run() -> Relayed:
        made = Relayed(loop)
        drive(made)
        made.end()
        return made

    try:
        return loop.run_until_complete(run())
    finally:
        loop.close()


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_path_counts_the_same(variant: str, loop: Clock) -> None:
    gaps_s = [0.004, 0.004, 0.03, 1.5, 0.7, 3.0, 90.0]

    def drive(made: Relayed) -> None:
        for gap_s in gaps_s:
            made.in_variant(variant, gap_s)

    made = relayed(loop, drive)
    gaps = made.attempt.gaps
    at_once = gaps.counts[0] - 2
    expected = [sum(lower < gap_s <= upper for gap_s in gaps_s) for lower, upper in pairwise((*GAP_BOUNDS, inf))]
    assert gaps.counts[1:] == expected
    assert 1 <= at_once <= 3  # the end, and what the template is learned of
    assert made.client.chunks == (len(gaps_s) if variant == "no parser" else 0)
    assert gaps.total_s == pytest.approx(sum(gaps_s))
    attempt = entry_of(made.call, lambda *_: 0).attempts[0]
    assert attempt.longest_gap_ms == 90_000
    assert attempt.stalls == ((2038, 1500), (4238, 3000), (7238, 90_000))


def test_so_many_stalls_are_kept_and_no_more(loop: Clock) -> None:
    def drive(made: Relayed) -> None:
        for _ in range(MAX_STALLS + 9):
            made.in_variant("no parser", 1.25)

    made = relayed(loop, drive)
    assert len(made.attempt.gaps.stalls) == MAX_STALLS
    assert made.attempt.gaps.counts[GAP_BOUNDS.index(1.28)] == MAX_STALLS + 9


def test_what_a_slow_client_holds_up_is_no_gap(loop: Clock) -> None:
    def drive(made: Relayed) -> None:
        made.after(0.5, VARIANTS["fast"])
        made.relay.pause()
        loop.now += 40.0
        made.relay.resume()
        made.after(0.25, VARIANTS["fast"])

    made = relayed(loop, drive)
    assert made.attempt.gaps.total_s == pytest.approx(0.75)
    assert made.attempt.gaps.longest_s == pytest.approx(0.5)
    assert made.attempt.gaps.stalls == []


def test_the_wait_for_the_first_event_is_no_gap(loop: Clock) -> None:
    made = relayed(loop, lambda _: None)
    assert made.attempt.commit_s == 2.0
    assert made.attempt.gaps.longest_s == 0.0


@pytest.mark.parametrize("paused", [False, True])
def test_who_leaves_is_drained_for_so_long_also_while_the_provider_has_to_wait(paused: bool, loop: Clock) -> None:
    async def run() -> Relayed:
        made = Relayed(loop, drain_s=0.5)
        for _ in range(2):
            await asyncio.sleep(0)  # so that the timer is set for later
        made.relay.pause_for_limit(paused)
        assert made.relay.drain(lambda: None)
        for _ in range(3):
            loop.now += 0.2
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return made

    try:
        made = loop.run_until_complete(run())
    finally:
        loop.close()
    assert made.attempt.ending == "timed_out"
