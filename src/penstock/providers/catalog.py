"""The built-in providers: one TOML file each beside this module, in the same words as the user's own.

What is read here are tables as they stand in the files. The loader of the configuration puts the user's keys over them
and judges the result.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from os import listdir
from os.path import dirname, join
from types import MappingProxyType

_FOLDER = dirname(__file__)
# What gives a provider away, which is about streams and not about reaching anybody.
_NOT_A_PROVIDER = "evidence.toml"


@cache
def catalog() -> Mapping[str, Mapping[str, object]]:
    """The tables of all built-in providers, by name."""
    tables: dict[str, Mapping[str, object]] = {}
    for file in sorted(listdir(_FOLDER)):
        if file.endswith(".toml") and file != _NOT_A_PROVIDER:
            tables.update(_read(file))
    return MappingProxyType(tables)


def brought_in(table: Mapping[str, object], env: Mapping[str, str]) -> bool:
    """Whether a built-in provider is there: by its key or its address in the environment; a model here always is."""
    return "model" in table or any(key in table and env.get(str(table[key])) for key in ("env", "url_env"))


def _read(file: str) -> dict[str, Mapping[str, object]]:
    with open(join(_FOLDER, file), "rb") as source:
        providers: dict[str, dict[str, object]] = tomllib.load(source)["providers"]
    return {name: MappingProxyType(table) for name, table in providers.items()}
