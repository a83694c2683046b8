"""Admin: the admin API of one process, and the page that uses it.

1. A request with an unknown Host header is refused (DNS rebinding, `serve/hosts.py`). So is one that a page of another
   origin sent (CSRF).
2. Without credentials (`access.py`), every path under `/admin` gets the same 401, so that routes cannot be probed, and
   no large body is accepted. A client's key is not an admin token, and the admin token is not a client's key.
3. With a session, a request that changes something must prove that our own page sent it (CSRF, `access.py`).
4. A route is handled only if the user's role allows it (`permissions.py`).
5. Acts and looks at content are recorded in the audit log first: if that is impossible, they are refused. Changes of
   keys and tokens are recorded by the book, in the same transaction. What a role does not allow, and wrong credentials,
   are recorded afterwards, in a bounded number of entries (`refusals.py`). Without a ledger there is no audit log.
6. While a PostgreSQL ledger does not answer, API tokens and sessions are looked up in a local snapshot
   (`stores/book/snapshot.py`), so that `/metrics` and the views that need no ledger work. Acts need the audit log.
7. The book is queried in a `QueryThread`; the event loop never waits for the database. Lists and reports have a thread
   of their own, so that a slow one delays neither authentication nor acts, such as revoking a key or stopping a call.
"""

import asyncio
import hmac
import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import msgspec

from penstock.amounts import clock_ms
from penstock.core.hub.failure import Failure
from penstock.errors import BookError
from penstock.gateway.billing.book import Book
from penstock.gateway.config import Config
from penstock.gateway.people.audit import GATEWAY, Actor, AuditEntry, entry_of, user_subject
from penstock.gateway.people.roles import PERMISSIONS, Principal, Scope, user_parts
from penstock.http.exchange import Exchange, HttpRequest
from penstock.http.limits import FrontLimits
from penstock.http.server import ServerConnection
from penstock.http.tls import ListenerTls
from penstock.serve.admin.access import LINK, Access, StoredCredential, is_own, proves_page
from penstock.serve.admin.capture_routes import CaptureRoutes
from penstock.serve.admin.content_routes import ContentRoutes
from penstock.serve.admin.csv_export import CsvExport
from penstock.serve.admin.endpoint import AdminEndpoint
from penstock.serve.admin.inspection import MAX_BYTES
from penstock.serve.admin.live_routes import METRICS, Handler, LiveRoutes
from penstock.serve.admin.page import AdminPage
from penstock.serve.admin.people_routes import PEOPLE_ROUTES
from penstock.serve.admin.permissions import allowed_routes, is_allowed, rule_of, scope_of, template
from penstock.serve.admin.queries import Query
from penstock.serve.admin.refusals import UNKNOWN, Refusals
from penstock.serve.admin.replies import HEADERS, AdminResponse, refusal, refuse_method, send_answer
from penstock.serve.admin.routes import ROUTES, AdminReply, AdminRequest, Work
from penstock.serve.admin.sign_in import SignIn
from penstock.serve.admin.team_routes import TEAM_ROUTES
from penstock.serve.admin.warning_routes import WARNING_ROUTES
from penstock.serve.app import App
from penstock.serve.hosts import AllowedHosts
from penstock.serve.responses import error_page, new_request_id, respond_json
from penstock.stores.book.open import open_book, state_folder
from penstock.stores.book.snapshot import KnownUsers, LocalSnapshot
from penstock.stores.query_thread import QueryThread

# No key needs a larger body, and few programs manage keys at the same time.
_LIMITS = FrontLimits(max_body=65_536, max_head=32_768, max_connections=256, replaces_unused=True)
_LOOPBACK = ("127.0.0.1", "::1")
# The directory, in the state directory, of the sessions that have ended.
_ENDED_SESSIONS = "ended-sessions"
# API tokens that were looked up, for which a larger body is accepted.
_MAX_SEEN = 1_000
# Connections that may send a larger body with an API token that was not looked up yet: its checksum proves nothing.
_MAX_UNPROVEN = 4


