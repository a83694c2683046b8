"""Config: an immutable snapshot of the configuration. `load.py` makes it; a reload makes a new one.

The fields of the sections (`Server`, `Limits` and so on) are the keys of the configuration file. Editors show their
descriptions. `docs/configuration.md` explains them.
"""

from collections.abc import Mapping
from decimal import Decimal
from difflib import get_close_matches
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct, structs

from penstock.core.price import Price, Rates, rate
from penstock.errors import Problem, UnknownTargetError
from penstock.gateway.config.addresses import Address, parse_listen
from penstock.gateway.config.people import AuthSettings, GroupSettings, OidcSettings
from penstock.providers.provider import Provider, Seconds, Timeouts
from penstock.providers.secret import Secret

__all__ = [
    "AdminSettings",
    "Captures",
    "Config",
    "ContentRule",
    "ContentSettings",
    "KeptResponsesSettings",
    "LedgerSettings",
    "Limits",
    "PriceSettings",
    "Provider",
    "Retries",
    "Route",
    "Secret",
    "Server",
    "Target",
    "TelemetrySettings",
    "Timeouts",
    "TlsSettings",
]

# The maximum is a hundred times the price of today's most expensive model. More is not a price per million tokens.
Dollars: TypeAlias = Annotated[float, Meta(ge=0, le=100_000)]


class TlsSettings(Struct, frozen=True, kw_only=True):
    """TLS of a listener: PEM files, relative to the directory of the configuration file."""

    certificate: Annotated[str, Meta(description="The file with the certificate and its intermediate certificates.")]
    key: Annotated[str, Meta(description="The file with its private key.")]
    client_ca: Annotated[
        str, Meta(description="The file with the authorities of client certificates, which are then required.")
    ] = ""


class Server(Struct, frozen=True, kw_only=True):
    """The API for clients."""

    listen: Annotated[str, Meta(description="The address to listen on: host:port, or [IPv6]:port.")] = "127.0.0.1:8080"
    keys: Annotated[
        tuple[Secret, ...],
        Meta(description="Keys that clients can use. Required to listen on other addresses than loopback."),
    ] = ()
    hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="Host names that clients can use while no key is required, besides localhost and IP addresses."
        ),
    ] = ()
    tls: Annotated[TlsSettings | None, Meta(description="Certificate and key, to serve clients over TLS.")] = None
    public_url: Annotated[
        str,
        Meta(description="The base URL that clients use, such as https://llm.example.com/v1. Default: from listen."),
    ] = ""
    proxies: Annotated[
        tuple[str, ...],
        Meta(description="Addresses or networks of proxies whose X-Forwarded-For is believed."),
    ] = ()
    cors: Annotated[
        tuple[str, ...],
        Meta(description="Origins whose pages can call the gateway from a browser, such as https://chat.example.com."),
    ] = ()
    only_routes: Annotated[bool, Meta(description="true allows routes only, and not provider/model.")] = False
    replay_only: Annotated[bool, Meta(description="true disables every provider that does not replay captures.")] = (
        False
    )
    strict: Annotated[
        bool, Meta(description="true makes every call strict: a translation that would change the meaning fails.")
    ] = False
    unasked_thinking: Annotated[
        bool,
        Meta(
            description="true gives Messages clients that do not ask for thinking the reasoning of providers of "
            "other APIs."
        ),
    ] = False
    shared_state: Annotated[
        bool,
        Meta(
            description="true lets all clients use what is stored in providers' accounts, by id: files, items, "
            "prompts, vector stores, containers, caches, and objects in S3 or Cloud Storage."
        ),
    ] = False
    provider_routing: Annotated[
        bool,
        Meta(description="true lets clients send fields by which a provider chooses another model or route."),
    ] = False
    media_hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="Hosts from which images and documents are fetched for providers that take no URLs: names, or "
            "patterns such as *.example.com, or * for all with a public address."
        ),
    ] = ()
    # Proxies and load balancers give up on a silent connection after 30 to 60 seconds; some clients after 15.
    heartbeat_s: Annotated[Seconds, Meta(description="Seconds between heartbeats to a waiting client.")] = 10.0
    drain_s: Annotated[Seconds, Meta(description="Seconds that running calls can continue after SIGTERM.")] = 30.0
    workers: Annotated[int, Meta(ge=1, le=256, description="The number of processes that share the port.")] = 1
    log: Annotated[
        Literal["auto", "json", "pretty", "off"],
        Meta(description="One line per call on standard error. auto is pretty on a terminal, otherwise json."),
    ] = "auto"
    record: Annotated[
        str, Meta(description="A directory for captures of providers' responses. Without it, nothing is recorded.")
    ] = ""

    @property
    def address(self) -> Address:
        """Where to listen, taken apart."""
        return parse_listen(self.listen)

    @property
    def base_url(self) -> str:
        """The base URL for clients: the public one, or the one where it listens."""
        scheme = "http" if self.tls is None else "https"
        return self.public_url.rstrip("/") or f"{scheme}://{self.address}/v1"


