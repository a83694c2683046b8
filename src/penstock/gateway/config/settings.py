"""The shape of the configuration file: its sections as Structs.

Their fields are the keys of the file. Editors show their docstrings. `docs/configuration.md` explains them.
"""

from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from msgspec import Meta, Struct, inspect

from penstock.gateway.config.addresses import Address, parse_listen
from penstock.gateway.config.people import AuthSettings, OidcSettings
from penstock.gateway.content.collected import ContentRule
from penstock.gateway.people.group_roles import GroupRoles, GroupSettings, PatternSettings
from penstock.gateway.record.price import Rates, rate
from penstock.providers.provider import Provider, Seconds, Timeouts
from penstock.providers.secret import Secret

# The maximum is a hundred times the price of today's most expensive model. More is not a price per million tokens.
Dollars: TypeAlias = Annotated[float, Meta(ge=0, le=100_000)]
Size: TypeAlias = Annotated[int, Meta(ge=1024)]
Days: TypeAlias = Annotated[float, Meta(gt=0, le=36_500)]
WholeDays: TypeAlias = Annotated[int, Meta(ge=1, le=36_500)]
Share: TypeAlias = Annotated[float, Meta(gt=0, le=1)]


class TlsSettings(Struct, frozen=True, kw_only=True):
    """TLS of a listener: PEM files, relative to the directory of the configuration file."""

    certificate: str
    """The file with the certificate and its intermediate certificates."""
    key: str
    """The file with its private key."""
    client_ca: str = ""
    """The file with the authorities of client certificates, which are then required."""


class Server(Struct, frozen=True, kw_only=True):
    """The API for clients."""

    listen: str = "127.0.0.1:8080"
    """The address to listen on: host:port, or [IPv6]:port."""
    keys: tuple[Secret, ...] = ()
    """Keys that clients can use. Required to listen on other addresses than loopback."""
    access_key_secret: Secret | None = None
    """The secret from which the access keys of clients are derived that sign their requests as AWS does."""
    hosts: tuple[str, ...] = ()
    """Host names that clients can use while no key is required, besides localhost and IP addresses."""
    tls: TlsSettings | None = None
    """Certificate and key, to serve clients over TLS."""
    public_url: str = ""
    """The base URL that clients use, such as https://llm.example.com/v1. Default: from listen."""
    proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies whose X-Forwarded-For is believed."""
    cors: tuple[str, ...] = ()
    """Origins whose pages can call the gateway from a browser, such as https://chat.example.com."""
    only_routes: bool = False
    """true allows routes only, and not provider/model."""
    replay_only: bool = False
    """true disables every provider that does not replay captures."""
    strict: bool = False
    """true makes every call strict: a translation that would change the meaning fails."""
    unasked_thinking: bool = False
    """true gives Messages clients that do not ask for thinking the reasoning of providers of other APIs."""
    shared_state: bool = False
    """true lets all clients use what is stored in providers' accounts, by id: files, items, prompts, vector stores,
    containers, caches, and objects in S3 or Cloud Storage."""
    provider_routing: bool = False
    """true lets clients send fields by which a provider chooses another model or route."""
    caller_reports: bool = True
    """false tells clients neither the cost nor the record of their own calls."""
    media_hosts: tuple[str, ...] = ()
    """Hosts from which images and documents are fetched for providers that take no URLs: names, or patterns such as
    *.example.com, or * for all with a public address."""
    # Proxies and load balancers give up on a silent connection after 30 to 60 seconds; some clients after 15.
    heartbeat_s: Seconds = 10.0
    """Seconds between heartbeats to a waiting client."""
    drain_s: Seconds = 30.0
    """Seconds that running calls can continue after SIGTERM."""
    websocket: bool = True
    """false offers no API over WebSocket."""
    workers: Annotated[int, Meta(ge=1, le=256)] = 1
    """The number of processes that share the port."""
    log: Literal["auto", "json", "pretty", "off"] = "auto"
    """One line per call on standard error. auto is pretty on a terminal, otherwise json."""
    record: str = ""
    """A directory for captures of providers' responses. Without it, nothing is recorded."""

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
    max_body: Size = 20_000_000
    """Bytes of a request body."""
    # OpenAI asks its callers to keep all request headers under 64 KiB.
    max_head: Size = 65_536
    """Bytes of a request's line and headers."""
    # Above any chunk ever recorded (12 KB), and far below what hurts.
    max_event: Size = 1_000_000
    """Bytes of one event in a provider's stream."""
    # As much as a client may send; base64 makes it a third larger.
    max_media: Size = 20_000_000
    """Bytes of all images and documents that are fetched for one request."""
    media_timeout_s: Seconds = 10.0
    """Seconds to fetch them."""
    head_timeout_s: Seconds = 10.0
    """Seconds for a client to send the request line and headers."""
    body_timeout_s: Seconds = 30.0
    """Seconds for a client to send the body."""
    # Longer than the 60 seconds after which load balancers close idle connections: they should be the ones to close.
    keep_alive_s: Seconds = 75.0
    """Seconds that an idle connection stays open."""
    stalled_client_s: Seconds = 60.0
    """Seconds after which a client that reads nothing is disconnected."""
    max_connections: Annotated[int, Meta(ge=1)] = 20_000
    """Client connections of one process."""
    max_websockets: Annotated[int, Meta(ge=1)] = 2_000
    """Those of them that are WebSockets."""
    # An agent is silent while its tools run, and while its user thinks.
    websocket_idle_s: Seconds = 600.0
    """Seconds after which a WebSocket without a request is closed."""
    # Open Responses: connections are limited to 60 minutes.
    websocket_max_age_s: Seconds = 3_600.0
    """Seconds after which a WebSocket is closed, when its current response is complete."""
    websocket_memory: Size = 256_000_000
    """Bytes of conversations that one process keeps for its WebSockets."""


