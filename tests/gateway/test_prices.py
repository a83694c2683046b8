"""PriceBook finds the same prices as genai-prices, and computes the same costs; and the cached table."""

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from genai_prices import Usage as TheirUsage
from genai_prices import __version__ as theirs
from genai_prices.data import providers as sellers
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelInfo, ModelPrice, TieredPrices
from msgspec import structs

from penstock.core.hub.usage import Tokens
from penstock.gateway.billing.price_table import FORMAT, PriceTable, encoded, load_table
from penstock.gateway.billing.prices import PriceBook
from penstock.gateway.record.price import FREE, Price, PricedModel, Rates, ServiceTier, charge, cost_of
from penstock.providers.catalog import catalog
from penstock.providers.provider import Provider
from tests.promptness import in_time, prompt

pytestmark = pytest.mark.slow

NOW = 1_790_000_000.0
NANO = Decimal(1_000_000_000)
ONE = Price(Rates(input=1))
# What is sold by the token or by the request; the rest is hours, pages and searches.
BY_THE_TOKEN = re.compile(r"input_mtok|output_mtok|cache_(read|write)_mtok|(in|out)put_audio_mtok|requests_kcount")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {**os.environ, "PENSTOCK_CACHE": str(tmp_path_factory.mktemp("cache"))}


@pytest.fixture(scope="module")
def table(environment: dict[str, str]) -> PriceTable:
    sent_text: list[str] = []
    table = load_table(environment, sent_text.append)
    assert sent_text == []
    return table


@pytest.fixture(scope="module")
def book(table: PriceTable) -> PriceBook:
    return PriceBook(table)


def sold_by(seller: str) -> Provider:
    return Provider(name="acme", base_url="https://a.example/v1", prices_as=seller)


def built_in(name: str) -> Provider:
    return Provider(name=name, base_url=str(catalog()[name]["base_url"]))


def any_tokens(chance: random.Random) -> Tokens:
    """A call, short or long: half of them beyond the usual tiers."""
    size = chance.choice((10, 1_000, 150_000, 250_000, 2_000_000))
    read, written = chance.randrange(size), chance.randrange(size)
    cached = chance.choice((0, chance.randrange(read + 1)))
    return Tokens(
        input=read,
        output=written,
        cached=cached,
        cache_write=chance.choice((0, chance.randrange(read - cached + 1))),
        reasoning=chance.choice((0, chance.randrange(written + 1))),
    )


def their_usage(tokens: Tokens) -> TheirUsage:
    return TheirUsage(
        input_tokens=tokens.input,
        output_tokens=tokens.output,
        cache_read_tokens=tokens.cached,
        cache_write_tokens=tokens.cache_write,
        output_reasoning_tokens=tokens.reasoning,
    )


def their_model(seller: str, model: str) -> ModelInfo | None:
    try:
        return get_snapshot().find_provider_model(model, None, seller, None)[1]
    except LookupError:
        return None


def amounts(model: ModelInfo) -> list[Decimal]:
    """All that is to be paid for a model, one time or another."""
    each = [model.prices] if isinstance(model.prices, ModelPrice) else [term.prices for term in model.prices]
    values = [value for prices in each for value in vars(prices).values() if value is not None]
    tiers = [tier.price for value in values if isinstance(value, TieredPrices) for tier in value.tiers]
    return [value.base if isinstance(value, TieredPrices) else value for value in values] + tiers


def doubt(model: ModelInfo, tokens: Tokens) -> Decimal:
    """The largest difference from genai-prices for a rate that is not whole: half a picodollar for each token."""
    whole = all(amount * 1_000_000 == int(amount * 1_000_000) for amount in amounts(model))
    return Decimal(0 if whole else (tokens.input + tokens.output) / 2_000)


def is_by_the_token(prices: ModelPrice) -> bool:
    given = [key for key, value in vars(prices).items() if value is not None]
    return not given or any(BY_THE_TOKEN.fullmatch(key) for key in given)


