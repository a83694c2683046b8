"""The built-in providers: one TOML file each beside this module, with the same keys as in the user's configuration.

This module returns the tables unchecked. The loader of the configuration merges the user's keys into them and validates
the result.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from os import listdir
from os.path import dirname, join
from types import MappingProxyType

_FOLDER = dirname(__file__)
# The rows of `evidence.py`, which describe streams and not a provider.
_NOT_A_PROVIDER = "evidence.toml"


@cache
def catalog() -> Mapping[str, Mapping[str, object]]:
    """The tables of all built-in providers, by name."""
    tables: dict[str, Mapping[str, object]] = {}
    for file in sorted(listdir(_FOLDER)):
        if file.endswith(".toml") and file != _NOT_A_PROVIDER:
            tables.update(_read(file))
    return MappingProxyType(tables)


def is_available(table: Mapping[str, object], env: Mapping[str, str]) -> bool:
    """Whether a built-in provider is available: its key or address is in the environment, or it is a local model."""
    return "model" in table or any(key in table and env.get(str(table[key])) for key in ("env", "url_env"))


def _read(file: str) -> dict[str, Mapping[str, object]]:
    with open(join(_FOLDER, file), "rb") as source:
        providers: dict[str, dict[str, object]] = tomllib.load(source)["providers"]
    return {name: MappingProxyType(table) for name, table in providers.items()}
