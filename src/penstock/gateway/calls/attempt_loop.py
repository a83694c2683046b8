"""AttemptLoop: tries the targets of a call one after another, until one commits.

Each attempt after the first is taken from the retry budget. Three kinds of retries are free: on a new connection, if a
pooled one fails so soon that the provider has presumably not seen the request (`http/upstream_connection.py`, rule 3);
with another key of the same provider, if the provider refuses one, which then cools down; and at a target that the
route names for a cause that lies in the request. `recovery.py` has the causes, and when the same target is tried again.

A key of a provider that is at its own limit (`gateway/limits/provider_keys.py`) is skipped without an attempt. If no
target is left because of that, the client gets a 429.

The loop decides which target is tried, and when. How a target is asked is the matter of an `Asker`, of which there is
one for each kind of call: `chat_asker.py`, `embeddings_asker.py`, and `local_asker.py` for the models on this machine.
"""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from itertools import chain
from typing import Any, Protocol, TypeAlias

from msgspec import structs

from penstock.core.hub.failure import Failure
from penstock.gateway.billing.ledger import Ledger, NoLedger
from penstock.gateway.calls import refusals
from penstock.gateway.calls.choice import unmet
from penstock.gateway.calls.continuing import Continuing
from penstock.gateway.calls.plan import Plan
from penstock.gateway.calls.recovery import CAUSED_BY_REQUEST, Repetitions, cause_of
from penstock.gateway.calls.routing import NoHealth, TargetHealth, is_of_key
from penstock.gateway.config import Config, Target
from penstock.gateway.config.route_settings import Cause
from penstock.gateway.limits.demand import TokenDemand
from penstock.gateway.limits.provider_keys import KeyAtLimit
from penstock.gateway.record.attempt import Attempt, AttemptControl
from penstock.gateway.record.call import Call
from penstock.gateway.record.trace import new_span
from penstock.gateway.relay.outcome import Committed, Completed, Failed, Outcome

_NO_MODEL = "upstream_model_not_found"
_STALE = "upstream_stale"
_TOO_SLOW = "upstream_too_slow"

Work: TypeAlias = Coroutine[Any, Any, None]
"""What an asker has to await. The loop runs it as a task, and cancels it if the call is stopped."""


class Asker(Protocol):
    """Writes the request of one call for a target, and sends it there."""

    large: bool
    """Whether `demand` takes so long that it must run in a thread."""

    def demand(self) -> TokenDemand:
        """What the request may consume, for the limits of keys."""

    def prepare(self, plan: Plan) -> Failure | Work | None:
        """Write the request for a target. Returns the failure if that is not possible; or work that must be done
        first, after which the loop calls this again."""

    def ask(self, plan: Plan, report: Callable[[Outcome], None], *, fresh: bool) -> Work | None:
        """Send the request that was prepared: at once on an idle connection, unless the connection must be `fresh`, or
        by the work that is returned. What becomes of the attempt is reported."""

    def cooling_plans(self) -> Sequence[Plan]:
        """The plans whose targets cool down and would be able to take the request."""


class LoopClient(Protocol):
    """The client's side of a call, as the loop uses it."""

    def refuse(self, failure: Failure) -> None:
        """Send the failure: with its HTTP status if nothing is sent yet, else as an error frame."""

    def fail(self, error: BaseException) -> None:
        """End the call after an exception of ours, also if the call is settled: then the client still waits."""


class TargetSubstitute(Protocol):
    """What may answer a call in place of its targets."""

    def start(self, ask_targets: Callable[[], None], /) -> bool:
        """Answer the call. If that is not possible, return False, or call `ask_targets` later."""

    def stop(self) -> None:
        """The call is stopped."""


class LoopServices(Protocol):
    """What the loop uses of the gateway."""

    config: Config
    ledger: Ledger | NoLedger
    health: TargetHealth