@pytest.mark.parametrize("seller", sellers, ids=lambda seller: seller.id)
def test_every_model_costs_what_genai_prices_says(seller, book: PriceBook) -> None:  # type: ignore[no-untyped-def]
    chance = random.Random(seller.id)
    provider = sold_by(seller.id)
    for model in seller.models:
        # Prices change: now, in the middle of a night long ago, and at any time.
        for at_s in (NOW, 1_735_693_200.0, chance.uniform(1_650_000_000, 1_850_000_000)):
            at = datetime.fromtimestamp(at_s, UTC)
            meant = their_model(seller.id, model.id)
            found = book.find(provider, model.id, at_s)
            if meant is None or not is_by_the_token(meant.get_prices(at)):
                assert found is None, model.id
                continue
            assert found is not None, model.id
            assert found.version == f"genai-prices {theirs}"
            tokens = any_tokens(chance)
            cost = meant.calc_price(their_usage(tokens), seller, genai_request_timestamp=at).total_price * NANO
            assert abs(cost_of(tokens, found.price) - cost) <= 1 + doubt(meant, tokens), (model.id, at, tokens)


def test_enough_is_compared_that_is_not_plain() -> None:
    """The test above covers enough: there are models with tiers, with caches, and with prices that change."""
    models = [model for seller in sellers for model in seller.models]
    assert len(models) > 1_000
    assert len(sellers) > 8
    assert sum(isinstance(model.prices, list) for model in models) > 20
    plain = [model.prices for model in models if isinstance(model.prices, ModelPrice)]
    assert sum(isinstance(prices.input_mtok, TieredPrices) for prices in plain) > 50
    assert sum(prices.cache_read_mtok is not None for prices in plain) > 500
    assert sum(doubt(model, Tokens(input=1)) > 0 for model in models) < 30


@pytest.mark.parametrize("seller", sellers, ids=lambda seller: seller.id)
def test_every_service_tier_costs_what_genai_prices_says(seller, book: PriceBook) -> None:  # type: ignore[no-untyped-def]
    chance = random.Random(seller.id)
    for model in seller.models:
        for variant in model.price_variants or ():
            (word, name), *more = variant.when.items()
            at_s = chance.choice((1_800_000_000.0, NOW, 1_735_693_200.0))
            at = datetime.fromtimestamp(at_s, UTC)
            found = book.find(sold_by(seller.id), model.id, at_s)
            meant = their_model(seller.id, model.id)
            if more or word not in ("service_tier", "processing") or meant is not model or meant is None:
                continue
            if not is_by_the_token(meant.get_prices(at)):
                assert found is None
                continue
            assert found is not None
            tokens = structs.replace(any_tokens(chance), reasoning=0)
            cost = meant.get_prices(at, {word: name}).calc_price(their_usage(tokens))["total_price"] * NANO
            ours, approximate = charge(tokens, found.price, ServiceTier(name, name))
            assert abs(ours - cost) <= 1 + doubt(meant, tokens), (meant.id, name, at)
            active = variant.constraint is None or variant.constraint.active(at)
            assert not approximate or not active or not ours, (meant.id, name, at)


