"""Webhook: sends budget warnings to the operator's URL, signed, one after another. No call waits for it.

A delivery has succeeded if the receiver answers with a status of 2xx. It is repeated after the times in `WAITS_S`, then
given up. The queue is bounded. The pool rejects host names that resolve to link-local addresses (SSRF, `http/ssrf.py`),
and redirects are not followed.

The signature is the HMAC-SHA256 of the timestamp, a dot and the body. Each attempt has a new timestamp.
"""

import asyncio
import hmac
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from penstock.gateway.config.settings import BudgetSettings
from penstock.gateway.keys.report import moment, money
from penstock.gateway.limits.warnings import BudgetWarning
from penstock.http.client import UpstreamError
from penstock.upstream.remote import Remote, RemoteEndpoint

TIMESTAMP = "penstock-timestamp"
SIGNATURE = "penstock-signature"
WAITS_S = (1.0, 2.0, 15.0, 60.0, 300.0)
_TIMEOUT_S = 10.0
_MAX_QUEUE = 1_000


class Webhook:
    """Delivers warnings to the URL of the configuration, if it has one. Used by the event loop's thread."""

    def __init__(
        self,
        remote: Remote,
        warn: Callable[[str], object],
        count: Callable[[str], None],
        waits_s: Sequence[float] = WAITS_S,
    ) -> None:
        """`count` is called with the result of each delivery: `delivered`, `failed` or `dropped`."""
        self._remote = remote
        self._warn = warn
        self._count = count
        self._waits_s = waits_s
        self._endpoint: RemoteEndpoint | None = None
        self._secret = b""
        self._queue: deque[bytes] = deque()
        self._task: asyncio.Task[None] | None = None

    def use(self, settings: BudgetSettings) -> None:
        """Apply a configuration."""
        self._endpoint = None
        if settings.webhook is not None and settings.webhook_secret is not None:
            self._endpoint = self._remote.endpoint(settings.webhook.reveal(), {"connection": "close"})
            self._secret = settings.webhook_secret.reveal().encode()

    def send(self, warning: BudgetWarning) -> None:
        """Queue a warning."""
        if self._endpoint is None:
            return
        if len(self._queue) >= _MAX_QUEUE:
            self._count("dropped")
            self._warn("a budget warning is not sent to the webhook: too many wait")
            return
        self._queue.append(msgspec.json.encode({"type": "budget.warning", **warning_json(warning)}))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Stop. Warnings that wait are not sent; the admin API has them."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._queue:
            problem = await self._deliver(self._queue.popleft())
            self._count("failed" if problem else "delivered")
            if problem:
                self._warn(f"a budget warning could not be sent to the webhook, and is given up: {problem}")

    async def _deliver(self, body: bytes) -> str:
        """Deliver a warning; returns why the last attempt failed, or nothing. The reason does not quote the URL."""
        problem = await self._attempt(body)
        for wait_s in self._waits_s:
            if not problem:
                break
            await asyncio.sleep(wait_s)
            problem = await self._attempt(body)
        return problem

    async def _attempt(self, body: bytes) -> str:
        endpoint = self._endpoint
        if endpoint is None:
            return "the webhook was removed from the configuration"
        connection = None
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                connection = await endpoint.open(_TIMEOUT_S)
                response = _StatusReceiver()
                headers = signed_headers(self._secret, body, int(time.time()))
                lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
                connection.send(endpoint.request(body, lines.encode()), response)
                status = await response.status
        except UpstreamError as error:
            return error.code
        except TimeoutError:
            return "it did not answer in time"
        finally:
            if connection is not None:
                connection.close()
        return "" if 200 <= status < 300 else f"it answered with the status {status}"


class _StatusReceiver:
    """Waits for the status of a response. Its body is not read."""

    def __init__(self) -> None:
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:  # noqa: ARG002
        if not self.status.done():
            self.status.set_result(status)

    def on_data(self, data: bytes, *, last: bool = False) -> None:
        """Ignore the body."""

    def on_end(self) -> None:
        """The status is known by now."""

    def on_error(self, error: UpstreamError) -> None:
        if not self.status.done():
            self.status.set_exception(error)


def signed_headers(secret: bytes, body: bytes, timestamp: int) -> dict[str, str]:
    """The headers by which a receiver verifies a request."""
    signature = hmac.digest(secret, b"%d.%b" % (timestamp, body), "sha256").hex()
    return {TIMESTAMP: str(timestamp), SIGNATURE: f"sha256={signature}"}


def warning_json(warning: BudgetWarning) -> dict[str, object]:
    """A warning, as the webhook and the admin API show it."""
    return {
        "id": f"{warning.account}/{warning.label}/{warning.percent}",
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
