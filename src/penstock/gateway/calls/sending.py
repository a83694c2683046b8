"""Sending: what askers of remote providers share: the connection, the credentials to redact, and the trace header."""

import asyncio
from collections.abc import Callable

from penstock.gateway.calls.plan import PendingConnection, Plan, TargetEndpoint
from penstock.gateway.record.call import Call
from penstock.gateway.record.trace import HEADER
from penstock.http.upstream_connection import RequestBytes


async def connect(
    plan: Plan, endpoint: TargetEndpoint, content: Callable[[], tuple[bytes, bytes]], *, large: bool, fresh: bool
) -> tuple[PendingConnection, RequestBytes]:
    """A connection, and the request to send on it. If the request is `large`, a thread writes it first.

    `content` returns the body and the lines of its own headers. Raises `UpstreamError`.
    """
    connect_s = plan.target.timeouts.connect_s
    if not large:
        return await endpoint.open(connect_s), endpoint.request(*content())
    request = await endpoint.large_request(*await asyncio.get_running_loop().run_in_executor(None, content))
    idle = None if fresh else endpoint.idle_connection()
    return idle or await endpoint.open(connect_s), request


def redact_credentials(call: Call, plan: Plan, endpoint: TargetEndpoint) -> None:
    """Redact the credentials with which this attempt is authorized, if the configuration does not have them."""
    if secrets := endpoint.secrets:
        call.progress.attempts[-1].secrets = (*plan.secrets, *secrets)


def traced(request: RequestBytes, call: Call, plan: Plan) -> RequestBytes:
    """The request, with a `traceparent` header if the configuration propagates traces to providers."""
    span, trace = call.progress.attempts[-1].span, call.trace
    if not span or trace is None or plan.target.provider.replay:
        return request
    head, *body = request if isinstance(request, tuple) else (request,)
    first, _, rest = head.partition(b"\r\n")
    marked = b"%b\r\n%b: %b\r\n%b" % (first, HEADER.encode(), trace.header(span).encode(), rest)
    return (marked, body[0]) if body else marked
