"""Loads [prices] and [finance]: validates the names of models, providers and teams, and what is needed together."""

import re
from typing import Any

from penstock.gateway.config.checks import is_name
from penstock.gateway.config.finance import FinanceSettings, ReportSettings, percent_units
from penstock.gateway.config.ledger import check_webhook
from penstock.gateway.config.problems import Problems
from penstock.gateway.config.providers import ProviderLoader
from penstock.gateway.config.settings import LedgerSettings, PriceSettings
from penstock.gateway.config.toml import Path
from penstock.gateway.keys.team_path import is_team_path
from penstock.gateway.record.price import STANDARD_TIERS, Price, Rates

_CURRENCY = re.compile(r"[A-Z]{3}")
_NEEDED = ("input", "output")


def load_prices(given: dict[str, dict[str, Any]], providers: ProviderLoader, problems: Problems) -> dict[str, Price]:
    """The prices of their tables; an invalid one is omitted."""
    prices: dict[str, Price] = {}
    seen: set[str] = set()
    for name, table in given.items():
        path: Path = ("prices", name)
        _check_name(name, path, providers, problems)
        if name.lower() in seen:
            problems.error(path, "is listed twice; names are case-insensitive")
        seen.add(name.lower())
        tiers = table.pop("service_tiers", {})
        standard = _rates(table, path, problems)
        others = {tier.lower(): _rates(each, (*path, "service_tiers", tier), problems) for tier, each in tiers.items()}
        for tier in others:
            if tier in STANDARD_TIERS:
                problems.error(
                    (*path, "service_tiers", tier), "is the standard tier; set its price outside service_tiers"
                )
        if standard is not None:
            tier_prices = ((tier, Price(rates)) for tier, rates in others.items() if rates is not None)
            prices[name] = Price(standard, service_tiers=tuple(tier_prices))
    return prices


def load_finance(
    given: dict[str, Any], providers: ProviderLoader, ledger: LedgerSettings, problems: Problems
) -> FinanceSettings:
    """The settings of finance."""
    report = ReportSettings(**given.get("report", {}))
    finance = FinanceSettings(**{**given, "report": report})
    for table in ("provider_prices", "team_prices"):
        for name, percent in getattr(finance, table).items():
            if isinstance(percent, (int, float)) and percent_units(percent) is None:
                problems.error(("finance", table, name), "may have two decimal places")
    for name in finance.provider_prices:
        if (wrong := providers.unknown(name)) is not None:
            problems.error(("finance", "provider_prices", name), wrong)
    for path in finance.team_prices:
        if not is_team_path(path):
            problems.error(("finance", "team_prices", path), "is no path of a team, such as acme/search")
    if finance.currency and not _CURRENCY.fullmatch(finance.currency):
        problems.error(("finance", "currency"), "must be a code of three capital letters, such as EUR")
    if bool(finance.currency) != (finance.rate is not None):
        missing = "rate, how much of it a dollar is" if finance.currency else "currency, such as EUR"
        problems.error(("finance",), f"needs {missing}")
    place: Path = ("finance", "report")
    if report.folder and report.webhook is not None:
        problems.error(place, "has a folder and a webhook: keep one of them")
    if report.enabled and not ledger.enabled:
        problems.error(place, "needs the ledger; enable it")
    check_webhook(place, report.webhook, report.webhook_secret, problems)
    return finance


def _rates(table: dict[str, Any], path: Path, problems: Problems) -> Rates | None:
    """The rates of a table; None if a required one is missing."""
    missing = [key for key in _NEEDED if key not in table]
    for key in missing:
        if (*path, key) not in problems.document.lines:  # else its error is reported already
            problems.error(path, f"needs {key}, in dollars for a million tokens; 0 if it costs nothing")
    return PriceSettings(**table).rates() if not missing else None


def _check_name(name: str, path: Path, providers: ProviderLoader, problems: Problems) -> None:
    provider, slash, model = name.partition("/")
    if not slash or not provider or not is_name(model):
        problems.error(path, 'must be written provider/model, such as [prices."acme/some-model"], or acme/* for all')
    elif "*" not in provider and (wrong := providers.unknown(providers.spelled(provider))) is not None:
        problems.error(path, wrong)
