"""LocalAsker: asks a model on this machine. It waits for a turn, and adapts the request to what the model supports.

While a call waits for its turn its client gets heartbeats, as it does while a provider generates. The wait counts
towards the total timeout only.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec import structs

from penstock.core.dialects.dialect import RequestError
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import Loss
from penstock.core.stream import StreamReader
from penstock.core.stream_writer import StreamWriter
from penstock.gateway.calls.attempt_loop import Work
from penstock.gateway.calls.chat_asker import ChatAsker, ChatServices
from penstock.gateway.calls.local_errors import check, rewrite_error
from penstock.gateway.calls.plan import Plan
from penstock.gateway.record.call import Call
from penstock.gateway.record.failure import from_request_losses, from_transport
from penstock.gateway.relay.outcome import Failed, Outcome
from penstock.gateway.relay.ports import Client
from penstock.http.upstream_connection import UpstreamError
from penstock.upstream.local.model import LocalModel, ModelTurn


class LocalServices(ChatServices, Protocol):
    """What the asker uses of the gateway."""

    local_models: Mapping[str, LocalModel]


class LocalAsker:
    """Asks the models on this machine; `chat` writes the requests, and asks the other targets of the call."""

    def __init__(self, services: LocalServices, call: Call, client: Client, chat: ChatAsker) -> None:
        self._services = services
        self._call = call
        self._client = client
        self._chat = chat
        self.large = chat.large
        self.demand = chat.demand
        self.prepare = chat.prepare
        self.cooling_plans = chat.cooling_plans

    def ask(self, plan: Plan, report: Callable[[Outcome], None], *, fresh: bool) -> Work | None:
        """Send the request when the model has a turn for it; or to a target that is no local model."""
        return self._ask(plan, report) if plan.is_local else self._chat.ask(plan, report, fresh=fresh)

    async def _ask(self, plan: Plan, report: Callable[[Outcome], None]) -> None:
        call, local, name = self._call, self._services.local_models[plan.provider], plan.target.name
        try:
            fields = await asyncio.to_thread(_checked, self._chat.outgoing.body, name)
            writer = self._chat.writer(plan)
            turn = await self._take_turn(plan, local, writer)
        except RequestError as error:
            self._fail(error.failure, report)
            return
        except UpstreamError as error:
            self._fail(from_transport(error.code, error.message, error.retry_after), report)
            return
        try:
            if not turn.traits.tools and (lost := _tool_losses(fields, name)):
                call.progress.note_losses(lost)
                if call.strict:
                    raise RequestError(from_request_losses({name: lost}))
            body = await asyncio.to_thread(msgspec.json.encode, _with_system_prompt(fields, local))
        except RequestError as error:
            turn.close()
            self._fail(error.failure, report)
            return
        except asyncio.CancelledError:
            turn.close()
            raise
        reader = StreamReader(plan.dialect, max_event=plan.max_event)
        relay = self._chat.relay(plan, reader, writer, partial(self._report, report, name, fields))
        recording = self._services.recording(call, plan, body, relay)
        relay.attach(turn.connection, recording)
        turn.ask(body, relay if recording is None else recording)

    def _fail(self, failure: Failure, report: Callable[[Outcome], None]) -> None:
        """The attempt ends before a request is sent."""
        self._call.progress.attempts[-1].code = failure.code
        report(Failed(failure))

    def _report(
        self, report: Callable[[Outcome], None], name: str, fields: Mapping[str, object], outcome: Outcome
    ) -> None:
        """Report an outcome; llama.cpp's own error messages are rewritten."""
        if isinstance(outcome, Failed):
            outcome = structs.replace(outcome, failure=rewrite_error(outcome.failure, name, fields))
            self._call.progress.attempts[-1].code = outcome.failure.code
        report(outcome)

    async def _take_turn(self, plan: Plan, local: LocalModel, writer: StreamWriter) -> ModelTurn:
        """Wait for a turn as long as for a first event, and send the client heartbeats; raises `UpstreamError`."""
        while True:
            waiting = asyncio.get_running_loop().create_task(local.turn(plan.target.timeouts.first_event_s))
            try:
                while not (await asyncio.wait({waiting}, timeout=plan.timeouts.heartbeat_s))[0]:
                    if self._client.stream:
                        self._client.begin()
                        self._client.write(writer.heartbeat())
                        self._call.progress.heartbeats += 1
            except asyncio.CancelledError:
                waiting.cancel()
                waiting.add_done_callback(_give_back)
                raise
            turn = waiting.result()
            if turn.connection.alive:  # else the child process has just died: wait again
                return turn


def _give_back(waiting: "asyncio.Task[ModelTurn]") -> None:
    """Return a turn that was granted after its call had been cancelled."""
    if not waiting.cancelled() and waiting.exception() is None:
        waiting.result().close()


def _checked(body: bytes, model: str) -> dict[str, Any]:
    """The fields of a request for the local model; raises `RequestError`."""
    fields: dict[str, Any] = msgspec.json.decode(body)
    check(fields, model)
    return fields


def _with_system_prompt(fields: dict[str, Any], local: LocalModel) -> dict[str, Any]:
    """The request, with a system message if Penstock ships the model: its template knows the role `system` only, and
    has a default text that is worse than ours."""
    weights = local.settings.weights
    if weights is None:
        return fields
    messages = [
        {**message, "role": "system"} if message["role"] == "developer" else message for message in fields["messages"]
    ]
    if not any(message["role"] == "system" for message in messages):
        messages = [{"role": "system", "content": weights.system}, *messages]
    return fields | {"messages": messages}


def _tool_losses(fields: dict[str, Any], model: str) -> list[Loss]:
    """What a model whose chat template has no tools does not see of a request: llama.cpp drops it silently.

    Raises `RequestError` if the request demands a call.
    """
    choice = fields.get("tool_choice")
    if fields.get("tools") and _demands_call(choice):
        message = (
            f"`tool_choice` demands a call, and the chat template of {model} has no tools; leave `tool_choice` out, or "
            "ask a model that has tools"
        )
        failure = Failure(code="invalid_request", message=message, param="tool_choice", client_may_retry=False)
        raise RequestError(failure)
    losses = [Loss("tools-unseen", "tools")] if fields.get("tools") and choice != "none" else []
    if any(message.get("tool_calls") for message in fields["messages"]):
        losses.append(Loss("tools-unseen", "tool_calls"))
    return losses


def _demands_call(choice: object) -> bool:
    match choice:
        case {"type": "allowed_tools", "allowed_tools": {"mode": mode}}:
            return bool(mode == "required")
        case _:
            return choice == "required" or isinstance(choice, dict)