class Admin:
    """Serves the admin API in the event loop of one worker."""

    def __init__(
        self, endpoint: AdminEndpoint, app: App, config: Config, environment: Mapping[str, str], used_links: Path
    ) -> None:
        self._endpoint = endpoint
        try:
            ended = state_folder(config.ledger, environment) / _ENDED_SESSIONS
        except BookError:  # a gateway without a ledger may have no state directory
            ended = used_links
        self._access = Access(endpoint.link_key.reveal(), used_links, ended, secure=endpoint.tls is not None)
        self._page = AdminPage(self._access, self._on_link, self._on_wrong_link, self._show_locked)
        self._refusals = Refusals(self._append)
        self._app = app
        postgres = config.ledger.enabled and config.ledger.postgres is not None
        self._snapshot = LocalSnapshot(state_folder(config.ledger, environment)) if postgres else None
        self._body_limits: dict[str, int] = {}
        self._audited = config.ledger.enabled
        self._audit_days: int | None = None
        self._seen_tokens: dict[bytes, None] = {}
        self._unproven: set[ServerConnection] = set()
        self._live_routes = LiveRoutes(endpoint, app)
        self._content_routes = ContentRoutes(app)
        self._capture_routes = CaptureRoutes(app)
        self._connections: set[ServerConnection] = set()
        self._server: asyncio.Server | None = None
        opened = partial(open_book, config.ledger, environment)
        self._read_thread = QueryThread(opened, "penstock-admin-read")
        self._act_thread = QueryThread(opened, "penstock-admin-act")
        self._sign_in = SignIn(
            self._access, self._page.locked, self._act_thread, self._session_actor, self._refuse_sign_in, app.warn
        )
        self._any_address = ipaddress.ip_address(endpoint.address.host).is_unspecified
        self._csv_export = CsvExport(self._read_thread)
        self.use(config)

    def use(self, config: Config) -> None:
        """Apply a configuration. The listening address does not change."""
        token = config.admin.token or self._endpoint.token
        self._access.use(token.reveal(), config)
        self._audit_days = config.admin.audit_days
        self._sign_in.use(config.admin)
        self._body_limits = {"/admin/inspect": MAX_BYTES, "/admin/playground": config.limits.max_body}
        names = (*_LOOPBACK, *config.admin.hosts, self._endpoint.address.host, config.admin.address.host)
        self._hosts = AllowedHosts(names, any_address=self._any_address)

    @property
    def tls(self) -> ListenerTls | None:
        """The TLS of its port."""
        return self._endpoint.tls

    async def listen(self) -> None:
        """Start to accept connections."""
        self._server = await asyncio.get_running_loop().create_server(
            self._connection,
            sock=self._endpoint.socket,
            ssl=self.tls.context if self.tls is not None else None,
        )

    def _connection(self) -> ServerConnection:
        def max_body(target: bytes, headers: Mapping[str, str]) -> int:
            return self._max_body(connection, target, headers)

        connection = ServerConnection(self.handle, error_page, _LIMITS, self._connections, max_body)
        return connection

    async def close(self) -> None:
        """Accept no more connections, and abort the open ones."""
        if self._server is not None:
            self._server.close()
        self._live_routes.close()
        for connection in list(self._connections):
            connection.close_when_idle()
        await asyncio.sleep(0)
        for connection in list(self._connections):
            connection.abort()
        self._refusals.flush()
        for thread in (self._read_thread, self._act_thread):
            await asyncio.get_running_loop().run_in_executor(None, thread.close)

    def handle(self, exchange: Exchange) -> None:
        """Check a request's host, origin and credentials, and route it."""
        request = exchange.request
        answer = partial(send_answer, exchange, new_request_id())
        for_page = not request.path.startswith("/admin/") and request.path not in ("/admin", METRICS)
        if not self._hosts.allows(request.headers.get("host", "")):
            answer(refusal("host_not_allowed", "use the IP address or localhost, or add the name to [admin] hosts"))
        elif not is_own(request.headers) and not (for_page and _is_visit(request)):
            answer(refusal("origin_not_allowed", "requests from pages of other origins are refused"))
        elif for_page:
            self._handle_page(exchange)
        else:
            self._authenticate(exchange, partial(self._on_user, exchange, answer))

    def _handle_page(self, exchange: Exchange) -> None:
        """Serve the page. Its files contain no data, so only the start page needs a session."""
        if self._sign_in.handles(exchange.request.path):
            self._sign_in.handle(exchange)
            return
        if not self._page.needs_session(exchange):
            self._page.handle(exchange, new_request_id(), None)
            return
        self._authenticate(exchange, lambda user: self._page.handle(exchange, new_request_id(), _signed_in(user)))

    def _authenticate(self, exchange: Exchange, then: Callable[[Principal | Failure | Exception | None], None]) -> None:
        """Call `then` with the user of a request; None if there is none."""
        found = self._access.identify(exchange.request.headers, exchange.peer)
        if not isinstance(found, StoredCredential):
            then(found)
        elif self._snapshot is not None and self._app.ledger_trouble:
            then(self._look_up_locally(found, BookError(self._app.ledger_trouble)))
        elif not self._act_thread.submit(partial(_look_up, found), partial(self._on_looked_up, found, then)):
            then(_BUSY)

    def _on_looked_up(
        self,
        credential: StoredCredential,
        then: Callable[[Principal | Failure | Exception | None], None],
        found: Principal | Exception | None,
    ) -> None:
        if isinstance(found, BookError):
            found = self._look_up_locally(credential, found)
        if credential.kind == "token" and isinstance(found, Principal):
            self._seen_tokens.pop(credential.digest, None)
            self._seen_tokens[credential.digest] = None
            if len(self._seen_tokens) > _MAX_SEEN:
                del self._seen_tokens[next(iter(self._seen_tokens))]
        then(found)

    def _look_up_locally(self, credential: StoredCredential, error: BookError) -> Principal | BookError:
        """The user of a credential as the local snapshot has it, because the book does not answer; else the error."""
        known = self._snapshot.users() if self._snapshot is not None else KnownUsers()
        now_ms = clock_ms()
        for token in known.tokens if credential.kind == "token" else ():
            if hmac.compare_digest(token.digest, credential.digest) and token.usable(now_ms):
                return token.principal
        for session in known.sessions if credential.kind == "session" else ():
            if hmac.compare_digest(session.id, credential.digest.hex()) and session.expires_ms > now_ms:
                return Principal.of(session.who, "session", session.grants)
        return error

    def _on_user(self, exchange: Exchange, answer: AdminResponse, user: Principal | Failure | Exception | None) -> None:
        """Route the request of a user."""
        if exchange.over:
            return  # the client has gone meanwhile
        if user is None:
            if "authorization" in exchange.request.headers:
                self._refuse("session.refuse", "", "invalid_admin_token", self._anonymous(exchange))
            answer(_UNAUTHORIZED)
        elif not isinstance(user, Principal):
            answer(user)
        elif user.ambient and not _only_reads(exchange.request) and not proves_page(exchange.request.headers):
            self._refuse("request.refuse", "", "page_not_proven", self._actor(user, exchange))
            answer(_NOT_OUR_PAGE)
        else:
            self._route(exchange, answer, user)

    def _max_body(self, connection: ServerConnection, target: bytes, headers: Mapping[str, str]) -> int:
        """The limit of a request body: larger for some paths, if the request has credentials.

        The credentials of users who signed in are signed. API tokens are known here once they were looked up; others
        may be valid, so a few connections at a time can send a larger body with one.
        """
        self._unproven.discard(connection)
        limit = self._body_limits.get(target.partition(b"?")[0].decode("latin-1"), _LIMITS.max_body)
        if limit == _LIMITS.max_body:
            return limit
        found = self._access.identify(headers, connection.peer)
        if isinstance(found, StoredCredential):
            known = found.kind == "session" or found.digest in self._seen_tokens
            self._unproven &= self._connections
            if not known and len(self._unproven) < _MAX_UNPROVEN:
                self._unproven.add(connection)
                known = True
        else:
            known = found is not None and found.may("operate")
        return limit if known else _LIMITS.max_body

    def _route(self, exchange: Exchange, answer: AdminResponse, user: Principal) -> None:
        request = exchange.request
        allowed = []
        for method, match, handle in self._matching_routes(request.path, user):
            if request.method == method or (request.method, method) == ("HEAD", "GET"):
                rule = rule_of(method, match.re)
                name = unquote(match[1], errors="replace") if match.groups() else ""
                if not is_allowed(user, rule):
                    what = f"{method} {template(match.re)}"
                    self._refuse("request.refuse", what, "permission_denied", self._actor(user, exchange))
                    answer(_denied(user))
                elif rule.audit:
                    act = partial(_act, handle, name, exchange, answer)
                    self._record(rule.audit, name, user, exchange, act)
                else:
                    handle(name, exchange, answer)
                return
            allowed.append(method)
        if allowed:
            refuse_method(request.method, ", ".join(allowed), answer)
        else:
            answer(refusal("not_found", f"there is nothing at {request.path[:200]}"))

    def _matching_routes(self, path: str, user: Principal) -> Iterator[tuple[str, re.Match[str], Handler]]:
        """The routes whose pattern matches a path."""
        for method, pattern, handle in self._call_routes:
            if match := pattern.fullmatch(path):
                yield method, match, handle
        for method, pattern, work in (*ROUTES, *TEAM_ROUTES, *WARNING_ROUTES, *PEOPLE_ROUTES):
            if match := pattern.fullmatch(path):
                scope = scope_of(user, rule_of(method, pattern))
                yield method, match, partial(self._query_book, work, user, scope)
        for method, pattern, export in self._csv_export.routes:
            if match := pattern.fullmatch(path):
                yield method, match, partial(export, scope_of(user, rule_of(method, pattern)))
        for method, pattern, handle_own in self.own_routes:
            if match := pattern.fullmatch(path):
                yield method, match, partial(handle_own, user)

    @property
    def _call_routes(self) -> tuple[tuple[str, re.Pattern[str], Handler], ...]:
        """The routes that do not query the book."""
        return (*self._live_routes.routes, *self._content_routes.routes, *self._capture_routes.routes)

    @property
    def own_routes(self) -> tuple[tuple[str, re.Pattern[str], Callable[..., None]], ...]:
        """The routes about the user who sends the request."""
        return (
            ("GET", re.compile(r"/admin/me"), self._show_user),
            ("DELETE", re.compile(r"/admin/session"), self._end_session),
        )

    @property
    def routes(self) -> list[tuple[str, re.Pattern[str]]]:
        """The method and the pattern of each route."""
        tables = (
            self._call_routes,
            ROUTES,
            TEAM_ROUTES,
            WARNING_ROUTES,
            PEOPLE_ROUTES,
            self.own_routes,
            self._csv_export.routes,
        )
        return [(method, pattern) for table in tables for method, pattern, _ in table]

    def _query_book(
        self, work: Work, user: Principal, scope: Scope | None, name: str, exchange: Exchange, answer: AdminResponse
    ) -> None:
        """Run a route in a thread: what only reads apart from the rest."""
        job = partial(_work, work, self._actor(user, exchange), scope, (name, exchange.request.query, exchange.body))
        thread = self._read_thread if _only_reads(exchange.request) else self._act_thread
        if not thread.submit(job, answer):
            answer(_BUSY)

    def _actor(self, user: Principal, exchange: Exchange) -> Actor:
        address = self._access.address_of(exchange.request.headers, exchange.peer)
        return Actor(user.name, user.via, address, self._audit_days)

    def _record(
        self, action: str, subject: str, user: Principal, exchange: Exchange, then: Callable[[Exception | None], None]
    ) -> None:
        """Append to the audit log, then call `then`, with the error if that was impossible."""
        if not self._audited:
            then(None)
            return
        actor = self._actor(user, exchange)
        if action.startswith("user."):
            subject = user_subject(subject)
        entry = entry_of(actor, clock_ms(), action, subject)
        if not self._act_thread.submit(lambda book: book.people.record(entry, actor.keep_days), then):
            then(BookError("too many requests wait for the ledger; try again"))

    def _append(self, entry: AuditEntry) -> None:
        """Append to the audit log, if possible."""
        keep_days = self._audit_days
        self._act_thread.submit(lambda book: book.people.record(entry, keep_days), lambda _: None)

    def _refuse(self, action: str, what: str, reason: str, actor: Actor) -> None:
        """Record that a request was refused."""
        if self._audited:
            self._refusals.add(actor, action, what, reason)

    def _refuse_sign_in(self, who: str, reason: str, exchange: Exchange) -> None:
        """Record that a user could not sign in. Its name is empty if it is not known."""
        actor = self._session_actor(who, exchange) if who else self._anonymous(exchange)
        self._refuse("session.refuse", who, reason, actor)

    def _on_wrong_link(self, exchange: Exchange) -> None:
        self._refuse_sign_in("", "invalid_link", exchange)

    def _anonymous(self, exchange: Exchange) -> Actor:
        return Actor(UNKNOWN, "none", self._access.address_of(exchange.request.headers, exchange.peer))

    def _show_locked(self, exchange: Exchange, status: int, message: str) -> None:
        self._sign_in.show(exchange, status, message)

    def _session_actor(self, who: str, exchange: Exchange) -> Actor:
        return self._actor(Principal(name=who, via="session"), exchange)

    def _on_link(self, exchange: Exchange) -> None:
        """Record that a link was used. The session starts in any case, so that the page opens during an outage."""
        self._record("session.start", LINK.name, LINK, exchange, lambda _: None)

    def _show_user(self, user: Principal, _name: str, _exchange: Exchange, answer: AdminResponse) -> None:
        answer(AdminReply(200, user_json(user)))

    def _end_session(self, user: Principal, _name: str, exchange: Exchange, answer: AdminResponse) -> None:
        """End the session of the request, and delete its cookie."""
        found = self._access.identify(exchange.request.headers, exchange.peer)
        actor, now_ms = self._actor(user, exchange), clock_ms()

        def ended(result: Exception | None) -> None:
            if result is None:
                headers = {**HEADERS, "set-cookie": self._access.no_cookie}
                respond_json(exchange, 200, {"signed_out": True}, headers)
            else:
                answer(result)

        if isinstance(found, StoredCredential) and found.kind == "session":
            digest = found.digest.hex()
            if not self._act_thread.submit(lambda book: book.people.end_session(digest, actor, now_ms), ended):
                answer(_BUSY)
        elif user.via == "session":
            self._access.end_link_session(exchange.request.headers)
            self._record("session.end", user.name, user, exchange, ended)
        else:
            answer(refusal("invalid_parameter", "this request has no session: there is nothing to end"))