class Limits(Struct, frozen=True, kw_only=True):
    """Limits on the resources of one client or one stream: bytes and seconds."""

    # Room for a few images in base64; the providers' own limits are of the same order.
    max_body: Annotated[int, Meta(ge=1024, description="Bytes of a request body.")] = 20_000_000
    # OpenAI asks its callers to keep all request headers under 64 KiB.
    max_head: Annotated[int, Meta(ge=1024, description="Bytes of a request's line and headers.")] = 65_536
    # Above any chunk ever recorded (12 KB), and far below what hurts.
    max_event: Annotated[int, Meta(ge=1024, description="Bytes of one event in a provider's stream.")] = 1_000_000
    # As much as a client may send; base64 makes it a third larger.
    max_media: Annotated[
        int, Meta(ge=1024, description="Bytes of all images and documents that are fetched for one request.")
    ] = 20_000_000
    media_timeout_s: Annotated[Seconds, Meta(description="Seconds to fetch them.")] = 10.0
    head_timeout_s: Annotated[
        Seconds, Meta(description="Seconds for a client to send the request line and headers.")
    ] = 10.0
    body_timeout_s: Annotated[Seconds, Meta(description="Seconds for a client to send the body.")] = 30.0
    # Longer than the 60 seconds after which load balancers close idle connections: they should be the ones to close.
    keep_alive_s: Annotated[Seconds, Meta(description="Seconds that an idle connection stays open.")] = 75.0
    stalled_client_s: Annotated[
        Seconds, Meta(description="Seconds after which a client that reads nothing is disconnected.")
    ] = 60.0
    max_connections: Annotated[int, Meta(ge=1, description="Client connections of one process.")] = 20_000


class Retries(Struct, frozen=True, kw_only=True):
    """Retries at the next target, and cool-downs of failing ones."""

    max_attempts: Annotated[
        int, Meta(ge=1, le=10, description="Targets that one call can try, including the first.")
    ] = 3
    # When everything fails, more attempts only add to the load that made it fail.
    budget: Annotated[float, Meta(ge=0, le=1, description="Retries as a share of all calls: 0.15 is 15 %.")] = 0.15
    cooldown_s: Annotated[Seconds, Meta(description="Seconds of the first cool-down of a failing target.")] = 15.0
    max_cooldown_s: Annotated[Seconds, Meta(description="Seconds of the longest cool-down.")] = 300.0


class Captures(Struct, frozen=True, kw_only=True):
    """The retention of captures."""

    # A long answer has a few hundred KB; this is enough for an unstreamed image.
    max_capture: Annotated[int, Meta(ge=1024, description="Bytes of one answer; the rest is not recorded.")] = (
        10_000_000
    )
    max_total: Annotated[int, Meta(ge=1024, description="Bytes in one directory; the oldest captures are deleted.")] = (
        1_000_000_000
    )
    max_age_days: Annotated[float, Meta(gt=0, le=36_500, description="Days after which a capture is deleted.")] = 30.0


