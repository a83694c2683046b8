"""PriceBook: the prices of a provider's models, from the configuration or from genai-prices; None if unknown.

A call with a credential of the client's own costs nothing, if `client_credentials` of the provider says so. Otherwise
the price of a model is the first of:

1. The price in the configuration for exactly this model, else for a matching pattern, the longest first.
2. The price of the seller that `prices_as` names.
3. Nothing, for the local model and for replays.
4. The price of the seller whose API has the provider's address, else of the seller with the provider's name.

A discount or markup of the provider, and of the team of the call, changes that price (`PriceChanges`).

Names of sellers and models are matched as genai-prices does it: case-insensitively, the first match wins.

Names of models come from clients, so the cache of quotes is bounded. A quote is cached until its price may change.
"""

import re
from collections.abc import Callable, Mapping
from math import inf
from types import MappingProxyType

from msgspec import Struct, structs

from penstock.gateway.billing.price_table import Clause, ModelRow, PriceTable, Seller, Term, load_table
from penstock.gateway.config.finance import FinanceSettings, percent_units
from penstock.gateway.keys.team_path import ancestry
from penstock.gateway.record.price import FREE, OF_CLIENT, PERCENT_UNITS, Price, PricedModel
from penstock.providers.provider import Provider

CONFIGURED = "configured"
# More models than a gateway calls; a few hundred bytes each.
_MAX_QUOTES = 4_096
# The limit for names in requests. A longer name is no model, and is not looked up.
_MAX_NAME = 256
_DAY_S = 86_400
# Some providers write a date without dashes, `gpt-5-20250807`, where the table has dashes.
_COMPACT_DATE = re.compile(r"-(20\d{2})(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?=-|:|$)")


_NO_CHANGES: Mapping[str, int] = MappingProxyType({})
_LOCAL = PricedModel(FREE, "local")
_REPLAYED = PricedModel(FREE, "replay")
# The versions of prices that are always zero.
FREE_VERSIONS = frozenset((_LOCAL.version, _REPLAYED.version, OF_CLIENT.version))


class PriceChanges:
    """The discounts and markups of providers and teams, in hundredths of a percent. Of the teams of a call, the
    innermost that has one counts; it is multiplied with that of the provider."""

    def __init__(self, providers: Mapping[str, int] = _NO_CHANGES, teams: Mapping[str, int] = _NO_CHANGES) -> None:
        self._providers = providers
        self.teams = teams

    @classmethod
    def of(cls, finance: FinanceSettings) -> "PriceChanges":
        """Those of the configuration."""
        tables = (finance.provider_prices, finance.team_prices)
        return cls(*({name: percent_units(value) or 0 for name, value in table.items()} for table in tables))

    def apply(self, priced: PricedModel | None, provider: str, team: str = "") -> PricedModel | None:
        """The price of a model for the calls of a team."""
        if priced is None or priced.price is FREE:
            return priced
        changes = (
            self._providers.get(provider, 0),
            next((self.teams[path] for path in ancestry(team) if path in self.teams), 0),
        )
        if not any(changes):
            return priced
        whole = 100 * PERCENT_UNITS
        factor = (whole + changes[0]) * (whole + changes[1])
        percents = " ".join(f"{change / PERCENT_UNITS:+g}%" for change in changes if change)
        return PricedModel(priced.price.changed(factor), f"{priced.version} {percents}")


class Quote(Struct, frozen=True, eq=False):
    """The result of a price lookup, valid from `since_s` until `until_s`; the prices are None if they are unknown."""

    book: "PriceBook"
    listed: PricedModel | None
    """The price without discounts and markups."""
    priced: PricedModel | None
    """The price for calls of teams without a discount or markup of their own."""
    since_s: float
    until_s: float


