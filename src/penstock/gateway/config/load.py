"""Loads the configuration: a file if there is one, the built-in providers, and the environment.

1. A built-in provider is available if the environment has its key or its address, or if the file names it; the local
   model always is.
2. The file's keys override the built-in's. `enabled = false` disables a provider.
3. A provider whose variable is not set is skipped with a warning, so that one file can serve several machines; if a
   route needs it, that is an error. Everywhere else a variable that is not set is an error.
4. All problems are reported at once. No message shows a secret.
"""

from collections.abc import Callable, Mapping
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any

from msgspec import structs

from penstock.errors import Problem, UnreadableConfigError
from penstock.gateway.config.addresses import Address, parse_url
from penstock.gateway.config.extras import missing_extras
from penstock.gateway.config.ledger import load_budgets, load_ledger
from penstock.gateway.config.people import load_auth
from penstock.gateway.config.prices import load_finance, load_prices
from penstock.gateway.config.problems import Problems, in_order
from penstock.gateway.config.providers import ProviderLoader
from penstock.gateway.config.routes import RouteLoader
from penstock.gateway.config.server import load_admin, load_server
from penstock.gateway.config.settings import (
    Captures,
    ContentSettings,
    KeptResponsesSettings,
    LedgerSettings,
    Limits,
    Retries,
    TelemetrySettings,
    UserSettings,
    shape,
)
from penstock.gateway.config.snapshot import Config
from penstock.gateway.config.tables import TableReader
from penstock.gateway.config.toml import Document, Path, parse
from penstock.gateway.content.content_mask import PATTERNS, parse_pattern
from penstock.gateway.streams.stream_settings import StreamSettings
from penstock.providers.catalog import catalog, is_available
from penstock.providers.provider import Timeouts

DEFAULT_FILE = "penstock.toml"
COLLECTOR = "OTEL_EXPORTER_OTLP_ENDPOINT"
COLLECTOR_HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
ENVIRONMENT = "environment"
# In bytes: more than a configuration has. A device or a wrong file must not be read without end.
_MAX_FILE = 10_000_000
_NEEDS_LEDGER = "needs the ledger, beside which content is kept; enable it"


def load(  # noqa: PLR0913 - options of a command override the file
    path: FilePath | None,
    env: Mapping[str, str],
    *,
    host: str | None = None,
    port: int | None = None,
    workers: int | None = None,
    record: str | None = None,
    bound: Address | None = None,
    has_stored_keys: Callable[[LedgerSettings], bool] | None = None,
) -> Config:
    """Load a file, or only the environment if there is none. The other parameters override [server] of the file.

    `bound` is the address on which a running gateway listens. It stays there until it is restarted, whatever the file
    says, so its keys must be sufficient for that address, too.

    `has_stored_keys` returns whether the ledger has a valid key. It is called only if the validity of the configuration
    depends on it, and may raise `BookError`.

    Raises `ConfigError` with all problems, or `UnreadableConfigError`.
    """
    document = Document(ENVIRONMENT, {}, {}) if path is None else _read(path)
    problems = Problems(document)
    reader = TableReader(shape(), problems, env)
    given = reader.read(_with_built_ins(document.data, env))
    _check_missing(reader.missing, problems)

    own = {name: value for name, value in (("workers", workers), ("record", record)) if value is not None}
    ledger = load_ledger(given.get("ledger", {}), problems)
    budgets = load_budgets(given.get("budgets", {}), ledger, problems)
    stored = has_stored_keys if ledger.enabled else None
    auth = load_auth(given.get("auth", {}), problems)
    if auth.jwt is not None and not ledger.enabled:
        problems.error(("auth", "jwt"), "needs the ledger, which has the teams; enable it")
    server = load_server(
        {**given.get("server", {}), **own},
        problems,
        host=host,
        port=port,
        bound=bound,
        has_stored_keys=lambda: auth.jwt is not None or (stored is not None and stored(ledger)),
    )
    admin = load_admin(given.get("admin", {}), server, problems)
    if admin.oidc is not None and not ledger.enabled:
        problems.error(("admin", "oidc"), "needs the ledger, which has the sessions; enable it")
    timeouts = Timeouts(**given.get("timeouts", {}))
    limits = Limits(**given.get("limits", {}))
    retries = _retries(given.get("retries", {}), problems)
    captures = Captures(**given.get("captures", {}))
    content = _content(given.get("content", {}), ledger, problems)
    responses = _responses(given.get("responses", {}), ledger, problems)
    telemetry = _telemetry(given.get("telemetry", {}), env, problems)
    providers = ProviderLoader(problems, env, reader.missing).load(given.get("providers", {}), timeouts, server)
    routes = RouteLoader(problems, providers, limits).load(given.get("routes", {}))
    for name, route in routes.items():
        if route.content not in (None, "never") and not ledger.enabled:
            problems.error(("routes", name, "content"), _NEEDS_LEDGER)
    finance = load_finance(given.get("finance", {}), providers, ledger, problems)
    prices = load_prices(given.get("prices", {}), providers, problems)
    providers.warn()
    if server.only_routes and not routes:
        problems.warn(("server", "only_routes"), "there are no routes, so nothing can be called")
    problems.check()
    return Config(
        server=server,
        providers=MappingProxyType(providers.usable),
        routes=MappingProxyType(routes),
        timeouts=timeouts,
        limits=limits,
        retries=retries,
        captures=captures,
        ledger=ledger,
        budgets=budgets,
        finance=finance,
        content=content,
        users=UserSettings(**given.get("users", {})),
        responses=responses,
        streams=StreamSettings(**given.get("streams", {})),
        admin=admin,
        auth=auth,
        secret_files=reader.files,
        telemetry=telemetry,
        prices=MappingProxyType(prices),
        source=document.file,
        warnings=tuple(in_order(problems.warnings)),
        missing=missing_extras(ledger, telemetry, (auth, admin), providers.usable.values(), problems),
    )


