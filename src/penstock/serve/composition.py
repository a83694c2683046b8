"""App: the composition root of one process: what is built from what, what a reload replaces, and what ends in turn."""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import ConfigError
from penstock.gateway.billing.ledger import Ledger, NoLedger
from penstock.gateway.calls import breakers, measures
from penstock.gateway.calls.gateway import Gateway
from penstock.gateway.calls.routing import TargetHealth
from penstock.gateway.config import Config
from penstock.gateway.config.addresses import Address
from penstock.gateway.keys.key_ring import KeyRing, configured
from penstock.http.limits import FrontLimits
from penstock.http.server import ServerConnection
from penstock.serve.apis import Apis
from penstock.serve.auth import Authenticator
from penstock.serve.bookkeeping import Bookkeeping, own_accounts
from penstock.serve.edge import Certificates, CorsPolicy, TrustedProxies, check_tls, open_tls
from penstock.serve.hosts import AllowedHosts
from penstock.serve.kept.call_content import CallContent
from penstock.serve.kept.keeper import AnswerKeeper
from penstock.serve.kept.kept_content import KeptContent
from penstock.serve.kept.recent_answers import RecentAnswers
from penstock.serve.kept.summaries import SummarySecret
from penstock.serve.live.live_calls import LiveCalls
from penstock.serve.live.text_stream import TextStreams
from penstock.serve.model_routes import ModelRoutes
from penstock.serve.peer_routes import peer_routes
from penstock.serve.recording.capture_directory import directories, prepare
from penstock.serve.rejections import Rejections
from penstock.serve.reports import Reports
from penstock.serve.responses import error_page
from penstock.serve.router import DRAINING, Router
from penstock.serve.settlement import Settlement
from penstock.serve.setup_report import provider_keys_json, setup_json
from penstock.serve.shadow import Shadows
from penstock.serve.streams.durable_streams import DurableStreams
from penstock.serve.streams.peer_streams import PeerStreams
from penstock.serve.streams.routes import StreamRoutes
from penstock.serve.streams.shared_answers import SharedAnswers
from penstock.serve.surfaces.call_session import CallSession, report
from penstock.serve.telemetry import metric_specs
from penstock.serve.telemetry.log import Log
from penstock.serve.telemetry.metrics import Gauges, Metrics
from penstock.serve.upstreams import PreparedConfig, Upstreams
from penstock.serve.webhook import Webhook
from penstock.serve.workers.gateways import GatewayLink, Replies
from penstock.serve.workers.peers import WorkerPeers
from penstock.serve.workers.shared_memory import SharedMemory
from penstock.stores.book.open import open_book, state_folder
from penstock.stores.content.sql_users import ErasedUser
from penstock.stores.gateway_board import open_board
from penstock.stores.stream_files import StreamFiles
from penstock.upstream.local.model import RuntimeFolder

if TYPE_CHECKING:
    from penstock.serve.recording.recorder import Recorder

# The length of the queue of connections that wait to be accepted.
BACKLOG = 4096
# The file in the shared folder that says that the configuration could not be loaded again, by the process that does it
# for all workers.
NOT_RELOADED = "not-reloaded"
# How long `shut_down` waits for the last bytes to be sent.
_FLUSH_S = 1.0
# How long it waits for a scrape if streams were cut. Prometheus scrapes once or more often in this time.
_SCRAPE_S = 30.0