class PriceBook:
    """Finds prices. `configured` are those of the configuration, by provider/model, with `*` as a wildcard."""

    def __init__(
        self,
        table: PriceTable,
        configured: Mapping[str, Price] = MappingProxyType({}),
        changes: PriceChanges | None = None,
    ) -> None:
        self.table = table
        self.changes = changes or PriceChanges()
        self._exact = {name.lower(): price for name, price in configured.items() if "*" not in name}
        patterns = sorted((name for name in configured if "*" in name), key=len, reverse=True)
        self._patterns = [(_pattern(name.lower()), configured[name]) for name in patterns]
        self._sellers = {seller.id: seller for seller in table.sellers}
        self._models: dict[str, _Models] = {}
        self._seller_by_provider: dict[tuple[str, str, str], Seller | None] = {}
        self._quotes: dict[tuple[str, str, str, str], Quote] = {}

    @classmethod
    def load(
        cls,
        environment: Mapping[str, str],
        configured: Mapping[str, Price] = MappingProxyType({}),
        warn: Callable[[str], None] = lambda _: None,
        changes: PriceChanges | None = None,
    ) -> "PriceBook":
        """A book with the installed prices. Takes 4 ms; at the very first start half a second, to compile them.

        The server calls this before it listens. A new configuration gets a new book with the same `table`.
        """
        return cls(load_table(environment, warn), configured, changes)

    def find(self, provider: Provider, model: str, at_s: float, team: str = "") -> PricedModel | None:
        """The price of a model at a time in seconds since 1970, for the calls of a team; None if it is unknown: the
        model is unpriced."""
        return self.of_team(self.quote(provider, model, at_s), provider.name, team)

    def of_team(self, quote: Quote, provider: str, team: str) -> PricedModel | None:
        """The price of a quote for the calls of a team."""
        if not team or not self.changes.teams:
            return quote.priced
        return self.changes.apply(quote.listed, provider, team)

    def quote(self, provider: Provider, model: str, at_s: float) -> Quote:
        """The price of a model at a time in seconds since 1970, and the time range in which it is valid."""
        if provider.client_cost == "free":
            return Quote(self, OF_CLIENT, OF_CLIENT, -inf, inf)
        key = (provider.name, provider.base_url, provider.prices_as, model)
        known = self._quotes.get(key)
        if known is not None and known.since_s <= at_s < known.until_s:
            return known
        if len(model) > _MAX_NAME:
            return Quote(self, None, None, -inf, inf)
        known = self._look_up(provider, model, at_s)
        if len(self._quotes) >= _MAX_QUOTES:
            del self._quotes[next(iter(self._quotes))]
        self._quotes[key] = known
        return known

    def _look_up(self, provider: Provider, model: str, at_s: float) -> Quote:
        price = self._configured(f"{provider.name}/{model}".lower())
        if price is not None:
            return self._quote(provider, PricedModel(price, CONFIGURED))
        if not provider.prices_as and (provider.embedded or provider.replay):
            return self._quote(provider, _LOCAL if provider.embedded else _REPLAYED)
        seller = self._seller(provider)
        row = self._row(seller, model.lower()) if seller is not None else None
        if row is None:
            return self._quote(provider, None)
        price = _price(_term(row.terms, at_s), at_s)
        priced = PricedModel(price, self.table.version) if price is not None else None
        return self._quote(provider, priced, at_s, _next_change(row.terms, at_s))

    def _quote(
        self, provider: Provider, listed: PricedModel | None, since_s: float = -inf, until_s: float = inf
    ) -> Quote:
        return Quote(self, listed, self.changes.apply(listed, provider.name), since_s, until_s)

    def _configured(self, name: str) -> Price | None:
        if name in self._exact:
            return self._exact[name]
        return next((price for pattern, price in self._patterns if pattern.fullmatch(name)), None)

    def _seller(self, provider: Provider) -> Seller | None:
        key = (provider.name, provider.base_url, provider.prices_as)
        if key not in self._seller_by_provider:
            by_address = None if provider.prices_as else self._seller_at(provider.base_url)
            self._seller_by_provider[key] = by_address or self._seller_named(provider.prices_as or provider.name)
        return self._seller_by_provider[key]

    def _seller_at(self, url: str) -> Seller | None:
        return next((seller for seller in self.table.sellers if url and re.match(seller.api_pattern, url)), None)

    def _seller_named(self, name: str) -> Seller | None:
        name_lower = name.lower().strip()
        if name_lower in self._sellers:
            return self._sellers[name_lower]
        return next(
            (one for one in self.table.sellers if one.match is not None and _matches(one.match, name_lower)), None
        )

    def _row(self, seller: Seller, name: str) -> ModelRow | None:
        """The model of that name: of the seller, else of its fallback sellers."""
        sellers = [seller, *(self._sellers[other] for other in seller.fallbacks if other in self._sellers)]
        dashed = _COMPACT_DATE.sub(r"-\1-\2-\3", name)
        for spelling in dict.fromkeys((name, dashed)):
            for one in sellers:
                if one.id not in self._models:
                    self._models[one.id] = _Models(one.rows())
                if (row := self._models[one.id].find(spelling)) is not None:
                    return row
        return None