class LedgerSettings(Struct, frozen=True, kw_only=True):
    """Where the ledger is stored, and what several processes share."""

    enabled: Annotated[bool, Meta(description="false turns the ledger off: no entries, stored keys or budgets.")] = True
    folder: Annotated[str, Meta(description="Its directory. Default: penstock in the user's state directory.")] = ""
    postgres: Annotated[
        Secret | None, Meta(description="The URL of a PostgreSQL database to use instead of SQLite.")
    ] = None
    redis: Annotated[
        Secret | None, Meta(description="The URL of a Redis or Valkey server through which machines share limits.")
    ] = None
    # Enough for 20,000 calls that are open or that the book cannot store now. It uses two to three times as much disk.
    journal: Annotated[
        int, Meta(ge=65_536, le=1_000_000_000, description="Bytes for calls that are not in the database yet.")
    ] = 16_000_000
    # There may be other machines: they must not spend the rest of a budget several times while Redis is down.
    local_share: Annotated[
        float, Meta(gt=0, le=1, description="The share of each limit that one process can use while Redis is down.")
    ] = 0.25
    keep_days: Annotated[
        Annotated[int, Meta(ge=1, le=36_500)] | None,
        Meta(description="Days after which calls are moved to archives. Default: never."),
    ] = None
    keep_sums_days: Annotated[
        Annotated[int, Meta(ge=1, le=36_500)] | None,
        Meta(description="Days after which the sums of archived calls are deleted. Default: never."),
    ] = None


class BudgetSettings(Struct, frozen=True, kw_only=True):
    """Warnings when 50, 80 and 100 % of a budget are spent."""

    webhook: Annotated[
        Secret | None, Meta(description="The URL to which budget warnings are sent. Default: none are sent.")
    ] = None
    webhook_secret: Annotated[
        Secret | None, Meta(description="The secret with which these requests are signed (HMAC-SHA256).")
    ] = None


class KeptResponsesSettings(Struct, frozen=True, kw_only=True):
    """Responses that are kept for clients, so that they can read them again and continue from them."""

    store: Annotated[
        bool,
        Meta(description="true keeps responses in the database, so that clients can read them and continue from them."),
    ] = False
    memory: Annotated[
        int,
        Meta(
            ge=0,
            description="Bytes of responses that the gateway keeps in memory if `store` is false; 0 keeps nothing.",
        ),
    ] = 64_000_000
    memory_minutes: Annotated[
        float, Meta(gt=0, le=10_080, description="Minutes for which it keeps them after they were last used.")
    ] = 60.0
    keep_days: Annotated[
        float,
        Meta(gt=0, le=36_500, description="Days after which a conversation without a new response is deleted."),
    ] = 30.0
    # The output of a long answer has a few hundred KB; this is enough for images in the input.
    max_response: Annotated[
        int, Meta(ge=1024, description="Bytes of one response with its input; a larger one is not kept.")
    ] = 10_000_000
    max_total: Annotated[
        int,
        Meta(ge=1024, description="Bytes of all responses; keys beyond their share lose their oldest conversations."),
    ] = 1_000_000_000
    shared_state: Annotated[
        bool,
        Meta(description="The earlier place of shared_state in [server], with the same meaning."),
    ] = False


class UserSettings(Struct, frozen=True, kw_only=True):
    """The end users that clients name in their requests."""

    pseudonyms: Annotated[
        bool, Meta(description="false stores the names of end users in the ledger, instead of pseudonyms.")
    ] = True
    keep_days: Annotated[
        float,
        Meta(
            gt=0,
            le=36_500,
            description="Days after a user's last call for which the name behind its pseudonym is kept.",
        ),
    ] = 400.0


ContentRule: TypeAlias = Literal["never", "failed", "sampled", "always"]
"""Of which calls the request and the answer are kept."""


