"""Webhook: sends budget warnings, and new requests for more, to the operator's URL, signed. No call waits for it.

They are sent one after another. The ledger has the warnings and requests that wait. Any process with the webhook can
send them, so those of a process that has ended are not lost. A process takes one for `_LEASE_S`, sends it, and stores
the result. If it dies in between, another process, or this one after a restart, sends it again when the lease has
ended. So each is delivered at least once, and repeated only if a process dies, or the ledger fails, after the receiver
has accepted it.

A delivery has succeeded if the receiver answers with a status of 2xx. Otherwise it is repeated after the times in
`WAITS_S`, then given up. The pool rejects host names that resolve to link-local addresses (SSRF, `http/ssrf.py`), and
redirects are not followed.

Requests are signed as Standard Webhooks says (https://www.standardwebhooks.com): HMAC-SHA256 of id, timestamp and body,
separated by dots. The id is that of the warning, so all attempts have the same; each attempt has a new timestamp.
"""

import asyncio
import base64
import hashlib
import hmac
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import msgspec

from penstock.amounts import DAY_MS, clock_ms, moment, money
from penstock.gateway.config.ledger import signing_key
from penstock.gateway.config.settings import BudgetSettings
from penstock.gateway.limits.warnings import BudgetWarning, Delivery, TakenWarning
from penstock.gateway.people.limit_requests import TakenRequest, request_json
from penstock.http.collected_response import CollectedResponse
from penstock.http.upstream_connection import UpstreamError
from penstock.stores.book.sql_book import Book
from penstock.stores.query_thread import QueryThread
from penstock.upstream.remote import Remote, RemoteEndpoint

# About a day in all.
WAITS_S = (1.0, 5.0, 30.0, 120.0, 600.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0, 28_800.0, 28_800.0)
# The failed attempt after which there is a line in the log.
_REPORTED_ATTEMPT = 3
# Warnings that have waited longer are not sent any more: there was no gateway, or it had no webhook.
_MAX_AGE_MS = 7 * DAY_MS
_TIMEOUT_S = 10.0
# Longer than an attempt and its bookkeeping take.
_LEASE_S = 30.0
# How often a process looks for warnings that others have left.
_POLL_S = 60.0
# How long to wait if the ledger fails.
_LEDGER_WAIT_S = 2.0
# How long `close` waits for an attempt.
_CLOSE_S = 2.0
# What a message about a request for more has.
_OF_REQUEST = ("id", "created", "who", "team", "key", "wanted", "reason")

T = TypeVar("T")


class Webhook:
    """Delivers warnings to the URL of the configuration, if it has one. Used by the event loop's thread."""

    def __init__(
        self,
        remote: Remote,
        open_book: Callable[[], Book],
        warn: Callable[[str], object],
        count: Callable[[str], None],
        waits_s: Sequence[float] = WAITS_S,
    ) -> None:
        """`count` is called with the result of each attempt: `delivered`, `retried` or `failed`."""
        self._remote = remote
        self._open_book = open_book
        self._warn = warn
        self._count = count
        self._waits_s = waits_s
        self._endpoint: RemoteEndpoint | None = None
        self._secret = b""
        self._book: QueryThread[Book] | None = None
        self._task: asyncio.Task[None] | None = None
        self._look = asyncio.Event()
        self._closing = False

    def use(self, settings: BudgetSettings) -> None:
        """Apply a configuration."""
        self._endpoint = None
        if settings.webhook is None or settings.webhook_secret is None:
            return  # warnings wait until there is a webhook again
        self._endpoint = self._remote.endpoint(settings.webhook.reveal(), {"connection": "close"})
        self._secret = signing_key(settings.webhook_secret.reveal())
        if self._task is None:
            self._book = QueryThread(self._open_book, "penstock-webhook")
            self._task = asyncio.get_running_loop().create_task(self._run(self._book))
        self._look.set()

    def wake(self) -> None:
        """Send what waits: a warning was stored."""
        self._look.set()

    async def close(self) -> None:
        """Stop, after the attempt under way if it is short. Warnings that wait are sent after the next start."""
        self._closing = True
        self._look.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_CLOSE_S)
            self._task.cancel()
        if self._book is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._book.close)

    async def _run(self, book: QueryThread[Book]) -> None:
        """Send the warnings that are due, and wait for the next."""
        while not self._closing:
            self._look.clear()
            found = await book.run(_take) if self._endpoint is not None else None
            if isinstance(found, (TakenWarning, TakenRequest)):
                await self._deliver(book, found)
                continue
            wait_s = _POLL_S
            if isinstance(found, Exception):
                wait_s = _LEDGER_WAIT_S
            elif found is not None:
                wait_s = min(max(0, found - clock_ms()) / 1000, _POLL_S)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._look.wait(), wait_s)

    async def _deliver(self, book: QueryThread[Book], taken: TakenWarning | TakenRequest) -> None:
        """Make one attempt, and store its result."""
        what, id, at_ms, content = _message(taken)
        body = msgspec.json.encode(content)
        expired = clock_ms() - at_ms > _MAX_AGE_MS
        # The reason does not quote the URL.
        problem = "it waited for too long" if expired else await self._attempt(id, body)
        delivery: Delivery = "delivered"
        due_ms = None
        if problem and (expired or taken.attempt > len(self._waits_s)):
            delivery = "failed"
            self._warn(f"{what} could not be sent to the webhook, and is given up: {problem}")
        elif problem:
            delivery, due_ms = "waiting", clock_ms() + int(self._waits_s[taken.attempt - 1] * 1000)
            if taken.attempt == _REPORTED_ATTEMPT:
                self._warn(f"{what} could not be sent to the webhook {taken.attempt} times: {problem}")
        self._count("retried" if delivery == "waiting" else delivery)
        end = partial(_end, taken, delivery, due_ms)
        while await book.run(end) is not None:  # noqa: ASYNC110 - until the ledger works again
            await asyncio.sleep(_LEDGER_WAIT_S)

    async def _attempt(self, id: str, body: bytes) -> str:
        endpoint = self._endpoint
        if endpoint is None:
            return "the webhook was removed from the configuration"
        return await send_signed(endpoint, self._secret, message_id(id), body, _TIMEOUT_S)


