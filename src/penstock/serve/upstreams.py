"""Upstreams: whatever answers the calls of one process. Remote providers, replays of captures, and local models."""

import ssl
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from penstock.gateway.calls.gateway import Upstream
from penstock.gateway.config import Config, Provider, Target
from penstock.http.limits import UpstreamLimits
from penstock.http.pool import Pool
from penstock.upstream.authorized import AuthorizedRemote, credentials_of
from penstock.upstream.local.model import LocalModel, RuntimeFolder, Settings
from penstock.upstream.media import MediaFetcher
from penstock.upstream.remote import Remote

if TYPE_CHECKING:
    from penstock.replay.upstream import Replay


class PreparedConfig(NamedTuple):
    """A validated configuration, and the replays of its providers, by name."""

    config: Config
    replays: "Mapping[str, Replay]"


class Upstreams:
    """The upstreams of all providers. A reload keeps connections, credentials, and local models that stay the same."""

    def __init__(
        self,
        environment: Mapping[str, str],
        home: RuntimeFolder,
        warn: Callable[[str], None],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._environment = environment
        self._home = home
        self._warn = warn
        self._tls = tls
        self._pool = Pool(UpstreamLimits(), tls)
        self.remote = Remote(self._pool, environment)
        self.local_models: dict[str, LocalModel] = {}
        """By the name of their provider."""
        self._authorized: dict[tuple[str, str, str], Upstream] = {}  # by `auth`, `profile` and `scope`
        self._replays: Mapping[str, Replay] = MappingProxyType({})

    def prepare(self, config: Config) -> PreparedConfig:
        """Load the captures that a configuration replays. It is thread-safe, and changes nothing in this process.

        The models of a replaying provider are those of its captures.
        """
        replays = {name: self._replay(provider) for name, provider in config.providers.items() if provider.replay}
        providers = {
            name: structs.replace(provider, models=replays[name].models) if name in replays else provider
            for name, provider in config.providers.items()
        }
        for name, provider in providers.items():
            if provider.auth != "key" and name not in replays:
                credentials_of(provider, self._warn)  # imports a large package, which would hold the event loop later
        return PreparedConfig(structs.replace(config, providers=MappingProxyType(providers)), replays)

    def use(self, prepared: PreparedConfig) -> None:
        """Switch to a configuration."""
        self._replays = prepared.replays
        self.local_models = self._build_local_models(prepared.config)

    def of(self, provider: Provider) -> Upstream:
        """The upstream of a provider that is no local model."""
        replay = self._replays.get(provider.name)
        if replay is not None or provider.auth == "key":
            return replay or self.remote
        source = (provider.auth, provider.profile, provider.scope)
        if source not in self._authorized:  # providers share credentials of the same source
            self._authorized[source] = AuthorizedRemote(self.remote, credentials_of(provider, self._warn))
        return self._authorized[source]

    def media(self, config: Config) -> MediaFetcher | None:
        """What fetches media that requests name by URL; None if the operator allows no hosts."""
        hosts, limits = config.server.media_hosts, config.limits
        return MediaFetcher(hosts, limits.max_media, limits.media_timeout_s, self._tls) if hosts else None

    def can_answer(self, target: Target) -> bool:
        """Whether a target can answer, as far as is known without a request. Remote providers are assumed to."""
        provider = target.provider
        if provider.embedded:
            return self.obstacle(provider) is None
        replay = self._replays.get(provider.name)
        return replay is None or replay.has(target.model)

    def obstacle(self, provider: Provider) -> str | None:
        """Why the local model of a provider cannot run; None if it can."""
        reason = self.local_models[provider.name].obstacle()
        return None if reason is None else str(reason)

    def close(self) -> None:
        """Close all connections to providers."""
        self._pool.close()

    def _replay(self, provider: Provider) -> "Replay":
        from penstock.replay.provider import replay_of  # noqa: PLC0415 - few providers replay

        return replay_of(provider, self._warn)

    def _build_local_models(self, config: Config) -> dict[str, LocalModel]:
        """The local models, by provider. Models whose settings have not changed are kept running."""
        models: dict[str, LocalModel] = {}
        for name, provider in config.providers.items():
            if provider.embedded:
                before, settings = self.local_models.get(name), Settings.of(provider)
                unchanged = before if before is not None and before.settings == settings else None
                models[name] = unchanged or LocalModel(settings, self._home, self._environment, self._warn)
        for name, local in self.local_models.items():
            if models.get(name) is not local:
                local.retire()
        if config.local_only:
            for local in models.values():
                if local.obstacle() is None:
                    local.start()
        return models