class Retries(Struct, frozen=True, kw_only=True):
    """Retries at the next target, and cool-downs of failing ones."""

    max_attempts: Annotated[int, Meta(ge=1, le=10)] = 3
    """Targets that one call can try, including the first."""
    # When everything fails, more attempts only add to the load that made it fail.
    budget: Annotated[float, Meta(ge=0, le=1)] = 0.15
    """Retries as a share of all calls: 0.15 is 15 %."""
    cooldown_s: Seconds = 15.0
    """Seconds of the first cool-down of a failing target."""
    max_cooldown_s: Seconds = 300.0
    """Seconds of the longest cool-down."""


class Captures(Struct, frozen=True, kw_only=True):
    """The retention of captures."""

    # A long answer has a few hundred KB; this is enough for an unstreamed image.
    max_capture: Size = 10_000_000
    """Bytes of one answer; the rest is not recorded."""
    max_total: Size = 1_000_000_000
    """Bytes in one directory; the oldest captures are deleted."""
    max_age_days: Days = 30.0
    """Days after which a capture is deleted."""


class LedgerSettings(Struct, frozen=True, kw_only=True):
    """Where the ledger is stored, and what several processes share."""

    enabled: bool = True
    """false turns the ledger off: no entries, stored keys or budgets."""
    folder: str = ""
    """Its directory. Default: penstock in the user's state directory."""
    postgres: Secret | None = None
    """The URL of a PostgreSQL database to use instead of SQLite."""
    redis: Secret | None = None
    """The URL of a Redis or Valkey server through which machines share limits."""
    # Enough for 20,000 calls that are open or that the book cannot store now. It uses two to three times as much disk.
    journal: Annotated[int, Meta(ge=65_536, le=1_000_000_000)] = 16_000_000
    """Bytes for calls that are not in the database yet."""
    # There may be other machines: they must not spend the rest of a budget several times while Redis is down.
    local_share: Share = 0.25
    """The share of each limit that one process can use while Redis is down."""
    keep_days: WholeDays | None = None
    """Days after which calls are moved to archives. Default: never."""
    keep_sums_days: WholeDays | None = None
    """Days after which the sums of archived calls are deleted. Default: never."""


class BudgetSettings(Struct, frozen=True, kw_only=True):
    """Warnings when 50, 80 and 100 % of a budget are spent."""

    webhook: Secret | None = None
    """The URL to which budget warnings are sent. Default: none are sent."""
    webhook_secret: Secret | None = None
    """The secret `whsec_…` that signs these requests (Standard Webhooks)."""


