"""Shadows: repeats a share of the calls of a route at another target, after their clients were served, and compares.

A call is chosen when it begins, so that its answer is collected; it is repeated when it is settled as completed. The
repetition is a call of its own, of the key `shadow`, which is no client's: no key, team or budget pays for it. Its tags
name the call that it repeats, and say how the answers differ (`gateway/calls/comparison.py`). No content is kept.

1. At most `concurrent` calls of a process are chosen or repeated at a time; others are not repeated.
2. Not repeated are calls with a credential of the client, or with something that only its provider keeps or executes.
"""

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Protocol

from penstock.core.dialects.dialect import RequestError
from penstock.core.hub.failure import Failure
from penstock.core.hub.request import ClientRequest
from penstock.gateway.calls.attempt_loop import AttemptLoop
from penstock.gateway.calls.comparison import SHADOW_COMPARED, SHADOW_KEY, SHADOW_OF, compare
from penstock.gateway.calls.gateway import Gateway
from penstock.gateway.calls.plan import Plan
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.record.call import Call
from penstock.gateway.record.entry import Entry
from penstock.gateway.relay.ports import DisconnectedClient
from penstock.serve.responses import request_ids

_KEY = ClientKey(id=SHADOW_KEY, name=SHADOW_KEY)
_ENDED = Failure(code="gateway_draining", message="the gateway ends", retryable=False)


class Shadows:
    """Repeats calls of one process. `settle` books a repeated call."""

    def __init__(self, settle: Callable[[Call], None], report: Callable[[BaseException], None]) -> None:
        self._settle = settle
        self._report = report
        self._ids: Iterator[str] = request_ids()
        self._random = random.Random()
        self._chosen: dict[str, tuple[Gateway, ClientRequest, Plan]] = {}
        self._running: dict[ShadowSession, None] = {}

    def begin(self, gateway: Gateway, call: Call, request: ClientRequest, plan: Plan) -> None:
        """A call begins whose route has a shadow, which is this plan: decide whether it is repeated."""
        rule = plan.settings.shadow
        if rule is None or self._random.random() >= rule.share:
            return
        if len(self._chosen) + len(self._running) >= rule.concurrent or call.credentials is not None:
            return
        if request.provider_state or request.reference is not None or _has_server_tools(request):
            return
        call.compared = True
        self._chosen[call.id] = gateway, request, plan

    def settled(self, call: Call, entry: Entry) -> None:
        """A call that was chosen is settled: repeat it, once its client has the end."""
        chosen = self._chosen.pop(call.id, None)
        if chosen is not None and entry.outcome == "completed" and call.progress.attempts[-1].answer is not None:
            gateway, request, plan = chosen
            asyncio.get_running_loop().call_soon(self._start, gateway, call, request, plan)

    def _start(self, gateway: Gateway, original: Call, request: ClientRequest, plan: Plan) -> None:
        loop = asyncio.get_running_loop()
        call = Call(
            next(self._ids),
            f"{plan.route} (shadow)",
            request.stream,
            loop.time(),
            original.surface,
            original.dialect,
            key=_KEY,
            tags={SHADOW_OF: original.id},
            compared=True,
        )
        session = ShadowSession(call, original, self._on_end)
        call.fail = session.fail
        self._running[session] = None
        try:
            session.attempts = gateway.attempts_at(call, (plan,), request, session)
            session.attempts.start()
        except RequestError as error:
            session.refuse(error.failure)
        except Exception as error:  # noqa: BLE001 - no client waits
            session.fail(error)

    def _on_end(self, session: "ShadowSession", error: BaseException | None) -> None:
        if error is not None:
            self._report(error)
        self._running.pop(session, None)
        call, original = session.call, session.original
        call.progress.total_s = asyncio.get_running_loop().time() - call.started
        answers = [each.progress.attempts[-1].answer if each.progress.attempts else None for each in (original, call)]
        if call.progress.ending == "completed" and answers[0] is not None and answers[1] is not None:
            call.tags = {**call.tags, SHADOW_COMPARED: str(compare(answers[0].completion, answers[1].completion))}
        self._settle(call)

    def close(self) -> None:
        """End the calls that are repeated now."""
        self._chosen.clear()
        for session in list(self._running):
            session.cut()


class ShadowSession(DisconnectedClient):
    """The side of a repeated call where the client would be."""

    attempts: AttemptLoop | None = None

    def __init__(
        self, call: Call, original: Call, on_end: "Callable[[ShadowSession, BaseException | None], None]"
    ) -> None:
        super().__init__(stream=call.stream)
        self.call = call
        self.original = original
        self._on_end: Callable[[ShadowSession, BaseException | None], None] | None = on_end
        self._relay: _Cancellable | None = None

    def attach(self, relay: "_Cancellable") -> None:
        """Set what produces the answer."""
        self._relay = relay

    def begin(self) -> None:
        """The answer has begun."""
        self.call.progress.status = 200

    def end(self, data: bytes) -> None:  # noqa: ARG002
        """The answer is over."""
        self._end()

    def answer(self, body: bytes) -> None:  # noqa: ARG002
        """The answer is complete."""
        self.call.progress.status = 200
        self._end()

    def refuse(self, failure: Failure) -> None:
        """There is no answer."""
        progress = self.call.progress
        progress.code, progress.status = failure.code, failure.status
        progress.ending = progress.ending or "failed"
        self._end()

    def fail(self, error: BaseException) -> None:
        """End the call after an exception of ours."""
        self.call.progress.ending = "failed"
        self._stop()
        self._end(error)

    def cut(self) -> None:
        """End the call, because the gateway ends."""
        self.call.progress.ending = "cancelled"
        self._stop()
        self._end()

    def _stop(self) -> None:
        if self.attempts is not None:
            self.attempts.stop()
        if self._relay is not None:
            self._relay.cancel(_ENDED)

    def _end(self, error: BaseException | None = None) -> None:
        on_end, self._on_end, self._relay, self.attempts = self._on_end, None, None, None
        if on_end is not None:
            on_end(self, error)


class _Cancellable(Protocol):
    def cancel(self, failure: Failure) -> None:
        """Cancel the attempt."""


def _has_server_tools(request: ClientRequest) -> bool:
    """Whether a provider would execute tools for it: they may do what must not be done twice."""
    try:
        return any(tool.kind == "server" for tool in request.read().tools)
    except RequestError:
        return True
