"""Text for people: amounts of money."""

import pytest

from penstock.amounts import short_dollars

AMOUNTS = {
    1: "$0.000000001",
    99: "$0.000000099",
    1_234: "$0.0000012",
    420_000: "$0.00042",
    9_999_999: "$0.01",
    12_300_000: "$0.012",
    99_499_999: "$0.099",
    99_999_999: "$0.10",
    999_999_999: "$1.00",
    1_054_999_999: "$1.05",
    123_456_789_012: "$123.46",
}


@pytest.mark.parametrize(("nanodollars", "shown"), AMOUNTS.items())
def test_an_amount_is_shown(nanodollars: int, shown: str) -> None:
    assert short_dollars(nanodollars) == shown
