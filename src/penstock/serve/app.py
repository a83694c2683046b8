"""App: the composition root of one process. Builds the parts, routes requests to surfaces, reloads and drains."""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs

from penstock.core.dialects.dialect import Dialect
from penstock.core.dialects.registry import DIALECTS
from penstock.core.hub.failure import Failure
from penstock.errors import ConfigError
from penstock.gateway.billing.ledger import Ledger, NoLedger
from penstock.gateway.calls.breakers import SIZE, BreakerTable
from penstock.gateway.calls.gateway import Gateway
from penstock.gateway.calls.routing import TargetHealth
from penstock.gateway.config import Config
from penstock.gateway.config.addresses import Address
from penstock.gateway.content.users import ErasedUser
from penstock.gateway.keys.keys import PREFIX, Key, KeyRing, configured
from penstock.http.exchange import Exchange, HttpRequest
from penstock.http.limits import FrontLimits
from penstock.http.server import ServerConnection
from penstock.serve.auth import Authenticator
from penstock.serve.bookkeeping import Bookkeeping, own_accounts
from penstock.serve.edge import Certificates, CorsPolicy, TrustedProxies, check_tls, open_tls
from penstock.serve.hosts import AllowedHosts
from penstock.serve.kept import recent_answers
from penstock.serve.kept.answer_store import DatabaseAnswers
from penstock.serve.kept.call_content import CallContent
from penstock.serve.kept.continuations import Continuations
from penstock.serve.kept.keeper import AnswerKeeper
from penstock.serve.kept.kept_content import KeptContent
from penstock.serve.kept.recent_answers import RecentAnswers
from penstock.serve.kept.routes import KeptRoutes
from penstock.serve.kept.stateful_answers import StatefulAnswers
from penstock.serve.model_routes import ModelRoutes, dialect_of_list
from penstock.serve.paths import is_root
from penstock.serve.recording.capture_directory import directories, prepare
from penstock.serve.recording.recorder import Recorder
from penstock.serve.rejections import Rejection, Rejections
from penstock.serve.request_head import RequestHead, parse_head
from penstock.serve.responses import error_page, refused, request_ids, respond_failure, respond_json
from penstock.serve.setup_report import provider_keys_json, setup_json
from penstock.serve.surfaces.answers import Answers, Playground
from penstock.serve.surfaces.call_session import CallSession
from penstock.serve.surfaces.embeddings import Embeddings
from penstock.serve.surfaces.token_counts import TokenCounts
from penstock.serve.telemetry import metric_specs
from penstock.serve.telemetry.log import Log
from penstock.serve.telemetry.metrics import Gauges, Metrics
from penstock.serve.telemetry.traces import Traces, require_exporter
from penstock.serve.upstreams import PreparedConfig, Upstreams
from penstock.serve.webhook import Webhook
from penstock.serve.workers.gateways import GatewayLink, Replies
from penstock.serve.workers.live_calls import LiveCalls, LiveFilter
from penstock.serve.workers.peers import Routes, WorkerPeers
from penstock.serve.workers.shared_memory import SharedMemory
from penstock.serve.workers.text_stream import TextStreams
from penstock.stores.book.open import open_book
from penstock.stores.gateway_board import open_board
from penstock.upstream.local.model import RuntimeFolder

