"""Config: an immutable snapshot of the configuration. `load.py` makes it; a reload makes a new one."""

from collections.abc import Mapping
from math import inf
from types import MappingProxyType

from msgspec import Struct, structs

from penstock.errors import Problem, UnknownTargetError
from penstock.gateway.config.route_settings import MEASURED, Cause, ContinueRule, StrategyName
from penstock.gateway.config.settings import AdminSettings, Sections
from penstock.gateway.content.collected import ContentRule
from penstock.gateway.record.price import Price
from penstock.gateway.record.requirements import Requirements
from penstock.gateway.streams.sharing import Sharing
from penstock.gateway.streams.stream_settings import Durability
from penstock.providers.provider import Provider, Timeouts

# In the name of a route: any text, also empty. In the model of a target: see `Route.filled`.
STAR = "*"
# The similarity at which a name is suggested. A comparison takes 5 µs, so a request may cause at most `_MAX_NAMES`.
_SIMILARITY = 0.75
_MAX_COMPARED = 64
_MAX_NAMES = 100


class Target(Struct, frozen=True, kw_only=True):
    """One provider and one of its models. `timeouts` are merged: the route's, else the provider's, else the global.

    `dialect` is the one that the route demands, or that was chosen for a client; empty if none is chosen yet.
    """

    provider: Provider
    model: str
    timeouts: Timeouts
    dialect: str = ""
    weight: float | None = None

    @property
    def name(self) -> str:
        """`provider/model`, as in requests and in the file."""
        return f"{self.provider.name}/{self.model}"

    def by_key(self) -> "tuple[Target, ...]":
        """The target as it is called with each key of its provider, in order; itself if its provider has no `keys`."""
        if not self.provider.keys:
            return (self,)
        return tuple(structs.replace(self, provider=self.provider.with_key(key)) for key in self.provider.keys)

    def for_client(self, dialect: str) -> "Target":
        """The target with the dialect in which it is asked for a client of this dialect."""
        return structs.replace(self, dialect=self.dialect or self.provider.dialect_for(self.model, dialect))

    @classmethod
    def parse(cls, name: str, providers: Mapping[str, Provider]) -> "Target":
        """The target for `provider/model`. A model's name may contain slashes."""
        provider, slash, model = name.partition("/")
        if not slash or not model or provider not in providers:
            raise UnknownTargetError(f"no provider answers to {name!r}: write it as provider/model")
        if providers[provider].embedded and model not in providers[provider].models:
            raise UnknownTargetError(f"the model on this machine does not answer to {name!r}")
        if not providers[provider].can_name(model):
            raise UnknownTargetError(f"{name!r} has . or .. between slashes, which would change the provider's path")
        return cls(provider=providers[provider], model=model, timeouts=providers[provider].timeouts)


class Shadow(Struct, frozen=True, kw_only=True):
    """The target at which a `share` of a route's calls is repeated, at most `concurrent` of them at a time."""

    target: Target
    share: float
    concurrent: int


class Route(Struct, frozen=True, kw_only=True):
    """A public model name and its targets, which are tried in order or chosen by weight."""

    name: str
    targets: tuple[Target, ...]
    max_event: int
    # Fields of the request that the route overrides.
    set: Mapping[str, object] = MappingProxyType({})
    # Of which calls the content is kept; None for the rule of [content].
    content: ContentRule | None = None
    # Which streams are durable; None for the rule of [streams].
    durable: Durability | None = None
    # Which answers its calls share; None if they share none.
    sharing: Sharing | None = None
    # Whether losses in translation that change the meaning are failures.
    strict: bool = False
    # Whether requests that are translated get breakpoints for the prompt cache.
    cache: bool = True
    # Whether JSON of tool calls and of structured output is corrected (`core/repairing_reader.py`).
    repair_tool_arguments: bool = False
    # The directory of its captures: None for that of the server, "" to record nothing.
    record: str | None = None
    # How the order of the targets is chosen (`gateway/calls/strategies.py`).
    strategy: StrategyName = "order"
    # How soon the first event of a target should come, for the strategy `cheapest`.
    max_first_event_s: float = inf
    # By what a conversation is recognised that stays at its target (`gateway/calls/affinity.py`); empty if none does.
    affinity: str = ""
    # The targets that are tried only for a cause (`gateway/calls/recovery.py`).
    fallbacks: Mapping[Cause, tuple[Target, ...]] = MappingProxyType({})
    # The least pace of its streamed answers, and how long one may be slower; 0 for any pace.
    min_tokens_per_s: float = 0.0
    pace_window_s: float = inf
    # At which target a share of its calls is repeated (`serve/shadow.py`).
    shadow: Shadow | None = None
    # Whether a target that begins later than usual is left for the next one.
    leave_late: bool = False
    # What its calls require of providers.
    require: Requirements | None = None
    # Whether what a provider bills is tried again at the same target.
    retry_billed: bool = False
    # Which targets may go on with an answer that broke off (`gateway/calls/continuing.py`).
    continues: ContinueRule = "no"

    @property
    def weighted(self) -> bool:
        """Whether its targets have weights."""
        return self.targets[0].weight is not None

    @property
    def measured(self) -> bool:
        """Whether its calls depend on how targets have answered lately."""
        return self.leave_late or self.strategy in MEASURED

    @property
    def is_pattern(self) -> bool:
        """Whether its name has a `*`, and so matches many names."""
        return STAR in self.name

    @property
    def rank(self) -> tuple[int, int]:
        """Of the patterns that match a name, the one with the longest prefix wins, then the longest suffix."""
        prefix, _, suffix = self.name.partition(STAR)
        return len(prefix), len(suffix)

    def matches(self, name: str) -> bool:
        """Whether the pattern matches a name."""
        prefix, _, suffix = self.name.partition(STAR)
        return len(name) >= len(prefix) + len(suffix) and name.startswith(prefix) and name.endswith(suffix)

    def filled(self, name: str) -> "Route | None":
        """The route for a name that the pattern matches; None if no target can have a model of that name.

        A target `provider/*` gets the model of that name, without the part of the pattern before a slash: with the
        target `openai/*`, the pattern `gpt-*` maps `gpt-4o` to `openai/gpt-4o`, and `eu/*` maps `eu/gpt-4o` to it, too.
        In any other target the `*` becomes the matched text.
        """
        prefix, _, suffix = self.name.partition(STAR)
        matched = name[len(prefix) : len(name) - len(suffix)]
        whole = name[prefix.rfind("/") + 1 :]

        def named(targets: tuple[Target, ...]) -> tuple[Target, ...]:
            models = (whole if target.model == STAR else target.model.replace(STAR, matched) for target in targets)
            filled = (structs.replace(target, model=model) for target, model in zip(targets, models, strict=True))
            return tuple(target for target in filled if target.model and target.provider.can_name(target.model))

        if not (targets := named(self.targets)):
            return None
        fallbacks = MappingProxyType({cause: named(others) for cause, others in self.fallbacks.items()})
        return structs.replace(self, name=name, targets=targets, fallbacks=fallbacks)


