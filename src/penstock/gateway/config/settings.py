"""The shape of the configuration file: its sections as Structs.

Their fields are the keys of the file. Editors show their docstrings, and `scripts/reference` writes them into
`docs/reference/configuration.md`. They are Markdown; links are relative to `docs/`.
"""

from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from typing import Annotated, ClassVar, Literal, TypeAlias

from msgspec import Meta, Struct, inspect

from penstock.gateway.config.addresses import Address, parse_listen
from penstock.gateway.config.finance import FinanceSettings
from penstock.gateway.config.people import AuthSettings, OidcSettings
from penstock.gateway.config.route_settings import RouteTable, Size
from penstock.gateway.content.collected import ContentRule
from penstock.gateway.people.group_roles import GroupRoles, GroupSettings, PatternSettings
from penstock.gateway.record.price import Rates, rate
from penstock.gateway.streams.stream_settings import StreamSettings
from penstock.providers.provider import Provider, Seconds, Timeouts
from penstock.providers.secret import Secret

# The maximum is a hundred times the price of today's most expensive model. More is not a price per million tokens.
Dollars: TypeAlias = Annotated[float, Meta(ge=0, le=100_000)]
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
    """`host:port`, or `[IPv6]:port`. The default is loopback only, because everyone who can reach the gateway can spend
    your keys. Port 0 takes a free port."""
    keys: tuple[Secret, ...] = ()
    """Keys that clients can use, as `Authorization: Bearer`, `x-api-key`, `api-key` or `x-goog-api-key`; at least 8
    characters each. Keys created with [`penstock keys`](ledger.md#keys) work too. Without any key, none is required,
    and the gateway listens on loopback only."""
    access_key_secret: Secret | None = None
    """A secret of at least 32 characters, such as `"${PENSTOCK_ACCESS_KEY_SECRET}"`, from which access keys are derived
    for clients that [sign their requests](bedrock.md#signed-requests) as AWS does. Without it, such requests are
    refused."""
    hosts: tuple[str, ...] = ()
    """Host names that clients can use while no key is required, such as `["gateway.internal"]`. `localhost`, names that
    end in `.localhost` and IP addresses are always allowed; see [without a key](access.md#without-a-key)."""
    tls: TlsSettings | None = None
    """Serves clients over TLS: see [TLS](access.md#tls)."""
    public_url: str = ""
    """The base URL that clients use, such as `"https://llm.example.com/v1"`, if it is not where the gateway listens.
    The page shows it with a new key and in the `curl` command of a call, and so does `penstock keys create`."""
    proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies in front, such as `["10.0.0.0/8"]`. Only their `X-Forwarded-For` is believed;
    the log then has the client's address."""
    cors: tuple[str, ...] = ()
    """Origins whose pages can call the gateway from a browser, such as `["https://chat.example.com"]`; `["*"]` for
    every page. See [pages](access.md#calls-from-web-pages)."""
    only_routes: bool = False
    """`true` allows routes only, and not `provider/model`."""
    replay_only: bool = False
    """`true` disables every provider that does not [replay captures](captures.md#a-gateway-without-a-network): no
    provider is ever called."""
    strict: bool = False
    """`true` makes every call [strict](reference/losses.md#strict-mode): a translation that would change the meaning
    fails."""
    unasked_thinking: bool = False
    """`true` gives Messages clients that do not ask for `thinking` the reasoning of providers of other APIs: see
    [thinking](anthropic.md#thinking)."""
    shared_state: bool = False
    """`true` lets clients refer to what is stored in a provider's account: see [shared
    state](access.md#shared-state)."""
    provider_routing: bool = False
    """`true` lets clients send fields by which a provider chooses another model or route: `models`, `route`, `provider`
    and `preset` of OpenRouter, `providerOptions`, and `fallbacks` of embeddings. They bypass the models of a key, and
    the answer is booked at the price of the model that was asked for."""
    caller_reports: bool = True
    """`false` tells clients neither the cost of their calls nor what the ledger has of them: see [what a call has
    cost](clients.md#what-a-call-has-cost)."""
    media_hosts: tuple[str, ...] = ()
    """Hosts from which images and documents are [fetched](providers.md#media-by-url) for providers that take no URLs,
    such as `["images.example.com", "*.cdn.example"]`."""
    # Proxies and load balancers give up on a silent connection after 30 to 60 seconds; some clients after 15.
    heartbeat_s: Seconds = 10.0
    """Seconds between heartbeats to a waiting client. Proxies and load balancers close silent connections after
    30 to 60 seconds."""
    drain_s: Seconds = 30.0
    """Seconds that running calls can continue after SIGTERM or Ctrl-C. The log says how many there are. A second signal
    ends them at once."""
    websocket: bool = True
    """`false` offers no API [over WebSocket](responses.md#websocket); clients get status 426."""
    workers: Annotated[int, Meta(ge=1, le=256)] = 1
    """The number of processes that share the port: one per core that Penstock should use."""
    log: Literal["auto", "json", "pretty", "off"] = "auto"
    """One line per call on standard error: `"json"`, `"pretty"` or `"off"`. `"auto"` is pretty on a terminal, otherwise
    JSON. See [the log](log.md)."""
    record: str = ""
    """A directory for [captures](captures.md) of providers' responses. Without it, nothing is recorded."""

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
    """Bytes of a request body: enough for a few images."""
    # OpenAI asks its callers to keep all request headers under 64 KiB.
    max_head: Size = 65_536
    """Bytes of a request's line and headers; the same as OpenAI's limit."""
    # Above any chunk ever recorded (12 KB), and far below what hurts.
    max_event: Size = 1_000_000
    """Bytes of one event in a provider's stream. Real events are a few kilobytes at most. Events of the Responses API
    that repeat a whole item, such as an image, or the whole answer, may have 32 MB, as an unstreamed answer."""
    # As much as a client may send; base64 makes it a third larger.
    max_media: Size = 20_000_000
    """Bytes of all images and documents that are [fetched](providers.md#media-by-url) for one request."""
    media_timeout_s: Seconds = 10.0
    """Seconds to fetch the images and documents of a request."""
    head_timeout_s: Seconds = 10.0
    """Seconds for a client to send the request line and headers."""
    body_timeout_s: Seconds = 30.0
    """Seconds for a client to send the body."""
    # Longer than the 60 seconds after which load balancers close idle connections: they should be the ones to close.
    keep_alive_s: Seconds = 75.0
    """Seconds that an idle connection stays open: longer than the 60 seconds of most load balancers, so that they close
    first."""
    stalled_client_s: Seconds = 60.0
    """Seconds after which a client that reads nothing is disconnected."""
    max_connections: Annotated[int, Meta(ge=1)] = 20_000
    """Client connections of one process."""
    max_websockets: Annotated[int, Meta(ge=1)] = 2_000
    """Client connections of one process that are [WebSockets](responses.md#websocket)."""
    # An agent is silent while its tools run, and while its user thinks.
    websocket_idle_s: Seconds = 600.0
    """Seconds after which a WebSocket without a request is closed."""
    # Open Responses: connections are limited to 60 minutes.
    websocket_max_age_s: Seconds = 3_600.0
    """Seconds after which a WebSocket is closed, when its current response is complete."""
    websocket_memory: Size = 256_000_000
    """Bytes of conversations that one process keeps for its WebSockets. If there are more, the connections with the
    most forget theirs first. Fixed at the start."""