_WEBSOCKET_KEY = "sec-websocket-key"
_DRAINING = Failure(
    code="gateway_draining",
    message="the gateway is restarting; try again",
    retry_after="1",
)
_STOPPED = Failure(
    code="stopped_by_operator",
    message="the operator of the gateway has stopped this call",
    retryable=False,
    client_may_retry=False,
)
# The length of the queue of connections that wait to be accepted.
BACKLOG = 4096
# How long `shut_down` waits for the last bytes to be sent.
_FLUSH_S = 1.0


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
        self._request_ids = request_ids()
        self._recorder: Recorder | None = None
        self._calls: dict[CallSession, None] = {}
        folder = home.subfolder("workers") if config.server.workers > 1 else None
        self.metrics = Metrics(self._gauges, folder)
        open_ledger = partial(open_book, config.ledger, environment)
        self._webhook = Webhook(self._upstreams.remote, open_ledger, log.warning, self.metrics.webhook_called)
        self.content: KeptContent | None = None
        self._call_content: CallContent | None = None
        if config.ledger.enabled:
            self.content = KeptContent(config, environment, log.warning)
            self._call_content = CallContent(config, self.content, log.warning, self.metrics.content_dropped)
        self._recent = _recent_answers(config, home)
        answers = DatabaseAnswers(self.content) if self.content is not None and config.responses.store else self._recent
        self._keeper: AnswerKeeper | None = None
        if answers is not None:
            self._keeper = AnswerKeeper(config, answers, log.warning, self.metrics.response_not_kept)
        self._surfaces: dict[str, Answers | Embeddings | TokenCounts] = {}
        self._continuations: list[Continuations] = []
        self._kept_routes: dict[str, KeptRoutes] = {}
        for dialect in DIALECTS.values():
            self._add_surfaces(dialect)
        self._surfaces["/embeddings"] = Embeddings(self._calls, self._on_settled)
        self._playgrounds = {
            dialect.surface.name: Playground(name, self._calls, self._on_settled)
            for name, dialect in DIALECTS.items()
            if dialect.surface is not None
        }
        self._traces: Traces | None = None
        self.shutting_down = False
        self._books = Bookkeeping(config, environment, log.warning) if config.ledger.enabled else None
        self._authenticator = self._books.authenticator if self._books is not None else Authenticator()
        self._unbooked = own_accounts(config, home) if self._books is None else None
        self._ledger: Ledger | NoLedger = self._books.ledger if self._books is not None else NoLedger(self._unbooked)
        self._breakers = _breakers(folder)
        self.live = LiveCalls(self._calls, self._ledger.output)
        self.text_streams = TextStreams()
        self.rejections = Rejections(log.warning, self.metrics.rejected, self._loop.time)
        self.metrics.peers = self.peers = WorkerPeers(folder, self._peer_handlers()) if folder is not None else None
        if self._recent is not None:
            self._recent.peers = self.peers
        self.link = self._link(config, environment, home)
        if self._books is not None:
            self._books.watch(self.metrics.ledger_committed, self.metrics.limits_store_changed)
            self.metrics.budgets = self._books.budgets
            self._books.on_warnings = self._webhook.wake
            self._books.on_calls_stopped = self._stop_calls
            for store in self._books.limits_store:
                self.metrics.limits_store(store)
            for entry in self._books.orphans:
                self.metrics.orphaned(entry)
        self._use(self._prepare(config))

    def _link(self, config: Config, environment: Mapping[str, str], home: RuntimeFolder) -> GatewayLink | None:
        """The link to other gateways, if there can be any with this ledger."""
        if not config.ledger.enabled or (config.ledger.postgres is None and config.ledger.redis is None):
            return None
        folder = home.subfolder("workers")
        self.peers = self.peers or WorkerPeers(folder, self._peer_handlers())
        return GatewayLink(partial(open_board, config.ledger, environment), home.folder.name, folder, self.peers)

    def _add_surfaces(self, dialect: Dialect) -> None:
        """Offer the APIs of a dialect."""
        surface, continuations = dialect.surface, None
        if dialect.stored is not None:
            continuations = Continuations(dialect.stored, self._keeper)
            self._continuations.append(continuations)
        if surface is not None and dialect.stored is not None and continuations is not None:
            self._surfaces[surface.path] = StatefulAnswers(
                dialect.name, continuations, self._keeper, self._calls, self._on_settled
            )
            self._kept_routes[f"{surface.path}/"] = KeptRoutes(dialect.name, dialect.stored, self._keeper)
        elif surface is not None:
            self._surfaces[surface.path] = Answers(dialect.name, self._calls, self._on_settled)
            if dialect.unstreamed_path:
                self._surfaces[dialect.unstreamed_path] = self._surfaces[surface.path]
        if (counting := dialect.token_counting) is not None:
            self._surfaces[counting.path] = TokenCounts(
                dialect.name, counting, continuations, self._calls, self._on_settled
            )

    async def reload(self, config: Config) -> None:
        """Apply a configuration to new calls; calls in progress keep theirs.

        Raises `ConfigError` as `validate` does; then nothing has changed. A thread does what takes long.
        """
        self._use(await self._loop.run_in_executor(None, self._prepare, config))

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
        self._cors = CorsPolicy(config.server.cors) if config.server.cors else None
        self._proxies = TrustedProxies(config.server.proxies) if config.server.proxies else None
        self._authenticator.hosts = AllowedHosts(
            config.server.hosts, page=self._cors.allows if self._cors is not None else None
        )
        self.certificates.refresh()
        self._update_jwt(config)
        self._webhook.use(config.budgets)
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
        for continuations in self._continuations:
            continuations.shared_state = config.shared_state
        self.metrics.use(config)
        self._update_traces(config)
        self._allow_content(allowed=config.admin.content)
        self._upstreams.use(prepared)
        health = TargetHealth(config.retries, time.monotonic, time.time, self._breakers)
        self._update_recorder(config)
        upstreams = self._upstreams
        self._models = ModelRoutes(config, upstreams, self._started)
        self._gateway = Gateway(config, upstreams.of, upstreams.local_models, health, self._ledger, self._recorder)
        self._gateway.collector = self._call_content
        self._gateway.media = upstreams.media(config)

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

    def _allow_content(self, *, allowed: bool) -> None:
        """Allow or forbid readers to see the text of calls. If forbidden, transcripts are dropped at once."""
        self.live.content = allowed
        if not allowed:
            for session in self._calls:
                if session.call.control is not None:
                    session.call.control.drop_transcript()

    def _update_recorder(self, config: Config) -> None:
        """Start the recorder if the configuration records anything."""
        if self._recorder is not None:
            self._recorder.limits = config.captures
        elif config.server.record or any(route.record for route in config.routes.values()):
            self._recorder = Recorder(config.captures, self._log.warning)

    def _update_traces(self, config: Config) -> None:
        """Start, replace or stop the export of traces."""
        before = self._traces
        if before is not None and before.settings != config.telemetry:
            asyncio.get_running_loop().run_in_executor(None, before.close)
            self._traces = None
        if self._traces is None and config.telemetry.otlp:
            self._traces = Traces(config.telemetry, self.metrics.dropped, self._log.warning)
        if self._traces is not None:
            self._traces.providers = config.providers

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
        return ServerConnection(self.handle, error_page, self._front, self._connections)

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
        self.shutting_down = True
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close_when_idle()
        await self._until(lambda: not self._calls, window_s)
        for session in list(self._calls):
            session.call.guarded(session.cut)(_DRAINING)
        await self._until(lambda: not self._connections, _FLUSH_S)
        for connection in list(self._connections):
            connection.abort()
        await self._webhook.close()
        self._upstreams.close()
        self.certificates.close()
        self.metrics.close()
        if self._traces is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._traces.close)
            self._traces = None
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
            await asyncio.get_running_loop().run_in_executor(None, self.content.close)
        if self._unbooked is not None:
            self._unbooked.close()
        if self._authenticator.jwt is not None:
            self._authenticator.jwt.close()
        if self._books is not None:
            await self._books.close()
            self._books = None

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
            "draining": self.shutting_down,
            "open_calls": self.open_calls,
            "recording": bool(directories(self.config)),
            "ledger": ledger,
        }

    def stop(self, id: str) -> bool:
        """Stop a call for the operator. Returns False if it is not in progress in this process."""
        session = self.live.find(id)
        if session is not None:
            session.call.guarded(session.stop)(_STOPPED)
        return session is not None

    async def request_all(self, method: str, path: str) -> Replies:
        """Send a request to all other workers, of this gateway and of others."""
        if self.link is not None:
            return await self.link.request_all(method, path)
        return Replies(await self.peers.request_all(method, path) if self.peers is not None else [])

    def _stop_calls(self, keys: set[str]) -> None:
        """Stop the calls of keys for the operator."""
        for session in list(self._calls) if keys else ():
            if session.call.key is not None and session.call.key.id in keys:
                session.stop(_STOPPED)

    @property
    def apis(self) -> dict[str, str]:
        """The APIs that clients can speak: the title of each, by its name."""
        return {surface.name: DIALECTS[surface.dialect].title for surface in self._playgrounds.values()}

    def handle_playground(self, exchange: Exchange, request_id: str, api: str) -> None:
        """Handle a call of the page's playground on an API."""
        head = _parse_head(exchange.request)
        if self.shutting_down or not head.post_path:
            self._refuse(exchange, request_id, head)
        else:
            self._playgrounds[api].handle(exchange, self._gateway, request_id, None)

    def models(self) -> list[dict[str, object]]:
        """All models that are offered, each with whether it can answer now, as far as is known."""
        return [
            {"available": any(map(self._gateway.is_available, route.targets)), **model}
            for route, model in self._models.offered()
        ]

    def handle(self, exchange: Exchange, *, looked: bool = False) -> None:
        """Route a request: to its surface if it starts a call. `looked`: the keys of the book were read for it."""
        request = exchange.request
        head: RequestHead = request.parsed_head or _parse_head(request)
        if head.cors is not self._cors:
            head.cors = self._cors
            request.set_fixed_headers(self._cors.headers(request) if self._cors is not None else "")
        surface = self._surfaces.get(head.post_path)
        if surface is None or self.shutting_down:
            self._handle_other(exchange, head, looked=looked)
            return
        key = self._authenticator.authenticate(head)
        if not isinstance(key, Key) and not looked and self._look_first(exchange, head, key):
            return
        if isinstance(key, Rejection):
            self._reject(exchange, key, next(self._request_ids), surface.dialect)
        else:
            surface.handle(exchange, self._gateway, next(self._request_ids), key)

    def _look_first(self, exchange: Exchange, head: RequestHead, judged: Rejection | None) -> bool:
        """Whether the request waits until the keys of the book were read, because it may be judged by old ones."""
        if self._books is None:
            return False
        unknown = judged is not None and judged.reason == "unknown_key" and head.secret.startswith(PREFIX)
        if not unknown and (judged is not None or self._books.key_looks.is_current()):
            return False

        def handle_again() -> None:
            if not exchange.over:
                self.handle(exchange, looked=True)

        return self._books.key_looks.look(handle_again)

    def _handle_other(self, exchange: Exchange, head: RequestHead, *, looked: bool) -> None:
        """Handle a request that starts no call, or cannot start it."""
        request, path = exchange.request, head.path
        request_id, dialect = next(self._request_ids), self._dialect(head.path, request)
        if path in ("/livez", "/healthz", "/health", "/health/liveliness"):  # the last is LiteLLM's
            respond_json(exchange, 200, {"status": "ok"}, {"x-request-id": request_id})
        elif path in ("/readyz", "/health/readiness"):
            ready = self._ledger.ready and (self._books is None or self._books.can_authenticate)
            status = "draining" if self.shutting_down else "ok" if ready else "ledger_unavailable"
            respond_json(exchange, 200 if status == "ok" else 503, {"status": status}, {"x-request-id": request_id})
        elif path == "/api/hello":  # Claude Code looks whether the gateway is there
            respond_json(exchange, 200, {"status": "ok"}, {"x-request-id": request_id})
        elif (rejection := self._authenticator.check_host(head)) is not None:
            self._reject(exchange, rejection, request_id, dialect)
        elif request.method == "OPTIONS":
            preflight = self._cors.preflight(request) if self._cors is not None else {}
            headers = {"allow": "GET, POST, DELETE, OPTIONS", "x-request-id": request_id, **preflight}
            exchange.respond(204, headers, b"")
        elif (
            not isinstance(key := self._authenticator.authenticate(head), Key)
            and not looked
            and self._look_first(exchange, head, key)
        ):
            return
        elif isinstance(key, Rejection):
            self._reject(exchange, key, request_id, dialect)
        elif path in self._surfaces:
            self._refuse(exchange, request_id, head)
        elif (prefix := self._kept_prefix(path)) is not None:
            self._kept_routes[prefix].handle(exchange, path.removeprefix(prefix), request_id, key)
        elif path == "/models" or path.startswith("/models/"):
            self._models.handle(exchange, path.removeprefix("/models").removeprefix("/"), request_id, key)
        else:
            hint = ""
            if is_root(request.path):
                hint = "; the paths of the API begin with /v1, such as /v1/models, and `penstock open` opens the page"
            message = f"there is nothing at {request.path[:200]}{hint}"
            respond_failure(exchange, refused(message, "not_found"), request_id, {}, dialect)

    def _reject(self, exchange: Exchange, rejection: Rejection, request_id: str, dialect: str) -> None:
        """Reject a request, and count it."""
        self.rejections.add(rejection, self._address(exchange.peer, exchange.request.headers))
        respond_failure(exchange, rejection.failure, request_id, {}, dialect)

    def _address(self, peer: str, headers: Mapping[str, str]) -> str:
        """The address of a client, which a trusted proxy may report."""
        return self._proxies.client(peer, headers) if self._proxies is not None else peer

    def _kept_prefix(self, path: str) -> str | None:
        """The path of the API whose kept answers a path is about; None if it is about none."""
        return next((prefix for prefix in self._kept_routes if path.startswith(prefix)), None)

    def _dialect(self, path: str, request: HttpRequest) -> str:
        """The dialect of a client, by the path that it requests or by its headers."""
        if path in self._surfaces:
            return self._surfaces[path].dialect
        if (prefix := self._kept_prefix(path)) is not None:
            return self._kept_routes[prefix].dialect
        return dialect_of_list(request)

    def _refuse(self, exchange: Exchange, request_id: str, head: RequestHead) -> None:
        """Refuse a call: because of its method, because of its headers, or because the gateway drains."""
        method, dialect = exchange.request.method, self._dialect(head.path, exchange.request)
        if method == "GET" and _WEBSOCKET_KEY in exchange.request.headers:
            # Codex uses HTTP at once after this status. After another one it first tries five times more.
            failure = refused("WebSocket is not supported here; use POST", "upgrade_not_supported")
            respond_failure(exchange, failure, request_id, {"upgrade": "HTTP/1.1"}, dialect)
        elif method != "POST":
            failure = refused(f"{method} is not allowed here; use POST", "method_not_allowed")
            respond_failure(exchange, failure, request_id, {"allow": "POST"}, dialect)
        elif head.body_refusal is not None and not self.shutting_down:
            respond_failure(exchange, head.body_refusal, request_id, {}, dialect)
        else:
            respond_failure(exchange, _DRAINING, request_id, {}, dialect)

    def _on_settled(self, session: CallSession) -> None:
        """Settle a call, and report it to metrics, traces, live view and log."""
        self._calls.pop(session, None)
        call = session.call
        call.total_s = self._loop.time() - call.started
        entry = self._ledger.settle(call)
        self.metrics.settled(call, entry)
        if call.content is not None and self._call_content is not None:
            self._call_content.settled(call, call.content, entry)
        if self._traces is not None and call.trace is not None:
            self._traces.settled(call, entry)
        if self.live.watched:
            self.live.settled(call, entry)
        if call.on_text is not None:
            self.text_streams.settled(call, entry)
        if self._log.enabled:
            self._log.call(call, entry, self._address(session.address, session.request_headers))

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

    def _peer_handlers(self) -> Routes:
        """The handlers of requests from other workers of the gateway (`workers/peers.py`)."""
        answers = {("POST", recent_answers.PATH): self._recent.handle} if self._recent is not None else {}
        return {
            **answers,
            ("GET", "/gauges"): self.metrics.handle_gauges,
            ("GET", "/metrics"): self.metrics.handle,
            ("GET", "/live"): lambda exchange: respond_json(exchange, 200, self.live.snapshot(_filter(exchange))),
            ("GET", "/text"): self._stream_text,
            ("GET", "/rejections"): lambda exchange: respond_json(exchange, 200, self.rejections.rows),
            ("POST", "/stop"): lambda exchange: respond_json(
                exchange, 200 if self.stop(_call_id(exchange)) else 404, {}
            ),
        }

    def _stream_text(self, exchange: Exchange) -> None:
        session = self.live.find(_call_id(exchange))
        if session is None or not self.live.content:
            respond_json(exchange, 404, {})
        else:
            self.text_streams.join(session.call, exchange, {})

    def _gauges(self) -> Gauges:
        """The gauges of this process."""
        queue, spooled = self._books.waiting if self._books is not None else (0, 0)
        return {
            metric_specs.STREAMS_OPEN: {(): sum(session.call.stream for session in self._calls)},
            metric_specs.LEDGER_QUEUE: {(): queue},
            metric_specs.LEDGER_SPOOLED: {(): spooled},
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


def _breakers(folder: Path | None) -> BreakerTable:
    """The circuit breakers of all targets, shared by all workers. A reload keeps them."""
    if folder is None:
        return BreakerTable()
    shared = SharedMemory(folder / "breakers", SIZE)
    return BreakerTable(shared.view, shared)


def validate(config: Config) -> None:
    """Raise `ConfigError` if no process could serve with this configuration: captures cannot be written, traces cannot
    be exported, or the packages for an identity provider are missing.
    """
    if missing := tuple(problem for problem in config.missing if problem.key.startswith(("auth.", "admin."))):
        raise ConfigError(missing)
    prepare(config)
    check_tls(config)
    if config.telemetry.otlp:
        require_exporter()


def _parse_head(request: HttpRequest) -> RequestHead:
    """Derive the `RequestHead` of a request, and store it for later requests with the same head."""
    request.parsed_head = head = parse_head(request)
    return head


def _call_id(exchange: Exchange) -> str:
    """The id of the call in another worker's request."""
    return parse_qs(exchange.request.query).get("id", [""])[0]


def _filter(exchange: Exchange) -> LiveFilter:
    """The filter in another worker's request."""
    query = parse_qs(exchange.request.query)
    return LiveFilter.parse(*(query.get(name, [""])[0] for name in ("find", "before")))
