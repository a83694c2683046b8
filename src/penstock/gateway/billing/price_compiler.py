"""Compiles the data of genai-prices into a `PriceTable`, on standard output. Run as a separate process.

Only this module imports the package. Of its price variants, those of service tiers and of batches are used; the latter
become the tier `batch`. Prices that are not per token are omitted, except a fee per request.
"""

import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from importlib.metadata import version
from typing import Any

import msgspec
from genai_prices import types
from genai_prices.data import providers

from penstock.gateway.billing.price_table import (
    PACKAGE,
    Clause,
    ModelRow,
    PriceTable,
    Seller,
    ServiceTerm,
    Term,
    encoded,
)
from penstock.gateway.record.price import Price, Rates, Tier, rate

_DAY_S = 86_400
# Dollars per thousand requests → picodollars per request.
_PER_THOUSAND = 1_000_000_000
_REQUESTS = "requests_kcount"
# For each rate: the package's name of it, and the rate that applies if it is missing.
_RATES: dict[str, tuple[str, str | None]] = {
    "input": ("input_mtok", None),
    "output": ("output_mtok", None),
    "cached": ("cache_read_mtok", "input"),
    "cache_write": ("cache_write_mtok", "input"),
    "reasoning": ("output_reasoning_mtok", "output"),
    "audio_input": ("input_audio_mtok", "input"),
    "audio_output": ("output_audio_mtok", "output"),
}
_HOUR = "cache_write_1h_mtok"
_USABLE = frozenset((_REQUESTS, *(key for key, _ in _RATES.values())))

_Amount = Decimal | types.TieredPrices


def compile_table(edition: str) -> PriceTable:
    """The table of the installed package; `edition` is its version."""
    return PriceTable(f"{PACKAGE} {edition}", tuple(map(_seller, providers)))


def _seller(provider: types.Provider) -> Seller:
    rows = [ModelRow(_clause(model.match), _terms(model)) for model in provider.models]
    return Seller(
        id=provider.id,
        api_pattern=provider.api_pattern,
        match=_clause(provider.provider_match) if provider.provider_match is not None else None,
        fallbacks=tuple(provider.fallback_model_providers or ()),
        models=msgspec.Raw(msgspec.msgpack.encode(rows)),
    )


def _clause(clause: Any) -> Clause:
    match clause:
        case types.ClauseOr(or_=parts):
            return Clause("or", "", tuple(map(_clause, parts)))
        case types.ClauseAnd(and_=parts):
            return Clause("and", "", tuple(map(_clause, parts)))
        case types.ClauseRegex(regex=text):
            return Clause("regex", text)
        case types.ClauseEquals(equals=text):
            return Clause("equals", text.lower())
        case types.ClauseStartsWith(starts_with=text):
            return Clause("starts_with", text.lower())
        case types.ClauseEndsWith(ends_with=text):
            return Clause("ends_with", text.lower())
        case types.ClauseContains(contains=text):
            return Clause("contains", text.lower())
        case _:
            raise TypeError(f"{PACKAGE} has an unknown kind of clause: {clause!r}")


def _terms(model: types.ModelInfo) -> tuple[Term, ...]:
    if isinstance(model.prices, types.ModelPrice):
        return (Term(_price(model.prices), service_terms=_service_terms(model, model.prices)),)
    return tuple(_term(model, conditional) for conditional in model.prices)


def _term(model: types.ModelInfo, conditional: types.ConditionalPrice) -> Term:
    price, others = _price(conditional.prices), _service_terms(model, conditional.prices)
    match conditional.constraint:
        case None:
            return Term(price, service_terms=others)
        case types.StartDateConstraint() as start:
            return Term(price, since_s=_start(start), service_terms=others)
        case types.TimeOfDateConstraint(start_time=start, end_time=end):
            return Term(price, daily_s=(_second(start), _second(end)), service_terms=others)


def _service_terms(model: types.ModelInfo, standard: types.ModelPrice) -> tuple[ServiceTerm, ...]:
    """The prices of its service tiers. Each has only the fields that differ from the standard price."""
    terms = []
    for variant in model.price_variants or ():
        name = _tier(variant.when)
        price = _price(types.ModelPrice(**(vars(standard) | _given(variant.prices))))
        if name and price is not None and not isinstance(variant.constraint, types.TimeOfDateConstraint):
            terms.append(ServiceTerm(name, price, _start(variant.constraint) if variant.constraint else None))
    return tuple(terms)


def _tier(when: Mapping[str, str]) -> str:
    """The service tier of a price variant; empty if the variant is of another kind."""
    match when:
        case {"service_tier": str(name)} if len(when) == 1:
            return name.lower()
        case {"processing": "batch"} if len(when) == 1:
            return "batch"
    return ""


def _start(constraint: types.StartDateConstraint) -> int:
    day = constraint.start_date
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def _second(moment: time) -> int:
    """The second of the day in UTC."""
    fallback = datetime.combine(date(1970, 1, 2), moment, moment.tzinfo or UTC)
    return int(fallback.timestamp()) % _DAY_S


def _price(prices: types.ModelPrice) -> Price | None:
    """The price; None if there are prices, but none for tokens. Without any price the model is free."""
    given = _given(prices)
    if given and not given.keys() & _USABLE:
        return None
    starts = sorted({tier.start for value in given.values() for tier in getattr(value, "tiers", ())})
    return Price(
        rates=_rates(given, -1),
        tiers=tuple(Tier(start, _rates(given, start)) for start in starts),
        request=int(_amount(given.get(_REQUESTS, Decimal(0)), -1) * _PER_THOUSAND),
    )


def _given(prices: types.ModelPrice) -> dict[str, _Amount]:
    return {key: value for key, value in vars(prices).items() if value is not None}


def _rates(given: Mapping[str, _Amount], above: int) -> Rates:
    rates: dict[str, int] = {}
    for name, (key, fallback) in _RATES.items():
        if key in given:
            rates[name] = rate(_amount(given[key], above))
        else:
            rates[name] = rates[fallback] if fallback is not None else 0
    return Rates(**rates, cache_write_1h=rate(_amount(given[_HOUR], above)) if _HOUR in given else None)


def _amount(amount: _Amount, above: int) -> Decimal:
    """The amount for an input of more tokens than `above`; tiers are in ascending order."""
    if isinstance(amount, Decimal):
        return amount
    return next((tier.price for tier in reversed(amount.tiers) if tier.start <= above), amount.base)


if __name__ == "__main__":
    sys.stdout.buffer.write(encoded(compile_table(version(PACKAGE))))