class _Models:
    """A seller's models. Most match a few exact names, which are in a dictionary; the others are tried in order."""

    def __init__(self, rows: tuple[ModelRow, ...]) -> None:
        self._rows = rows
        self._by_name: dict[str, int] = {}
        self._others: list[int] = []
        for index, row in enumerate(rows):
            names = _names(row.match)
            if names is None:
                self._others.append(index)
            else:
                for name in names:
                    self._by_name.setdefault(name, index)

    def find(self, name: str) -> ModelRow | None:
        """The first model that matches."""
        first = self._by_name.get(name, len(self._rows))
        for index in self._others:
            if index > first:
                break
            if _matches(self._rows[index].match, name):
                return self._rows[index]
        return self._rows[first] if first < len(self._rows) else None


def _names(clause: Clause) -> list[str] | None:
    """The names that a clause matches, if it matches exact names only."""
    if clause.kind == "equals":
        return [clause.text]
    if clause.kind == "or" and all(part.kind == "equals" for part in clause.parts):
        return [part.text for part in clause.parts]
    return None


def _matches(clause: Clause, name: str) -> bool:
    match clause.kind:
        case "equals":
            return name == clause.text
        case "starts_with":
            return name.startswith(clause.text)
        case "ends_with":
            return name.endswith(clause.text)
        case "contains":
            return clause.text in name
        case "regex":
            return re.search(clause.text, name) is not None
        case "or":
            return any(_matches(part, name) for part in clause.parts)
        case "and":
            return all(_matches(part, name) for part in clause.parts)


def _term(terms: tuple[Term, ...], at_s: float) -> Term:
    """The last term that is valid, else the first."""
    return next((term for term in reversed(terms) if _is_valid(term, at_s)), terms[0])


def _price(term: Term, at_s: float) -> Price | None:
    """The price of a term, with those of the service tiers that are valid."""
    valid = [each for each in term.service_terms if each.since_s is None or each.since_s <= at_s]
    if term.price is None or not valid:
        return term.price
    return structs.replace(term.price, service_tiers=tuple((each.tier, each.price) for each in valid))


def _is_valid(term: Term, at_s: float) -> bool:
    if term.since_s is not None:
        return at_s >= term.since_s
    if term.daily_s is not None:
        start, end = term.daily_s
        second = at_s % _DAY_S
        return second >= start or second < end if end < start else start <= second < end
    return True


def _next_change(terms: tuple[Term, ...], at_s: float) -> float:
    """The next time at which another price may become valid."""
    all_starts = [term.since_s for term in terms] + [each.since_s for term in terms for each in term.service_terms]
    starts = (since_s for since_s in all_starts if since_s is not None and since_s > at_s)
    edges = (second for term in terms for second in term.daily_s or ())
    midnight = at_s - at_s % _DAY_S
    daily = (midnight + second + (0 if midnight + second > at_s else _DAY_S) for second in edges)
    return min(*starts, *daily, inf, inf)


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, re.split(r"\*+", name))), re.DOTALL)
