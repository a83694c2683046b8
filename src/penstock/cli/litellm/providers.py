"""Providers of a LiteLLM configuration: a table for each different combination of address, key and limits."""

import ipaddress
import re
from fnmatch import fnmatchcase
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct

from penstock.cli.litellm.clouds import Cloud, bedrock, vertex
from penstock.cli.litellm.findings import Findings, Section
from penstock.cli.litellm.toml_text import literal
from penstock.cli.litellm.variables import Variables
from penstock.providers.catalog import catalog

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_DATED = re.compile(r"\d{4}-\d{2}-\d{2}.*")
# What users write where LiteLLM wants a key and the server wants none.
_PLACEHOLDERS = frozenset(
    ("", "none", "null", "empty", "fake", "fake-key", "dummy", "not-needed", "anything", "no-key")
)
# Keys of built-in tables that a copy for another key or address does not have.
_NOT_COPIED = ("env", "url_env", "models", "base_url")


class Known(Struct, frozen=True):
    """A built-in provider for a prefix of LiteLLM. `key` and `base` are the variables that LiteLLM reads, where
    Penstock reads others. `suffix` ends an address in Penstock's form, where LiteLLM's has none."""

    name: str
    key: str = ""
    base: str = ""
    suffix: str = ""
    cloud: Cloud | None = None
    """Reads the fields of a cloud, and names the built-in provider for the model."""
    any_server: bool = False
    """Whether the prefix, with an address, is used for any server that has the same API."""


# By LiteLLM's prefix of a model.
PREFIXES: dict[str, Known] = {
    "openai": Known("openai", any_server=True),
    "azure": Known("azure", key="AZURE_API_KEY", base="AZURE_API_BASE"),
    "anthropic": Known("anthropic", suffix="/v1"),
    "groq": Known("groq"),
    "xai": Known("xai"),
    "openrouter": Known("openrouter"),
    "deepseek": Known("deepseek"),
    "mistral": Known("mistral"),
    "together_ai": Known("together", key="TOGETHERAI_API_KEY"),
    "fireworks_ai": Known("fireworks"),
    "cerebras": Known("cerebras"),
    "perplexity": Known("perplexity", key="PERPLEXITYAI_API_KEY"),
    "cohere": Known("cohere", suffix="/v2"),
    "cohere_chat": Known("cohere", suffix="/v2"),
    "gemini": Known("gemini"),
    "bedrock": Known("bedrock", cloud=bedrock),
    "vertex_ai": Known("vertex", cloud=vertex),
    "vertex_ai_beta": Known("vertex", cloud=vertex),
    "ollama": Known("ollama", base="OLLAMA_API_BASE:-http://127.0.0.1:11434", suffix="/v1"),
    "ollama_chat": Known("ollama", base="OLLAMA_API_BASE:-http://127.0.0.1:11434", suffix="/v1"),
    "hosted_vllm": Known("vllm", key="HOSTED_VLLM_API_KEY:-", base="HOSTED_VLLM_API_BASE"),
    "vllm": Known("vllm"),
}
# Models that LiteLLM knows without a prefix, beside those that built-in providers list.
_BARE_NAMES = (
    ("gpt-*", "openai"),
    ("o[1-9]*", "openai"),
    ("chatgpt-*", "openai"),
    ("text-embedding-*", "openai"),
    ("claude-*", "anthropic"),
    ("command-*", "cohere"),
)
_NO_PROVIDER = (
    "Penstock has no provider for this prefix: if its server is compatible with OpenAI, write [providers.NAME] with "
    "its base_url, and a route (docs/providers.md)"
)


# The beginning of model names that LiteLLM calls by the Responses API, and the dialect.
_RESPONSES, _RESPONSES_DIALECT = "responses/", "openai_responses"
# The key of a table of which the requests are signed, or have access tokens: there is no API key.
_AUTH = "auth"


class Placed(NamedTuple):
    """Where a deployment's calls go: `provider/model`, and the dialect if only one is meant."""

    provider: str
    model: str
    dialect: str = ""

    @property
    def target(self) -> str:
        """The name of the target in a route."""
        return f"{self.provider}/{self.model}"


