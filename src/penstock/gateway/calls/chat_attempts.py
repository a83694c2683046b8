"""ChatAttempts: the attempts at a chat request (`attempts.py`), which is written anew for each target."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from penstock.core.dialects.bodies import MediaUrlsError
from penstock.core.dialects.dialect import AnswerFacts, OutgoingRequest, RequestError
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import Loss, changes_meaning
from penstock.core.hub.request import ClientRequest
from penstock.core.stream import EventReader, StreamReader, StreamWriter
from penstock.gateway.calls import refusals
from penstock.gateway.calls.attempts import AnyAttempts, Refusable
from penstock.gateway.calls.failure import from_request_losses, from_transport
from penstock.gateway.calls.local_call import AdaptedRequest, take_turn, unusable_tools
from penstock.gateway.calls.local_errors import check, rewrite_error
from penstock.gateway.calls.plan import PendingConnection, Plan, TargetEndpoint, header_lines
from penstock.gateway.limits.demand import TokenDemand, chat_demand
from penstock.gateway.relay.accumulating_reader import AccumulatingReader
from penstock.gateway.relay.ports import Client
from penstock.gateway.relay.relay import Relay
from penstock.gateway.relay.renaming_reader import RenamingReader
from penstock.http.upstream_connection import RequestBytes, UpstreamError
from penstock.upstream.local.emulated_tools import ToolsError
from penstock.upstream.media import MediaError, MediaFetcher


class CallClient(Client, Refusable, Protocol):
    """The client's side of a chat, as attempts use it."""

    def attach(self, relay: Relay) -> None:
        """Set the relay of the current attempt. The client must pass pauses, resumes and disconnects to it."""


