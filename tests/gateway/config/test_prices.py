"""The prices of a configuration become whole numbers, exactly as they are written."""

from pathlib import Path

import pytest

from penstock.core.hub.usage import Tokens
from penstock.gateway.config import load
from penstock.gateway.record.price import Price, Rates

ENV = {"GROQ_API_KEY": "gsk-0123456789", "RATE": "0.3"}


def prices(tmp_path: Path, text: str) -> dict[str, Price]:
    file = tmp_path / "penstock.toml"
    file.write_text(text, encoding="utf-8")
    return dict(load(file, ENV).prices)


def test_there_are_none_unless_they_are_given() -> None:
    assert load(None, ENV).prices == {}


WRITTEN: dict[str, tuple[str, Rates]] = {
    "two": (
        "input = 1.25\noutput = 10",
        Rates(1_250_000, 10_000_000, 1_250_000, 1_250_000, 10_000_000, 1_250_000, 10_000_000),
    ),
    "all": (
        "input = 0.1\noutput = 0.3\ncached = 0.01\ncache_write = 0.2\nreasoning = 0.4",
        Rates(100_000, 300_000, 10_000, 200_000, 400_000, 100_000, 300_000),
    ),
    "nothing": ("input = 0\noutput = 0", Rates()),
    "the dearest": ("input = 100000\noutput = 0", Rates(10**11, 0, 10**11, 10**11, 0, 10**11, 0)),
    "the cheapest": ("input = 0.000001\noutput = 1e-6", Rates(1, 1, 1, 1, 1, 1, 1)),
    "a variable": ('input = "${RATE}"\noutput = 0', Rates(300_000, 0, 300_000, 300_000, 0, 300_000, 0)),
}


@pytest.mark.parametrize(("text", "expected"), WRITTEN.values(), ids=WRITTEN)
def test_is_read_exactly(text: str, expected: Rates, tmp_path: Path) -> None:
    assert prices(tmp_path, f'[prices."groq/llama"]\n{text}\n') == {"groq/llama": Price(expected)}


def test_service_tiers_have_prices_of_their_own(tmp_path: Path) -> None:
    text = """
[prices."groq/llama"]
input = 1
output = 2
cache_write_1h = 4
[prices."groq/llama".service_tiers.Flex]
input = 0.5
output = 1
[prices."groq/llama".service_tiers.priority]
input = 2
output = 4
"""
    (price,) = prices(tmp_path, text).values()
    assert price.rates.cache_write_1h == 4_000_000
    assert [(name, each.rates.input, each.rates.output) for name, each in price.service_tiers] == [
        ("flex", 500_000, 1_000_000),
        ("priority", 2_000_000, 4_000_000),
    ]


def test_a_provider_that_is_left_out_may_have_prices(tmp_path: Path) -> None:
    """One file serves several machines, and not all of them have every key."""
    assert list(prices(tmp_path, '[prices."openai/*"]\ninput = 1\noutput = 1\n')) == ["openai/*"]


def test_a_pattern_may_be_for_every_provider(tmp_path: Path) -> None:
    assert list(prices(tmp_path, '[prices."*/llama"]\ninput = 1\noutput = 1\n')) == ["*/llama"]


@pytest.mark.parametrize("name", ["LOCAL/*", "Groq/Llama", "acme/x", "ACME/X"])
def test_capitals_make_no_difference(name: str, tmp_path: Path) -> None:
    own = '[providers.Acme]\nbase_url = "https://a.example"\n'
    assert list(prices(tmp_path, f'{own}[prices."{name}"]\ninput = 1\noutput = 1\n')) == [name]


def test_whose_prices_count_can_be_set(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('[providers.acme]\nbase_url = "https://a.example"\nprices_as = "openai"\n', encoding="utf-8")
    assert load(file, ENV).providers["acme"].prices_as == "openai"
    assert load(None, ENV).providers["groq"].prices_as == ""


def test_no_token_is_worth_less_than_is_written(tmp_path: Path) -> None:
    (price,) = prices(tmp_path, '[prices."groq/a"]\ninput = 0.07\noutput = 0.29\n').values()
    assert price.rates.of(Tokens(input=1_000_000)) == 70_000_000_000