class App:
    """One process of the gateway. `home` is the directory that all its processes share at run time."""

    def __init__(
        self,
        config: Config,
        environment: Mapping[str, str],
        log: Log,
        home: RuntimeFolder,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._log = log
        self._upstreams = Upstreams(environment, home, log.warning, tls)
        self._connections: set[ServerConnection] = set()
        self._listener_tls = open_tls(config.server.tls, "server", config.source)
        self.certificates = Certificates(log)
        self._server: asyncio.Server | None = None
        self._started = int(time.time())
        self._reloaded_at = time.time()
        self._not_reloaded = home.folder / NOT_RELOADED
        self.reload_failed = False
        """Whether the last attempt of this process to load the configuration again has failed."""
        self._recorder: Recorder | None = None
        self._calls: dict[CallSession, None] = {}
        folder = home.subfolder("workers") if config.server.workers > 1 else None
        self.metrics = Metrics(self._gauges, folder)
        count = self.metrics.count
        open_ledger = partial(open_book, config.ledger, environment)
        self._reports = Reports(self._upstreams.remote, open_ledger, log.warning)
        self._webhook = Webhook(self._upstreams.remote, open_ledger, log.warning, partial(count, metric_specs.WEBHOOKS))
        self.content: KeptContent | None = None
        self._call_content: CallContent | None = None
        if config.ledger.enabled:
            self.content = KeptContent(config, environment, log.warning)
            self._call_content = CallContent(
                config, self.content, log.warning, partial(count, metric_specs.CONTENT_DROPPED)
            )
        self._recent = _recent_answers(config, home)
        answers = self.content if self.content is not None and config.responses.store else self._recent
        self._keeper: AnswerKeeper | None = None
        if answers is not None:
            self._keeper = AnswerKeeper(config, answers, log.warning, partial(count, metric_specs.NOT_KEPT))
        self._books = Bookkeeping(config, environment, log.warning) if config.ledger.enabled else None
        self._authenticator = self._books.authenticator if self._books is not None else Authenticator()
        self._unbooked = own_accounts(config, home) if self._books is None else None
        self._ledger: Ledger | NoLedger = self._books.ledger if self._books is not None else NoLedger(self._unbooked)
        self._breakers = _breakers(folder)
        self._measures = _measures(folder)
        self.live = LiveCalls(self._calls, self._ledger.output)
        self.text_streams = TextStreams()
        self.rejections = Rejections(log.warning, partial(count, metric_specs.REJECTED), self._loop.time)
        self.settlement = Settlement(self._calls, self._ledger, self.metrics, self.live, self.text_streams, log)
        self.settlement.content = self._call_content
        self.settlement.shadows = Shadows(self.settlement.settle_shadow, report)
        self.metrics.before_scrape = self.settlement.report
        stored = config.streams.store == "file"
        files = StreamFiles(state_folder(config.ledger, environment) / "streams") if stored else None
        self.streams = DurableStreams(config.streams, files, self.live.end)
        self.streams.adopt()
        self.settlement.streams = self.streams
        self._shared = SharedAnswers(config.streams)
        secret = SummarySecret(self.content, home.secret)
        peer_streams = PeerStreams(self.streams)
        routes = StreamRoutes(self.streams, peer_streams)
        self.apis = Apis(self._calls, self.settlement.settle, self._keeper, secret, routes, self._shared)
        self.router = Router(self.apis, self._authenticator, self.rejections, self._ledger, self._books, routes)
        peer = peer_routes(self.metrics, self.live, self.text_streams, self.rejections, self._recent, peer_streams)
        self.metrics.peers = self.peers = WorkerPeers(folder, peer) if folder is not None else None
        if self._recent is not None:
            self._recent.peers = self.peers
        if self.peers is not None:
            peer_streams.peers, self.peers.on_client_request = self.peers, self.router.handle
        self.link: GatewayLink | None = None
        if config.ledger.enabled and (config.ledger.postgres is not None or config.ledger.redis is not None):
            folder = home.subfolder("workers")
            self.peers = self.peers or WorkerPeers(folder, peer)
            board = partial(open_board, config.ledger, environment)
            self.link = GatewayLink(board, home.folder.name, folder, self.peers)
        if self._books is not None:
            self._books.watch(self.metrics.ledger_committed, self.metrics.limits_store_changed)
            self.metrics.budgets = self._books.budgets
            self._books.on_warnings = self._webhook.wake
            self._books.on_calls_stopped = self.live.stop_keys
            for store in self._books.limits_store:
                self.metrics.limits_store(store)
            self.metrics.key_name = self._books.key_name
            for entry in self._books.orphans:
                self.metrics.orphaned(entry)
        self._use(self._prepare(config))

    async def reload(self, config: Config) -> None:
        """Apply a configuration to new calls; calls in progress keep theirs.

        Raises `ConfigError` as `validate` does; then nothing has changed. A thread does what takes long.
        """
        self._use(await self._loop.run_in_executor(None, self._prepare, config))
        self._reloaded_at = time.time()

    def _prepare(self, config: Config) -> PreparedConfig:
        """Do everything of a reload that may fail or take long. It is thread-safe, and changes nothing in this process.
        It creates the directories for captures."""
        validate(config)
        return self._upstreams.prepare(config)

    def _use(self, prepared: PreparedConfig) -> None:
        """Switch to a configuration in one step. Nothing in it can fail, so a reload is never half applied."""
        self.config = config = prepared.config
        limits = config.limits
        self._front = FrontLimits(
            max_head=limits.max_head,
            max_body=limits.max_body,
            max_connections=limits.max_connections,
            head_timeout_s=limits.head_timeout_s,
            body_timeout_s=limits.body_timeout_s,
            keep_alive_s=limits.keep_alive_s,
            stalled_client_s=limits.stalled_client_s,
        )
        cors = CorsPolicy(config.server.cors) if config.server.cors else None
        self._authenticator.hosts = AllowedHosts(config.server.hosts, page=cors.allows if cors is not None else None)
        self._authenticator.access_key_secret = config.server.access_key_secret
        self.certificates.refresh()
        self._update_jwt(config)
        self._webhook.use(config.budgets)
        self._reports.use(config.finance)
        if self._books is not None:
            self._books.use(config)
            content = self.content if config.users.pseudonyms else None
            self._books.ledger.users = content.users if content is not None else None
        else:
            self._authenticator.use(KeyRing(configured(config.server.keys)))
        for user in (self.content, self._keeper, self._call_content):
            if user is not None:
                user.use(config)
        if self._recent is not None:
            self._recent.use(config.responses)
        self.apis.use(config)
        self.streams.settings = config.streams
        self._shared.use(config.streams)
        self.metrics.use(config)
        self._update_traces(config)
        self.live.allow_content(allowed=config.admin.content)
        self._upstreams.use(prepared)
        health = TargetHealth(config.retries, time.monotonic, time.time, self._breakers, self._measures)
        self._update_recorder(config)
        upstreams = self._upstreams
        self._gateway = Gateway(config, upstreams.of, upstreams.local_models, health, self._ledger, self._recorder)
        self._gateway.collector = self._call_content
        self._gateway.copies = self._shared if self._gateway.shares else None
        self._gateway.shadows = self.settlement.shadows
        self._gateway.media = upstreams.media(config)
        models = ModelRoutes(config, upstreams, self._started)
        proxies = TrustedProxies(config.server.proxies)
        self.settlement.proxies = proxies if config.server.proxies else None
        self.router.use(self._gateway, models, cors, proxies)

    def _update_jwt(self, config: Config) -> None:
        """Start, replace or stop the verification of JWTs."""
        before, wanted = self._authenticator.jwt, config.auth.jwt
        if before is not None and before.settings != wanted:
            before.close()
            self._authenticator.jwt = before = None
        if before is None and wanted is not None:
            from penstock.serve.jwt_clients import JwtClients  # noqa: PLC0415 - an extra
            from penstock.serve.signing_keys import SigningKeys  # noqa: PLC0415 - an extra

            keys = SigningKeys(wanted.issuer, wanted.jwks, self._log.warning)
            self._authenticator.jwt = JwtClients(wanted, keys)

    def _update_recorder(self, config: Config) -> None:
        """Start the recorder if the configuration records anything."""
        if self._recorder is not None:
            self._recorder.limits = config.captures
        elif config.server.record or any(route.record for route in config.routes.values()):
            from penstock.serve.recording.recorder import Recorder  # noqa: PLC0415 - few gateways record

            self._recorder = Recorder(config.captures, self._log.warning)

    def _update_traces(self, config: Config) -> None:
        """Start, replace or stop the export of traces."""
        before = self.settlement.traces
        if before is not None and before.settings != config.telemetry:
            asyncio.get_running_loop().run_in_executor(None, before.close)
            self.settlement.traces = None
        if self.settlement.traces is None and config.telemetry.otlp:
            from penstock.serve.telemetry.traces import Traces  # noqa: PLC0415 - few gateways export

            self.settlement.traces = Traces(config.telemetry, self.metrics.dropped, self._log.warning)
        if self.settlement.traces is not None:
            self.settlement.traces.use(config)

    async def listen(self, host: str, port: int, *, reuse_port: bool = False) -> int:
        """Start to accept connections. Returns the port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._connection, host, port, reuse_port=reuse_port or None, backlog=BACKLOG, ssl=self._tls_context
        )
        return await self._start()

    async def listen_on(self, shared: socket.socket) -> int:
        """Start to accept connections from a socket that other workers share. Returns the port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, sock=shared, backlog=BACKLOG, ssl=self._tls_context)
        return await self._start()

    @property
    def _tls_context(self) -> ssl.SSLContext | None:
        return self._listener_tls.context if self._listener_tls is not None else None

    def _connection(self) -> ServerConnection:
        return ServerConnection(self.router.handle, error_page, self._front, self._connections)

    async def _start(self) -> int:
        assert self._server is not None
        self.certificates.watch(self._listener_tls)
        if self.peers is not None:
            await self.peers.listen()
        if self.link is not None:
            self.link.start()
        self.metrics.start()
        bound = self._server.sockets[0].getsockname()[1]
        assert isinstance(bound, int)
        return bound

    async def shut_down(self, window_s: float) -> None:
        """Accept no more calls; let those in progress finish within the window; end the rest with an error; close."""
        self.router.draining = True
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close_when_idle()
        await self._until(lambda: not self._calls, window_s)
        if self.settlement.shadows is not None:
            self.settlement.shadows.close()
        cut = list(self._calls)
        for session in cut:
            session.call.guarded(session.cut)(DRAINING)
        self.streams.close()
        await self._until(lambda: not self._connections, _FLUSH_S)
        if cut and window_s:
            await self._until_scraped()
        for connection in list(self._connections):
            connection.abort()
        await self._webhook.close()
        await self._reports.close()
        self._upstreams.close()
        self.certificates.close()
        self.settlement.report()
        self.metrics.close()
        if self.settlement.traces is not None:
            await asyncio.get_running_loop().run_in_executor(None, self.settlement.traces.close)
            self.settlement.traces = None
        if self.link is not None:
            await self.link.close()
        if self.peers is not None:
            self.peers.close()
        if self._recorder is not None:
            self._recorder.close()
        if self._call_content is not None:
            self._call_content.flush()
        if self._recent is not None:
            self._recent.close()
        if self.content is not None:
            self.content.users.close()
            await asyncio.get_running_loop().run_in_executor(None, self.content.close)
        if self._unbooked is not None:
            self._unbooked.close()
        if self._authenticator.jwt is not None:
            self._authenticator.jwt.close()
        self.router.close()
        if self._books is not None:
            await self._books.close()
            self._books = None

    async def _until_scraped(self) -> None:
        """Wait until Prometheus has scraped that streams were cut, if it scrapes at all: the counters end with this
        process."""
        now, last = self._loop.time(), self.metrics.scraped_s
        if last is not None and now - last < 2 * _SCRAPE_S:
            await self._until(lambda: (self.metrics.scraped_s or 0) > now, _SCRAPE_S)

    async def _until(self, done: Callable[[], bool], seconds: float) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while not done() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - only while the process ends
            await asyncio.sleep(0.02)

    def has_stored_keys(self, _ledger: object = None) -> bool:
        """Whether any key of the ledger can be used now.

        It has the signature that `load` needs. The settings of the ledger are ignored: a reload keeps the open ledger.
        """
        return self._books is not None and self._books.has_usable_key()

    @property
    def ledger_trouble(self) -> str:
        """Why the ledger's database does not answer; empty while it does, and without a ledger."""
        return self._books.trouble if self._books is not None else ""

    @property
    def open_calls(self) -> int:
        """How many calls are in progress."""
        return len(self._calls)

    def state(self) -> dict[str, object]:
        """The state of this process, for the admin API."""
        ledger = self._books.state() if self._books is not None else {"enabled": False}
        sockets = self._server.sockets if self._server is not None else ()
        return {
            "tls": self._listener_tls is not None,
            "public_url": self.config.server.public_url.rstrip("/") or None,
            "listening": [str(Address(*each.getsockname()[:2])) for each in sockets],
            "draining": self.router.draining,
            "open_calls": self.open_calls,
            "recording": bool(directories(self.config)),
            "ledger": ledger,
        }

    async def request_all(self, method: str, path: str) -> Replies:
        """Send a request to all other workers, of this gateway and of others."""
        if self.link is not None:
            return await self.link.request_all(method, path)
        return Replies(await self.peers.request_all(method, path) if self.peers is not None else [])

    def models(self) -> list[dict[str, object]]:
        """All models that are offered, each with whether it can answer now, as far as is known."""
        return [
            {"available": any(map(self._gateway.is_available, route.targets)), **model}
            for route, model in self.router.models.offered()
        ]

    def on_user_erased(self, erased: ErasedUser) -> None:
        """A user was erased over the admin API. The log has the pseudonyms, not the name."""
        if self.content is not None:
            self.content.users.forget()
        ids = ", ".join(erased.pseudonyms) or "an erased user"
        self._log.write(f"the user behind {ids} was erased, with {erased.records} kept records")

    def provider_keys(self) -> list[dict[str, object]]:
        """The keys of providers, their limits and their state, for the admin API."""
        return provider_keys_json(self.config, self._gateway, self._ledger.provider_keys)

    def setup(self) -> dict[str, object]:
        """The providers and routes, for the admin API."""
        return setup_json(self.config, self._gateway, self._upstreams)

    def warn(self, message: str) -> None:
        """Write a warning to the log."""
        self._log.warning(message)

    def on_content_read(self, id: str) -> None:
        """A user has read the kept content of a call, or its capture: the log says so."""
        self._log.write(f"the kept content of the call {id} was read over the admin API")

    def holds(self) -> dict[str, int]:
        """The amounts held for calls that are not booked yet, in nanodollars, by id of their keys with a budget."""
        return self._books.holds() if self._books is not None else {}

    def _gauges(self) -> Gauges:
        """The gauges of this process."""
        queue, spooled = self._books.waiting if self._books is not None else (0, 0)
        return {
            metric_specs.STREAMS_OPEN: {(): sum(session.call.stream for session in self._calls)},
            metric_specs.LEDGER_QUEUE: {(): queue},
            metric_specs.LEDGER_SPOOLED: {(): spooled},
            metric_specs.RELOAD_SUCCESSFUL: {(): float(not self.reload_failed and not self._not_reloaded.exists())},
            metric_specs.RELOADED_AT: {(): self._reloaded_at},
            metric_specs.BREAKER_OPEN: self.metrics.by_target(self._gateway.cooling_targets()),
            metric_specs.LIMITS_STORE_UP: {
                (store,): up for store, up in (self._books.limits_store.items() if self._books is not None else ())
            },
        }