class KeptResponsesSettings(Struct, frozen=True, kw_only=True):
    """Responses that are kept for clients, so that they can read them again and continue from them."""

    store: bool = False
    """true keeps responses in the database, so that clients can read them and continue from them."""
    memory: Annotated[int, Meta(ge=0)] = 64_000_000
    """Bytes of responses that the gateway keeps in memory if `store` is false; 0 keeps nothing."""
    memory_minutes: Annotated[float, Meta(gt=0, le=10_080)] = 60.0
    """Minutes for which it keeps them after they were last used."""
    keep_days: Days = 30.0
    """Days after which a conversation without a new response is deleted."""
    # The output of a long answer has a few hundred KB; this is enough for images in the input.
    max_response: Size = 10_000_000
    """Bytes of one response with its input; a larger one is not kept."""
    max_total: Size = 1_000_000_000
    """Bytes of all responses; keys beyond their share lose their oldest conversations."""


class UserSettings(Struct, frozen=True, kw_only=True):
    """The end users that clients name in their requests."""

    pseudonyms: bool = True
    """false stores the names of end users in the ledger, instead of pseudonyms."""
    keep_days: Days = 400.0
    """Days after a user's last call for which the name behind its pseudonym is kept."""


class ContentSettings(Struct, frozen=True, kw_only=True):
    """The requests and answers that are kept for the operator, apart from the ledger."""

    keep: ContentRule = "never"
    """The calls whose requests and answers are kept: never, failed, sampled or always."""
    sample: Share = 0.01
    """The share of calls that sampled keeps: 0.01 is 1 %."""
    mask: tuple[str, ...] = ()
    """What is masked: email, card, iban, phone, ip, or expressions such as EMP-\\d{6}."""
    keep_days: Days = 30.0
    """Days after which content is deleted."""
    # The context of an agent has a few hundred KB.
    max_call: Annotated[int, Meta(ge=1024, le=10_000_000)] = 1_000_000
    """Bytes of a request and of an answer; more is left out."""
    max_total: Size = 1_000_000_000
    """Bytes of all content; the oldest is deleted."""


class AdminSettings(Struct, frozen=True, kw_only=True):
    """The admin API over HTTP: keys and the ledger. `load_admin` fills in `listen`."""

    enabled: bool = True
    """false turns the admin API off; the commands still work."""
    listen: str = ""
    """The address to listen on: host:port. Default: loopback, on the port after the server's."""
    token: Secret | None = None
    """The admin token. Default: one is created in the ledger's directory."""
    hosts: tuple[str, ...] = ()
    """Host names under which browsers reach it behind a TLS proxy."""
    tls: TlsSettings | None = None
    """Certificate and key, to serve it over TLS."""
    content: bool = False
    """true lets its users read the text of running calls, and kept content."""
    groups: Mapping[str, GroupSettings] = {}
    """The roles of users, by the name of a group."""
    group_patterns: Mapping[str, PatternSettings] = {}
    """The roles of users by patterns of group names. The first that matches decides, for groups without a role."""
    oidc: OidcSettings | None = None
    """An identity provider with which users sign in."""
    url: str = ""
    """The address of the page for browsers, if a TLS proxy is in front of it."""
    proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies that name the user, an administrator too, in user_header."""
    user_header: str = ""
    """The header in which a proxy of [admin] proxies names the user, such as X-Forwarded-User."""
    groups_header: str = "X-Forwarded-Groups"
    """The header in which that proxy names the user's groups, separated by commas."""
    audit_days: WholeDays | None = None
    """Days after which entries of the audit log are deleted. Default: never."""
    implied: bool = False
    """Whether `listen` is the default, and not in the file."""
    set_by_loader: ClassVar = ("implied",)

    @property
    def address(self) -> Address:
        """Where to listen, taken apart."""
        return parse_listen(self.listen)

    @property
    def group_roles(self) -> GroupRoles:
        """The roles of groups."""
        return GroupRoles(self.groups, self.group_patterns)


class TelemetrySettings(Struct, frozen=True, kw_only=True):
    """The export of traces and metrics."""

    otlp: str = ""
    """The URL of a collector for OTLP over HTTP, such as http://127.0.0.1:4318."""
    enabled: bool = False
    """Export to the collector in OTEL_EXPORTER_OTLP_ENDPOINT if otlp is not set."""
    propagate: bool = False
    """Send the header traceparent to providers."""
    content: bool = False
    """Export the text of requests and answers. Streams then do not use the fast path."""
    interval_s: Seconds = 15.0
    """Seconds between two exports of histograms."""


