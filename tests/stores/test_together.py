"""Several processes open and write one book at once."""

import multiprocessing
from multiprocessing.synchronize import Barrier

import pytest

from penstock.gateway.billing.queries import Filter
from tests.stores.entries import entry
from tests.stores.places import Place

pytestmark = pytest.mark.slow

PROCESSES, BATCHES, SIZE = 4, 5, 8


def work(place: Place, number: int, barrier: Barrier) -> None:
    """Book what all others book too, and some of one's own, in batches in an order of one's own."""
    barrier.wait(20)
    book = place.open()
    for batch in range(BATCHES):
        shared = [entry(f"shared {batch} {index}", at_ms=index) for index in range(SIZE)]
        own = [entry(f"{number} {batch} {index}", at_ms=index) for index in range(SIZE)]
        book.append([*own, *shared] if number % 2 else [*reversed(shared), *own])
    book.close()


def test_four_processes_book_everything_once(place: Place) -> None:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(PROCESSES)
    processes = [context.Process(target=work, args=(place, number, barrier)) for number in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    book = place.open()
    booked = book.following(Filter(), 0, limit=1000)
    assert len({found.id for _, found in booked}) == len(booked) == (PROCESSES + 1) * BATCHES * SIZE
    assert all(len(found.attempts) == 1 for _, found in booked)
    assert book.usage(Filter(), [])[0].cost == len(booked)
    book.close()


def test_who_follows_a_book_that_others_write_misses_nothing(place: Place) -> None:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(3)
    book = place.open()
    processes = [context.Process(target=work, args=(place, number, barrier)) for number in range(2)]
    for process in processes:
        process.start()
    barrier.wait(20)
    followed: list[str] = []
    after = 0
    ended = False
    while not ended:
        ended = not any(process.is_alive() for process in processes)  # before the last look
        while new := book.following(Filter(), after, limit=7):
            after = new[-1][0]
            followed += [found.id for _, found in new]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert len(set(followed)) == len(followed) == 3 * BATCHES * SIZE
    assert after == book.last()
    book.close()
