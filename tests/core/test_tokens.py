"""Tokens: what a provider's report comes to when it is booked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from penstock import Usage
from penstock.core.usage import ABSURD_TOKENS, Tokens

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
    "reasoning greater": (Usage(input=8, output=18, reasoning=20), Tokens(input=8, output=38, reasoning=20)),
    "a total that differs": (Usage(input=8, output=18, total=99, reasoning=3), Tokens(input=8, output=18, reasoning=3)),
    "cached greater": (Usage(input=10, output=1, cached=100), Tokens(input=110, output=1, cached=100)),
    "both caches greater": (
        Usage(input=10, cached=8, cache_write=8),
        Tokens(input=26, cached=8, cache_write=8),
    ),
    "cached equal": (Usage(input=10, cached=10), Tokens(input=10, cached=10)),
    "negative": (Usage(input=-5, output=-1, cached=-7, reasoning=-3), Tokens()),
    "absurd": (Usage(input=10**30, output=10**12), Tokens(input=ABSURD_TOKENS, output=ABSURD_TOKENS)),
    "absurd parts": (
        Usage(input=7, cached=10**30, cache_write=10**30),
        Tokens(input=ABSURD_TOKENS, cached=ABSURD_TOKENS),
    ),
    "more audio than input": (Usage(input=7, audio_input=9, audio_output=9), Tokens(input=7, audio_input=7)),
    "a total alone": (Usage(total=26), Tokens(input=26)),
    "a total and the output": (Usage(output=6, total=26), Tokens(input=20, output=6)),
    "a total and the input": (Usage(input=20, total=26), Tokens(input=20, output=6)),
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


def test_several_are_summed_up() -> None:
    each = [Tokens(input=1, output=2, audio_output=3), Tokens(input=10, reasoning=4)]
    assert Tokens.sum(each) == Tokens(input=11, output=2, reasoning=4, audio_output=3)
    assert Tokens.sum([]) == Tokens()


FIGURES = st.none() | st.integers(-2, 40) | st.sampled_from((ABSURD_TOKENS - 20, ABSURD_TOKENS, 10**30))


@given(st.lists(FIGURES, min_size=8, max_size=8), st.booleans())
def test_a_sound_report_is_booked_as_it_is(figures: list[int | None], adds_up: bool) -> None:
    names = ("input", "output", "total", "cached", "cache_write", "reasoning", "audio_input", "audio_output")
    if adds_up and figures[0] is not None and figures[1] is not None:
        figures[2] = figures[0] + figures[1]
    usage = Usage(**dict(zip(names, figures, strict=True)))  # type: ignore[arg-type]
    if usage.sound:
        assert not usage.doubts()
        assert not usage.blank
        assert not usage.absurd
        assert Tokens.of(usage) == Tokens.of_sound(usage) == Tokens._within_reason(usage)


def test_reports_that_are_sound() -> None:
    sound = [name for name, (usage, _) in REPORTS.items() if usage.sound]
    assert sound == ["the usual", "all parts", "reasoning within"]