class ProviderTables:
    """Collects the tables of providers."""

    def __init__(self, findings: Findings, variables: Variables) -> None:
        self.tables: dict[str, dict[str, Any]] = {}
        self._findings = findings
        self._variables = variables
        self._by_identity: dict[str, str] = {}

    def place(self, section: Section, group: str, mode: str) -> Placed | None:
        """The provider and model of a deployment of a model group. Reports the fields; None if there is no provider.

        `mode` is LiteLLM's kind of API for the model, if it is not a chat.
        """
        prefix, model = _split(str(section.take("model") or ""), section)
        address, known = section.take("api_base") or section.take("base_url"), PREFIXES.get(prefix)
        if not model or (known is None and not address):
            section.impossible("model", _NO_PROVIDER if model else "names no model of a provider that Penstock knows")
            return None
        compatible = known is None or (known.any_server and address is not None)
        if mode == "embedding" and not compatible and not self._embeds(known):
            section.impossible("model", "Penstock has no embeddings of this provider (docs/providers.md)")
            return None
        table: dict[str, Any] = {}
        if known is not None and known.cloud is not None:
            placed = known.cloud(section, self._variables, model, table)
            if placed is None:
                section.impossible("model", _NO_PROVIDER)
                return None
            known, model = Known(placed[0]), placed[1]
        dialect = _RESPONSES_DIALECT if mode == "responses" or model.startswith(_RESPONSES) else ""
        model = model.removeprefix(_RESPONSES)
        if compatible and dialect:
            table["dialect"] = dialect
        if compatible and mode == "embedding":
            table["embeddings"] = "/embeddings"
        if known is not None:
            section.taken("model")
        else:
            section.approximated("model", f"the server of {prefix!r} is used as one that is compatible with OpenAI")
        if address is not None:
            self._address(section, address, known, table)
        elif known is not None and known.base:
            table["base_url"] = f"${{{known.base}}}{known.suffix}"
            self._findings.variables.setdefault(known.base.partition(":-")[0], "as for LiteLLM")
        if _AUTH not in table:
            self._key(section, known, table, group)
        if version := section.take("api_version"):
            self._version(section, version, known, table)
        self._headers(section, table, group)
        self._timeouts(section, table)
        has_key = "api_key" in table or (_AUTH not in table and self._usual(known) != "")
        limits = self._limits(section, has_key=has_key)
        name = self._named(table, limits, None if compatible else known, group)
        if known is not None and compatible:
            self.tables[name].setdefault("prices_as", known.name)
        return Placed(name, literal(model), "" if compatible else dialect)

    def _address(self, section: Section, address: object, known: Known | None, table: dict[str, Any]) -> None:
        reference = self._variables.reference(address)
        suffix = known.suffix if known is not None else ""
        if reference is not None:
            table["base_url"] = reference + suffix
            if suffix:
                section.approximated("api_base", f"followed by {suffix}: the variable must not end with it")
            else:
                section.taken("api_base")
            return
        url = str(address).rstrip("/")
        for ending in ("/chat/completions", "/messages", "/chat"):
            url = url.removesuffix(ending)
        if "@" in urlsplit(url).netloc:
            table["base_url"] = self._variables.secret(section, "api_base", url, "api_base")
            return
        table["base_url"] = literal(url if url.endswith(suffix) else url + suffix)
        section.taken("api_base")
        if urlsplit(url).scheme == "http" and not _is_loopback(urlsplit(url).hostname or ""):
            table["insecure"] = True

    def _key(self, section: Section, known: Known | None, table: dict[str, Any], group: str) -> None:
        key = section.take("api_key")
        usual = self._usual(known)
        if key is None:
            variable = known.key if known is not None else ""
            if variable:
                table["api_key"] = f"${{{variable}}}"
            if variable or usual:
                self._findings.variables.setdefault((variable or usual).partition(":-")[0], "as for LiteLLM")
        elif str(key).strip().lower() in _PLACEHOLDERS:
            section.approximated("api_key", "left out: it is a placeholder, and no key")
        else:
            table["api_key"] = self._variables.secret(section, "api_key", key, usual or f"{group}_API_KEY")
        if table.get("api_key") == f"${{{usual}}}" and "base_url" not in table:
            del table["api_key"]  # the built-in provider reads it anyway
        if table.get("insecure") and "api_key" in table:
            section.approximated("api_base", "the key is sent over http:// (insecure = true): use https:// if you can")
        elif "api_key" not in table:
            table.pop("insecure", None)

    def _version(self, section: Section, version: object, known: Known | None, table: dict[str, Any]) -> None:
        if known is None or "api_versions" not in catalog()[known.name]:
            section.impossible("api_version", "put it into the path of the provider, if its server has versions")
        elif self._variables.reference(version) or _DATED.fullmatch(str(version)):
            table["api_version"] = self._variables.plain(version)
            section.taken("api_version")
        else:
            section.taken("api_version", "the path of the built-in provider")

    def _headers(self, section: Section, table: dict[str, Any], group: str) -> None:
        headers = section.take("extra_headers")
        if headers is not None:
            part = Section(section.field("extra_headers"), headers, self._findings)
            names = list(headers) if isinstance(headers, dict) else []
            table["headers"] = {
                str(name): self._variables.secret(part, str(name), part.take(str(name)), f"{group}_{name}")
                for name in names
            }
        if organization := section.take("organization"):
            table.setdefault("headers", {})["OpenAI-Organization"] = self._variables.plain(organization)
            section.taken("organization")

    def _timeouts(self, section: Section, table: dict[str, Any]) -> None:
        timeouts: dict[str, object] = {}
        number = self._variables.number
        if (timeout := number(section, "timeout", "answer_s and total_s of the provider")) is not None:
            timeouts |= {"answer_s": timeout, "total_s": timeout}
        if (timeout := number(section, "stream_timeout", "first_event_s of the provider")) is not None:
            timeouts["first_event_s"] = timeout
        if timeouts:
            table["timeouts"] = timeouts

    def _limits(self, section: Section, *, has_key: bool) -> dict[str, object]:
        limits: dict[str, object] = {}
        for name in ("rpm", "tpm"):
            if not has_key and section.take(name) is not None:
                section.impossible(name, "a limit belongs to a provider's key, and this provider has none")
            elif (limit := self._variables.number(section, name, "a limit of the provider's key")) is not None:
                limits[name] = int(limit) if isinstance(limit, float) else limit
        return limits

    def _embeds(self, known: Known | None) -> bool:
        return known is not None and "embeddings" in catalog()[known.name]

    def _usual(self, known: Known | None) -> str:
        """The variable with the key of a built-in provider; empty if it has none."""
        return str(catalog()[known.name].get("env", "")) if known is not None else ""

    def _named(self, table: dict[str, Any], limits: dict[str, object], known: Known | None, group: str) -> str:
        """The name of the provider with this table. A deployment with limits has a provider of its own."""
        identity = repr((known and known.name, sorted(table.items(), key=str)))
        if not limits and identity in self._by_identity:
            return self._by_identity[identity]
        own = _NOT_IN_A_NAME.sub("-", group).strip("-_") or "provider"
        base = known.name if known is not None else own
        if base in catalog() and known is None:
            base = f"{base}-server"
        name, number = base, 1
        while name in self.tables:
            number += 1
            name = f"{base}-{number}"
        usual = self._usual(known)
        if known is not None and name != known.name:
            built_in = catalog()[known.name]
            copied = {key: value for key, value in built_in.items() if key not in _NOT_COPIED}
            if "base_url" in table:
                copied.pop("dialects", None)  # the server there may offer no other
            if "api_version" in table:
                copied = {key: value for key, value in copied.items() if key not in ("path", "embeddings")}
            start = {"base_url": built_in.get("base_url"), "prices_as": known.name}
            key = {"api_key": f"${{{usual}}}"} if usual and _AUTH not in table else {}
            table = {**start, **key, **copied, **table}
        if limits:
            table["keys"] = [{"name": "main", "api_key": table.pop("api_key", f"${{{usual}}}"), **limits}]
        else:
            self._by_identity[identity] = name
        self.tables[name] = table
        return name


def _split(given: str, section: Section) -> tuple[str, str]:
    """The prefix and the model's name: `openai/gpt-4o`, or a name that LiteLLM knows without a prefix."""
    custom = section.take("custom_llm_provider")
    prefix, slash, model = given.partition("/")
    if custom:
        section.taken("custom_llm_provider")
        return str(custom), given.removeprefix(f"{custom}/")
    if slash:
        return prefix, model
    owner = next((name for name, table in catalog().items() if given in table.get("models", ())), "")  # type: ignore[operator]
    owner = owner or next((name for pattern, name in _BARE_NAMES if fnmatchcase(given, pattern)), "")
    prefixes = [prefix for prefix, known in PREFIXES.items() if known.name == owner]
    return (prefixes[0], given) if prefixes else ("", given)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