def _work(work: Work, actor: Actor, scope: Scope | None, request: tuple[str, str, bytes], book: Book) -> AdminReply:
    """Run a route. Called in the book worker's thread."""
    name, query, body = request
    now_ms = clock_ms()
    book.actor = actor
    try:
        reply = work(book, AdminRequest(name=name, query=Query.parse(query), body=body, now_ms=now_ms, scope=scope))
        # Encoded here and not in the event loop: ten thousand names take milliseconds.
        return AdminReply(reply.status, msgspec.Raw(msgspec.json.encode(reply.body)))
    finally:
        book.actor = GATEWAY


def _act(handle: Handler, name: str, exchange: Exchange, answer: AdminResponse, error: Exception | None) -> None:
    """Handle a request that is recorded; or refuse it, because it could not be recorded."""
    if error is not None:
        answer(error)
    elif not exchange.over:  # else the client has gone meanwhile
        handle(name, exchange, answer)


def _look_up(credential: StoredCredential, book: Book) -> Principal | None:
    """The user of a credential. Called in the book worker's thread."""
    now_ms = clock_ms()
    if credential.kind == "token":
        token = book.people.token(credential.digest, now_ms)
        return token.principal if token is not None else None
    session = book.people.session(credential.digest.hex(), now_ms)
    return Principal.of(session.who, "session", session.grants) if session is not None else None


