"""Whose price applies to a model, and which one at a time: with a table that is made here, without genai-prices."""

import os
from importlib.metadata import version
from math import inf
from pathlib import Path

import msgspec
import pytest

from penstock.gateway.billing.price_table import (
    FORMAT,
    Clause,
    ModelRow,
    PriceTable,
    Seller,
    ServiceTerm,
    Term,
    encoded,
)
from penstock.gateway.billing.price_table import load_table as load
from penstock.gateway.billing.prices import PriceBook
from penstock.gateway.record.price import Price, Rates
from penstock.providers.provider import Provider

DAY = 86_400


def price(number: int) -> Price:
    return Price(Rates(input=number))


def row(match: Clause, number: int, *terms: Term) -> ModelRow:
    return ModelRow(match, terms or (Term(price(number)),))


def equals(*names: str) -> Clause:
    parts = tuple(Clause("equals", name) for name in names)
    return parts[0] if len(parts) == 1 else Clause("or", parts=parts)


def seller(id: str, *rows: ModelRow, match: Clause | None = None, fallbacks: tuple[str, ...] = ()) -> Seller:
    models = msgspec.Raw(msgspec.msgpack.encode(rows))
    return Seller(id, rf"https://api\.{id}\.example", match, fallbacks, models)


TABLE = PriceTable(
    "test 1",
    (
        seller(
            "acme",
            row(Clause("starts_with", "large-"), 1),
            row(equals("small", "tiny"), 2),
            row(Clause("ends_with", "-mini"), 3),
            row(Clause("contains", "vision"), 4),
            row(Clause("regex", "^o[0-9]$"), 5),
            row(Clause("and", parts=(Clause("starts_with", "a"), Clause("ends_with", "z"))), 6),
            row(Clause("or", parts=(Clause("equals", "dawn"), Clause("starts_with", "dusk"))), 7),
            row(equals("small"), 8),
            row(equals("dated-2025-08-07"), 9),
            row(Clause("starts_with", "tin"), 10),
            row(Clause("or", parts=(Clause("starts_with", "east"), Clause("starts_with", "west"))), 11),
            match=Clause("contains", "acme"),
        ),
        seller("reseller", row(equals("own"), 20), fallbacks=("gone", "acme")),
        seller("other", row(equals("own"), 30), match=Clause("equals", "someone")),
    ),
)


def found(
    model: str,
    at_s: float = 0.0,
    table: PriceTable = TABLE,
    *,
    name: str = "acme",
    base_url: str = "",
    prices_as: str = "",
) -> int | None:
    """The rate that applies to the input of a model."""
    provider = Provider(name=name, base_url=base_url or "https://elsewhere.example/v1", prices_as=prices_as)
    priced = PriceBook(table).find(provider, model, at_s)
    assert priced is None or priced.version == "test 1"
    return priced.price.rates.input if priced is not None else None


@pytest.mark.parametrize(
    ("model", "number"),
    {
        "large-2": 1,
        "LARGE-2": 1,
        "large-mini": 1,
        "small": 2,
        "tiny": 2,
        "tinier": 10,
        "o-mini": 3,
        "a-vision-b": 4,
        "o3": 5,
        "o33": None,
        "abz": 6,
        "ab": None,
        "dawn": 7,
        "dusky": 7,
        "dawning": None,
        "east": 11,
        "western": 11,
        "dated-2025-08-07": 9,
        "dated-20250807": 9,
        "dated-20251307": None,
        "": None,
        "small" + " " * 252: None,
    }.items(),
)
def test_the_first_model_that_matches_counts(model: str, number: int | None) -> None:
    assert found(model) == number


@pytest.mark.parametrize(
    ("name", "base_url", "prices_as", "number"),
    [
        ("other", "", "", 30),
        ("Someone", "", "", 30),
        ("my-acme-2", "", "", None),
        ("nobody", "", "", None),
        ("nobody", "https://api.reseller.example/v1", "", 20),
        ("other", "https://api.reseller.example/v1", "", 20),
        ("other", "https://api.reseller.example/v1", "other", 30),
        ("other", "", "nobody", None),
    ],
)
def test_the_seller_is_who_is_named_or_has_the_address_or_the_name(
    name: str, base_url: str, prices_as: str, number: int | None
) -> None:
    assert found("own", name=name, base_url=base_url, prices_as=prices_as) == number


def test_a_seller_has_the_prices_of_those_whom_it_falls_back_on() -> None:
    assert [found(model, name="reseller") for model in ("own", "small", "dated-20250807", "nothing")] == [
        20,
        2,
        9,
        None,
    ]
    assert found("own", name="acme") is None


# Each term has its validity; of several valid ones, the last applies.
TERMS = (
    Term(price(1)),
    Term(price(2), since_s=1_000),
    Term(price(3), daily_s=(7_200, 10_800)),
    Term(price(4), daily_s=(82_800, 3_600)),
    Term(price(5), since_s=10 * DAY),
)


