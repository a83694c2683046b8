"""Extras: the optional packages that a configuration needs and this Python does not have."""

from collections.abc import Iterable
from importlib.util import find_spec

from penstock.errors import Problem
from penstock.gateway.config.people import AuthSettings
from penstock.gateway.config.problems import Problems
from penstock.gateway.config.settings import AdminSettings, LedgerSettings, TelemetrySettings
from penstock.gateway.config.toml import Path
from penstock.installation import install_command
from penstock.providers.provider import Provider

# The module to import for each package.
_MODULES = {
    "azure-identity": "azure.identity",
    "botocore": "botocore",
    "google-auth": "google.auth",
    "asyncpg": "asyncpg",
    "redis": "redis",
    "authlib": "authlib",
    "joserfc": "joserfc",
    "requests": "requests",
    "opentelemetry-sdk": "opentelemetry.sdk",
    "opentelemetry-exporter-otlp-proto-http": "opentelemetry.exporter.otlp.proto.http",
}


_OF_OIDC = ("authlib", "joserfc", "requests")
# By `auth` of a provider, which is also the name of the extra.
_OF_AUTH = {"key": (), "aws": ("botocore",), "google": ("google-auth", "requests"), "azure": ("azure-identity",)}


def missing_extras(
    ledger: LedgerSettings,
    telemetry: TelemetrySettings,
    people: tuple[AuthSettings, AdminSettings],
    providers: Iterable[Provider],
    problems: Problems,
) -> tuple[Problem, ...]:
    """The packages that a gateway needs to start with this configuration and that are not installed."""
    needed: list[tuple[Path, str, str]] = []  # the setting, a package, and the extra that has it
    if ledger.enabled and ledger.postgres is not None:
        needed.append((("ledger", "postgres"), "asyncpg", "postgres"))
    if ledger.enabled and ledger.redis is not None:
        needed.append((("ledger", "redis"), "redis", "redis"))
    for provider in providers:
        if not provider.replay:
            path: Path = ("providers", provider.name, "auth")
            needed += [(path, package, provider.auth) for package in _OF_AUTH[provider.auth]]
    auth, admin = people
    if admin.oidc is not None:
        needed += [(("admin", "oidc"), package, "oidc") for package in _OF_OIDC]
    if auth.jwt is not None:
        needed += [(("auth", "jwt"), package, "oidc") for package in _OF_OIDC[1:]]
    if telemetry.otlp:
        path = ("telemetry", "otlp")
        path = path if path in problems.document.lines else ("telemetry", "enabled")
        needed += [(path, package, "otel") for package in _MODULES if package.startswith("opentelemetry")]
    return tuple(
        problems.problem(
            path,
            f"needs the Python package {package}, which is not installed; try: {install_command(extra)}",
        )
        for path, package, extra in needed
        if not _is_installed(_MODULES[package])
    )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # a parent package is missing or broken
        return False