class Retries(Struct, frozen=True, kw_only=True):
    """Retries, and cool-downs of failing targets."""

    max_attempts: Annotated[int, Meta(ge=1, le=10)] = 3
    """Targets that one call can try, including the first."""
    # When everything fails, more attempts only add to the load that made it fail.
    budget: Annotated[float, Meta(ge=0, le=1)] = 0.15
    """Retries as a share of all calls. If everything fails, more retries would only add load."""
    # An outage begins with as many failures as calls are open or come until the breaker opens.
    burst: Annotated[int, Meta(ge=0, le=10_000)] = 100
    """Retries that are allowed before the share counts, of each worker: an outage begins with many failures at once."""
    same_target: Annotated[int, Meta(ge=0, le=5)] = 1
    """Retries of a call [at the same target](routing.md#retries), if there is no other one to try."""
    backoff_s: Seconds = 0.5
    """The wait before the first of them, in seconds. It doubles from one to the next, and a random part of it, up to
    half, is left out."""
    # A client waits meanwhile, without a heartbeat.
    max_wait_s: Seconds = 5.0
    """The longest wait, in seconds. If `Retry-After` demands more, the client gets it with the failure."""
    cooldown_s: Seconds = 15.0
    """The first cool-down of a failing target, in seconds."""
    max_cooldown_s: Seconds = 300.0
    """The longest cool-down, in seconds."""