class ContentSettings(Struct, frozen=True, kw_only=True):
    """The requests and answers that are kept for the operator, apart from the ledger."""

    keep: Annotated[
        ContentRule,
        Meta(description="The calls whose requests and answers are kept: never, failed, sampled or always."),
    ] = "never"
    sample: Annotated[float, Meta(gt=0, le=1, description="The share of calls that sampled keeps: 0.01 is 1 %.")] = 0.01
    mask: Annotated[
        tuple[str, ...],
        Meta(description="What is masked: email, card, iban, phone, ip, or expressions such as EMP-\\d{6}."),
    ] = ()
    keep_days: Annotated[float, Meta(gt=0, le=36_500, description="Days after which content is deleted.")] = 30.0
    # The context of an agent has a few hundred KB.
    max_call: Annotated[
        int, Meta(ge=1024, le=10_000_000, description="Bytes of a request and of an answer; more is left out.")
    ] = 1_000_000
    max_total: Annotated[int, Meta(ge=1024, description="Bytes of all content; the oldest is deleted.")] = 1_000_000_000


class AdminSettings(Struct, frozen=True, kw_only=True):
    """The admin API over HTTP: keys and the ledger. `load_admin` fills in `listen`."""

    enabled: Annotated[bool, Meta(description="false turns the admin API off; the commands still work.")] = True
    listen: Annotated[
        str, Meta(description="The address to listen on: host:port. Default: loopback, on the port after the server's.")
    ] = ""
    token: Annotated[
        Secret | None, Meta(description="The admin token. Default: one is created in the ledger's directory.")
    ] = None
    hosts: Annotated[
        tuple[str, ...],
        Meta(description="Host names under which browsers reach it behind a TLS proxy."),
    ] = ()
    tls: Annotated[TlsSettings | None, Meta(description="Certificate and key, to serve it over TLS.")] = None
    content: Annotated[
        bool, Meta(description="true lets its users read the text of running calls, and kept content.")
    ] = False
    groups: Annotated[Mapping[str, GroupSettings], Meta(description="The roles of users, by the name of a group.")] = {}
    oidc: Annotated[OidcSettings | None, Meta(description="An identity provider with which users sign in.")] = None
    url: Annotated[str, Meta(description="The address of the page for browsers, if a TLS proxy is in front of it.")] = (
        ""
    )
    proxies: Annotated[
        tuple[str, ...],
        Meta(description="Addresses or networks of proxies that name the user, an administrator too, in user_header."),
    ] = ()
    user_header: Annotated[
        str,
        Meta(description="The header in which a proxy of [admin] proxies names the user, such as X-Forwarded-User."),
    ] = ""
    groups_header: Annotated[
        str, Meta(description="The header in which that proxy names the user's groups, separated by commas.")
    ] = "X-Forwarded-Groups"
    audit_days: Annotated[
        Annotated[int, Meta(ge=1, le=36_500)] | None,
        Meta(description="Days after which entries of the audit log are deleted. Default: never."),
    ] = None
    implied: bool = False
    """Whether `listen` is the default, and not in the file."""

    @property
    def address(self) -> Address:
        """Where to listen, taken apart."""
        return parse_listen(self.listen)


class TelemetrySettings(Struct, frozen=True, kw_only=True):
    """The export of traces and metrics."""

    otlp: Annotated[
        str, Meta(description="The URL of a collector for OTLP over HTTP, such as http://127.0.0.1:4318.")
    ] = ""
    enabled: Annotated[
        bool, Meta(description="Export to the collector in OTEL_EXPORTER_OTLP_ENDPOINT if otlp is not set.")
    ] = False
    propagate: Annotated[bool, Meta(description="Send the header traceparent to providers.")] = False
    content: Annotated[
        bool, Meta(description="Export the text of requests and answers. Streams then do not use the fast path.")
    ] = False
    interval_s: Annotated[Seconds, Meta(description="Seconds between two exports of histograms.")] = 15.0