class Config(Sections, frozen=True, kw_only=True):
    """The configuration. `source` is its file, or `environment`; `warnings` are its probable mistakes.

    `missing` are packages that a gateway needs for it and that are not installed. `secret_files` are the files that
    `${file:…}` names: if one changes, the configuration is loaded again.
    """

    providers: Mapping[str, Provider] = MappingProxyType({})
    routes: Mapping[str, Route] = MappingProxyType({})
    admin: AdminSettings = AdminSettings(listen="127.0.0.1:8081", implied=True)
    # By provider/model, with `*` as a wildcard.
    prices: Mapping[str, Price] = MappingProxyType({})
    source: str = "environment"
    warnings: tuple[Problem, ...] = ()
    missing: tuple[Problem, ...] = ()
    secret_files: tuple[str, ...] = ()

    @property
    def local_only(self) -> bool:
        """Whether all providers are local models."""
        return all(provider.embedded for provider in self.providers.values())

    def target(self, name: str) -> Target:
        """The target for `provider/model`; raises `UnknownTargetError` if there is no such provider."""
        return Target.parse(name, self.providers)

    def route(self, name: str) -> Route | None:
        """The route for the model that a client requests: the first of these that exists:

        1. the route of that name;
        2. of the route patterns that match it, the one with the highest `rank`;
        3. unless `only_routes`: the provider and model that it names;
        4. unless `only_routes`: the one provider that lists a model of that name. The route's name is provider/model.
        """
        if name in self.routes:
            return self.routes[name]
        patterns = [route for route in self.routes.values() if route.is_pattern and route.matches(name)]
        if patterns:
            return max(patterns, key=lambda route: route.rank).filled(name)
        if self.server.only_routes:
            return None
        owners = self._owners(name)
        for full in (name, *owners[:1]) if len(owners) == 1 else (name,):
            try:
                return Route(name=full, targets=(self.target(full),), max_event=self.limits.max_event)
            except UnknownTargetError:
                continue
        return None

    def suggestions(self, name: str) -> list[str]:
        """Names of models that a client may have meant by an unknown name; empty if there are none."""
        owners = [] if self.server.only_routes else self._owners(name)
        if owners or len(name) > _MAX_COMPARED:
            return owners
        listed = self.models()
        known = {full.partition("/")[2]: full for full in listed if full not in self.routes}
        # A version of a model that is listed, such as gpt-4o-2024-08-06.
        listed_prefix = max((model for model in known if name.startswith(f"{model}-")), key=len, default="")
        if listed_prefix:
            return [f"{known[listed_prefix].partition('/')[0]}/{name}"]
        from difflib import get_close_matches  # noqa: PLC0415 - only mistakes need it

        near = get_close_matches(name, [*listed, *known][:_MAX_NAMES], n=1, cutoff=_SIMILARITY)
        return [known.get(match, match) for match in near]

    def _owners(self, name: str) -> list[str]:
        """The listed models of that name, as provider/model."""
        return [f"{provider.name}/{name}" for provider in self.providers.values() if name in provider.models]

    def secrets(self) -> tuple[str, ...]:
        """All secrets of the configuration: the providers', the clients' and the admin token."""
        own = (secret for provider in self.providers.values() for secret in provider.secrets())
        oidc = self.admin.oidc.client_secret if self.admin.oidc is not None else None
        given = [*self.server.keys, self.admin.token, oidc, self.budgets.webhook, self.budgets.webhook_secret]
        ours = (secret.reveal() for secret in given if secret is not None)
        return tuple(dict.fromkeys((*own, *ours)))

    def models(self) -> tuple[str, ...]:
        """The names to list in /v1/models: routes first, then known models of each provider unless `only_routes`."""
        known = [] if self.server.only_routes else self.providers.values()
        listed = (f"{provider.name}/{model}" for provider in known for model in provider.models)
        named = (name for name, route in self.routes.items() if not route.is_pattern)
        return tuple(dict.fromkeys((*named, *listed)))