class PriceSettings(Struct, frozen=True, kw_only=True):
    """The prices of a model, in dollars per million tokens."""

    input: Dollars
    """Input, in dollars per million tokens."""
    output: Dollars
    """Output, in dollars per million tokens."""
    cached: Dollars | None = None
    """Input that is read from the prompt cache. Default: input."""
    cache_write: Dollars | None = None
    """Input that is written to the prompt cache. Default: input."""
    reasoning: Dollars | None = None
    """Reasoning tokens. Default: output."""
    cache_write_1h: Dollars | None = None
    """Input that is cached for an hour. Default: twice the input."""

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

    service_tiers: Mapping[str, PriceSettings] = {}
    """Prices in other service tiers, such as flex or priority."""


def _exactly(dollars: float) -> int:
    return rate(Decimal(str(dollars)))


class TargetTable(Struct, frozen=True, kw_only=True):
    """A target with its weight or dialect, as an item of `targets`."""

    target: str
    """provider/model"""
    weight: Annotated[float, Meta(gt=0)] | None = None
    """Its share of the calls, relative to the other weights."""
    dialect: str = ""
    """The API to use, if the provider offers several."""


class RouteTable(Struct, frozen=True, kw_only=True):
    """A public model name, or a pattern of such names, and its targets."""

    targets: Annotated[tuple[str | TargetTable, ...], Meta(min_length=1)]
    """provider/model, tried in this order or by weight. A * is the text that the name's * matched."""
    timeouts: Timeouts = Timeouts()
    """Overrides of the providers' timeouts."""
    set: Mapping[str, Any] = {}
    """Request fields that the route sets, such as temperature."""
    max_event: Size | None = None
    """Overrides limits.max_event."""
    strict: bool = False
    """true makes its calls strict: a translation that would change the meaning fails."""
    repair_tool_arguments: bool = False
    """true corrects JSON of tool calls and of structured output that models write wrong."""
    record: str | None = None
    """Overrides server.record; "" records nothing."""
    content: ContentRule | None = None
    """Overrides content.keep."""


class Sections(Struct, frozen=True, kw_only=True):
    """The sections of penstock.toml that a `Config` has as they are."""

    server: Server = Server()
    """The API for clients."""
    timeouts: Timeouts = Timeouts()
    """Timeouts of an attempt."""
    limits: Limits = Limits()
    """Limits on what one client or one stream can use."""
    retries: Retries = Retries()
    """Retries and cool-downs."""
    captures: Captures = Captures()
    """Retention of captures."""
    ledger: LedgerSettings = LedgerSettings()
    """Where the ledger is stored."""
    budgets: BudgetSettings = BudgetSettings()
    """Warnings of budgets."""
    users: UserSettings = UserSettings()
    """The end users that clients name in their requests."""
    content: ContentSettings = ContentSettings()
    """Requests and answers that are kept for the operator."""
    responses: KeptResponsesSettings = KeptResponsesSettings()
    """Responses that are kept for clients of the Responses API."""
    admin: AdminSettings = AdminSettings()
    """The admin API."""
    auth: AuthSettings = AuthSettings()
    """How clients authenticate, besides with keys."""
    telemetry: TelemetrySettings = TelemetrySettings()
    """Export over OpenTelemetry."""


class ConfigFile(Sections, frozen=True, kw_only=True):
    """The sections of penstock.toml."""

    providers: Mapping[str, Provider] = {}
    """Providers. A built-in name changes only the given keys; a new name adds a provider."""
    routes: Mapping[str, RouteTable] = {}
    """Model names, or patterns such as gpt-*, and their targets."""
    prices: Mapping[str, ModelPriceSettings] = {}
    """Prices by provider/model or a pattern such as acme/*. They override the built-in prices."""


@cache
def shape() -> inspect.StructType:
    """msgspec's type description of `ConfigFile`."""
    kind = inspect.type_info(ConfigFile)
    assert isinstance(kind, inspect.StructType)
    return kind
