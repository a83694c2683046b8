"""SignIn: users sign in on the page with OpenID Connect: `/login`, and `/login/callback` to which the provider returns.

1. Between the two, the browser has a signed cookie with the state, the nonce and the PKCE verifier. A callback whose
   state is not that of the cookie is refused: another site cannot sign a browser in (login CSRF).
2. Afterwards the browser is always sent to `/`. No parameter names another address (open redirect).
3. The session is in the book, with the user's roles at this time; its cookie has a new secret for each sign-in. Signing
   out deletes it. A user none of whose groups has a role gets no session.
4. Requests to the provider are made by threads of their own, a few at a time: a provider that does not answer delays
   nothing else. They are in `openid.py`, which needs the extra `oidc`.
"""

import asyncio
import base64
import hmac
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import msgspec

from penstock.amounts import clock_ms
from penstock.gateway.config.people import OidcSettings
from penstock.gateway.config.settings import AdminSettings
from penstock.gateway.keys.owner import named_user
from penstock.gateway.people.sessions import AdminSession
from penstock.http.exchange import Exchange
from penstock.serve.admin.access import cookies, is_user_name, sign, verify
from penstock.serve.admin.backend import Backend
from penstock.serve.admin.page_files import HARDENING, PageFile
from penstock.serve.loop import Tasks

if TYPE_CHECKING:  # an extra
    from penstock.serve.admin.openid import OpenIdProvider, SignInRequest

START = "/login"
CALLBACK = "/login/callback"
_COOKIE = "penstock_login"
_WAIT_S = 600
_MAX_RUNNING = 8
_MAX_GROUPS = 1_000
_MAX_QUERY = 8_000
_MAX_FIELDS = 20
_MARK = b"<!-- sign-in -->"
_BUTTON = (
    b'<p><a class="button" href="/login">Sign in</a></p>'
    b"<p>You sign in with the account of your organisation. Without access, ask your administrator for it.</p>"
)
_NO_BUTTON = (
    b"<p>This gateway has no sign-in for users: ask your administrator for a key, or for access to this page.</p>"
)
_FAILED = "The sign-in failed. Try again."
_EXPIRED = "The sign-in took too long, or was started in another browser. Try again."
_UNAVAILABLE = "The identity provider does not answer, or its answer is not valid. Try again later."
_BUSY = "Many users are signing in. Try again in a moment."
_NO_NAME = "The identity provider does not say who you are: the claim {} is missing or not verified."
_NO_ROLE = "You are signed in as {}, but none of your groups has a role here. Ask your administrator."

_DEACTIVATED = "You are signed in as {}, who is deactivated here. Ask your administrator."
_NO_LEDGER = "The ledger cannot be used now. Try again later."