class AttemptLoop:
    """The attempts at one call, one after another, until a target commits or no target is left.

    Nearly always the pool has an idle connection. Then the request is sent at once, without a task.
    """

    source: TargetSubstitute | None = None
    """What may answer the call in place of the targets."""
    _number = 0  # of the current plan
    _place = -1  # that of the target of the last attempt
    _targets_tried = 0
    _on_fresh_connection = False
    _continuable: Sequence[Plan] = ()  # the plans that may go on with the answer
    _is_probe = False
    _task: asyncio.Task[None] | None = None
    _stopped = False
    _demand: TokenDemand
    _repetitions: Repetitions | None = None  # since the first failure
    _timer: asyncio.TimerHandle | None = None  # of a repetition, or for leaving the target
    _leaves_for: int | None = None  # the number of the plan for which the target is left
    _at_limit: KeyAtLimit | None = None  # the key of a provider that is free again soonest
    continuing: Continuing | None = None
    """Lets another target go on with an answer that breaks off, if the route allows it."""
    _measured: int | None = None  # the target in the measures, while its attempt is in progress

    def __init__(
        self,
        services: LoopServices,
        call: Call,
        plans: Sequence[Plan],
        asker: Asker,
        client: LoopClient,
    ) -> None:
        self._services = services
        self._health = NoHealth() if plans[0].client_credentials else services.health
        self._call = call
        self._plans = plans
        self._plan = plans[0]
        self._asker = asker
        self._client = client

    def start(self) -> None:
        """Try the first target, once the ledger has admitted the call."""
        if self._asker.large:
            self._run_task(self._start_large())
        else:
            self._admit(self._asker.demand())

    async def _start_large(self) -> None:
        self._admit(await asyncio.get_running_loop().run_in_executor(None, self._asker.demand))

    def _admit(self, demand: TokenDemand) -> None:
        self._demand = demand
        fallbacks, plans = self._plan.fallbacks, self._plans
        if fallbacks:
            plans = [*plans, *chain.from_iterable(self._usable(each) for each in fallbacks.values())]
        if self._services.ledger.admit(self._call, demand, plans, self._on_decided):
            self._answer()

    def _on_decided(self, failure: Failure | None) -> None:
        """The ledger has admitted or refused the call."""
        if self._stopped:
            return
        if failure is None:
            self._answer()
        else:
            self._refuse(failure)

    def _answer(self) -> None:
        """The call is admitted: let it be answered."""
        if self.source is None or not self.source.start(self._continue):
            self._try()

    def _refuse(self, failure: Failure) -> None:
        """Send the client a failure: no target has committed, or none goes on with the answer that broke off."""
        if self.continuing is not None and self.continuing.active:
            self.continuing.give_up()
            return
        try:
            self._client.refuse(failure)
        except Exception as error:  # noqa: BLE001 - the client gets an error, although the call may be settled
            self._client.fail(error)

    def stop(self) -> None:
        """Stop: the client has disconnected or got an error."""
        self._stopped = True
        if self.source is not None:
            self.source.stop()
        self._end_measure()
        if self._is_probe:  # let another call be the probe
            self._is_probe = False
            self._health.release_probe(self._plan.target)
        if self._task is not None:
            self._task.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def _try(self, failed: Failure | None = None) -> None:
        """Try the current target, or the next one that the request can be written for.

        `failed` is the failure of the previous target. The client gets it if no target is left.
        """
        losses = self._call.progress.losses
        while (obstacle := self._asker.prepare(self._plan)) is not None:  # no request is sent: not an attempt
            if not isinstance(obstacle, Failure):
                self._run_task(self._try_after(obstacle, failed))
                return
            if self._number + 1 == len(self._plans):
                if failed is not None:
                    self._call.progress.losses = losses
                self._refuse(failed or self._limit_or_cooling() or obstacle)
                return
            self._use_plan(self._number + 1)
        plan = self._plan
        if plan.quota is None:
            self._begin()
        else:
            then, limits = partial(self._on_key_decided, failed), self._services.ledger.provider_keys
            limits.reserve(plan.quota, self._call, self._demand, plan.timeouts.total_s, then)

    async def _try_after(self, work: Work, failed: Failure | None) -> None:
        await work
        self._try(failed)

    def _use_plan(self, number: int) -> None:
        self._number = number
        self._plan = self._plans[number]

    def _limit_or_cooling(self) -> Failure | None:
        """The failure if targets that could take the request are at a limit, or cool down."""
        if self._at_limit is not None:
            return self._keys_at_limit(self._at_limit)
        health = self._health
        wait = min(filter(None, (health.cooling_s(plan.target) for plan in self._asker.cooling_plans())), default=0.0)
        return refusals.all_cooling(wait, limited=health.limited(self._plan.alternatives)) if wait else None

    def _on_key_decided(self, failed: Failure | None, at_limit: KeyAtLimit | None) -> None:
        """The provider's key may be used, or is at its limit. `failed` is as in `_try`."""
        if self._stopped:
            return
        if at_limit is None:
            self._begin()
        else:
            self._skip_key(failed, at_limit)

    def _skip_key(self, failed: Failure | None, at_limit: KeyAtLimit) -> None:
        """Try the next key or target: the key of the current one is at its limit."""
        self._call.progress.keys_at_limit.append((self._plan.provider, self._plan.provider_key, at_limit.limit))
        if self._at_limit is None or (at_limit.wait_s or math.inf) < (self._at_limit.wait_s or math.inf):
            self._at_limit = at_limit
        if self._number + 1 < len(self._plans):
            self._use_plan(self._number + 1)
            # Not at once: the number of keys must not be a depth of calls.
            asyncio.get_running_loop().call_soon(self._call.guarded(self._continue), failed)
        elif failed is None or is_of_key(failed, self._plan):
            self._refuse(self._keys_at_limit(self._at_limit))
        else:
            self._refuse(failed)

    def _continue(self, failed: Failure | None = None) -> None:
        if not self._stopped:
            self._try(failed)

    def _keys_at_limit(self, at_limit: KeyAtLimit) -> Failure:
        """The failure if keys are at their limits, and all other targets cool down."""
        waits = [wait for wait in map(self._health.cooling_s, self._plan.alternatives) if wait]
        if at_limit.wait_s is not None:
            waits.append(at_limit.wait_s)
        return refusals.keys_at_limit(min(waits, default=None))

    def _begin(self) -> None:
        """Start an attempt at the current target."""
        services, call, plan = self._services, self._call, self._plan
        self._is_probe = self._health.tried(plan.target)
        if not call.progress.attempts:
            call.progress.overhead_s = time.perf_counter() - call.read_s
        attempt = Attempt(plan.provider, plan.model, plan.secrets, plan.dialect, provider_key=plan.provider_key)
        attempt.client_credentials = plan.client_credentials
        if self.continuing is not None and self.continuing.active:
            self.continuing.asks()
            attempt.prefilled = self.continuing.spent
        if call.reasons or call.progress.attempts:
            attempt.why = self._why(plan)
        if call.trace is not None and services.config.telemetry.propagate:
            attempt.span = new_span()
        call.progress.attempts.append(attempt)
        if plan.measured:
            self._measured = plan.measure_key
            services.health.measures.begin(self._measured)
        if plan.place != self._place:
            self._place, self._targets_tried = plan.place, self._targets_tried + 1
        call.progress.control = AttemptControl(attempt)
        if plan.fallbacks and "refusal" in plan.fallbacks:
            call.progress.control.refusal_fails = bool(self._untried("refusal"))
        services.ledger.start_attempt(call, attempt, plan)
        if call.may_leave and (usual_s := services.health.measures.p95_s(plan.measure_key)) is not None:
            self._timer = asyncio.get_running_loop().call_later(usual_s, call.guarded(self._leave), attempt)
        self._ask(fresh=False)

    def _leave(self, attempt: Attempt) -> None:
        """The target begins later than usual: cancel its attempt, which is booked, and try the next one."""
        control = self._call.progress.control
        running = control.running if control is not None else None
        if self._stopped or running is None or attempt is not self._call.progress.attempts[-1] or not attempt.sent:
            return
        if attempt.commit_s is None and (following := self._following()) is not None:
            self._leaves_for = following
            running.stop(Failure(code="upstream_too_slow", message="the answer begins later than usual"), "cancelled")

    def _why(self, plan: Plan) -> str:
        """Why this target is tried now."""
        before, chosen = self._call.progress.attempts, self._call.reasons.get(plan.place, "")
        if not before:
            return chosen
        last = before[-1]
        if self.continuing is not None and self.continuing.active:
            return f"goes on after {last.provider}/{last.model}: {last.code}"
        return f"after {last.provider}/{last.model}: {last.code}"

    def _ask(self, *, fresh: bool) -> None:
        self._on_fresh_connection = fresh
        work = self._asker.ask(self._plan, self._on_outcome, fresh=fresh)
        if work is not None:
            self._run_task(work)

    def _run_task(self, work: Work) -> None:
        """Continue in a task: something has to be awaited."""
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._client.fail(error)

    def _on_outcome(self, outcome: Outcome) -> None:
        """Handle what the asker reports of the current attempt."""
        if self._stopped:
            return
        health, target = self._health, self._plan.target
        try:
            if self._measured is not None:
                self._measure(self._measured, outcome)
            match outcome:
                case Committed():
                    health.committed(target)
                case Completed():
                    self._is_probe = False
                    health.completed(target)
                case Failed(failure, committed=True):
                    self._is_probe = False
                    health.broke(target, failure, self._alternatives(failure))
                    if outcome.goes_on:
                        self._go_on(failure)
                case Failed(failure):
                    self._on_failure(failure)
        except Exception as error:  # noqa: BLE001 - the client gets an error
            self._client.fail(error)

    def _measure(self, key: int, outcome: Outcome) -> None:
        """Take the measures of the current attempt."""
        attempt, measures = self._call.progress.attempts[-1], self._services.health.measures
        match outcome:
            case Committed() if attempt.commit_s is not None:
                measures.answered(key, attempt.commit_s)
                return
            case Completed() if attempt.commit_s is not None:
                measures.completed(key, attempt.output_chars, attempt.seconds - attempt.commit_s)
            case Failed(failure, committed=False) if attempt.ending == "timed_out" or failure.code == _TOO_SLOW:
                measures.late(key, attempt.seconds)
            case Failed(failure) if failure.code == _STALE and not self._on_fresh_connection:
                return  # it is repeated
        self._end_measure()

    def _end_measure(self) -> None:
        """The current attempt is over."""
        if self._measured is not None:
            self._services.health.measures.end(self._measured)
            self._measured = None

    def _on_failure(self, failure: Failure) -> None:
        """The attempt has failed before its commit point: try again, or the next target, or give up."""
        health = self._health
        if failure.code == _STALE and not self._on_fresh_connection:
            attempt = self._call.progress.attempts[-1]
            attempt.code, attempt.sent = "", False  # presumably the provider has not seen the request
            self._services.ledger.guard(self._call)  # `AttemptControl.release` has removed the limit
            self._ask(fresh=True)
            return
        self._is_probe = False
        health.failed(self._plan.target, failure, self._alternatives(failure))
        if self.continuing is not None and self.continuing.active:
            self._ask_to_go_on(self.continuing, self._plan)
            return
        following = self._next(failure)
        if following is not None:
            self._use_plan(following)
            self._try(failure)
        elif not self._repeat_later(failure):
            self._give_up(failure)

    def _go_on(self, failure: Failure) -> None:
        """The answer has broken off, and the client's stream is open: another target is to go on with it."""
        continuing, attempt = self.continuing, self._call.progress.attempts[-1]
        assert continuing is not None
        ending = attempt.ending
        assert ending is not None
        continuing.broke(failure, ending, self._services.ledger)
        plans = self._usable([plan for plan in self._plans if plan.client_credentials == self._plan.client_credentials])
        if not continuing.candidates(plans, None, self._cooling(plans)) or not self._health.retries.spend():
            continuing.give_up()
            return
        self._continuable = plans
        self._services.ledger.cover(self._call, plans, self._on_covered)

    def _on_covered(self, failure: Failure | None) -> None:
        """The budget covers a continuation, or has no room for it."""
        if self._stopped or self.continuing is None:
            return
        if failure is not None:
            self.continuing.give_up()
        else:
            self._ask_to_go_on(self.continuing, None)

    def _ask_to_go_on(self, continuing: Continuing, failed: Plan | None) -> None:
        """Ask the next target to go on with the answer; `failed` is the one that has failed to."""
        candidates = continuing.candidates(self._continuable, failed, self._cooling(self._continuable))
        if not candidates:
            continuing.give_up()
            return
        self._plans = candidates
        self._use_plan(0)
        self._try()

    def _cooling(self, plans: Sequence[Plan]) -> list[Plan]:
        return [plan for plan in plans if self._health.cooling_s(plan.target)]

    def _give_up(self, failure: Failure) -> None:
        """Send the client a failure, with the time after which a target may be tried again."""
        wait = min(map(self._health.cooling_s, self._plan.alternatives))
        if wait and not failure.retry_after:
            failure = structs.replace(failure, retry_after=refusals.whole_seconds(wait))
        self._refuse(failure)

    def _next(self, failure: Failure) -> int | None:
        """The number of the plan to try after a failure; None if there is none, or the retry budget is used up."""
        if (chosen := self._leaves_for) is not None:
            self._leaves_for = None
            return chosen
        plans, following = self._plans, self._number + 1
        another_key = following < len(plans) and plans[following].place == self._plan.place
        if failure.retryable and another_key and is_of_key(failure, self._plan):
            return following
        fallback = self._fallback(failure) if self._plan.fallbacks else None
        return self._following() if fallback is None and failure.retryable else fallback

    def _following(self) -> int | None:
        """The number of the first plan of the next target."""
        place, following = self._plan.place, self._number + 1
        while following < len(self._plans) and self._plans[following].place == place:
            following += 1
        if following == len(self._plans) or self._targets_tried >= self._services.config.retries.max_attempts:
            return None
        return following if self._health.retries.spend() else None

    def _fallback(self, failure: Failure) -> int | None:
        """The number of the first target that the route names for the cause of a failure; None if there is none."""
        cause = cause_of(failure)
        named = self._untried(cause) if cause is not None else []
        if not named or self._targets_tried >= self._services.config.retries.max_attempts:
            return None
        in_request, number = cause in CAUSED_BY_REQUEST, self._number + 1
        if not in_request and not self._health.retries.spend():
            return None
        further = [] if in_request else [plan for plan in self._plans[number:] if plan not in named]
        self._plans = [*self._plans[:number], *named, *further]
        return number

    def _untried(self, cause: Cause) -> list[Plan]:
        """The plans that the route names for a cause, of targets that were not tried and do not cool down."""
        tried = [(attempt.provider, attempt.model) for attempt in self._call.progress.attempts]
        named = self._usable(self._plan.fallbacks.get(cause, ()))
        return [
            plan
            for plan in named
            if (plan.provider, plan.model) not in tried and not self._health.cooling_s(plan.target)
        ]

    def _usable(self, plans: Sequence[Plan]) -> list[Plan]:
        """Those of these plans that the call may use."""
        usable, key = [plan for plan in plans if not plan.client_only], self._call.key
        if required := self._call.requirements:
            usable = [plan for plan in usable if not unmet(required, plan, self._services.ledger.price)]
        return self._services.ledger.affordable(usable) if key is not None and key.budgeted else usable

    def _repeat_later(self, failure: Failure) -> bool:
        """Try the same target again after a wait, if it may pass what has failed now. Return whether that is done."""
        if self._plan.client_credentials or self._plan.is_local:
            return False
        if self._repetitions is None:
            self._repetitions = Repetitions(self._services.config.retries)
        attempt, target = self._call.progress.attempts[-1], self._plan.target
        cooling_s, billed_too = self._health.cooling_s(target), self._plan.settings.retry_billed
        wait_s = self._repetitions.wait_s(failure, attempt, cooling_s, billed_too=billed_too)
        if wait_s is None or not self._health.retries.spend():
            return False
        repeat = self._call.guarded(self._repeat)
        self._timer = asyncio.get_running_loop().call_later(wait_s, repeat, failure)
        return True

    def _repeat(self, failure: Failure) -> None:
        """Try the same target again, unless other calls have found meanwhile that it fails."""
        if self._stopped:
            return
        if self._health.cooling_s(self._plan.target):
            self._give_up(failure)
        else:
            self._try(failure)

    def _alternatives(self, failure: Failure) -> Sequence[Target]:
        """The targets that can replace the current one. None if the client named the provider's model, in a pattern:
        then a model that does not exist is the client's mistake, and must not fill the table of breakers."""
        named = self._plan.route in self._services.config.routes
        return self._plan.alternatives if named or failure.code != _NO_MODEL else ()
