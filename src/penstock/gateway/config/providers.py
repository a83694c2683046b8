"""Loads [providers]: the address and the key of each, and the error for a provider that is not available."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from msgspec import structs

from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.core.suggest import suggest
from penstock.gateway.config.addresses import complete, is_loopback, is_same_address, parse_url
from penstock.gateway.config.checks import check_provider, key_problem
from penstock.gateway.config.problems import Problems
from penstock.gateway.config.settings import Server
from penstock.gateway.config.toml import Path
from penstock.providers.catalog import catalog
from penstock.providers.provider import KEY, KEY_HEADER, OfferedDialect, Provider, ProviderKey, Timeouts
from penstock.providers.secret import Secret
from penstock.upstream.local.weights import BUILT_IN

# Keys that do not apply to a local model.
_REMOTE_KEYS = (
    frozenset(("base_url", "dialect", "dialects", "path", "embeddings", "insecure", "api_version", "api_versions"))
    | frozenset(("api_key", "keys", "account", "client_credentials", "env", "url_env", "key_header", "headers"))
    | frozenset(("auth", "profile", "scope", "host_aliases"))
)
# Keys for a local model only.
_LOCAL_MODEL_KEYS = frozenset(("context", "slots", "queue"))
_EMBEDDINGS = "embeddings"

_LIVE = "would be called, and server.replay_only is true; give it captures with replay, or set enabled = false"


class ProviderLoader:
    """Makes providers from their tables. `usable` are those that can be called."""

    def __init__(self, problems: Problems, env: Mapping[str, str], missing: dict[Path, str]) -> None:
        self._problems = problems
        self._env = env
        self._given: dict[str, dict[str, Any]] = {}
        # By provider: the path and the name of a variable that it needs and that is not set.
        self._missing: dict[str, tuple[Path, str]] = {str(path[1]): (path, name) for path, name in missing.items()}
        self._needed: set[str] = set()
        # Providers that would be called although `replay_only` is set.
        self._live: set[str] = set()
        self.usable: dict[str, Provider] = {}

    def load(self, given: dict[str, dict[str, Any]], timeouts: Timeouts, server: Server) -> "ProviderLoader":
        """Read every table."""
        self._given = given
        for name, table in given.items():
            if server.replay_only and self._is_live(name, table):
                continue
            provider = self._provider(name, table, timeouts)
            if provider is None:
                continue
            called = not provider.replay and not provider.embedded
            if called and is_same_address(server.address, parse_url(provider.base_url)):
                message = f"is where Penstock itself listens ({server.address}); one of the two has to move"
                self._problems.error(("providers", name, "base_url"), message)
            self.usable[name] = provider
        if all(provider.implied for provider in self.usable.values()) and not self._problems.errors:
            but = " but the model on this machine" if self.usable else ""
            remedy = "set the key of one, such as OPENAI_API_KEY, or write [providers.NAME]"
            self._problems.warn((), f"there is no provider{but}: {remedy}")
        return self

    def find(self, name: str, path: Path, route: str) -> Provider | None:
        """The provider that a target of a route names; if it is not available, report why, once."""
        if name in self.usable:
            return self.usable[name]
        if name in self._missing:
            if name not in self._needed:
                missing_at, variable = self._missing[name]
                message = f"the variable {variable} is not set, or empty, and the route {route!r} needs it"
                self._problems.error(missing_at, message)
            self._needed.add(name)
        elif name in self._live and not self._is_in_file(("providers", name)):
            self._problems.error(path, f"the provider {name!r} {_LIVE}")
        elif self._given.get(name, {}).get("enabled") is False:
            self._problems.error(path, f"the provider {name!r} has enabled = false")
        elif name in self._given or self._is_in_file(("providers", name)):
            pass  # its own errors are reported already
        elif name in catalog():
            self._problems.error(path, _absent(name))
        else:
            hint = suggest(name, sorted({*self._given, *catalog()}))
            if self._problems.is_from_variable(path):
                self._problems.error(path, f"there is no provider of the name that its variable says{hint}")
            else:
                self._problems.error(path, f"there is no provider {name!r}{hint or f'; write [providers.{name}]'}")
        return None

    def spelled(self, name: str) -> str:
        """The name of the provider that equals this name case-insensitively, else the name itself."""
        known = {own.lower(): own for own in (*catalog(), *self._given)}
        return known.get(name.lower(), name)

    def unknown(self, name: str) -> str | None:
        """The error for a name that is neither a provider of the file nor built in; None if it is one."""
        known = {*self._given, *catalog()}
        if name in known or self._is_in_file(("providers", name)):
            return None
        return f"there is no provider {name!r}{suggest(name, sorted(known)) or f'; write [providers.{name}]'}"

    def warn(self) -> None:
        """Warn of providers that are skipped because a variable is not set."""
        for name, (path, variable) in self._missing.items():
            if name not in self._needed:
                self._problems.warn(path, f"the variable {variable} is not set, or empty, so {name} is left out")

    def _is_live(self, name: str, given: dict[str, Any]) -> bool:
        """Whether the provider would be called, although `replay_only` is set. It is an error only if the file names
        the provider: one from the environment is skipped."""
        if given.get("enabled") is False or given.get("replay"):
            return False
        self._live.add(name)
        self._missing.pop(name, None)
        if self._is_in_file(("providers", name)):
            self._problems.error(("providers", name), _LIVE)
        return True

    def _provider(self, name: str, given: dict[str, Any], timeouts: Timeouts) -> Provider | None:
        if given.get("enabled") is False:
            self._missing.pop(name, None)
            return None
        errors_before = len(self._problems.errors)
        given = self._versioned(name, given)
        check_provider(name, given, self._problems)
        if "model" in given:
            return self._local_model(name, given, timeouts) if len(self._problems.errors) == errors_before else None
        for key in _LOCAL_MODEL_KEYS & given.keys():
            self._problems.error(("providers", name, key), "is for a model on this machine, and needs model")
        base_url: str | None = ""
        api_key: Secret | None = None
        keys: tuple[object, ...] = ()
        auth = self._auth(name, given)
        if given.get("replay"):
            self._missing.pop(name, None)  # a replay needs neither address nor key
        else:
            base_url, keys = self._base_url(name, given), given.get("keys", ())
            api_key = None if keys or auth != KEY else self._api_key(name, given, base_url)
        addresses: dict[Path, str] = {("providers", name, "base_url"): base_url or ""} | {
            ("providers", name, "dialects", dialect, "base_url"): table.get("base_url", "")
            for dialect, table in given.get("dialects", {}).items()
        }
        for place, url in addresses.items():
            sent = api_key or keys or auth != KEY or given.get("client_credentials")
            if not url or not sent or given.get("insecure") or len(self._problems.errors) > errors_before:
                continue
            if _is_exposed(url):
                message = "would carry the key in the open over http://; use https://, or set insecure = true"
                self._problems.error(place, message)
        if api_key or keys:
            self._check_headers(name, given)
        if given.get("client_credentials") and auth != KEY:
            message = f"needs a provider with a key, and this one has auth = {auth!r}"
            self._problems.error(("providers", name, "client_credentials"), message)
        if base_url is None or name in self._missing or len(self._problems.errors) > errors_before:
            return None
        usable_keys = [key for key in keys if isinstance(key, dict) and {"name", "api_key"} <= key.keys()]
        if len(usable_keys) < len(keys):
            return None  # its error is reported already
        return Provider(
            name=name,
            **{
                **given,
                "base_url": base_url,
                "auth": auth,
                "api_key": api_key,
                "keys": tuple(ProviderKey(**key) for key in usable_keys),
                "dialects": _offered(given.get("dialects", {})),
                "key_header": given.get("key_header", KEY_HEADER).lower(),
                "headers": MappingProxyType({key.lower(): value for key, value in given.get("headers", {}).items()}),
                "timeouts": structs.replace(timeouts, **given.get("timeouts", {})),
            },
        )

    def _versioned(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
        """The table with the paths of its `api_version`, besides those that the file has."""
        path: Path = ("providers", name)
        version, offered = given.get("api_version", ""), given.get("api_versions", {})
        if not version:
            return given
        paths = next((found for pattern, found in offered.items() if fnmatchcase(version, pattern)), None)
        if paths is None:
            remedy = f"the patterns of its versions are {', '.join(offered)}" if offered else "write it into path"
            self._problems.error((*path, "api_version"), f"there are no paths for this version; {remedy}")
            return given
        versioned, first, further = dict(given), given.get("dialect", DEFAULT_DIALECT), given.get("dialects", {})
        for use, text in paths.items():
            filled = text.replace("{api_version}", quote(version, safe=""))
            key = {_EMBEDDINGS: _EMBEDDINGS, first: "path"}.get(use, "")
            if key and not self._is_in_file((*path, key)):
                versioned[key] = filled
            elif use in further and not self._is_in_file((*path, "dialects", use, "path")):
                versioned["dialects"] = versioned["dialects"] | {use: further[use] | {"path": filled}}
        return versioned

    def _local_model(self, name: str, given: dict[str, Any], timeouts: Timeouts) -> Provider | None:
        """A local model: one that Penstock ships, or a file, relative to the folder of the configuration."""
        path: Path = ("providers", name)
        for key in given:
            if key in _REMOTE_KEYS:
                self._problems.error((*path, key), "says nothing of a model on this machine; leave it out, or model")
                return None
        model = given["model"]
        if model not in BUILT_IN:
            file = FilePath(self._problems.document.file).parent / FilePath(model).expanduser()
            if file.suffix != ".gguf":
                known = ", ".join(BUILT_IN)
                self._problems.error((*path, "model"), f"must be {known}, or the path of a file that ends in .gguf")
                return None
            if not file.is_file():
                self._problems.warn((*path, "model"), "there is no such file, so it cannot answer")
            model = str(file.absolute())
        return Provider(
            name=name,
            implied=not self._is_in_file(path),
            **{
                **given,
                "base_url": "",
                "model": model,
                "models": given.get("models") or (model if model in BUILT_IN else FilePath(model).stem,),
                "timeouts": structs.replace(timeouts, **given.get("timeouts", {})),
            },
        )

    def _base_url(self, name: str, given: dict[str, Any]) -> str | None:
        path: Path = ("providers", name, "base_url")
        url: str | None = given.get("base_url")
        if self._is_in_file(path) and url is None:
            return None  # its error is reported already
        variable = "" if self._is_in_file(path) else given.get("url_env", "")
        if address := self._env.get(variable):
            url = complete(address, url or "")
        for host, usual in given.get("host_aliases", {}).items():
            url = url and url.replace(f"//{host}/", f"//{usual}/", 1)
        if url is None:
            if name not in self._missing:
                hint = suggest(name, catalog()) or ", because it is not built in"
                self._problems.error(path[:2], f"needs a base_url{hint}")
            return None
        try:
            parse_url(url)
        except ValueError as error:
            self._problems.error(path, f"the variable {variable} {error}" if address else str(error))
            return None
        return url.rstrip("/")

    def _api_key(self, name: str, given: dict[str, Any], base_url: str | None) -> Secret | None:
        path: Path = ("providers", name)
        variable = given.get("env", "")
        if "api_key" in given or (*path, "api_key") in self._problems.document.lines or not variable:
            return given.get("api_key")
        if value := self._env.get(variable, "").strip():
            if wrong := key_problem(value):
                self._problems.error((*path, "api_key"), f"the variable {variable} {wrong}")
            return Secret(value, variable)
        # A self-hosted server may need no key; a provider at its own address does.
        moved = self._is_in_file((*path, "base_url")) or self._env.get(given.get("url_env", ""))
        if (
            base_url
            and not moved
            and not given.get("client_credentials")
            and not is_loopback(parse_url(base_url).hostname or "")
        ):
            self._missing.setdefault(name, (path, variable))
        return None

    def _auth(self, name: str, given: dict[str, Any]) -> str:
        """How requests are authorized. A key in the file replaces what the built-in table says."""
        path: Path = ("providers", name)
        auth: str = given.get("auth", KEY)
        if auth == KEY or not (given.get("api_key") or given.get("keys") or self._is_in_file((*path, "api_key"))):
            return auth
        if self._is_in_file((*path, "auth")):
            self._problems.error((*path, "auth"), f"is {auth!r}, which takes no key; leave out api_key and keys")
        return KEY

    def _check_headers(self, name: str, given: dict[str, Any]) -> None:
        for header in given.get("headers", {}):
            if header.lower() == given.get("key_header", KEY_HEADER).lower():
                message = "carries the api_key already; leave one of the two out"
                self._problems.error(("providers", name, "headers", header), message)

    def _is_in_file(self, path: Path) -> bool:
        """Whether the path is in the file, and not only in the built-in table."""
        return path in self._problems.document.lines


def _offered(given: dict[str, dict[str, Any]]) -> Mapping[str, OfferedDialect]:
    """The further dialects of a provider, with addresses and names of headers in their usual form."""
    return MappingProxyType(
        {
            name: OfferedDialect(
                **{
                    **table,
                    "base_url": table.get("base_url", "").rstrip("/"),
                    "key_header": table.get("key_header", "").lower(),
                }
            )
            for name, table in given.items()
        }
    )


def _is_exposed(base_url: str) -> bool:
    parts = parse_url(base_url)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")


def _absent(name: str) -> str:
    table = catalog()[name]
    variable = table.get("url_env") or table.get("env")
    if variable is None:
        return f"the provider {name!r} is not there: write [providers.{name}]"
    remedy = "" if table.get("url_env") else " with an api_key"
    return f"the provider {name!r} is not there: set {variable}, or write [providers.{name}]{remedy}"