class PriceSettings(Struct, frozen=True, kw_only=True):
    """The prices of a model, in dollars per million tokens."""

    input: Annotated[Dollars, Meta(description="Input, in dollars per million tokens.")]
    output: Annotated[Dollars, Meta(description="Output, in dollars per million tokens.")]
    cached: Annotated[Dollars | None, Meta(description="Input that is read from the prompt cache. Default: input.")] = (
        None
    )
    cache_write: Annotated[
        Dollars | None, Meta(description="Input that is written to the prompt cache. Default: input.")
    ] = None
    reasoning: Annotated[Dollars | None, Meta(description="Reasoning tokens. Default: output.")] = None
    cache_write_1h: Annotated[
        Dollars | None, Meta(description="Input that is cached for an hour. Default: twice the input.")
    ] = None

    def rates(self) -> Rates:
        """The prices as integers, exactly as they are written. Audio costs the same as text."""
        read, written = _exactly(self.input), _exactly(self.output)
        return Rates(
            input=read,
            output=written,
            cached=read if self.cached is None else _exactly(self.cached),
            cache_write=read if self.cache_write is None else _exactly(self.cache_write),
            reasoning=written if self.reasoning is None else _exactly(self.reasoning),
            audio_input=read,
            audio_output=written,
            cache_write_1h=None if self.cache_write_1h is None else _exactly(self.cache_write_1h),
        )


class ModelPriceSettings(PriceSettings, frozen=True, kw_only=True):
    """The prices of a model in the standard and in other service tiers."""

    service_tiers: Annotated[
        Mapping[str, PriceSettings], Meta(description="Prices in other service tiers, such as flex or priority.")
    ] = {}


def _exactly(dollars: float) -> int:
    return rate(Decimal(str(dollars)))


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


class Route(Struct, frozen=True, kw_only=True):
    """A public model name and its targets, which are tried in order or chosen by weight."""

    name: str
    targets: tuple[Target, ...]
    max_event: int
    # Fields of the request that the route overrides.
    set: Mapping[str, object] = MappingProxyType({})
    # Of which calls the content is kept; None for the rule of [content].
    content: ContentRule | None = None
    # Whether losses in translation that change the meaning are failures.
    strict: bool = False
    # The directory of its captures: None for that of the server, "" to record nothing.
    record: str | None = None

    @property
    def weighted(self) -> bool:
        """Whether the first target is chosen by weight."""
        return self.targets[0].weight is not None

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
        models = (whole if target.model == STAR else target.model.replace(STAR, matched) for target in self.targets)
        filled = (structs.replace(target, model=model) for target, model in zip(self.targets, models, strict=True))
        named = tuple(target for target in filled if target.model and target.provider.can_name(target.model))
        return structs.replace(self, name=name, targets=named) if named else None


class Config(Struct, frozen=True, kw_only=True):
    """The configuration. `source` is its file, or `environment`; `warnings` are its probable mistakes.

    `missing` are packages that a gateway needs for it and that are not installed. `secret_files` are the files that
    `${file:…}` names: if one changes, the configuration is loaded again.
    """

    server: Server = Server()
    providers: Mapping[str, Provider] = MappingProxyType({})
    routes: Mapping[str, Route] = MappingProxyType({})
    timeouts: Timeouts = Timeouts()
    limits: Limits = Limits()
    retries: Retries = Retries()
    captures: Captures = Captures()
    ledger: LedgerSettings = LedgerSettings()
    budgets: BudgetSettings = BudgetSettings()
    users: UserSettings = UserSettings()
    content: ContentSettings = ContentSettings()
    responses: KeptResponsesSettings = KeptResponsesSettings()
    admin: AdminSettings = AdminSettings(listen="127.0.0.1:8081", implied=True)
    auth: AuthSettings = AuthSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    # By provider/model, with `*` as a wildcard.
    prices: Mapping[str, Price] = MappingProxyType({})
    source: str = "environment"
    warnings: tuple[Problem, ...] = ()
    missing: tuple[Problem, ...] = ()
    secret_files: tuple[str, ...] = ()

    @property
    def shared_state(self) -> bool:
        """Whether clients may use what is stored in providers' accounts."""
        return self.server.shared_state or self.responses.shared_state

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
