"""Where `penstock apply` makes changes: in the ledger of the configuration, or in a gateway, over its admin API."""

import http.client
import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Protocol, cast

import msgspec

from penstock.amounts import clock_ms
from penstock.errors import AdminError, BookError, PenstockError
from penstock.gateway.declared.apply import apply_plan, plan_for
from penstock.gateway.declared.declaration import Declaration
from penstock.gateway.declared.plan import PlanReport, SecretDigest
from penstock.stores.book.sql_book import Book

_TIMEOUT_S = 120.0
_MAX_ERROR = 65_536
# What goes wrong before a request is sent.
_NEVER_SENT = (ConnectionRefusedError, socket.gaierror, ssl.SSLError)


class UnknownOutcomeError(PenstockError):
    """The connection was lost after the changes were sent: they may have been made."""


class ApplyTarget(Protocol):
    """Plans and applies."""

    name: str

    def plan(self, declaration: Declaration, *, adopt: bool) -> PlanReport:
        """The plan for a declaration."""

    def apply(
        self, declaration: Declaration, fingerprint: str, secrets: Mapping[str, SecretDigest], *, adopt: bool
    ) -> None:
        """Carry out the plan with this fingerprint. Raises `AdminError` if nothing was changed, and
        `UnknownOutcomeError` if that is not known."""


class LedgerTarget:
    """The ledger of the configuration. No gateway needs to run."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self.name = f"the ledger {book.database.name}"

    def plan(self, declaration: Declaration, *, adopt: bool) -> PlanReport:
        """The plan for a declaration."""
        return plan_for(self._book, declaration, clock_ms(), adopt=adopt)

    def apply(
        self, declaration: Declaration, fingerprint: str, secrets: Mapping[str, SecretDigest], *, adopt: bool
    ) -> None:
        """Carry out the plan with this fingerprint."""
        try:
            apply_plan(self._book, declaration, fingerprint, secrets, clock_ms(), adopt=adopt)
        except BookError as error:
            raise UnknownOutcomeError(str(error)) from error


class GatewayTarget:
    """A running gateway. `token` is its admin token, or an API token with the role `admin`."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url.rstrip("/").removesuffix("/admin")
        self._token = token
        self._opener = urllib.request.build_opener(_NoRedirects)
        self.name = f"the gateway {self._url}"

    def plan(self, declaration: Declaration, *, adopt: bool) -> PlanReport:
        """The plan for a declaration."""
        try:
            answer = self._post("/admin/plan", _body(declaration, adopt=adopt))
            return msgspec.json.decode(answer, type=PlanReport)
        except (OSError, http.client.HTTPException) as error:
            raise AdminError(f"{self.name} cannot be reached: {_reason(error)}") from None
        except UnknownOutcomeError as error:
            raise AdminError(str(error)) from None
        except msgspec.MsgspecError:
            raise AdminError(f"{self.name} answered what is no plan: is this the address of the admin API?") from None

    def apply(
        self, declaration: Declaration, fingerprint: str, secrets: Mapping[str, SecretDigest], *, adopt: bool
    ) -> None:
        """Carry out the plan with this fingerprint."""
        body = _body(declaration, adopt=adopt) | {"fingerprint": fingerprint, "secrets": secrets}
        try:
            self._post("/admin/apply", body)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.URLError) and isinstance(error.reason, _NEVER_SENT):
                raise AdminError(f"{self.name} cannot be reached: {_reason(error)}") from None
            raise UnknownOutcomeError(f"{self.name}: {_reason(error)}") from None

    def _post(self, path: str, body: Mapping[str, Any]) -> bytes:
        headers = {"content-type": "application/json", "authorization": f"Bearer {self._token}"}
        request = urllib.request.Request(self._url + path, data=msgspec.json.encode(body), headers=headers)
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                return cast(bytes, answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error.code, error.read(_MAX_ERROR)) from None

    def _refusal(self, status: int, body: bytes) -> PenstockError:
        try:
            error = json.loads(body)["error"]
            message, code = str(error["message"]), error["code"]
        except (ValueError, TypeError, KeyError):
            return AdminError(f"{self.name} answered with status {status}: is this the address of the admin API?")
        if status == 401:
            message += ": is this the address of the admin API, and is the token valid?"
        if status >= 500:
            return UnknownOutcomeError(f"{self.name}: {message}")
        return AdminError(f"{self.name}: {message}", code=code, param=error.get("param"))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A token must not be sent elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect: it becomes an error."""


def _body(declaration: Declaration, *, adopt: bool) -> dict[str, Any]:
    return {name: getattr(declaration, name) for name in declaration.__struct_fields__} | {"adopt": adopt}


def _reason(error: Exception) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"{cause.verify_message}: SSL_CERT_FILE names the file of a private CA"
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
