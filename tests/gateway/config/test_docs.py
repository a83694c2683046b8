"""The page and the JSON Schema match the loader: every example loads, and every key is listed with its default."""

import json
import re
from pathlib import Path

import pytest
from msgspec import NODEFAULT, inspect, structs

from penstock.core.dialects.registry import DIALECTS
from penstock.gateway.config import load
from penstock.gateway.config.changes import NEED_RESTART
from penstock.gateway.config.settings import shape
from penstock.gateway.config.tables import fields, plain
from penstock.providers.catalog import catalog
from scripts.schemas import config_schema
from scripts.settings_tables import provider_addresses, settings_page

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
BUILT_IN = provider_addresses()
REFERENCE = settings_page()
_OTHERS = ("routing", "provider-keys", "access", "prices", "local", "anthropic", "privacy")
PAGES = PAGE + "".join((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in _OTHERS)
EXAMPLES = re.findall(r"^```toml\n(.*?)^```$", PAGES, re.MULTILINE | re.DOTALL)
URL = "https://a.example"
# The variables that a user who follows the page would have set.
ENV = {
    str(table["env"]): "a-key-of-some-length"
    for table in catalog().values()
    if "env" in table and "url_env" not in table
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.splitlines()[0])
def test_an_example_loads_without_a_warning(example: str, tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    # Files and programs of the examples do not exist here.
    path.write_text(re.sub(r"\$\{(?:file|command):[^}]+\}", "a-key-of-some-length", example), encoding="utf-8")
    for file in re.findall(r'^\w+ = "(.+\.(?:gguf|pem|key))"', example, re.MULTILINE):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    named = {name: f"a-key-for-{name}" for name in re.findall(r"\$\{(\w+)\}", example)}
    config = load(path, {**ENV, "AZURE_OPENAI_ENDPOINT": URL, "ANTHROPIC_FOUNDRY_RESOURCE": "me", **named})
    assert config.warnings == ()


def sections() -> dict[str, dict[str, inspect.Field]]:
    """The keys of each section."""
    found = {}
    for name, field in fields(shape()).items():
        kind = plain(field.type)
        if isinstance(kind, inspect.DictType):
            kind = plain(kind.value_type)
        assert isinstance(kind, inspect.StructType)
        found[name] = fields(kind)
    return found


KEYS = [(section, key, field) for section, known in sections().items() for key, field in known.items()]


@pytest.mark.parametrize(("section", "key", "field"), KEYS, ids=[f"{section}.{key}" for section, key, _ in KEYS])
def test_a_key_is_explained_with_its_default(section: str, key: str, field: inspect.Field) -> None:
    heading = rf"^## \[{section}(?:\.NAME)?\]$"
    text = re.split(r"^## ", re.split(heading, REFERENCE, flags=re.MULTILINE)[1], flags=re.MULTILINE)[0]
    default = json.dumps(field.default, default=lambda _: None).removesuffix(".0")
    shown = "" if default in ('""', "[]", "null") else f"`{default}` "
    assert re.search(rf"\n\| `{key}` \| {re.escape(shown)}\| \S", text)


def test_the_page_lists_every_provider() -> None:
    for name, table in catalog().items():
        (row,) = [line for line in BUILT_IN.splitlines() if line.startswith(f"| `{name}` | ")]
        assert str(table.get("base_url") or table["model"]) in row
        assert all(f"`{table[key]}`" in row for key in ("env", "url_env") if key in table)


@pytest.mark.parametrize(
    ("setting", "default"),
    [
        (field.name, field.default if field.default_factory is NODEFAULT else field.default_factory())
        for dialect in DIALECTS.values()
        if dialect.settings is not None
        for field in structs.fields(dialect.settings)
    ],
)
def test_the_reference_explains_what_a_provider_accepts(setting: str, default: object) -> None:
    shown = "" if default in ("", (), {}, None) else f"`{json.dumps(default)}` "
    assert f"\n| `{setting}` | {shown}| " in REFERENCE


def test_the_schema_knows_the_same_keys() -> None:
    schema = json.loads(config_schema())
    assert schema["additionalProperties"] is False
    for section, known in sections().items():
        table = schema["properties"][section]
        table = table.get("additionalProperties") or table
        assert list(table["properties"]) == list(known)
        assert table["additionalProperties"] is False
        for key, entry in table["properties"].items():
            assert entry["description"], key


def test_the_schema_knows_bounds_and_words() -> None:
    properties = json.loads(config_schema())["properties"]
    number = {"type": "number", "exclusiveMinimum": 0, "maximum": 86400}
    assert properties["timeouts"]["properties"]["gap_s"]["anyOf"][0] == number
    assert properties["server"]["properties"]["log"]["enum"] == ["auto", "json", "off", "pretty"]
    assert properties["providers"]["additionalProperties"]["properties"]["dialect"]["enum"] == [
        "anthropic_messages",
        "bedrock_converse",
        "cohere",
        "gemini",
        "ollama",
        "openai_chat",
        "openai_responses",
    ]
    assert "name" not in properties["providers"]["additionalProperties"]["properties"]


def test_the_keys_that_need_a_restart_are_named() -> None:
    (reported,) = re.findall(r"^Some settings are read only at start: (.*?)\. If", PAGE, re.MULTILINE | re.DOTALL)
    assert tuple(re.findall(r"`([a-z_.]+)`", reported)) == NEED_RESTART
