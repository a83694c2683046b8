"""Token counting: `POST /v1/messages/count_tokens` and the like, for dialects that have it.

A count is a call: the limits of its key apply (models, requests per minute, calls at the same time), and it has a line
in the log and an entry in the ledger. It costs nothing, because providers count for free, so the entry has no attempt
and no tokens. If a target speaks the client's dialect, its provider counts, within the limits of the provider's key.
Otherwise, and if that fails, the gateway estimates, and says so in the header `x-penstock-estimated`. Clients send many
of these requests at once (Claude Code sends 25), so they have a limit of their own: beyond it, requests are estimated
instead of refused.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from penstock.amounts import clock_ms
from penstock.core.dialects.dialect import RequestError, TokenCounting
from penstock.core.dialects.shared_state import find_reference
from penstock.core.hub.failure import Failure
from penstock.core.hub.request import ClientRequest
from penstock.gateway.calls.gateway import Gateway
from penstock.gateway.calls.plan import Plan, header_lines
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.limits.demand import TokenDemand
from penstock.gateway.limits.provider_keys import KeyAtLimit
from penstock.gateway.record.call import Call
from penstock.http.collected_response import CollectedResponse
from penstock.http.exchange import Exchange
from penstock.http.upstream_connection import UpstreamError
from penstock.serve.responses import JSON, call_headers, id_headers, respond_failure
from penstock.serve.surfaces.call_session import BROKEN, CallSession, report
from penstock.serve.surfaces.surface import LARGE_BODY, in_thread, requirements_of

ESTIMATED_HEADER = "x-penstock-estimated"
_SURFACE = "count_tokens"
# Counts that providers make for this process at the same time.
_MAX_RUNNING = 64
_TIMEOUT_S = 10.0
_MAX_BODY = 65_536
# Names of targets come from clients, so their number must be bounded.
_MAX_WITHOUT = 1_000
# What a provider answers that has no token counting.
_NOT_OFFERED = frozenset((404, 405, 501))


class RequestExpander(Protocol):
    """Replaces references to kept answers in requests by these answers."""

    def check(self, request: ClientRequest) -> ClientRequest:
        """The request. Raises `RequestError` if it refers to what the gateway does not have."""

    def resolve(
        self,
        exchange: Exchange,
        key: ClientKey | None,
        read: Callable[[bytes], ClientRequest],
        then: Callable[[Callable[[], ClientRequest]], None],
        plain: Callable[[], None],
    ) -> None:
        """Call `then`, now or later, with the expanded request; or `plain` if it refers to no kept answer."""


class TokenCounts:
    """Answers requests for token counts in one dialect."""

    def __init__(
        self,
        dialect: str,
        counting: TokenCounting,
        continuations: RequestExpander | None,
        calls: dict[CallSession, None],
        on_settled: Callable[[CallSession], None],
    ) -> None:
        self.dialect = dialect
        self._calls = calls
        self._on_settled = on_settled
        self._counting = counting
        self._continuations = continuations
        self._running: set[asyncio.Task[None]] = set()
        self._estimating: set[asyncio.Task[None]] = set()
        self._without: set[str] = set()  # the targets whose providers do not offer it

    def handle(self, exchange: Exchange, gateway: Gateway, request_id: str, key: ClientKey | None) -> None:
        """Answer one request. A thread parses a large one, as for calls."""
        answer = partial(self._answer, exchange, gateway, request_id, key)
        read = partial(self._read, headers=exchange.request.headers, path=exchange.request.path)
        parse = partial(read, exchange.body)
        large = len(exchange.body) > LARGE_BODY
        plain = partial(in_thread, exchange, parse, answer) if large else partial(answer, parse)
        if self._continuations is None:
            plain()
        else:
            self._continuations.resolve(exchange, key, read, answer, plain)

    def _read(self, body: bytes, headers: Mapping[str, str], path: str) -> ClientRequest:
        request = self._counting.read_request(body, headers, path)
        request.reference = find_reference(self.dialect, request.fields)
        return request if self._continuations is None else self._continuations.check(request)

    def _answer(
        self,
        exchange: Exchange,
        gateway: Gateway,
        request_id: str,
        key: ClientKey | None,
        parsed: Callable[[], ClientRequest],
    ) -> None:
        started, read_s = asyncio.get_running_loop().time(), time.perf_counter()
        try:
            request = parsed()
            gateway.check(request)
            requirements = requirements_of(exchange.request.headers)
        except RequestError as refused:
            respond_failure(exchange, refused.failure, request_id, {}, self.dialect)
            return
        except Exception as error:  # noqa: BLE001 - the client must get a response
            respond_failure(exchange, BROKEN, request_id, {}, self.dialect)
            report(error)
            return
        call = Call(request_id, request.model, False, started, _SURFACE, self.dialect, read_s=read_s, key=key)
        call.at_ms = clock_ms()
        call.credentials, call.requirements = exchange.request.parsed_head.credentials, requirements
        call.progress.headers = id_headers(request_id, self.dialect)
        count = _CountSession(exchange, call, self._on_settled)
        self._calls[count] = None
        try:
            plans = gateway.plans_for(call)
            call.model = plans[0].route
            demand = TokenDemand(0, 0, request.metadata, request.user)
            then = partial(self._on_admitted, gateway, count, request, plans)
            if gateway.ledger.admit(call, demand, plans, then):
                then(None)
        except RequestError as refused:
            count.refuse(refused.failure)
        except Exception as error:  # noqa: BLE001 - the client must get a response
            count.fail(error)

    def _on_admitted(
        self,
        gateway: Gateway,
        count: "_CountSession",
        request: ClientRequest,
        plans: Sequence[Plan],
        failure: Failure | None,
    ) -> None:
        """The ledger has admitted or refused the count: ask a provider if one can count, else estimate."""
        if failure is not None or count.over:
            if failure is not None:
                count.refuse(failure)
            return
        plan = next((plan for plan in plans if self._can_count(plan)), None)
        if plan is None or len(self._running) >= _MAX_RUNNING:
            self._start(gateway, count, request, None)
        elif plan.quota is None:
            self._start(gateway, count, request, plan)
        else:

            def decided(at_limit: KeyAtLimit | None) -> None:
                self._start(gateway, count, request, plan if at_limit is None else None)

            nothing = TokenDemand(0, 0)
            gateway.ledger.provider_keys.reserve(plan.quota, count.call, nothing, _TIMEOUT_S, decided)

    def _start(self, gateway: Gateway, count: "_CountSession", request: ClientRequest, plan: Plan | None) -> None:
        """Count by the provider of the plan; without a plan, estimate."""
        if count.over:
            return  # the client has disconnected
        if plan is None and not request.has_many_values:
            self._respond(count, request.estimate().tokens, estimated=True)
            return
        task = asyncio.get_running_loop().create_task(self._count(gateway, count, request, plan))
        tasks = self._running if plan is not None else self._estimating
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def _can_count(self, plan: Plan) -> bool:
        asked = plan.dialect == self.dialect and not plan.is_local and not plan.client_only
        return asked and plan.target.name not in self._without

    async def _count(self, gateway: Gateway, count: "_CountSession", request: ClientRequest, plan: Plan | None) -> None:
        """Respond with the count of the plan's provider. Without a plan or a count, estimate in a thread."""
        try:
            counted = await self._ask(gateway, request, plan) if plan is not None else None
            tokens = counted
            if tokens is None:
                tokens = (await asyncio.get_running_loop().run_in_executor(None, request.estimate)).tokens
            if not count.over:
                self._respond(count, tokens, estimated=counted is None)
        except Exception as error:  # noqa: BLE001 - the client must get a response
            if not count.over:
                count.fail(error)

    async def _ask(self, gateway: Gateway, request: ClientRequest, plan: Plan) -> int | None:
        """The provider's own count; None if it cannot be had."""
        write = partial(plan.upstream.write_request, request, plan.destination)
        many = request.has_many_values
        try:
            outgoing = await asyncio.get_running_loop().run_in_executor(None, write) if many else write()
        except RequestError:
            return None  # the provider would refuse it
        endpoint = gateway.endpoint_at(plan, self._counting.path)
        response = CollectedResponse(_MAX_BODY)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                sent = await endpoint.large_request(outgoing.body, header_lines(outgoing.headers, plan))
                connection = await endpoint.open(plan.target.timeouts.connect_s)
                try:
                    connection.send(sent, response)
                    await response.done
                finally:
                    connection.abandon(response)
        except (UpstreamError, TimeoutError):
            return None
        if response.status in _NOT_OFFERED and len(self._without) < _MAX_WITHOUT:
            self._without.add(plan.target.name)
        return self._counting.read_count(bytes(response.body)) if response.status == 200 else None

    def _respond(self, count: "_CountSession", tokens: int, *, estimated: bool) -> None:
        headers = {"content-type": JSON} | ({ESTIMATED_HEADER: "true"} if estimated else {})
        count.respond(headers, self._counting.write_count(tokens))


class _CountSession(CallSession):
    """The client's side of one count."""

    @property
    def over(self) -> bool:
        """Whether the client has its response, or has disconnected."""
        return self._settled

    def respond(self, headers: Mapping[str, str], body: bytes) -> None:
        """Send the count."""
        self.call.progress.status, self.call.progress.ending = 200, "completed"
        self._settle()
        self._exchange.respond(200, {**headers, **call_headers(self.call)}, body)