async def send_signed(endpoint: RemoteEndpoint, secret: bytes, id: str, body: bytes, timeout_s: float) -> str:
    """Send a signed request. Returns why it has failed; empty if the receiver has accepted it."""
    connection, response = None, CollectedResponse(0)
    try:
        async with asyncio.timeout(timeout_s):
            connection = await endpoint.open(timeout_s)
            headers = signed_headers(secret, id, int(time.time()), body)
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            connection.send(endpoint.request(body, lines.encode()), response)
            await response.done
    except (UpstreamError, TimeoutError) as error:
        if not response.status:  # the body does not matter
            return error.code if isinstance(error, UpstreamError) else "it did not answer in time"
    finally:
        if connection is not None:
            connection.close()
    return "" if 200 <= response.status < 300 else f"it answered with the status {response.status}"


def _take(book: Book) -> TakenWarning | TakenRequest | int | None:
    """What is due, or when the next one is."""
    now = clock_ms()
    until = now + int(_LEASE_S * 1000)
    warning = book.take_warning(now, until)
    if isinstance(warning, TakenWarning):
        return warning
    request = book.limit_requests.take(now, until)
    if isinstance(request, TakenRequest):
        return request
    return min((due for due in (warning, request) if due is not None), default=None)


def _end(taken: TakenWarning | TakenRequest, delivery: Delivery, due_ms: int | None, book: Book) -> None:
    if isinstance(taken, TakenWarning):
        book.end_delivery(taken, delivery, due_ms)
    else:
        book.limit_requests.end_delivery(taken, due_ms)


def _message(taken: TakenWarning | TakenRequest) -> tuple[str, str, int, dict[str, object]]:
    """What is sent: its name, its id, its time and its body."""
    if isinstance(taken, TakenWarning):
        warning = taken.warning
        body = {"type": "budget.warning", **warning_json(warning)}
        return "a budget warning", warning.id, warning.at_ms, body
    request = taken.request
    shown = request_json(request, None, clock_ms())
    sent = {name: shown[name] for name in _OF_REQUEST}
    return "a request for more", request.id, request.created_ms, {"type": "limits.request", **sent}


def message_id(warning_id: str) -> str:
    """The `webhook-id` of a warning. Derived by a hash: an id may have no dot, and the names of teams may have any."""
    return f"msg_{hashlib.sha256(warning_id.encode()).hexdigest()[:32]}"


def signed_headers(key: bytes, id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers by which a receiver verifies a request."""
    signature = base64.b64encode(hmac.digest(key, b"%b.%d.%b" % (id.encode(), timestamp, body), "sha256")).decode()
    return {"webhook-id": id, "webhook-timestamp": str(timestamp), "webhook-signature": f"v1,{signature}"}


def warning_json(warning: BudgetWarning) -> dict[str, object]:
    """A warning, as the webhook and the admin API show it."""
    return {
        "id": warning.id,
        "kind": warning.kind,
        "subject": warning.name,
        "name": warning.title,
        "period": warning.period,
        "label": warning.label,
        "percent": warning.percent,
        "budget": money(warning.budget),
        "spent": money(warning.spent),
        "refused": warning.refused,
        "at": moment(warning.at_ms),
    }
