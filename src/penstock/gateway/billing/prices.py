"""PriceBook: what a model of a provider costs, by the configuration, else by genai-prices; None where nobody knows.

Whose prices count for a provider's models, in this order:

1. A price of the configuration for this very model, then one for a pattern that fits it, the longest first.
2. Those of whom `prices_as` names.
3. None: a model on this machine costs nothing, and neither does a replay.
4. Those of the seller whose API is at the provider's address, else of the one that goes by the provider's name.

Sellers and models are compared with names as genai-prices itself does it: without capitals, the first that fits.

Names of models come from clients, so what is remembered of them is bounded. A price is remembered until the moment at
which it may change.
"""

import re
from collections.abc import Callable, Mapping
from math import inf
from types import MappingProxyType

from msgspec import Struct, structs

from penstock.core.price import FREE, Price
from penstock.gateway.billing.price_table import Clause, ModelRow, PriceTable, Seller, Term, load_table
from penstock.providers.provider import Provider

CONFIGURED = "configured"
# More models than anybody calls; a few hundred bytes each.
_MAX_REMEMBERED = 4_096
# As in a request. What is longer is nobody's model, and not worth comparing.
_MAX_NAME = 256
_DAY_S = 86_400
# Some write a date without dashes, `gpt-5-20250807`, that the table has with them.
_COMPACT_DATE = re.compile(r"-(20\d{2})(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?=-|:|$)")


class PricedModel(Struct, frozen=True):
    """A price, and where it is from: `genai-prices 0.2.1`, `configured`, `local` or `replay`."""

    price: Price
    version: str


_HERE = PricedModel(FREE, "local")
_REPLAYED = PricedModel(FREE, "replay")
# Versions of prices that nobody asks for money by.
WITHOUT_MONEY = frozenset((_HERE.version, _REPLAYED.version))


class Quote(Struct, frozen=True, eq=False):
    """What a model costs from one moment until another, by a book; None where that is not known."""

    book: "PriceBook"
    found: PricedModel | None
    since_s: float
    until_s: float