@pytest.mark.parametrize(
    ("at_s", "number", "until_s"),
    [
        (0, 4, 1_000),
        (999, 4, 1_000),
        (3_599, 4, 3_600),
        (3_600, 2, 7_200),
        (7_200, 3, 10_800),
        (10_800, 2, 82_800),
        (82_799, 2, 82_800),
        (82_800, 4, DAY + 3_600),
        (9 * DAY + 3_600, 2, 9 * DAY + 7_200),
        (10 * DAY - 1, 4, 10 * DAY),
        (10 * DAY, 5, 10 * DAY + 3_600),
    ],
)
def test_a_price_holds_for_a_time(at_s: float, number: int, until_s: float) -> None:
    table = PriceTable("test 1", (seller("acme", row(equals("m"), 0, *TERMS)),))
    quote = PriceBook(table).quote(Provider(name="acme", base_url=""), "m", at_s)
    assert quote.priced is not None
    assert (quote.priced.price.rates.input, quote.since_s, quote.until_s) == (number, at_s, until_s)


def test_before_any_term_the_first_one_counts() -> None:
    table = PriceTable("test 1", (seller("acme", row(equals("m"), 0, Term(price(1), since_s=50), Term(price(2), 90))),))
    assert [found("m", at_s, table) for at_s in (0, 50, 89, 90)] == [1, 1, 1, 2]


def test_what_is_not_sold_by_the_token_has_no_price() -> None:
    table = PriceTable("test 1", (seller("acme", row(equals("m"), 0, Term(None))),))
    assert found("m", table=table) is None


def test_service_tiers_have_the_prices_that_hold() -> None:
    tiers = (ServiceTerm("flex", price(2)), ServiceTerm("batch", price(3), since_s=100))
    table = PriceTable("test 1", (seller("acme", row(equals("m"), 0, Term(price(1), service_terms=tiers))),))
    book, provider = PriceBook(table), Provider(name="acme", base_url="")
    for at_s, names, until_s in ((99.0, ["flex"], 100), (100.0, ["flex", "batch"], inf)):
        quote = book.quote(provider, "m", at_s)
        assert quote.priced is not None
        assert ([name for name, _ in quote.priced.price.service_tiers], quote.until_s) == (names, until_s)


def test_a_quote_is_remembered_while_it_holds() -> None:
    book, provider = (
        PriceBook(PriceTable("test 1", (seller("acme", row(equals("m"), 0, *TERMS)),))),
        Provider(name="acme", base_url=""),
    )
    quote = book.quote(provider, "m", 3_600)
    assert book.quote(provider, "m", 7_199) is quote
    assert book.quote(provider, "m", 7_200) is not quote
    assert book.quote(Provider(name="acme", base_url="https://x.example"), "m", 3_600) is not quote


CONFIGURED = {"acme/small": price(100), "acme/*": price(200), "acme/la*ge": price(300), "*/any.model": price(400)}


@pytest.mark.parametrize(
    ("name", "model", "number"),
    [
        ("acme", "small", 100),
        ("ACME", "Small", 100),
        ("acme", "large", 300),
        ("acme", "lage", 300),
        ("acme", "larger", 200),
        ("other", "any.model", 400),
        ("other", "anyXmodel", None),
        ("other", "own", 30),
    ],
)
def test_a_configured_price_goes_first_the_longest_pattern_of_several(name: str, model: str, number: int) -> None:
    priced = PriceBook(TABLE, CONFIGURED).find(Provider(name=name, base_url="https://elsewhere.example"), model, 0.0)
    assert (priced.price.rates.input if priced is not None else None) == number
    assert priced is None or priced.version == ("test 1" if number == 30 else "configured")


@pytest.mark.parametrize(("model", "replay", "version"), [("smollm2", "", "local"), ("", "folder", "replay")])
def test_what_runs_on_this_machine_is_free_unless_it_names_prices(model: str, replay: str, version: str) -> None:
    book = PriceBook(TABLE)
    priced = book.find(Provider(name="acme", base_url="", model=model, replay=replay), "small", 0.0)
    assert priced is not None
    assert (priced.version, priced.price.rates.input) == (version, 0)
    named = book.find(Provider(name="acme", base_url="", model=model, replay=replay, prices_as="acme"), "small", 0.0)
    assert named is not None
    assert named.price.rates.input == 2


# The file of the table


def kept(folder: Path) -> Path:
    """Where the table of the installed package is kept."""
    file = folder / "prices" / f"genai-prices-{version('genai-prices')}-{FORMAT}.msgpack"
    file.parent.mkdir()
    return file


def test_a_table_that_was_compiled_is_read(tmp_path: Path) -> None:
    kept(tmp_path).write_bytes(encoded(TABLE))
    sent_text: list[str] = []
    assert load({**os.environ, "PENSTOCK_CACHE": str(tmp_path)}, sent_text.append) == TABLE
    assert sent_text == []