class Captures(Struct, frozen=True, kw_only=True):
    """The retention of captures."""

    # A long answer has a few hundred KB; this is enough for an unstreamed image.
    max_capture: Size = 10_000_000
    """Bytes of one answer. The rest is not recorded, and the capture says so. The client gets the whole answer."""
    max_total: Size = 1_000_000_000
    """Bytes of all captures in one directory. The oldest are deleted first."""
    max_age_days: Days = 30.0
    """Days after which a capture is deleted."""


class LedgerSettings(Struct, frozen=True, kw_only=True):
    """Where the ledger is stored, and what several processes share."""

    enabled: bool = True
    """`false` turns the ledger off: no entries, no stored keys, no budgets."""
    folder: str = ""
    """Its directory. Default: `$PENSTOCK_STATE`, or else `$XDG_STATE_HOME/penstock`, or else
    `~/.local/state/penstock`."""
    postgres: Secret | None = None
    """The URL of a PostgreSQL database to use instead of SQLite, best as `"${DATABASE_URL}"`. Needs the package
    `asyncpg`."""
    redis: Secret | None = None
    """The URL of a Redis or Valkey server through which several machines share limits (of clients' keys and of
    providers' keys) and reservations, best as `"${REDIS_URL}"`. Needs the package `redis`."""
    # Enough for 20,000 calls that are open or that the book cannot store now. It uses two to three times as much disk.
    journal: Annotated[int, Meta(ge=65_536, le=1_000_000_000)] = 16_000_000
    """Bytes for calls that are not in the database yet: running calls, and calls that wait for it. That is enough for
    about 30,000 calls that wait, or 20,000 that run. Each process allocates three times as much disk space at start.
    When the journal is full, calls are refused until the database is back."""
    # There may be other machines: they must not spend the rest of a budget several times while Redis is down.
    local_share: Share = 0.25
    """The share of the rest of each limit that one process can use while Redis does not respond."""
    keep_days: WholeDays | None = None
    """Days after which calls are moved from the database to [archives](ledger.md#retention). Sums and budgets do not
    change. Default: never."""
    keep_sums_days: WholeDays | None = None
    """Days after which the sums of archived calls are deleted; at least `keep_days`. What keys have spent is never
    deleted. Default: never."""


class BudgetSettings(Struct, frozen=True, kw_only=True):
    """Warnings when 50, 80 and 100 % of a budget are spent."""

    webhook: Secret | None = None
    """The URL to which warnings are sent. Default: none are sent."""
    webhook_secret: Secret | None = None
    """The secret with which these requests are [signed](teams.md#warnings): `whsec_` and 24 to 64 bytes in base64, best
    as `"${PENSTOCK_WEBHOOK_SECRET}"`. A webhook needs one."""


class KeptResponsesSettings(Struct, frozen=True, kw_only=True):
    """Responses that are kept for clients, so that they can read them again and continue from them."""

    store: bool = False
    """`true` stores responses, so that clients can read them again and continue from them with `previous_response_id`,
    on every machine and after a restart. A client's `store: false` is always obeyed. Needs the ledger."""
    memory: Annotated[int, Meta(ge=0)] = 64_000_000
    """Bytes of responses that all workers of the gateway together keep in memory if `store` is `false`. `0` keeps
    nothing."""
    memory_minutes: Annotated[float, Meta(gt=0, le=10_080)] = 60.0
    """Minutes for which a response stays in memory after it was last used."""
    keep_days: Days = 30.0
    """Days after which a conversation to which no response was added is deleted."""
    # The output of a long answer has a few hundred KB; this is enough for images in the input.
    max_response: Size = 10_000_000
    """Bytes of one response with its own input. A larger one is not kept."""
    max_total: Size = 1_000_000_000
    """Bytes of all kept responses. Beyond it, each key with more than its share loses the conversations that it
    continued least recently."""


class UserSettings(Struct, frozen=True, kw_only=True):
    """The end users that clients name in their requests."""

    pseudonyms: bool = True
    """The ledger has a pseudonym of each user. `false` stores the names that clients send."""
    keep_days: Days = 400.0
    """Days after a user's last call until the name behind its pseudonym is deleted."""