class PriceBook:
    """Finds prices. `configured` are those of the configuration, by provider/model, in which `*` is anything."""

    def __init__(self, table: PriceTable, configured: Mapping[str, Price] = MappingProxyType({})) -> None:
        self.table = table
        self._exact = {name.lower(): price for name, price in configured.items() if "*" not in name}
        patterns = sorted((name for name in configured if "*" in name), key=len, reverse=True)
        self._patterns = [(_pattern(name.lower()), configured[name]) for name in patterns]
        self._sellers = {seller.id: seller for seller in table.sellers}
        self._models: dict[str, _Models] = {}
        self._whose: dict[tuple[str, str, str], Seller | None] = {}
        self._remembered: dict[tuple[str, str, str, str], Quote] = {}

    @classmethod
    def load(
        cls,
        environment: Mapping[str, str],
        configured: Mapping[str, Price] = MappingProxyType({}),
        say: Callable[[str], None] = lambda _: None,
    ) -> "PriceBook":
        """A book with the installed prices. Takes 4 ms; at the very first start half a second, to compile them.

        Whoever serves calls this before listening. For another configuration, make another of the same `table`.
        """
        return cls(load_table(environment, say), configured)

    def knows(self, seller: str) -> bool:
        """Whether `prices_as` may name it."""
        return self._named(seller) is not None

    def find(self, provider: Provider, model: str, at_s: float) -> PricedModel | None:
        """What a model costs at a moment, in seconds since 1970; None where that is not known: it is unpriced."""
        return self.quote(provider, model, at_s).found

    def quote(self, provider: Provider, model: str, at_s: float) -> Quote:
        """The same, and for how long."""
        key = (provider.name, provider.base_url, provider.prices_as, model)
        known = self._remembered.get(key)
        if known is not None and known.since_s <= at_s < known.until_s:
            return known
        if len(model) > _MAX_NAME:
            return Quote(self, None, -inf, inf)
        known = self._look_up(provider, model, at_s)
        if len(self._remembered) >= _MAX_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[key] = known
        return known

    def _look_up(self, provider: Provider, model: str, at_s: float) -> Quote:
        price = self._configured(f"{provider.name}/{model}".lower())
        if price is not None:
            return Quote(self, PricedModel(price, CONFIGURED), -inf, inf)
        if not provider.prices_as and (provider.embedded or provider.replay):
            return Quote(self, _HERE if provider.embedded else _REPLAYED, -inf, inf)
        seller = self._seller(provider)
        row = self._row(seller, model.lower()) if seller is not None else None
        if row is None:
            return Quote(self, None, -inf, inf)
        price = _price(_term(row.terms, at_s), at_s)
        found = PricedModel(price, self.table.version) if price is not None else None
        return Quote(self, found, at_s, _next_change(row.terms, at_s))

    def _configured(self, name: str) -> Price | None:
        if name in self._exact:
            return self._exact[name]
        return next((price for pattern, price in self._patterns if pattern.fullmatch(name)), None)

    def _seller(self, provider: Provider) -> Seller | None:
        key = (provider.name, provider.base_url, provider.prices_as)
        if key not in self._whose:
            by_address = None if provider.prices_as else self._at(provider.base_url)
            self._whose[key] = by_address or self._named(provider.prices_as or provider.name)
        return self._whose[key]

    def _at(self, url: str) -> Seller | None:
        return next((seller for seller in self.table.sellers if url and re.match(seller.api_pattern, url)), None)

    def _named(self, name: str) -> Seller | None:
        wanted = name.lower().strip()
        if wanted in self._sellers:
            return self._sellers[wanted]
        return next((one for one in self.table.sellers if one.match is not None and _fits(one.match, wanted)), None)

    def _row(self, seller: Seller, name: str) -> ModelRow | None:
        """The model of that name: of the seller, or of those whose prices count for what it has no price for."""
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
    """A seller's models. Most are meant by a few whole names, and need not be compared one after the other."""

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
        """The first that fits."""
        first = self._by_name.get(name, len(self._rows))
        for index in self._others:
            if index > first:
                break
            if _fits(self._rows[index].match, name):
                return self._rows[index]
        return self._rows[first] if first < len(self._rows) else None


def _names(clause: Clause) -> list[str] | None:
    """The names that a clause means, if it means nothing else."""
    if clause.kind == "equals":
        return [clause.text]
    if clause.kind == "or" and all(part.kind == "equals" for part in clause.parts):
        return [part.text for part in clause.parts]
    return None


def _fits(clause: Clause, name: str) -> bool:
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
            return any(_fits(part, name) for part in clause.parts)
        case "and":
            return all(_fits(part, name) for part in clause.parts)


def _term(terms: tuple[Term, ...], at_s: float) -> Term:
    """The last that holds, else the first."""
    return next((term for term in reversed(terms) if _holds(term, at_s)), terms[0])


def _price(term: Term, at_s: float) -> Price | None:
    """The price of a term, with those of the service tiers that hold."""
    holding = [each for each in term.service_terms if each.since_s is None or each.since_s <= at_s]
    if term.price is None or not holding:
        return term.price
    return structs.replace(term.price, service_tiers=tuple((each.tier, each.price) for each in holding))


def _holds(term: Term, at_s: float) -> bool:
    if term.since_s is not None:
        return at_s >= term.since_s
    if term.daily_s is not None:
        start, end = term.daily_s
        second = at_s % _DAY_S
        return second >= start or second < end if end < start else start <= second < end
    return True


def _next_change(terms: tuple[Term, ...], at_s: float) -> float:
    """The first moment from now on at which another price may hold."""
    all_starts = [term.since_s for term in terms] + [each.since_s for term in terms for each in term.service_terms]
    starts = (since_s for since_s in all_starts if since_s is not None and since_s > at_s)
    edges = (second for term in terms for second in term.daily_s or ())
    midnight = at_s - at_s % _DAY_S
    daily = (midnight + second + (0 if midnight + second > at_s else _DAY_S) for second in edges)
    return min(*starts, *daily, inf, inf)


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, re.split(r"\*+", name))), re.DOTALL)
