"""Tokens: what is booked for a provider's report."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from penstock import Usage
from penstock.core.hub.usage import ABSURD_TOKENS, Tokens
from penstock.gateway.record.price import Rates

REPORTS: dict[str, tuple[Usage, Tokens]] = {
    "nothing": (Usage(), Tokens()),
    "the usual": (Usage(input=8, output=18, total=26), Tokens(input=8, output=18)),
    "all parts": (
        Usage(input=100, output=50, total=150, cached=60, cache_write=30, reasoning=20, audio_input=5, audio_output=6),
        Tokens(input=100, output=50, cached=60, cache_write=30, reasoning=20, audio_input=5, audio_output=6),
    ),
    "nulls": (Usage(input=8, output=None, cached=None), Tokens(input=8)),
    "reasoning within": (Usage(input=8, output=18, total=26, reasoning=10), Tokens(input=8, output=18, reasoning=10)),
    "reasoning apart": (Usage(input=8, output=18, total=36, reasoning=10), Tokens(input=8, output=28, reasoning=10)),
    "reasoning greater": (Usage(input=8, output=18, reasoning=20), Tokens(input=8, output=18, reasoning=18)),
    "reasoning greater, and in no total": (
        Usage(input=20, output=355, total=375, reasoning=390),
        Tokens(input=20, output=355, reasoning=355),
    ),
    "a total that differs": (Usage(input=8, output=18, total=99, reasoning=3), Tokens(input=8, output=18, reasoning=3)),
    "cached greater": (Usage(input=10, output=1, cached=100), Tokens(input=10, output=1)),
    "cached greater, and in no total": (Usage(input=7, output=3, total=10, cached=10**8), Tokens(input=7, output=3)),
    "cached greater, and in the total": (
        Usage(input=10, output=1, total=111, cached=100),
        Tokens(input=110, output=1, cached=100),
    ),
    "cached beside a greater input": (
        Usage(input=50, output=10, total=100, cached=40),
        Tokens(input=90, output=10, cached=40),
    ),
    "both caches apart": (
        Usage(input=12, output=250, total=1_290, cached=28, cache_write=1_000),
        Tokens(input=1_040, output=250, cached=28, cache_write=1_000),
    ),
    "cached and reasoning apart": (
        Usage(input=10, output=5, total=145, cached=100, reasoning=30),
        Tokens(input=110, output=35, cached=100, reasoning=30),
    ),
    "one cache apart, the other within": (
        Usage(input=100, output=5, total=145, cached=40, cache_write=60),
        Tokens(input=140, output=5, cached=40, cache_write=60),
    ),
    "both caches greater": (Usage(input=10, output=1, cached=8, cache_write=8), Tokens(input=10, output=1)),
    "a great cache beside a total that differs": (
        Usage(input=7, output=3, total=90, cached=50),
        Tokens(input=7, output=3),
    ),
    "audio apart": (
        Usage(input=11, output=15, total=401, cached=9, audio_input=375),
        Tokens(input=386, output=15, cached=9, audio_input=375),
    ),
    "audio greater, and in no total": (
        Usage(input=7, output=3, total=10, audio_input=10**8),
        Tokens(input=7, output=3),
    ),
    "no input, and a cache": (Usage(output=3, cached=50), Tokens(output=3)),
    "cached equal": (Usage(input=10, cached=10), Tokens(input=10, cached=10)),
    "negative": (Usage(input=-5, output=-1, cached=-7, reasoning=-3), Tokens()),
    "absurd": (Usage(input=10**30, output=10**12), Tokens(input=ABSURD_TOKENS, output=ABSURD_TOKENS)),
    "absurd parts": (
        Usage(input=7, cached=10**30, cache_write=10**30),
        Tokens(input=7),
    ),
    "more audio than input": (Usage(input=7, audio_input=9, audio_output=9), Tokens(input=7)),
    "a total alone": (Usage(total=26), Tokens(input=26)),
    "a total and the output": (Usage(output=6, total=26), Tokens(input=20, output=6)),
    "a total and the input": (Usage(input=20, total=26), Tokens(input=20, output=6)),
    "an output of zero, and a total": (Usage(input=20, output=0, total=26), Tokens(input=20, output=6)),
    "the output alone": (Usage(output=6), Tokens(output=6)),
}


@pytest.mark.parametrize(("usage", "expected"), REPORTS.values(), ids=REPORTS)
def test_a_report_comes_to(usage: Usage, expected: Tokens) -> None:
    tokens = Tokens.of(usage)
    assert tokens == expected
    assert tokens.cached + tokens.cache_write <= tokens.input
    assert tokens.reasoning <= tokens.output
    assert all(0 <= count <= ABSURD_TOKENS for count in structs.astuple(tokens))


def test_a_total_that_is_filled_in_changes_nothing() -> None:
    usage = Usage(input=8, output=18, reasoning=20)
    assert Tokens.of(usage.with_total()) == Tokens.of(usage)


def test_a_client_gets_the_rest_of_the_total_for_an_output_of_zero() -> None:
    usage = Usage(input=20, output=0, total=26, raw={"total_tokens": 26})
    assert usage.corrected() == structs.replace(usage, output=6)


def test_several_are_summed_up() -> None:
    each = [Tokens(input=1, output=2, audio_output=3), Tokens(input=10, reasoning=4)]
    assert Tokens.sum(each) == Tokens(input=11, output=2, reasoning=4, audio_output=3)
    assert Tokens.sum([]) == Tokens()


FIGURES = st.none() | st.integers(-2, 40) | st.sampled_from((ABSURD_TOKENS - 20, ABSURD_TOKENS, 10**30))


@given(st.lists(FIGURES, min_size=8, max_size=8), st.booleans())
def test_a_sound_report_is_booked_as_it_is(figures: list[int | None], adds_up: bool) -> None:
    if adds_up and figures[0] is not None and figures[1] is not None:
        figures[2] = figures[0] + figures[1]
    usage = _report(figures)
    if usage.sound:
        assert not usage.doubts()
        assert not usage.blank
        assert not usage.absurd
        assert Tokens.of(usage) == Tokens.of_sound(usage) == Tokens._within_reason(usage)


def _report(figures: list[int | None]) -> Usage:
    names = ("input", "output", "total", "cached", "cache_write", "reasoning", "audio_input", "audio_output")
    return Usage(**dict(zip(names, figures, strict=True)))  # type: ignore[arg-type]


@given(st.lists(st.none() | st.integers(-2, 40) | st.sampled_from((10**8, 10**30)), min_size=8, max_size=8))
@example([0, -1, 0, None, None, None, None, 1])
def test_no_more_is_billed_than_the_totals_allow(figures: list[int | None]) -> None:
    usage = _report(figures)
    tokens = Tokens.of(usage)
    input, output, total = (min(max(count or 0, 0), ABSURD_TOKENS) for count in figures[:3])
    assert tokens.input + tokens.output <= max(total, input + output)
    if usage.total is not None and usage.total == input + output and None not in figures[:2]:
        assert (tokens.input, tokens.output) == (input, output)
    dearest = Rates(*[2] * 7)
    assert dearest.of(tokens) <= 2 * max(total, input + output)
    for whole, *parts in (("input", "cached", "cache_write"), ("input", "audio_input"), ("output", "audio_output")):
        assert sum(getattr(tokens, part) for part in parts) <= getattr(tokens, whole)
    assert tokens.reasoning <= tokens.output


@given(st.lists(st.integers(0, 40), min_size=8, max_size=8))
def test_what_is_not_booked_as_it_was_reported_is_marked(figures: list[int]) -> None:
    usage = _report([*figures])
    tokens = Tokens.of(usage)
    booked = (tokens.input, tokens.output, tokens.input + tokens.output, *structs.astuple(tokens)[2:])
    assert usage.blank or usage.doubts() or booked == tuple(figures)


def test_reports_that_are_sound() -> None:
    sound = [name for name, (usage, _) in REPORTS.items() if usage.sound]
    assert sound == ["the usual", "all parts", "reasoning within"]


@pytest.mark.parametrize(("input", "output", "sound"), [(0, 0, False), (1, 0, True), (0, 1, True), (10**9, 0, False)])
def test_a_report_is_sound_from_the_first_token_on(input: int, output: int, sound: bool) -> None:
    assert Usage(input=input, output=output).sound == sound