def _recent_answers(config: Config, home: RuntimeFolder) -> RecentAnswers | None:
    """The answers in memory; None if they are kept in the database, or not at all."""
    settings = config.responses
    if settings.store or not settings.memory:
        return None
    return RecentAnswers(settings, config.server.workers, home.secret)


def _breakers(folder: Path | None) -> breakers.BreakerTable:
    """The circuit breakers of all targets, shared by all workers. A reload keeps them."""
    if folder is None:
        return breakers.BreakerTable()
    shared = SharedMemory(folder / "breakers", breakers.SIZE)
    return breakers.BreakerTable(shared.view, shared)


def _measures(folder: Path | None) -> measures.Measures:
    """What is measured of all targets, shared by all workers. A reload keeps it."""
    if folder is None:
        return measures.Measures(time.monotonic)
    shared = SharedMemory(folder / "measures", measures.SIZE)
    return measures.Measures(time.monotonic, shared.view, shared)


def validate(config: Config) -> None:
    """Raise `ConfigError` if no process could serve with this configuration: captures cannot be written, traces cannot
    be exported, or the packages for an identity provider are missing.
    """
    if missing := tuple(problem for problem in config.missing if problem.key.startswith(("auth.", "admin."))):
        raise ConfigError(missing)
    prepare(config)
    check_tls(config)
    if config.telemetry.otlp:
        from penstock.serve.telemetry.traces import require_exporter  # noqa: PLC0415 - few gateways export

        require_exporter()