class SignIn:
    """Signs users in, in the event loop of one worker."""

    def __init__(self, backend: Backend, locked: PageFile) -> None:
        """`locked` is the page that is shown without a session."""
        self._access = backend.access
        self._audit = backend.audit
        self._book = backend.act_thread
        self._warn = backend.app.warn
        self._locked = locked
        self._settings = AdminSettings()
        self._provider: OpenIdProvider | None = None
        self._tasks = Tasks()
        self._threads = ThreadPoolExecutor(_MAX_RUNNING, "penstock-sign-in")  # starts threads as they are needed

    def use(self, settings: AdminSettings) -> None:
        """Apply a configuration."""
        self._settings = settings
        if settings.oidc is None:
            self._provider = None
        elif self._provider is None or self._provider.settings != settings.oidc:
            from penstock.serve.admin.openid import OpenIdProvider  # noqa: PLC0415 - an extra

            self._provider = OpenIdProvider(settings.oidc)

    def handles(self, path: str) -> bool:
        """Whether a path is that of a sign-in."""
        return self._provider is not None and path in (START, CALLBACK)

    def handle(self, exchange: Exchange) -> None:
        """Begin or complete a sign-in."""
        assert self._provider is not None
        if exchange.request.method != "GET":
            self.show(exchange, 405, "")
        elif len(self._tasks) >= _MAX_RUNNING:
            self.show(exchange, 503, _BUSY)
        elif exchange.request.path == START:
            self._tasks.start(self._begin(exchange, self._provider))
        else:
            self._on_return(exchange, self._provider)

    def show(self, exchange: Exchange, status: int, message: str) -> None:
        """Send the page that is shown without a session: with a button if users can sign in, and a message."""
        from html import escape  # noqa: PLC0415 - brings a large table

        parts = [f'<p role="alert">{escape(message)}</p>'.encode()] if message else []
        body = self._locked.body
        if self._provider is not None:
            parts.append(_BUTTON)
        else:
            parts.append(_NO_BUTTON)
            body = body.replace(b"<details>", b"<details open>")
        headers = HARDENING | {"content-type": self._locked.media_type, "cache-control": "no-store"}
        if exchange.request.path == CALLBACK:
            headers["set-cookie"] = self._cookie("", 0)
        exchange.respond(status, headers, body.replace(_MARK, b"\n".join(parts)))

    async def _begin(self, exchange: Exchange, provider: "OpenIdProvider") -> None:
        request = await self._in_thread(provider.begin, self._access.origin(exchange.request.headers) + CALLBACK)
        if request is None:
            self.show(exchange, 502, _UNAVAILABLE)
            return
        url, remembered = request
        text = base64.urlsafe_b64encode(msgspec.json.encode(remembered)).decode()
        value = sign(time.time() + _WAIT_S, self._access.login_key, text)
        headers = HARDENING | {"location": url, "cache-control": "no-store", "set-cookie": self._cookie(value, _WAIT_S)}
        exchange.respond(303, headers, b"")

    def _on_return(self, exchange: Exchange, provider: "OpenIdProvider") -> None:
        """Check what the browser brings back, before the provider is asked."""
        given = read_query(exchange.request.query)
        request = self._remembered(exchange.request.headers)
        if request is None:
            self._refuse(exchange, "expired", _EXPIRED)
        elif not hmac.compare_digest(given.get("state", "").encode(), request.state.encode()):
            self._refuse(exchange, "wrong_state", _FAILED)
        elif given.get("iss", provider.settings.issuer) != provider.settings.issuer:
            self._refuse(exchange, "wrong_issuer", _FAILED)  # the response of another provider (RFC 9207)
        elif "code" not in given or "error" in given:
            self._refuse(exchange, "refused_by_provider", _FAILED)
        else:
            self._tasks.start(self._complete(exchange, provider, request, given["code"]))

    async def _complete(
        self, exchange: Exchange, provider: "OpenIdProvider", request: "SignInRequest", code: str
    ) -> None:
        claims = await self._in_thread(provider.complete, request, code)
        if claims is None:
            self._refuse(exchange, "provider_failed", _UNAVAILABLE, status=502)
            return
        oidc = provider.settings
        who = _user_of(claims, oidc)
        if not who:
            self._refuse(exchange, "no_name", _NO_NAME.format(oidc.user_claim))
            return
        now_ms, actor = clock_ms(), self._audit.session_actor(who, exchange)
        membership = await self._book.run(lambda book: book.directory.membership(who))
        if isinstance(membership, Exception):
            self.show(exchange, 503, _NO_LEDGER)
            return
        if membership.deactivated:
            self._refuse(exchange, "deactivated", _DEACTIVATED.format(who), who)
            return
        groups = dict.fromkeys((*_groups_of(claims, oidc), *membership.groups))
        roles = self._settings.group_roles
        grants = tuple(roles.grants(groups))
        if not grants:
            self._refuse(exchange, "no_role", _NO_ROLE.format(who), who)
            return
        length_s = oidc.session_hours * 3600
        cookie, digest = self._access.new_login(length_s)
        session = AdminSession(
            id=digest.hex(), who=who, grants=grants, created_ms=now_ms, expires_ms=now_ms + int(length_s * 1000)
        )
        new_teams = roles.new_teams(groups)
        started = await self._book.run(lambda book: book.directory.sign_in(session, actor, new_teams))
        if isinstance(started, Exception):
            self.show(exchange, 503, _NO_LEDGER)
            return
        if not started:  # it was deactivated since its groups were read
            self._refuse(exchange, "deactivated", _DEACTIVATED.format(who), who)
            return
        headers = HARDENING | {"location": "/", "cache-control": "no-store", "set-cookie": cookie}
        exchange.respond(303, headers, b"")

    def _refuse(self, exchange: Exchange, reason: str, message: str, who: str = "", *, status: int = 403) -> None:
        """Record that a user could not sign in, and say it on the page."""
        self._audit.refuse_sign_in(who, reason, exchange)
        self.show(exchange, status, message)

    def _remembered(self, headers: Mapping[str, str]) -> "SignInRequest | None":
        from penstock.serve.admin.openid import SignInRequest  # noqa: PLC0415 - an extra

        for value in cookies(headers, _COOKIE):
            text = verify(value, self._access.login_key, time.time())
            if text is not None:
                return msgspec.json.decode(base64.urlsafe_b64decode(text), type=SignInRequest)
        return None

    def _cookie(self, value: str, length_s: int) -> str:
        return f"{_COOKIE}={value}; Path={START}; Max-Age={length_s}; HttpOnly; SameSite=Lax{self._access.secure}"

    async def _in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a request to the provider; None if it failed."""
        from penstock.serve.admin.openid import ERRORS  # noqa: PLC0415 - an extra

        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
        except ERRORS as error:
            # Its text may have a code or a token.
            self._warn(f"a sign-in with OpenID Connect failed: {type(error).__name__}")
            return None


def read_query(query: str) -> dict[str, str]:
    """The fields that a query has once; none if it is too long."""
    if len(query) > _MAX_QUERY:
        return {}
    try:
        fields = parse_qs(query, max_num_fields=_MAX_FIELDS)
    except ValueError:  # it has more fields
        return {}
    return {name: values[0] for name, values in fields.items() if len(values) == 1}


def _user_of(claims: Mapping[str, Any], oidc: OidcSettings) -> str:
    """A user, as recorded: its name, and `sub` as the id. Empty if one is missing, or its email is not verified.

    What a user owns depends on `sub` alone. Some providers let users choose their email or their name.
    """
    name, sub = claims.get(oidc.user_claim), claims.get("sub")
    if oidc.user_claim == "email" and claims.get("email_verified", True) is not True:
        return ""
    if not (isinstance(name, str) and is_user_name(name) and isinstance(sub, str) and is_user_name(sub)):
        return ""
    return name if name == sub else named_user(name, sub)


def _groups_of(claims: Mapping[str, Any], oidc: OidcSettings) -> list[str]:
    found = claims.get(oidc.groups_claim)
    groups = found if isinstance(found, list) else [found]
    return [group for group in groups[:_MAX_GROUPS] if isinstance(group, str)]