class ContentSettings(Struct, frozen=True, kw_only=True):
    """The requests and answers that are kept for the operator, apart from the ledger."""

    keep: ContentRule = "never"
    """`"failed"` keeps calls that failed, were truncated or timed out; `"sampled"` a share of all calls; `"always"` all
    of them. A route can have [its own rule](reference/configuration.md#routesname)."""
    sample: Share = 0.01
    """The share of calls that `"sampled"` keeps: 0.01 is 1 %."""
    mask: tuple[str, ...] = ()
    """What is masked: `email`, `card` (card numbers with a valid check digit), `iban`, `phone` (with + or 00), `ip`, or
    [expressions](privacy.md#masking). Keys are always masked."""
    keep_days: Days = 30.0
    """Days after which content is deleted."""
    # The context of an agent has a few hundred KB.
    max_call: Annotated[int, Meta(ge=1024, le=10_000_000)] = 1_000_000
    """Bytes of a request, and of an answer. A larger request is left out, and so is the rest of a larger answer."""
    max_total: Size = 1_000_000_000
    """Bytes of all content; the oldest is deleted."""
    folder: str = ""
    """A folder in which the same content is written as [JSON lines](privacy.md#content-as-files), which other programs
    collect; relative to the working directory."""


class AdminSettings(Struct, frozen=True, kw_only=True):
    """The admin API over HTTP: keys and the ledger. `load_admin` fills in `listen`."""

    enabled: bool = True
    """`false` turns the admin API off."""
    listen: str = ""
    """`host:port`, or `[IPv6]:port`. Default: loopback, on the port after that of `[server] listen`, or on a free one
    if that is taken. Other addresses need a `token`."""
    token: Secret | None = None
    """The admin token, sent as `Authorization: Bearer`, best as `"${PENSTOCK_ADMIN_TOKEN}"`; at least 16 characters,
    and not a client's key. Default: a token is created at the first start, in the file `admin-token` in the ledger's
    directory."""
    hosts: tuple[str, ...] = ()
    """Host names under which browsers reach it behind a TLS proxy, such as `["penstock.example.com"]`."""
    tls: TlsSettings | None = None
    """Serves it over TLS: see [TLS](access.md#tls)."""
    content: bool = False
    """`true` lets its users [read the text](admin.md#running-calls) of running calls, and [kept
    content](admin.md#kept-content). The last 65,536 characters of each answer are kept in memory while the call runs,
    and are never written to disk."""
    groups: Mapping[str, GroupSettings] = {}
    """The roles of users, by the name of a group: `[admin.groups.NAME]` with a `role` and, for `member` and
    `team_admin`, a `team`. See [roles](people.md#roles)."""
    group_patterns: Mapping[str, PatternSettings] = {}
    """The roles of users by [patterns of group names](people.md#patterns-of-groups). The first that matches decides,
    for groups without a role of their own."""
    oidc: OidcSettings | None = None
    """An identity provider with which users of the page [sign in](people.md#openid-connect): the table
    `[admin.oidc]`."""
    url: str = ""
    """The address of the page for browsers, such as `"https://penstock.example.com"`, if a TLS proxy is in front of it.
    Default: as the browser names it."""
    proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies that name the user, an administrator too, in `user_header`."""
    user_header: str = ""
    """The header in which a proxy of `[admin] proxies` names the user: see
    [people](people.md#a-proxy-that-knows-the-user)."""
    groups_header: str = "X-Forwarded-Groups"
    """The header in which that proxy names the user's groups, separated by commas."""
    audit_days: WholeDays | None = None
    """Days after which entries of the [audit log](people.md#the-audit-log) are deleted. Default: never."""
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
    """The URL of a collector that accepts OTLP over HTTP; `/v1/traces` and `/v1/metrics` are appended. If it needs a
    key, set the variable `OTEL_EXPORTER_OTLP_HEADERS`."""
    enabled: bool = False
    """If `otlp` is not set: `true` exports to the collector in the variable `OTEL_EXPORTER_OTLP_ENDPOINT`. The variable
    alone does nothing, because it may be set for other programs."""
    propagate: bool = False
    """`true` sends the header `traceparent` to providers, with a span of the gateway. The client's own header is never
    forwarded unchanged."""
    content: bool = False
    """`true` exports the text of requests and answers, with secrets masked. Answers are then kept in memory until they
    end, and streams do not use the fast path. Messages of more than 32768 characters are left out."""
    interval_s: Seconds = 15.0
    """Seconds between two exports of histograms. Spans are exported when their call ends."""


class PriceSettings(Struct, frozen=True, kw_only=True):
    """The prices of a model, in dollars per million tokens."""

    input: Dollars
    """Input, in dollars per million tokens. Required; `0` if it is free."""
    output: Dollars
    """Output, in dollars per million tokens. Required."""
    cached: Dollars | None = None
    """Input that is read from the prompt cache. Default: the price of input."""
    cache_write: Dollars | None = None
    """Input that is written to the prompt cache. Default: the price of input."""
    reasoning: Dollars | None = None
    """Reasoning tokens. Default: the price of output."""
    cache_write_1h: Dollars | None = None
    """Input that is written to the prompt cache for an hour. Default: twice the price of input if `cache_write` costs
    more than input, and the cost is marked approximate."""

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
    """Prices in [service tiers](prices.md#service-tiers) other than the standard one: a table with the same keys for
    each, such as `[prices."acme/*".service_tiers.flex]`."""


def _exactly(dollars: float) -> int:
    return rate(Decimal(str(dollars)))


class Sections(Struct, frozen=True, kw_only=True):
    """The sections of penstock.toml that a `Config` has as they are."""

    server: Server = Server()
    """The API for clients. [Access](access.md) explains who can reach it."""
    timeouts: Timeouts = Timeouts()
    """Timeouts, for all providers. `[providers.NAME.timeouts]` overrides them for one, `[routes.NAME.timeouts]` both
    for a route. At most 86400 seconds."""
    limits: Limits = Limits()
    """Limits on what one client or one stream can use."""
    retries: Retries = Retries()
    """[Retries and cool-downs](routing.md#retries)."""
    captures: Captures = Captures()
    """Retention of [captures](captures.md), which `[server] record`, `[routes.NAME] record` or `penstock serve
    --record` writes."""
    ledger: LedgerSettings = LedgerSettings()
    """Where the [ledger](ledger.md) is stored, and what several gateways share."""
    budgets: BudgetSettings = BudgetSettings()
    """[Warnings](teams.md#warnings) when 50, 80 and 100 % of a budget are spent."""
    users: UserSettings = UserSettings()
    """The end users that clients name in their requests. See [privacy](privacy.md)."""
    content: ContentSettings = ContentSettings()
    """Requests and answers that are kept for the operator, apart from the ledger. See
    [privacy](privacy.md#content-of-calls)."""
    responses: KeptResponsesSettings = KeptResponsesSettings()
    """How [responses are kept](responses.md#kept-responses) for clients of the Responses API: in memory for a short
    time, or stored beside the ledger, in the file `content.db` in its directory or in its PostgreSQL database."""
    finance: FinanceSettings = FinanceSettings()
    """Changes of [prices](prices.md#discounts-and-markups), and the [currency](ledger.md#currency) of reports."""
    streams: StreamSettings = StreamSettings()
    """[Durable streams](streams.md), to which clients can come back after a lost connection."""
    admin: AdminSettings = AdminSettings()
    """The [admin API](admin.md) and the [page](page.md). Every request needs the admin token, or the credentials of a
    [user](people.md). The commands, such as `penstock keys`, do not use it."""
    auth: AuthSettings = AuthSettings()
    """How clients authenticate, besides with keys."""
    telemetry: TelemetrySettings = TelemetrySettings()
    """Export of [traces](metrics.md#traces) and histograms over OpenTelemetry. It needs the packages
    `opentelemetry-sdk` and `opentelemetry-exporter-otlp-proto-http`."""


class ConfigFile(Sections, frozen=True, kw_only=True):
    """The sections of penstock.toml."""

    providers: Mapping[str, Provider] = {}
    """[Providers](providers.md). A built-in name changes only the given keys; a new name adds a provider."""
    routes: Mapping[str, RouteTable] = {}
    """[Routes](routing.md): model names, or patterns such as `gpt-*`, and their targets."""
    prices: Mapping[str, ModelPriceSettings] = {}
    """[Prices](prices.md) by `provider/model` or a pattern such as `acme/*`. They override the built-in prices."""


@cache
def shape() -> inspect.StructType:
    """msgspec's type description of `ConfigFile`."""
    kind = inspect.type_info(ConfigFile)
    assert isinstance(kind, inspect.StructType)
    return kind
