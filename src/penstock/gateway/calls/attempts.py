"""Attempts: try the targets of a call one after another, until one commits.

Each attempt after the first is taken from the retry budget. Two kinds of retries are free: on a new connection, if a
pooled one fails so soon that the provider has presumably not seen the request (`http/upstream_connection.py`, rule 3);
and with another key of the same provider, if the provider refuses one, which then cools down.

A key of a provider that is at its own limit (`gateway/limits/provider_keys.py`) is skipped without an attempt. If no
target is left because of that, the client gets a 429.
"""

import asyncio
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from msgspec import structs

from penstock.core.hub.failure import Failure
from penstock.gateway.billing.ledger import Ledger, NoLedger
from penstock.gateway.calls import refusals
from penstock.gateway.calls.call import Attempt, Call
from penstock.gateway.calls.plan import PendingConnection, Plan, TargetEndpoint
from penstock.gateway.calls.routing import RetryBudget, TargetHealth, is_of_key
from penstock.gateway.calls.trace import HEADER, new_span
from penstock.gateway.config import Config, Target
from penstock.gateway.limits.demand import TokenDemand
from penstock.gateway.limits.provider_keys import Yielded
from penstock.gateway.relay.control import AttemptControl
from penstock.gateway.relay.recording import RecordingReceiver
from penstock.gateway.relay.relay import Relay
from penstock.http.upstream_connection import RequestBytes
from penstock.upstream.local.model import LocalModel
from penstock.upstream.media import MediaFetcher

_NO_MODEL = "upstream_model_not_found"


class Refusable(Protocol):
    """The client's side of any call."""

    def refuse(self, failure: Failure) -> None:
        """Send the failure: with its HTTP status if nothing is sent yet, else as an error frame."""

    def fail(self, error: BaseException) -> None:
        """Report an internal error, so that the client does not wait for an answer."""


class AttemptServices(Protocol):
    """What attempts use of the gateway."""

    config: Config
    ledger: Ledger | NoLedger
    health: TargetHealth
    retry_budget: RetryBudget
    local_models: Mapping[str, LocalModel]
    keep_transcripts: bool
    media: MediaFetcher | None

    def plans(self, model: str, dialect: str, *, stream: bool) -> Sequence[Plan]:
        """The plans of all targets of a model for clients of a dialect, including those that cool down."""

    def endpoint(self, target: Target, *, embeddings: bool = False) -> TargetEndpoint:
        """The endpoint of a target."""

    def recording(self, call: Call, plan: Plan, body: bytes, relay: Relay) -> RecordingReceiver | None:
        """A receiver that records the attempt; None if it is not recorded."""


ClientType = TypeVar("ClientType", bound=Refusable)
Request = TypeVar("Request")
T = TypeVar("T")


