"""Calls to the local model: wait for a turn, and adapt the request to what the model supports.

While a call waits for its turn its client gets heartbeats, as it does while a provider generates.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.core.hub.failure import Failure
from penstock.core.stream import EventReader
from penstock.gateway.relay.ports import Client
from penstock.upstream.local.emulated_tools import (
    EmulatedToolReader,
    ToolsError,
    emulate,
    has_system,
    with_system,
)
from penstock.upstream.local.model import LocalModel, ModelTurn


async def take_turn(
    local: LocalModel, client: Client, heartbeat: Callable[[], bytes], wait_s: float, beat_s: float
) -> ModelTurn:
    """Wait at most `wait_s` for a turn, and send the client a heartbeat every `beat_s`; raises `UpstreamError`."""
    while True:
        waiting = asyncio.get_running_loop().create_task(local.turn(wait_s))
        try:
            while not (await asyncio.wait({waiting}, timeout=beat_s))[0]:
                if client.stream:
                    client.begin()
                    client.write(heartbeat())
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


class AdaptedRequest:
    """A request as the local model supports it, and the reader for its answer."""

    def __init__(self, fields: dict[str, Any], local: LocalModel, turn: ModelTurn) -> None:
        """Raises `ToolsError`."""
        self._emulated = False
        weights = local.settings.weights
        if weights is not None:
            fields = fields | {"messages": _with_system_prompt(fields["messages"], weights.system)}
        if not turn.traits.tools:
            fields, self._emulated = emulate(fields)
        self.body = msgspec.json.encode(fields)

    def reader(self, reader: EventReader, call_id: str) -> EventReader:
        """The reader of the answer: with emulated tool calls, if the model has none of its own."""
        return EmulatedToolReader(reader, f"call_{call_id}") if self._emulated else reader


def _with_system_prompt(messages: list[Any], system: str) -> list[Any]:
    """Messages for a model that Penstock ships. The template of such a model knows the role `system` only."""
    if not has_system(messages):
        return with_system(messages, system)
    return [
        {**message, "role": "system"} if isinstance(message, dict) and message.get("role") == "developer" else message
        for message in messages
    ]


def unusable_tools(error: ToolsError) -> Failure:
    """The failure of a request whose tools the model cannot use."""
    return Failure(code="invalid_request", message=str(error), param="tools", retryable=False)
