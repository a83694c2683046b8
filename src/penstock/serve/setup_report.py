"""The setup of a gateway for the admin API: its providers and routes, where they come from, and what is missing.

No secret is in it: of a key, only the variable or the file that it was read from.
"""

from urllib.parse import urlsplit

from penstock.gateway.calls.gateway import Gateway
from penstock.gateway.config import Config, Provider, Route
from penstock.gateway.limits.provider_keys import ProviderKeyLimits, quota_of
from penstock.providers.catalog import catalog
from penstock.serve.upstreams import Upstreams


def setup_json(config: Config, gateway: Gateway, upstreams: Upstreams) -> dict[str, object]:
    """The providers and routes of a configuration, their state, and what is missing."""
    variables = {name: str(table.get("env") or table.get("url_env") or "") for name, table in catalog().items()}
    return {
        "source": config.source,
        "providers": [_provider_json(config, each, gateway, upstreams) for each in config.providers.values()],
        "routes": [_route_json(route, gateway, upstreams) for route in config.routes.values()],
        # The built-in providers that the gateway could use, each with the variable that would enable it.
        "not_configured": [
            {"name": name, "variable": variable}
            for name, variable in variables.items()
            if variable and name not in config.providers
        ],
    }


def provider_keys_json(config: Config, gateway: Gateway, limits: ProviderKeyLimits) -> list[dict[str, object]]:
    """The keys of all providers that have several: their limits, their use, and which models they cool down for."""
    keys: list[dict[str, object]] = []
    for provider in config.providers.values():
        for key in provider.keys:
            with_key = provider.with_key(key)
            quota = quota_of(with_key)
            requests, tokens = limits.used(quota) if quota is not None else (None, None)
            keys.append(
                {
                    "provider": provider.name,
                    "key": key.name,
                    "account": key.account or provider.account or None,
                    "rpm": key.rpm,
                    "tpm": key.tpm,
                    "requests": requests,
                    "tokens": tokens,
                    "cooling_s": gateway.cooling_models(with_key),
                }
            )
    return keys


def _provider_json(config: Config, provider: Provider, gateway: Gateway, upstreams: Upstreams) -> dict[str, object]:
    return {
        "name": provider.name,
        "origin": _origin(config, provider),
        "url": _address(provider.base_url) or None,
        "local_model": provider.model or None,
        "replay": provider.replay or None,
        "dialects": [provider.dialect, *provider.dialects],
        "key": provider.api_key.source or "configuration" if provider.api_key is not None else None,
        "keys": [key.name for key in provider.keys],
        "models": _models(config, provider),
        "cooling_s": gateway.cooling_with_all_keys(provider),
        "problem": upstreams.obstacle(provider) if provider.embedded else _problem(config, provider),
    }


def _route_json(route: Route, gateway: Gateway, upstreams: Upstreams) -> dict[str, object]:
    return {
        "name": route.name,
        "pattern": route.is_pattern,
        "strict": route.strict,
        "weighted": route.weighted,
        "targets": [
            {
                "target": target.name,
                "provider": target.provider.name,
                "weight": target.weight,
                "available": route.is_pattern or (upstreams.can_answer(target) and gateway.is_available(target)),
            }
            for target in route.targets
        ],
    }


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


def _problem(config: Config, provider: Provider) -> str | None:
    """Why a remote provider cannot answer, as far as is known without a call."""
    if provider.replay or provider.api_key is not None or provider.keys or provider.headers or not provider.env:
        return None
    return f"no API key: set {provider.env} in the environment, or api_key in {config.source}"
