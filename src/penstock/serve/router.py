"""Router: which request of a client goes where. A request that starts a call goes to the surface of its API.

The order of the checks: health checks need nothing; every other request needs an allowed host, and a key where one is
required. While the gateway drains, it starts no calls.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from penstock.core.dialects.registry import DIALECTS
from penstock.core.hub.failure import Failure
from penstock.gateway.billing.ledger import Ledger, NoLedger
from penstock.gateway.calls.gateway import Gateway
from penstock.gateway.keys.access_keys import PREFIX as ACCESS_KEY
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.keys.key_secret import PREFIX
from penstock.http.exchange import Exchange, HttpRequest
from penstock.serve.apis import Apis
from penstock.serve.auth import Authenticator
from penstock.serve.bookkeeping import Bookkeeping
from penstock.serve.call_routes import CallRoutes
from penstock.serve.edge import CorsPolicy, TrustedProxies
from penstock.serve.model_routes import ModelRoutes
from penstock.serve.paths import is_root, listed_model
from penstock.serve.proxy_routes import ProxyRoutes
from penstock.serve.rejections import Rejection, Rejections
from penstock.serve.request_head import RequestHead, parse_head
from penstock.serve.responses import refused, request_ids, respond_failure, respond_json
from penstock.serve.streams.routes import StreamRoutes
from penstock.serve.streams.stream_options import StreamOptions
from penstock.serve.surfaces.answers import Answers
from penstock.serve.surfaces.embeddings import Embeddings
from penstock.serve.surfaces.surface import in_thread
from penstock.serve.surfaces.token_counts import TokenCounts

if TYPE_CHECKING:  # imported when a client first wants it
    from penstock.serve.sockets.sockets import Sockets

DRAINING = Failure(
    code="gateway_draining",
    message="the gateway is restarting; try again",
    retry_after="1",
)
_WEBSOCKET_KEY = "sec-websocket-key"
_NO_SOCKETS = "WebSocket is not supported here; use POST"


class Router:
    """Routes the requests of clients. `use` must be called before the first one."""

    models: ModelRoutes
    _gateway: Gateway
    _cors: CorsPolicy | None
    _proxies: TrustedProxies

    def __init__(
        self,
        apis: Apis,
        authenticator: Authenticator,
        rejections: Rejections,
        ledger: Ledger | NoLedger,
        books: Bookkeeping | None,
        streams: StreamRoutes,
    ) -> None:
        self._apis = apis
        self._streams = streams
        self._calls = CallRoutes(books) if books is not None else None
        self._proxy = ProxyRoutes(self._calls, ledger)
        self._authenticator = authenticator
        self._rejections = rejections
        self._ledger = ledger
        self._books = books
        self._request_ids = request_ids()
        self.draining = False
        """Whether no more calls are accepted."""
        self._sockets: Sockets | None = None

    def close(self) -> None:
        """End what answers requests for calls."""
        if self._calls is not None:
            self._calls.close()

    def use(self, gateway: Gateway, models: ModelRoutes, cors: CorsPolicy | None, proxies: TrustedProxies) -> None:
        """Switch to the parts of another configuration."""
        self._gateway = gateway
        self.models = models
        self._cors = cors
        self._proxies = proxies

    def handle(self, exchange: Exchange, own: Answers | None = None, *, looked: bool = False) -> None:
        """Route a request: to its surface if it starts a call. `own` is that of its connection, if it has one.
        `looked`: the keys of the book were read for it."""
        request = exchange.request
        head: RequestHead = request.parsed_head or _parse_head(request)
        if head.cors is not self._cors:
            head.cors = self._cors
            request.set_fixed_headers(self._cors.headers(request) if self._cors is not None else "")
        surface = own or self._apis.surface(head.post_path)
        if surface is None or self.draining:
            self._handle_other(exchange, head, looked=looked)
            return
        key = self._authenticator.authenticate(head, exchange)
        if not isinstance(key, ClientKey) and not looked and self._look_first(exchange, head, key, own):
            return
        if isinstance(key, Rejection):
            self._reject(exchange, key, next(self._request_ids), surface.dialect)
        elif head.stream_options is None:
            surface.handle(exchange, self._gateway, next(self._request_ids), key)
        else:
            self._resume(exchange, head.stream_options, surface, key)

    def _resume(
        self,
        exchange: Exchange,
        options: StreamOptions,
        surface: Answers | Embeddings | TokenCounts,
        key: ClientKey | None,
    ) -> None:
        """Handle a request that may only ask for the rest of a stream."""
        request_id = next(self._request_ids)
        start = partial(surface.handle, exchange, self._gateway, request_id, key)
        self._streams.resume(exchange, options, key, request_id, surface.dialect, start)

    def handle_playground(self, exchange: Exchange, request_id: str, api: str) -> None:
        """Handle a call of the page's playground on an API."""
        head = _parse_head(exchange.request)
        head.credentials = None  # its token is that of the admin API
        if self.draining or not head.post_path:
            self._refuse(exchange, request_id, head)
        else:
            self._apis.playgrounds[api].handle(exchange, self._gateway, request_id, None)

    def _look_first(
        self, exchange: Exchange, head: RequestHead, judged: Rejection | None, own: Answers | None = None
    ) -> bool:
        """Whether the request waits until the keys of the book were read, because it may be judged by old ones."""
        if self._books is None:
            return False
        unknown = judged is not None and judged.reason == "unknown_key" and head.secret.startswith((PREFIX, ACCESS_KEY))
        if not unknown and (judged is not None or self._books.key_looks.is_current()):
            return False

        def handle_again() -> None:
            if not exchange.over:
                self.handle(exchange, own, looked=True)

        return self._books.key_looks.look(handle_again)

    def _handle_other(self, exchange: Exchange, head: RequestHead, *, looked: bool) -> None:
        """Handle a request that starts no call, or cannot start it."""
        path, request_id = head.path, next(self._request_ids)
        if path in ("/livez", "/healthz", "/health", "/health/liveliness"):  # the last is LiteLLM's
            respond_json(exchange, 200, {"status": "ok"}, {"x-request-id": request_id})
        elif path in ("/readyz", "/health/readiness"):
            ready = self._ledger.ready and (self._books is None or self._books.can_authenticate)
            status = "draining" if self.draining else "ok" if ready else "ledger_unavailable"
            respond_json(exchange, 200 if status == "ok" else 503, {"status": status}, {"x-request-id": request_id})
        elif path == "/api/hello":  # Claude Code looks whether the gateway is there
            respond_json(exchange, 200, {"status": "ok"}, {"x-request-id": request_id})
        else:
            self._handle_authenticated(exchange, head, request_id, looked=looked)

    def _handle_authenticated(self, exchange: Exchange, head: RequestHead, request_id: str, *, looked: bool) -> None:
        """Handle another request, from a client that may have to authenticate itself."""
        request, path = exchange.request, head.path
        dialect = self._apis.dialect(path, request)
        if (rejection := self._authenticator.check_host(head)) is not None:
            self._reject(exchange, rejection, request_id, dialect)
        elif request.method == "OPTIONS":
            preflight = self._cors.preflight(request) if self._cors is not None else {}
            headers = {"allow": "GET, POST, DELETE, OPTIONS", "x-request-id": request_id, **preflight}
            exchange.respond(204, headers, b"")
        elif (
            not isinstance(key := self._authenticator.authenticate(head, exchange), ClientKey)
            and not looked
            and self._look_first(exchange, head, key)
        ):
            return
        elif isinstance(key, Rejection):
            self._reject(exchange, key, request_id, dialect)
        elif self._apis.starts_calls(path):
            if exchange.request.offers_websocket and self._gateway.config.server.websocket and not self.draining:
                self._open_socket(exchange, path, dialect)
            else:
                self._refuse(exchange, request_id, head)
        elif path.startswith("/streams/"):
            self._streams.handle(exchange, path.removeprefix("/streams/"), request_id, key)
        elif (kept := self._apis.kept_routes(path)) is not None:
            routes, rest = kept
            routes.handle(exchange, rest, request_id, key)
        elif (listed := listed_model(path)) is not None:
            self.models.handle(exchange, listed, request_id, key)
        elif path.startswith("/calls/") and self._calls is not None and self._gateway.config.server.caller_reports:
            self._calls.handle(exchange, path.removeprefix("/calls/"), request_id, key)
        elif not self._proxy.handle(exchange, path, request_id, key, self.models):
            hint = self._proxy.instead(path)
            if is_root(request.path):
                hint = "; the paths of the API begin with /v1, such as /v1/models, and `penstock open` opens the page"
            message = f"there is nothing at {request.path[:200]}{hint}"
            respond_failure(exchange, refused(message, "not_found"), request_id, {}, dialect)

    def _reject(self, exchange: Exchange, rejection: Rejection, request_id: str, dialect: str) -> None:
        """Reject a request, and count it."""
        self._rejections.add(rejection, self._proxies.client(exchange.peer, exchange.request.headers))
        respond_failure(exchange, rejection.failure, request_id, {}, dialect)

    def _refuse(self, exchange: Exchange, request_id: str, head: RequestHead) -> None:
        """Refuse a call: because of its method, because of its headers, or because the gateway drains."""
        method, dialect = exchange.request.method, self._apis.dialect(head.path, exchange.request)
        if method == "GET" and _WEBSOCKET_KEY in exchange.request.headers:
            self._refuse_socket(exchange, dialect, DRAINING.message if self.draining else _NO_SOCKETS)
        elif method != "POST":
            failure = refused(f"{method} is not allowed here; use POST", "method_not_allowed")
            respond_failure(exchange, failure, request_id, {"allow": "POST"}, dialect)
        elif head.body_refusal is not None and not self.draining:
            respond_failure(exchange, head.body_refusal, request_id, {}, dialect)
        else:
            respond_failure(exchange, DRAINING, request_id, {}, dialect)

    def _open_socket(self, exchange: Exchange, path: str, dialect: str) -> None:
        """Accept or refuse the offer of a WebSocket. A thread imports what it needs, if it is the first one."""
        if self._sockets is None:
            in_thread(exchange, _import_sockets, partial(self._open_first_socket, exchange, path, dialect))
        elif why := self._sockets.open(exchange, DIALECTS[dialect], path, self._gateway.config):
            self._refuse_socket(exchange, dialect, why)

    def _open_first_socket(
        self, exchange: Exchange, path: str, dialect: str, imported: Callable[[], type["Sockets"]]
    ) -> None:
        if self._sockets is None:
            self._sockets = imported()(self._apis, self._gateway.config, self.handle)
        self._open_socket(exchange, path, dialect)

    def _refuse_socket(self, exchange: Exchange, dialect: str, why: str) -> None:
        """Refuse the offer of a WebSocket. Codex uses HTTP at once after this status; after another one it first tries
        five times more."""
        failure = refused(why, "upgrade_not_supported")
        respond_failure(exchange, failure, next(self._request_ids), {"upgrade": "HTTP/1.1"}, dialect)


def _import_sockets() -> type["Sockets"]:
    from penstock.serve.sockets.sockets import Sockets  # noqa: PLC0415 - few clients use it

    return Sockets


def _parse_head(request: HttpRequest) -> RequestHead:
    """Derive the `RequestHead` of a request, and store it for later requests with the same head."""
    request.parsed_head = head = parse_head(request)
    return head