def default_file() -> FilePath | None:
    """The file to load if none is given: `penstock.toml` in the current directory, if it exists."""
    path = FilePath(DEFAULT_FILE)
    return path if path.exists() or path.is_symlink() else None  # a dangling symlink is an error


def _read(path: FilePath) -> Document:
    file = str(path)
    try:
        with path.open("rb") as source:
            data = source.read(_MAX_FILE + 1)
    except FileNotFoundError:
        raise _unreadable(file, "no such file; check the path") from None
    except IsADirectoryError:
        raise _unreadable(file, "a directory, not a file; name the file in it") from None
    except PermissionError:
        raise _unreadable(file, "no permission to read it; ask its owner, or change its mode") from None
    except (OSError, ValueError) as error:
        raise _unreadable(file, getattr(error, "strerror", None) or str(error)) from None
    if len(data) > _MAX_FILE:
        raise _unreadable(file, f"more than {_MAX_FILE} bytes; is it a configuration?")
    return parse(data, file)


def _unreadable(file: str, message: str) -> UnreadableConfigError:
    return UnreadableConfigError((Problem(file, None, "", message),))


def _with_built_ins(data: Mapping[str, object], env: Mapping[str, str]) -> dict[str, object]:
    """The file's data merged over the built-in providers."""
    own = data.get("providers", {})
    if not isinstance(own, dict):
        return dict(data)
    merged: dict[str, object] = dict(own)
    for name, table in catalog().items():
        if isinstance(own.get(name), dict):
            merged[name] = _merged(table, own[name])
        elif name not in own and is_available(table, env):
            merged[name] = dict(table)
    return {**data, "providers": merged}


def _merged(table: Mapping[str, object], own: Mapping[str, object]) -> dict[str, object]:
    """A built-in provider with the user's keys.

    If the user moves it to another address, it is an HTTP server, even if the built-in is the local model, and may not
    offer the further dialects of the built-in. If the user names its dialect, it is asked in no other; the path,
    the settings, the address and the header for the key are then those that the built-in has for it.
    """
    built_in, further = dict(table), table.get("dialects")
    if "base_url" in own:
        built_in.pop("model", None)
        if "${" not in str(table.get("base_url", "")):  # else the address is the user's in any case
            built_in.pop("dialects", None)
    if "dialect" in own or own.get("replay"):
        built_in.pop("dialects", None)
    if isinstance(further, dict) and own.get("dialect") in further:
        chosen = further[own["dialect"]]
        built_in = {key: value for key, value in built_in.items() if key not in ("path", "settings")}
        built_in |= {key: chosen[key] for key in ("path", "settings", "base_url", "key_header") if key in chosen}
    return {**built_in, **own}


def _check_missing(missing: dict[Path, str], problems: Problems) -> None:
    """Report variables that are not set; those that only concern a provider stay in `missing` (rule 3)."""
    for path, variable in list(missing.items()):
        of_key = path[2:] == ("api_key",) or (path[2:3] == ("keys",) and path[-1] == "api_key")
        optional = path[0] == "providers" and (of_key or path not in problems.document.lines)
        if not optional:
            del missing[path]
            problems.error(path, f"the variable {variable} is not set, or empty")


def _content(given: dict[str, Any], ledger: LedgerSettings, problems: Problems) -> ContentSettings:
    """The rules for content, which is stored where the ledger is."""
    content = ContentSettings(**given)
    if content.keep != "never" and not ledger.enabled:
        problems.error(("content", "keep"), _NEEDS_LEDGER)
    for index, text in enumerate(content.mask):
        if isinstance(text, str):  # else its error is reported already
            try:
                parse_pattern(text)
            except ValueError as error:
                problems.error(("content", "mask", index), f"{error}; or name one of {', '.join(PATTERNS)}")
    return content


def _responses(given: dict[str, Any], ledger: LedgerSettings, problems: Problems) -> KeptResponsesSettings:
    """The settings of kept responses, which are stored where the ledger is."""
    responses = KeptResponsesSettings(**given)
    if responses.store and not ledger.enabled:
        problems.error(("responses", "store"), "needs the ledger, beside which responses are kept; enable it")
    return responses


def _telemetry(given: dict[str, Any], env: Mapping[str, str], problems: Problems) -> TelemetrySettings:
    """The export of traces: to the collector in the file, else in the environment if the file enables that."""
    settings = TelemetrySettings(**given)
    key = "otlp"
    if not settings.otlp and settings.enabled:
        settings, key = structs.replace(settings, otlp=env.get(COLLECTOR, "")), "enabled"
        if not settings.otlp:
            problems.error(("telemetry", key), f"the variable {COLLECTOR} is not set, and otlp names no collector")
    if settings.otlp:
        try:
            parse_url(settings.otlp)
        except ValueError as error:
            message = str(error).replace("use api_key or headers instead", f"{COLLECTOR_HEADERS} has room for one")
            problems.error(("telemetry", key), message if key == "otlp" else f"{COLLECTOR} {message}")
    return settings


def _retries(given: dict[str, Any], problems: Problems) -> Retries:
    retries = Retries(**given)
    if retries.max_cooldown_s < retries.cooldown_s:
        key = "max_cooldown_s" if "max_cooldown_s" in given else "cooldown_s"
        problems.error(("retries", key), "max_cooldown_s must not be less than cooldown_s")
    return retries
