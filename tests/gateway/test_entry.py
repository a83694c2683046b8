"""The entry of a call: its tokens, cost and measure are those of all its attempts."""

import pytest

from penstock.core.hub.usage import Tokens
from penstock.gateway.record.entry import AttemptEntry, Entry, Measure


def attempt(measure: Measure, cost: int | None, output: int = 0, *, approximate: bool = False) -> AttemptEntry:
    tokens = Tokens(input=5, output=output)
    return AttemptEntry(
        provider="main",
        model="m",
        outcome="completed",
        measure=measure,
        tokens=tokens,
        cost=cost,
        approximate=approximate,
    )


def entry(*attempts: AttemptEntry) -> Entry:
    return Entry(
        id="req_1", at_ms=0, key="", surface="chat", model="main/m", stream=True, outcome="completed", attempts=attempts
    )


VOID, PAID, GUESSED, UNPRICED = (
    attempt("void", 0),
    attempt("reported", 7, 3),
    attempt("estimated", 2),
    attempt("reported", None, 9),
)
# The attempts, and what the entry has: measure, cost, the priced part of it, output tokens.
SUMS: dict[str, tuple[tuple[AttemptEntry, ...], tuple[Measure, int | None, int, int]]] = {
    "none": ((), ("void", 0, 0, 0)),
    "one": ((PAID,), ("reported", 7, 7, 3)),
    "one without a price": ((UNPRICED,), ("reported", None, 0, 9)),
    "one that cost nothing": ((VOID,), ("void", 0, 0, 0)),
    "a failure, then an answer": ((VOID, PAID), ("reported", 7, 7, 3)),
    "two failures": ((VOID, VOID), ("void", 0, 0, 0)),
    "an estimate, then an answer": ((GUESSED, PAID), ("estimated", 9, 9, 3)),
    "an answer, then an estimate": ((PAID, GUESSED), ("estimated", 9, 9, 3)),
    "a price is missing in the first": ((UNPRICED, PAID), ("reported", None, 7, 12)),
    "a price is missing in the last": ((PAID, UNPRICED), ("reported", None, 7, 12)),
    "three": ((VOID, PAID, PAID), ("reported", 14, 14, 6)),
}


@pytest.mark.parametrize(("attempts", "expected"), SUMS.values(), ids=SUMS)
def test_an_entry_sums_up_its_attempts(
    attempts: tuple[AttemptEntry, ...], expected: tuple[Measure, int | None, int, int]
) -> None:
    made = entry(*attempts)
    assert (made.measure, made.cost, made.priced, made.tokens.output) == expected
    assert made.tokens.input == 5 * len(attempts)
    assert not made.approximate


def test_a_cost_is_approximate_if_that_of_any_attempt_is() -> None:
    about = attempt("reported", 3, approximate=True)
    assert [entry(*each).approximate for each in ((about,), (PAID, about), (about, PAID), (PAID, PAID))] == [
        True
    ] * 3 + [False]