def test_service_tiers_are_priced_apart(book: PriceBook) -> None:
    tokens = Tokens(input=1_000_000, output=1_000_000, cached=500_000)
    found = book.find(built_in("openai"), "gpt-5", 1_800_000_000.0)
    assert found is not None
    plain = cost_of(tokens, found.price)
    assert charge(tokens, found.price, ServiceTier("auto")) == (plain, False)
    assert charge(tokens, found.price, ServiceTier("priority", "default")) == (plain, False)
    flex, priority = (charge(tokens, found.price, ServiceTier("", name)) for name in ("flex", "priority"))
    assert flex == (plain // 2, False)
    assert priority == (2 * plain, False)
    assert charge(tokens, found.price, ServiceTier("flex")) == (plain, True), "whether it was is not known"
    assert charge(tokens, found.price, ServiceTier("priority")) == (2 * plain, True)
    assert charge(tokens, found.price, ServiceTier("", "scale")) == (plain, True)
    assert charge(tokens, FREE, ServiceTier("flex")) == (0, False)


def test_cache_writes_for_an_hour_cost_more(book: PriceBook) -> None:
    tokens = Tokens(input=3_000_000, cache_write=2_000_000, cache_write_1h=1_000_000)
    found = book.find(sold_by("anthropic"), "claude-sonnet-4-5", NOW)
    assert found is not None
    rates = found.price.rates_for(tokens)
    assert rates.cache_write_1h == 2 * rates.input
    assert charge(tokens, found.price) == ((rates.input + rates.cache_write + 2 * rates.input) * 1_000, False)
    unsure = Price(structs.replace(rates, cache_write_1h=None))
    assert charge(tokens, unsure) == (cost_of(tokens, Price(rates)), True)
    assert charge(structs.replace(tokens, cache_write_1h=0), unsure)[1] is False


def test_audio_costs_what_genai_prices_says(book: PriceBook) -> None:
    tokens = Tokens(input=100_000, output=50_000, audio_input=70_000, audio_output=20_000)
    usage = TheirUsage(
        input_tokens=100_000, output_tokens=50_000, input_audio_tokens=70_000, output_audio_tokens=20_000
    )
    compared = 0
    for seller in sellers:
        for model in seller.models:
            prices = model.get_prices(datetime.fromtimestamp(NOW, UTC))
            if prices.input_audio_mtok is not None and their_model(seller.id, model.id) is model:
                found = book.find(sold_by(seller.id), model.id, NOW)
                assert found is not None
                assert abs(cost_of(tokens, found.price) - prices.calc_price(usage)["total_price"] * NANO) <= 1, model.id
                compared += 1
    assert compared >= 10


ODD: tuple[Callable[[str], str], ...] = (
    str,
    str.upper,
    lambda name: f"{name}-20251211",
    lambda name: re.sub(r"(20\d\d)-(\d\d)-(\d\d)", r"\1\2\3", name),
    lambda name: f"{name}-latest",
    lambda name: f"acme/{name}",
    lambda name: name.partition("/")[2] or name[:-1],
    lambda name: name[: len(name) // 2],
)


@pytest.mark.parametrize("seller", ["openai", "azure", "google", "openrouter", "mistral", "groq", "deepseek", "x-ai"])
def test_any_name_means_the_model_that_it_means_to_genai_prices(seller: str, book: PriceBook) -> None:
    at = datetime.fromtimestamp(NOW, UTC)
    names = sorted({model.id for seller in sellers for model in seller.models})
    chance = random.Random(seller)
    tokens = Tokens(input=300_001, output=7_013, cached=1_009)
    matched = 0
    for name in (chance.choice(ODD)(name) for name in names):
        meant = their_model(seller, name)
        found = book.find(sold_by(seller), name, NOW)
        if meant is None or not is_by_the_token(meant.get_prices(at)):
            assert found is None, name
            continue
        assert found is not None, name
        cost = meant.get_prices(at).calc_price(their_usage(tokens))["total_price"] * NANO
        assert abs(cost_of(tokens, found.price) - cost) <= 1, name
        matched += 1
    assert matched > 5


# Whose prices count

SOLD_BY = {
    "openai": ("gpt-5", "openai"),
    "groq": ("llama-3.3-70b-versatile", "groq"),
    "xai": ("grok-4", "x-ai"),
    "openrouter": ("openai/gpt-4o", "openrouter"),
    "deepseek": ("deepseek-chat", "deepseek"),
    "mistral": ("mistral-large-latest", "mistral"),
    "together": ("meta-llama/Llama-3.3-70B-Instruct-Turbo", "together"),
    "perplexity": ("sonar", "perplexity"),
    "gemini": ("gemini-2.5-pro", "google"),
}


@pytest.mark.parametrize("name", SOLD_BY)
def test_a_built_in_provider_has_its_own_prices(name: str, book: PriceBook) -> None:
    model, seller = SOLD_BY[name]
    found = book.find(built_in(name), model, NOW)
    assert found is not None
    assert found == book.find(sold_by(seller), model, NOW)


def test_the_address_goes_before_the_name(book: PriceBook) -> None:
    renamed = Provider(name="groq", base_url="https://api.openai.com/v1")
    assert book.find(renamed, "gpt-5", NOW) == book.find(built_in("openai"), "gpt-5", NOW)


def test_azure_sells_what_others_make(book: PriceBook) -> None:
    azure = Provider(name="mine", base_url="https://mine.openai.azure.com")
    assert book.find(azure, "gpt-5", NOW) == book.find(built_in("openai"), "gpt-5", NOW)


def test_an_unknown_provider_is_unpriced_unless_it_says_whose_prices_count(book: PriceBook) -> None:
    acme = Provider(name="acme", base_url="https://api.acme.example/v1")
    assert book.find(acme, "gpt-5", NOW) is None
    assert book.find(sold_by("openai"), "gpt-5", NOW) is not None
    assert book.find(sold_by("nobody"), "gpt-5", NOW) is None


def test_what_runs_here_costs_nothing(book: PriceBook) -> None:
    here = Provider(name="local", base_url="", model="smollm2")
    replay = Provider(name="openai", base_url="", replay="captures")
    assert book.find(here, "smollm2", NOW) == PricedModel(FREE, "local")
    assert book.find(replay, "gpt-5", NOW) == PricedModel(FREE, "replay")
    asked = Provider(name="openai", base_url="", replay="captures", prices_as="openai")
    assert book.find(asked, "gpt-5", NOW) == book.find(built_in("openai"), "gpt-5", NOW)


# Prices of the configuration


def test_the_configuration_goes_over_all_else(table: PriceTable) -> None:
    prices = {"openai/*": 1, "openai/gpt-5*": 2, "openai/GPT-5-mini": 3, "local/*": 4, "*/special": 5}
    book = PriceBook(table, {name: Price(Rates(input=figure)) for name, figure in prices.items()})
    here = Provider(name="local", base_url="", model="smollm2")
    acme = Provider(name="acme", base_url="https://api.acme.example/v1")
    asked = [
        (built_in("openai"), "gpt-4o", 1),
        (built_in("openai"), "gpt-5", 2),
        (built_in("openai"), "gpt-5-nano", 2),
        (built_in("openai"), "gpt-5-MINI", 3),
        (here, "smollm2", 4),
        (acme, "special", 5),
    ]
    for provider, model, figure in asked:
        assert book.find(provider, model, NOW) == PricedModel(Price(Rates(input=figure)), "configured")
    assert book.find(acme, "other", NOW) is None
    assert book.find(built_in("groq"), "llama-3.3-70b-versatile", NOW) is not None


def test_nothing_but_the_star_is_special_in_a_pattern() -> None:
    book = PriceBook(PriceTable(), {"acme/v1.[5]*": ONE})
    acme = Provider(name="acme", base_url="https://api.acme.example/v1")
    found = [book.find(acme, model, NOW) is not None for model in ("v1.[5]", "v1.[5]/x", "v1.5", "v1x[5]")]
    assert found == [True, True, False, False]


# What is remembered


def test_names_of_clients_do_not_fill_the_memory(book: PriceBook) -> None:
    provider = built_in("openrouter")
    for number in range(5_000):
        assert book.find(provider, f"nobody/knows-{number}", NOW) is None
    assert book.find(provider, "x" * 10_000_000, NOW) is None
    assert len(book._quotes) <= 4_096


@prompt
def test_a_second_look_takes_no_time(book: PriceBook) -> None:
    provider = built_in("openrouter")
    book.find(provider, "openai/gpt-4o", NOW)
    best = min(_seconds(lambda: book.find(provider, "openai/gpt-4o", NOW)) for _ in range(20))
    in_time(best, 5e-6)  # 0.4 µs on an idle machine


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    for _ in range(200):
        work()
    return (time.perf_counter() - began) / 200


def test_a_price_that_changes_is_not_remembered_for_too_long(book: PriceBook) -> None:
    """Minute by minute through two days, of a model that costs less at some hours."""
    provider = built_in("deepseek")
    model = their_model("deepseek", "deepseek-chat")
    assert model is not None
    begin = datetime(2025, 3, 1, tzinfo=UTC).timestamp()
    seen = set()
    for at_s in (begin + 60 * minute for minute in range(-2_880, 2_880)):
        found = book.find(provider, "deepseek-chat", at_s)
        assert found is not None
        expected = model.get_prices(datetime.fromtimestamp(at_s, UTC)).input_mtok
        assert found.price.rates.input == expected * 1_000_000  # type: ignore[operator]
        seen.add(found.price)
    assert len(seen) > 1


# The table


@prompt
def test_the_table_is_compiled_once_and_read_quickly(environment: dict[str, str], table: PriceTable) -> None:
    (file,) = (Path(environment["PENSTOCK_CACHE"]) / "prices").iterdir()
    assert file.name == f"genai-prices-{theirs}-{FORMAT}.msgpack"
    written = file.stat().st_mtime_ns
    began = time.perf_counter()
    assert load_table(environment, pytest.fail) == table
    in_time(time.perf_counter() - began, 0.2)  # 3 ms on an idle machine; compiling takes 350
    assert file.stat().st_mtime_ns == written


def test_a_file_that_is_broken_is_compiled_anew(environment: dict[str, str], table: PriceTable, tmp_path: Path) -> None:
    file = tmp_path / "prices" / f"genai-prices-{theirs}-{FORMAT}.msgpack"
    file.parent.mkdir()
    file.write_bytes(b"\x92\xa1")
    assert load_table({**environment, "PENSTOCK_CACHE": str(tmp_path)}, pytest.fail) == table
    assert file.stat().st_size > 10_000


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_not_believed(
    environment: dict[str, str], table: PriceTable, tmp_path: Path
) -> None:
    file = tmp_path / "prices" / f"genai-prices-{theirs}-{FORMAT}.msgpack"
    file.parent.mkdir()
    file.write_bytes(encoded(PriceTable("all for nothing")))
    assert load_table({**environment, "PENSTOCK_CACHE": str(tmp_path)}, pytest.fail).version == "all for nothing"
    os.chown(file, 12_345, 12_345)
    assert load_table({**environment, "PENSTOCK_CACHE": str(tmp_path)}, pytest.fail) == table


def test_where_nothing_can_be_kept_there_are_prices_all_the_same(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    table = load_table({**environment, "PENSTOCK_CACHE": str(tmp_path / "file")}, pytest.fail)
    assert len(table.sellers) == len(sellers)


def test_where_it_cannot_be_compiled_there_is_a_warning(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "pydantic.py").write_text("raise ImportError('no pydantic today')", encoding="utf-8")
    sent_text: list[str] = []
    broken = {**environment, "PENSTOCK_CACHE": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    assert load_table(broken, sent_text.append) == PriceTable()
    (reported,) = sent_text
    assert reported.startswith("there are no prices: ")
    assert reported.endswith("no pydantic today")


def test_a_gateway_never_imports_what_compiles_them(environment: dict[str, str]) -> None:
    program = (
        "import os, sys, penstock.cli.serve, penstock.serve.run\n"
        "from penstock.gateway.billing.prices import PriceBook\n"
        "assert PriceBook.load(os.environ).table.sellers\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('pydantic', 'genai_prices')])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