def _signed_in(user: Principal | Failure | Exception | None) -> Principal | None:
    return user if isinstance(user, Principal) else None


def _only_reads(request: HttpRequest) -> bool:
    return request.method in ("GET", "HEAD")


def user_json(user: Principal) -> dict[str, object]:
    """A user with its roles."""
    return {
        "name": user_parts(user.name)[0],
        "via": user.via,
        "role": user.role,
        "permissions": sorted(PERMISSIONS[user.role]) if user.role is not None else ["identify"],
        "routes": allowed_routes(user),
        "teams": [{"team": team, "role": role} for team, role in sorted(user.teams.items())],
        "can_sign_out": user.via == "session",
    }


def _denied(user: Principal) -> Failure:
    roles = [*([user.role] if user.role else []), *(f"{role} of {team}" for team, role in sorted(user.teams.items()))]
    what = f"the role {', '.join(roles)} does not allow this" if roles else "no group of this user has a role here"
    return refusal("permission_denied", what)


_UNAUTHORIZED = refusal(
    "invalid_admin_token", "send the admin token or an API token as `Authorization: Bearer …`, or use a session"
)
_NOT_OUR_PAGE = refusal(
    "page_not_proven", "with a session, changes need the header `x-penstock-page: 1` and the Origin of this page"
)
_BUSY = Failure(
    code="admin_busy",
    message="too many requests wait for the ledger; try again",
    retry_after="1",
)


def _is_visit(request: HttpRequest) -> bool:
    """Whether a browser navigates to the page, from a link elsewhere. Scripts cannot set these `Sec-Fetch` headers."""
    mode_and_dest = (request.headers.get("sec-fetch-mode"), request.headers.get("sec-fetch-dest"))
    return request.method == "GET" and mode_and_dest == ("navigate", "document") and "origin" not in request.headers
