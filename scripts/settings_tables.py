"""The reference of penstock.toml: `docs/reference/configuration.md`, from the Structs of the settings.

Each section is a heading, the docstring of its Struct, and a table of its fields with their defaults and docstrings.
Sections within a section follow it. The links of docstrings are relative to `docs/`.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from msgspec import NODEFAULT, Struct, inspect

from penstock.core.dialects.registry import DIALECTS
from penstock.gateway.config.settings import ConfigFile, shape
from penstock.gateway.config.tables import fields, plain
from penstock.providers.catalog import catalog
from penstock.providers.provider import Timeouts
from scripts.schemas import field_docs

_PAGE = """\
# Reference of the configuration

Every key of `penstock.toml`, with its default. [Configuration](../configuration.md) explains what most people set.
`penstock check` reports a key that does not exist or has a wrong value, with its line.

This page is generated from the code: `src/penstock/gateway/config/settings.py` and what it imports.
[`penstock.schema.json`](penstock.schema.json) says the same to [editors](../configuration.md#in-your-editor).

{sections}"""
_VARIABLE = re.compile(r"\$\{(\w+)")


def settings_page() -> str:
    """The page with every section."""
    parts: list[str] = []
    docs = field_docs(ConfigFile)
    for name, field in fields(shape()).items():
        kind = plain(field.type)
        named = isinstance(kind, inspect.DictType)
        struct = plain(kind.value_type) if isinstance(kind, inspect.DictType) else kind
        assert isinstance(struct, inspect.StructType)
        parts += _section("##", f"{name}.NAME" if named else name, docs[name], struct)
        if name == "providers":
            parts += _accepted()
    return _PAGE.format(sections="\n".join(parts))


def provider_addresses() -> str:
    """The table of the built-in providers: the variables that make them available, and their addresses."""
    rows = ["| name | available if set | also read | address |", "|---|---|---|---|"]
    for name, table in sorted(catalog().items()):
        address = str(table.get("base_url") or f"on this machine: {table['model']}")
        shown = f"`{address}`" if "base_url" in table else address
        own = [str(table[key]) for key in ("env", "url_env") if key in table]
        needed = own[-1:] if str(table.get("url_env", "")).endswith("_URL") else own[:1]
        others = dict.fromkeys(each for each in (*own, *_VARIABLE.findall(address)) if each not in needed)
        available = (
            f"`{needed[0]}`" if needed else "always" if "model" in table else f"the file has `[providers.{name}]`"
        )
        rows.append(f"| `{name}` | {available} | {', '.join(f'`{each}`' for each in others)} | {shown} |")
    return "\n".join([*rows, "", ""])


def _section(level: str, name: str, about: str, struct: inspect.StructType) -> Iterator[str]:
    """A section, and the sections within it."""
    yield f"{level} [{name}]\n\n{_text(about)}\n\n{_table(struct.cls, fields(struct))}"
    for key, field in fields(struct).items():
        for inner, path in _inner(plain(field.type), f"{name}.{key}"):
            if inner.cls not in (Timeouts, struct.cls):
                yield from _section("###", path, inner.cls.__doc__ or "", inner)


def _inner(kind: inspect.Type, path: str) -> Iterator[tuple[inspect.StructType, str]]:
    """The Structs that a field holds: in a table, a table of tables, or a list of tables."""
    match kind:
        case inspect.StructType():
            yield kind, path
        case inspect.DictType(value_type=value_type):
            yield from _inner(plain(value_type), f"{path}.NAME")
        case inspect.VarTupleType(item_type=item_type):
            yield from _inner(plain(item_type), f"[{path}]")
        case inspect.UnionType(types=types):
            for each in types:
                yield from _inner(plain(each), path)
        case _:
            pass


def _accepted() -> Iterator[str]:
    """What providers of each dialect accept: the keys of their `settings`."""
    yield (
        "### What a provider accepts\n\nThe keys of `settings` depend on the provider's `dialect`. "
        "[Providers](../providers.md#what-a-provider-accepts) has examples.\n"
    )
    for name, dialect in DIALECTS.items():
        if dialect.settings is not None:
            described = inspect.type_info(dialect.settings)
            assert isinstance(described, inspect.StructType)
            known = {field.name: field for field in described.fields}
            yield f'#### With `dialect = "{name}"`\n\n{_table(dialect.settings, known)}'


def _table(cls: type[Struct], known: dict[str, inspect.Field]) -> str:
    docs = field_docs(cls)
    rows = ["| key | default | meaning |", "|---|---|---|"]
    rows += [f"| `{key}` |{_default(field)} | {_cell(docs[key])} |" for key, field in known.items()]
    return "\n".join([*rows, ""])


def _default(field: inspect.Field) -> str:
    default: Any = field.default if field.default_factory is NODEFAULT else field.default_factory()
    text = json.dumps(default, default=lambda _: None).removesuffix(".0")
    return "" if text in ('""', "[]", "{}", "null") else f" `{text}`"


def _cell(text: str) -> str:
    return _text(text).replace("|", "\\|")


def _text(text: str) -> str:
    """A docstring on one line, with links as seen from `docs/reference/`."""
    return re.sub(r"\]\((?!https?:)([^)]+)\)", _as_seen, " ".join(text.split()))


def _as_seen(link: re.Match[str]) -> str:
    target = link[1].removeprefix("reference/configuration.md")
    return f"]({target})" if target.startswith("#") else f"](../{target})".replace("../reference/", "")
