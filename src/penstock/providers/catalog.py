"""The built-in providers: one TOML file each beside this module, with the same keys as in the user's configuration.

`rules.toml` has what several of them refuse or demand, with its evidence. A rule adds settings to the tables.

This module returns the tables unchecked. The loader of the configuration merges the user's keys into them and validates
the result.
"""

import tomllib
from collections.abc import Mapping
from datetime import date
from functools import cache
from os import listdir
from os.path import dirname, join
from types import MappingProxyType
from typing import Any

from msgspec import Struct, convert

from penstock.core.dialects.registry import DEFAULT_DIALECT

_FOLDER = dirname(__file__)
_RULES = "rules.toml"
# The rules, and the rows of `evidence.py`, which describe streams.
_NOT_PROVIDERS = (_RULES, "evidence.toml")


class ProviderRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an API of some providers refuses or demands, and the public reports or documents that show it.

    `settings` are added to those of every provider in `providers`, in each of `dialects` that it offers. Without
    `settings`, the request writers of these dialects follow the rule for every model.
    """

    says: str
    sources: tuple[str, ...]
    date: date
    providers: tuple[str, ...]
    dialects: tuple[str, ...]
    settings: dict[str, Any] = {}


@cache
def catalog() -> Mapping[str, Mapping[str, object]]:
    """The tables of all built-in providers, by name."""
    tables: dict[str, dict[str, Any]] = {}
    for file in sorted(listdir(_FOLDER)):
        if file.endswith(".toml") and file not in _NOT_PROVIDERS:
            tables |= _load(file)["providers"]
    for rule in rules().values():
        for name in rule.providers:
            _apply(rule, tables[name])
    return MappingProxyType({name: MappingProxyType(table) for name, table in tables.items()})


@cache
def rules() -> Mapping[str, ProviderRule]:
    """All rules, by name."""
    return MappingProxyType(convert(_load(_RULES)["rules"], dict[str, ProviderRule]))


def is_available(table: Mapping[str, object], env: Mapping[str, str]) -> bool:
    """Whether a built-in provider is available: its key or address is in the environment, or it is a local model."""
    return "model" in table or any(key in table and env.get(str(table[key])) for key in ("env", "url_env"))


def _apply(rule: ProviderRule, table: dict[str, Any]) -> None:
    offers = {**table.get("dialects", {}), table.get("dialect", DEFAULT_DIALECT): table}
    for offer in (offers[dialect] for dialect in rule.dialects if dialect in offers):
        settings = offer.setdefault("settings", {})
        models = settings.setdefault("models", {})
        for pattern, special in rule.settings.get("models", {}).items():
            models[pattern] = models.get(pattern, {}) | special
        settings |= {name: value for name, value in rule.settings.items() if name != "models"}


def _load(file: str) -> dict[str, dict[str, Any]]:
    with open(join(_FOLDER, file), "rb") as source:
        return tomllib.load(source)