class ChatAttempts(AnyAttempts[CallClient, ClientRequest]):
    """The attempts at a chat request."""

    _outgoing: OutgoingRequest  # for the current target
    _lost: Mapping[str, Sequence[Loss]] = MappingProxyType({})  # by target that strict mode skipped
    # What that thread has made of the request, beside its demand: the request for the current target and for those that
    # it cannot be written for.
    _written: Mapping[Plan, OutgoingRequest | Failure] = MappingProxyType({})
    _cooling: Sequence[Plan] | None = None  # the plans of targets that cool down, once they are known
    # The URLs of media that a target does not fetch, until the gateway has tried to; and why that failed.
    _urls: tuple[str, ...] = ()
    _unfetched: Failure | None = None

    def start(self) -> None:
        """As in the base class."""
        self._many = self._request.has_many_values
        if self._many:
            self._run_task(self._start_in_thread())
        else:
            super().start()

    async def _start_in_thread(self) -> None:
        call, telemetry = self._call, self._gateway.config.telemetry

        def work() -> None:
            if call.trace is not None and telemetry.content:
                call.request = self._request.read()
            self._demanded = self._demand()

        await self._in_thread(work)
        await self._write_in_thread()
        super().start()

    def _try(self, failed: Failure | None = None) -> None:
        if self._many and self._plan not in self._written:
            self._run_task(self._try_later(failed))
        else:
            super()._try(failed)

    async def _try_later(self, failed: Failure | None) -> None:
        await self._write_in_thread()
        super()._try(failed)

    async def _write_in_thread(self) -> None:
        """Write the request for the current target, or the next one that it can be written for; if there is none, also
        for those that cool down, as `_cooling_s` does."""
        cooling = self._cooling = self._cooling_plans()
        written: dict[Plan, OutgoingRequest | Failure] = {}

        def work() -> None:
            for plan in self._plans[self._tried :]:
                outgoing = written[plan] = self._write(plan)
                if self._is_usable(outgoing):
                    return
            written.update((plan, self._write(plan)) for plan in cooling)

        await self._in_thread(work)
        self._written = written

    def _demand(self) -> TokenDemand:
        plan = self._plan
        destination = plan.destination
        return chat_demand(self._request, plan.upstream.limits(self._request, destination), destination.overrides)

    def _ask(self) -> None:
        plan = self._plan
        if plan.is_local:
            self._run_task(self._ask_local())
            return
        opening = plan.opening if plan.dialect == self._request.dialect else None
        whole = not self._request.stream
        reader = StreamReader(plan.dialect, max_event=plan.max_event, opening=opening, whole=whole)
        relay = self._relay(reader, self._writer(), self._on_outcome)
        endpoint = plan.endpoint
        if endpoint is None:
            endpoint = plan.endpoint = self._gateway.endpoint(plan.target)
        connection = None if self._many else self._idle_connection(endpoint)
        if connection is not None:
            self._send(relay, endpoint, connection, endpoint.request(*self._content()))
        else:
            self._run_task(self._open(relay, endpoint))

    async def _open(self, relay: Relay, endpoint: TargetEndpoint) -> None:
        try:
            connection, request = await self._connect(endpoint)
        except UpstreamError as error:
            failure = from_transport(error.code, error.message)
            relay.cancel(failure, "timed_out" if failure.status == 504 else "failed")
        else:
            self._send(relay, endpoint, connection, request)

    def _content(self) -> tuple[bytes, bytes]:
        headers = self._outgoing.headers
        return self._outgoing.body, header_lines(headers, self._plan) if headers else b""

    def _send(
        self, relay: Relay, endpoint: TargetEndpoint, connection: PendingConnection, request: RequestBytes
    ) -> None:
        call, plan = self._call, self._plan
        self._hide_secrets(endpoint)
        recording = self._gateway.recording(call, plan, self._outgoing.body, relay) if plan.record else None
        relay.attach(connection, recording)
        if call.trace is not None:
            request = self._traced(request)
        connection.send(request, relay if recording is None else recording)

    async def _ask_local(self) -> None:
        """Send the request to the local model. The wait for a turn counts towards the total timeout only."""
        plan, call = self._plan, self._call
        local = self._gateway.local_models[plan.provider]
        writer = self._writer()
        try:
            fields = await self._in_thread(partial(_checked, self._outgoing.body, plan.target.name))
        except RequestError as error:
            self._on_local_outcome(error.failure)
            return
        try:
            wait_s, beat_s = plan.target.timeouts.first_event_s, self._gateway.config.server.heartbeat_s
            turn = await take_turn(local, self._client, partial(self._heartbeat, writer), wait_s, beat_s)
        except UpstreamError as error:
            call.attempts[-1].code = error.code
            self._on_outcome(from_transport(error.code, error.message, error.retry_after))
            return
        try:
            adapted = await self._in_thread(partial(AdaptedRequest, fields, local, turn))
        except ToolsError as error:
            turn.close()
            self._on_local_outcome(unusable_tools(error))
            return
        except asyncio.CancelledError:
            turn.close()
            raise
        reader = StreamReader(plan.dialect, max_event=plan.max_event)
        relay = self._relay(adapted.reader(reader, call.id), writer, self._on_local_outcome)
        recording = self._gateway.recording(call, plan, adapted.body, relay)
        relay.attach(turn.connection, recording)
        turn.ask(adapted.body, relay if recording is None else recording)

    def _heartbeat(self, writer: StreamWriter) -> bytes:
        self._call.heartbeats += 1
        return writer.heartbeat()

    def _on_local_outcome(self, failure: Failure | None) -> None:
        """As `_on_outcome`, for the local model, whose error messages are rewritten."""
        if failure is not None:
            failure = rewrite_error(failure, self._plan.target.name, self._request.fields)
            self._call.attempts[-1].code = failure.code
        self._on_outcome(failure)

    def _prepare(self) -> Failure | None:
        written, call = self._write(self._plan), self._call
        if isinstance(written, Failure):
            return from_request_losses(self._lost) if self._lost else written
        self._outgoing = written
        call.losses = [*written.losses]
        if not call.strict or not changes_meaning(written.losses):
            return None
        self._lost = {**self._lost, self._plan.target.name: written.losses}
        self._call.losses = list(chain.from_iterable(self._lost.values()))
        return from_request_losses(self._lost)

    def _write(self, plan: Plan) -> OutgoingRequest | Failure:
        """The request for a target, or the failure if it cannot be written."""
        request = self._request
        if request.provider_state and plan.dialect != request.dialect:
            return refusals.state_elsewhere(request.provider_state, plan.target.name)
        if (written := self._written.get(plan)) is not None:
            return written
        try:
            return plan.upstream.write_request(request, plan.destination)
        except MediaUrlsError as error:
            self._urls = error.urls
            return self._unfetched or error.failure
        except RequestError as error:
            return error.failure

    def _fetches(self, failed: Failure | None) -> bool:
        if self._gateway.media is None or not self._urls or self._request.fetched or self._unfetched is not None:
            return False
        self._run_task(self._fetch(self._gateway.media, failed))
        return True

    async def _fetch(self, media: MediaFetcher, failed: Failure | None) -> None:
        try:
            self._request.fetched = await media.fetch(self._urls)
        except MediaError as error:
            self._unfetched = refusals.media_not_fetched(str(error))
        self._many, self._written = True, {}  # a thread writes the data of the media
        self._try(failed)

    def _cooling_s(self) -> float:
        health, cooling = self._gateway.health, self._cooling_plans() if self._cooling is None else self._cooling
        waits = (health.cooling_s(plan.target) for plan in cooling if self._is_usable(self._write(plan)))
        return min(filter(None, waits), default=0.0)

    def _cooling_plans(self) -> list[Plan]:
        plans = self._gateway.plans(self._call.model, self._request.dialect, stream=self._request.stream)
        return [plan for plan in plans if self._gateway.health.cooling_s(plan.target)]

    def _is_usable(self, written: OutgoingRequest | Failure) -> bool:
        return not isinstance(written, Failure) and not (self._call.strict and changes_meaning(written.losses))

    def _writer(self) -> StreamWriter:
        """The writer of the answer for the client."""
        call, plan, request = self._call, self._plan, self._request
        facts = AnswerFacts(
            call_id=call.id,
            model=plan.model,
            created=int(time.time()),
            include_usage=request.include_usage,
            input_estimate=call.input_estimate,
            same_dialect=plan.dialect == request.dialect,
            issuer=plan.issuer,
            echo=request.echo,
            reasoning="all" if plan.unasked_thinking else request.reasoning,
            heartbeats=call.heartbeats,
            stream_type=call.stream_type,
            overrides=call.keeping.overrides(plan.issuer) if call.keeping is not None else {},
        )
        return StreamWriter.for_call(request.dialect, facts)

    def _relay(self, reader: EventReader, writer: StreamWriter, on_outcome: Callable[[Failure | None], None]) -> Relay:
        call, plan, client = self._call, self._plan, self._client
        if self._gateway.keep_transcripts and call.control is not None:
            call.control.keep_transcript()
        if self._outgoing.tools:
            reader = RenamingReader(reader, self._outgoing.tools)
        if call.request is not None or call.content is not None:
            reader = self._accumulating(reader)
        relay = Relay(call, client, reader, writer, plan.timeouts, on_outcome)
        client.attach(relay)
        return relay

    def _accumulating(self, reader: EventReader) -> AccumulatingReader:
        """A reader that collects the answer, for traces or to be kept."""
        call = self._call
        grow = call.content.grow if call.content is not None and call.request is None else None
        call.attempts[-1].answer = accumulating = AccumulatingReader(reader, grow)
        if call.content is not None:
            call.content.restart(accumulating)
        return accumulating


def _checked(body: bytes, model: str) -> dict[str, Any]:
    """The fields of a request for the local model; raises `RequestError`."""
    fields: dict[str, Any] = msgspec.json.decode(body)
    check(fields, model)
    return fields
