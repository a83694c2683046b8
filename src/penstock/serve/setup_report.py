"""The setup of a gateway for the admin API: its providers and routes, where they come from, and what is missing.

No secret is in it: of a key, only the variable or the file that it was read from.
"""

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from penstock.gateway.config import Config, Provider, Target
from penstock.providers.catalog import catalog


def providers_json(
    config: Config,
    cooling: Callable[[Provider], Mapping[str, float]],
    obstacle: Callable[[Provider], str | None],
) -> list[dict[str, object]]:
    """The providers. `cooling` returns the seconds for which models of a provider cool down, `obstacle` why a local
    model cannot run."""
    return [
        {
            "name": provider.name,
            "origin": _origin(config, provider),
            "url": _address(provider.base_url) or None,
            "local_model": provider.model or None,
            "replay": provider.replay or None,
            "dialects": [provider.dialect, *provider.dialects],
            "key": provider.api_key.source or "configuration" if provider.api_key is not None else None,
            "keys": [key.name for key in provider.keys],
            "models": _models(config, provider),
            "cooling_s": dict(cooling(provider)),
            "problem": _problem(config, provider, obstacle),
        }
        for provider in config.providers.values()
    ]


def routes_json(config: Config, is_available: Callable[[Target], bool]) -> list[dict[str, object]]:
    """The routes, with their targets in order."""
    return [
        {
            "name": route.name,
            "pattern": route.is_pattern,
            "strict": route.strict,
            "weighted": route.weighted,
            "targets": [
                {
                    "target": target.name,
                    "provider": target.provider.name,
                    "weight": target.weight,
                    "available": route.is_pattern or is_available(target),
                }
                for target in route.targets
            ],
        }
        for route in config.routes.values()
    ]


def not_configured(config: Config) -> list[dict[str, str]]:
    """The built-in providers that the gateway could use, each with the environment variable that would enable it."""
    variables = {name: str(table.get("env") or table.get("url_env") or "") for name, table in catalog().items()}
    return [
        {"name": name, "variable": variable}
        for name, variable in variables.items()
        if variable and name not in config.providers
    ]


def _origin(config: Config, provider: Provider) -> str:
    """Where a provider is configured: the file, the environment, or nowhere."""
    if not provider.implied:
        return config.source
    return "built in" if provider.embedded else "environment"


def _address(url: str) -> str:
    """An address without user, password and query, which could be secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if url else ""


def _models(config: Config, provider: Provider) -> list[str]:
    """The models that are known: those that the provider lists, and those of routes."""
    targets = (target for route in config.routes.values() if not route.is_pattern for target in route.targets)
    routed = (target.model for target in targets if target.provider.name == provider.name)
    return list(dict.fromkeys((*routed, *provider.models)))


def _problem(config: Config, provider: Provider, obstacle: Callable[[Provider], str | None]) -> str | None:
    """Why a provider cannot answer, as far as is known without a call."""
    if provider.embedded:
        return obstacle(provider)
    if provider.replay or provider.api_key is not None or provider.keys or provider.headers or not provider.env:
        return None
    return f"no API key: set {provider.env} in the environment, or api_key in {config.source}"