class AnyAttempts(ABC, Generic[ClientType, Request]):
    """The attempts at one call, one after another, until a target commits or no target is left.

    Nearly always the pool has an idle connection. Then the request is sent at once, without a task.
    """

    _tried = 0  # plans before the current one
    _place = -1  # that of the target of the last attempt
    _targets_tried = 0
    _needs_fresh_connection = False
    _is_probe = False
    _committed = False
    # Whether the request has many values or bytes: then a thread does what takes time for each of them.
    _many = False
    _task: asyncio.Task[None] | None = None
    _stopped = False
    _demanded: TokenDemand | None = None
    _yielded: Yielded | None = None  # the limit of a provider's key that is free again soonest

    def __init__(
        self, gateway: AttemptServices, call: Call, client: ClientType, request: Request, plans: Sequence[Plan]
    ) -> None:
        self._gateway = gateway
        self._call = call
        self._client = client
        self._request = request
        self._plans = plans
        self._plan = plans[0]

    def start(self) -> None:
        """Try the first target, once the ledger has admitted the call."""
        try:
            if self._demanded is None:
                self._demanded = self._demand()
            if self._gateway.ledger.admit(self._call, self._demanded, self._plans, self._on_decided):
                self._try()
        except Exception as error:  # noqa: BLE001 - the client gets an error
            self._client.fail(error)

    def _on_decided(self, failure: Failure | None) -> None:
        """The ledger has admitted or refused the call."""
        if self._stopped:
            return
        if failure is not None:
            self._client.refuse(failure)
            return
        try:
            self._try()
        except Exception as error:  # noqa: BLE001 - the client gets an error
            self._client.fail(error)

    def stop(self) -> None:
        """Stop: the client has disconnected or got an error."""
        self._stopped = True
        self._release_probe()
        if self._task is not None:
            self._task.cancel()

    def _release_probe(self) -> None:
        """Let another call be the probe, if this one was it."""
        if self._is_probe:
            self._is_probe = False
            self._gateway.health.release_probe(self._plan.target)

    @abstractmethod
    def _demand(self) -> TokenDemand:
        """What the request may consume, for the key's limits."""

    @abstractmethod
    def _ask(self) -> None:
        """Send the request to the target: on an idle connection of the pool, or on a new one."""

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Do work whose time depends on the size of the request: in a thread, if that is large."""
        return await asyncio.get_running_loop().run_in_executor(None, work) if self._many else work()

    @abstractmethod
    def _content(self) -> tuple[bytes, bytes]:
        """The body for the current target, and the lines of its own headers."""

    def _idle_connection(self, endpoint: TargetEndpoint) -> PendingConnection | None:
        return None if self._needs_fresh_connection else endpoint.idle_connection()

    async def _connect(self, endpoint: TargetEndpoint) -> tuple[PendingConnection, RequestBytes]:
        """A connection, and the request to send on it. If the request is large, it is written first, in a thread.

        Raises `UpstreamError`.
        """
        connect_s = self._plan.target.timeouts.connect_s
        if not self._many:
            return await endpoint.open(connect_s), endpoint.request(*self._content())
        request = await endpoint.large_request(*await self._in_thread(self._content))
        return self._idle_connection(endpoint) or await endpoint.open(connect_s), request

    def _prepare(self) -> Failure | None:
        """Write the request for the current target; returns a failure if that is not possible."""
        return None

    def _fetches(self, failed: Failure | None) -> bool:  # noqa: ARG002
        """Whether something is fetched without which the request cannot be written; then `_try` follows again."""
        return False

    def _cooling_s(self) -> float:
        """The shortest cool-down of the targets that the request can be written for; 0 if there is none."""
        return 0.0

    def _try(self, failed: Failure | None = None) -> None:
        """Try the current target, or the next one that the request can be written for.

        `failed` is the failure of the previous target. The client gets it if no target is left.
        """
        losses = self._call.losses
        while (failure := self._prepare()) is not None:  # the target gets no request: not an attempt
            if self._fetches(failed):
                return
            if self._tried + 1 >= len(self._plans):
                if failed is not None:
                    self._call.losses, failure = losses, failed
                elif self._yielded is not None:
                    failure = self._keys_at_limit(self._yielded)
                elif wait := self._cooling_s():
                    limited = self._gateway.health.limited(self._plan.alternatives)
                    failure = refusals.all_cooling(wait, limited=limited)
                self._client.refuse(failure)
                return
            self._tried += 1
            self._plan = self._plans[self._tried]
        plan = self._plan
        if plan.quota is None:
            self._begin()
        else:
            assert self._demanded is not None  # since the start
            then, limits = partial(self._on_key_decided, failed), self._gateway.ledger.provider_keys
            limits.reserve(plan.quota, self._call, self._demanded, plan.timeouts.total_s, then)

    def _on_key_decided(self, failed: Failure | None, yielded: Yielded | None) -> None:
        """The provider's key may be used, or is at its limit. `failed` is as in `_try`."""
        if self._stopped:
            return
        try:
            if yielded is None:
                self._begin()
            else:
                self._skip_key(failed, yielded)
        except Exception as error:  # noqa: BLE001 - the client gets an error
            self._client.fail(error)

    def _skip_key(self, failed: Failure | None, yielded: Yielded) -> None:
        """Try the next key or target: the key of the current one is at its limit."""
        self._call.yielded.append((self._plan.provider, self._plan.provider_key, yielded.limit))
        if self._yielded is None or (yielded.wait_s or math.inf) < (self._yielded.wait_s or math.inf):
            self._yielded = yielded
        if self._tried + 1 < len(self._plans):
            self._tried += 1
            self._plan = self._plans[self._tried]
            # Not at once: the number of keys must not be a depth of calls.
            asyncio.get_running_loop().call_soon(self._continue, failed)
        elif failed is None or is_of_key(failed, self._plan):
            self._client.refuse(self._keys_at_limit(self._yielded))
        else:
            self._client.refuse(failed)

    def _continue(self, failed: Failure | None) -> None:
        if not self._stopped:
            try:
                self._try(failed)
            except Exception as error:  # noqa: BLE001 - the client gets an error
                self._client.fail(error)

    def _keys_at_limit(self, yielded: Yielded) -> Failure:
        """The failure if keys are at their limits, and all other targets cool down."""
        waits = [wait for wait in map(self._gateway.health.cooling_s, self._plan.alternatives) if wait]
        if yielded.wait_s is not None:
            waits.append(yielded.wait_s)
        return refusals.keys_at_limit(min(waits, default=None))

    def _begin(self) -> None:
        """Start an attempt at the current target."""
        gateway, call, plan = self._gateway, self._call, self._plan
        self._is_probe = gateway.health.tried(plan.target)
        if not call.attempts:
            call.overhead_s = time.perf_counter() - call.read_s
        attempt = Attempt(plan.provider, plan.model, plan.secrets, plan.dialect, provider_key=plan.provider_key)
        if call.trace is not None and gateway.config.telemetry.propagate:
            attempt.span = new_span()
        call.attempts.append(attempt)
        if plan.place != self._place:
            self._place, self._targets_tried = plan.place, self._targets_tried + 1
        call.control = AttemptControl(attempt)
        gateway.ledger.start_attempt(call, attempt, plan)
        self._ask()

    def _hide_secrets(self, endpoint: TargetEndpoint) -> None:
        """Redact the credentials with which this attempt is authorized, if the configuration does not have them."""
        if secrets := endpoint.secrets():
            self._call.attempts[-1].secrets = (*self._plan.secrets, *secrets)

    def _traced(self, request: RequestBytes) -> RequestBytes:
        """The request, with a `traceparent` header if the configuration propagates traces to providers."""
        span, trace = self._call.attempts[-1].span, self._call.trace
        if not span or trace is None or self._plan.target.provider.replay:
            return request
        head, *body = request if isinstance(request, tuple) else (request,)
        first, _, rest = head.partition(b"\r\n")
        traced = b"%b\r\n%b: %b\r\n%b" % (first, HEADER.encode(), trace.header(span).encode(), rest)
        return (traced, body[0]) if body else traced

    def _run_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Continue in a task: something has to be awaited."""
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._client.fail(error)

    def _on_outcome(self, failure: Failure | None) -> None:
        """Handle the outcome of an attempt: its commit or failure, and after a commit how the answer ended."""
        if self._stopped:
            return
        try:
            if self._committed:
                self._conclude(failure)
            else:
                self._on_attempt_outcome(failure)
        except Exception as error:  # noqa: BLE001 - the client gets an error
            self._client.fail(error)

    def _on_attempt_outcome(self, failure: Failure | None) -> None:
        health = self._gateway.health
        if failure is not None and failure.code == "upstream_stale" and not self._needs_fresh_connection:
            attempt = self._call.attempts[-1]
            attempt.code, attempt.sent = "", False  # presumably the provider has not seen the request
            self._gateway.ledger.guard(self._call)  # `AttemptControl.release` has removed the limit
            self._needs_fresh_connection = True
            self._ask()
            return
        if failure is None:
            self._committed = True
            health.committed(self._plan.target)
            return
        self._is_probe = False
        health.failed(self._plan.target, failure, self._alternatives(failure))
        following = self._following(failure) if failure.retryable else None
        if following is not None:
            self._tried = following
            self._plan = self._plans[following]
            self._needs_fresh_connection = False
            self._try(failure)
            return
        wait = min(map(health.cooling_s, self._plan.alternatives))
        if wait and not failure.retry_after:
            failure = structs.replace(failure, retry_after=refusals.whole_seconds(wait))
        self._client.refuse(failure)

    def _following(self, failure: Failure) -> int | None:
        """The number of the plan to try after a failure; None if there is none, or the retry budget is used up."""
        place, following = self._plan.place, self._tried + 1
        if is_of_key(failure, self._plan) and following < len(self._plans) and self._plans[following].place == place:
            return following  # another key of the same target
        while following < len(self._plans) and self._plans[following].place == place:
            following += 1
        if following == len(self._plans) or self._targets_tried >= self._gateway.config.retries.max_attempts:
            return None
        return following if self._gateway.retry_budget.spend() else None

    def _conclude(self, failure: Failure | None) -> None:
        """The committed answer is complete, or failed."""
        self._is_probe = False
        if failure is None:
            self._gateway.health.completed(self._plan.target)
        else:
            self._gateway.health.broke(self._plan.target, failure, self._alternatives(failure))

    def _alternatives(self, failure: Failure) -> Sequence[Target]:
        """The targets that can replace the current one. None if the client named the provider's model, in a pattern:
        then a model that does not exist is the client's mistake, and must not fill the table of breakers."""
        named = self._plan.route in self._gateway.config.routes
        return self._plan.alternatives if named or failure.code != _NO_MODEL else ()
