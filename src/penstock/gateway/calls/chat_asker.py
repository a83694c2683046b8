"""ChatAsker: asks remote providers for an answer to a chat request, which is written anew for each target."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from types import MappingProxyType
from typing import Protocol

from msgspec import structs

from penstock.core.dialects.bodies import MediaUrlsError
from penstock.core.dialects.dialect import AnswerFacts, OutgoingRequest, RequestError
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import Loss, changes_meaning
from penstock.core.hub.request import ClientRequest
from penstock.core.repairing_reader import AnswerSchemas, RepairingReader
from penstock.core.stream import EventReader, StreamReader
from penstock.core.stream_writer import StreamWriter
from penstock.gateway.calls import refusals
from penstock.gateway.calls.attempt_loop import LoopClient, Work
from penstock.gateway.calls.continuing import Continuing
from penstock.gateway.calls.plan import PendingConnection, Plan, TargetEndpoint, header_lines
from penstock.gateway.calls.routing import TargetHealth
from penstock.gateway.calls.sending import connect, redact_credentials, traced
from penstock.gateway.config import Config
from penstock.gateway.limits.demand import TokenDemand, chat_demand
from penstock.gateway.record.call import Call
from penstock.gateway.record.failure import from_request_losses, from_transport
from penstock.gateway.relay.accumulating_reader import AccumulatingReader
from penstock.gateway.relay.outcome import Outcome
from penstock.gateway.relay.ports import Client
from penstock.gateway.relay.recording import RecordingReceiver
from penstock.gateway.relay.relay import Relay
from penstock.gateway.relay.renaming_reader import RenamingReader
from penstock.http.upstream_connection import Receiver, UpstreamError
from penstock.upstream.media import MediaError, MediaFetcher

# In characters. What follows in an answer is not compared.
_MOST_COMPARED = 1_000_000
# The beta of Messages whose clients know the block `fallback`.
FALLBACK_BETA = "server-side-fallback"


class ChatClient(Client, LoopClient, Protocol):
    """The client's side of a chat, as attempts use it."""

    def attach(self, relay: Relay) -> None:
        """Set the relay of the current attempt. The client must pass pauses, resumes and disconnects to it."""


class ChatServices(Protocol):
    """What the asker uses of the gateway."""

    config: Config
    health: TargetHealth
    keep_transcripts: bool
    media: MediaFetcher | None

    def plans(self, model: str, dialect: str, *, stream: bool) -> Sequence[Plan]:
        """The plans of all targets of a model for clients of a dialect, including those that cool down."""

    def endpoint(self, plan: Plan, *, embeddings: bool = False) -> TargetEndpoint:
        """The endpoint of a target."""

    def endpoint_at(self, plan: Plan, path: str) -> TargetEndpoint:
        """Another endpoint of the API in which a target is asked."""

    def recording(self, call: Call, plan: Plan, body: bytes, relay: Relay) -> RecordingReceiver | None:
        """A receiver that records the attempt; None if it is not recorded."""


class ChatAsker:
    """Asks the targets of one chat request. `plans` are those that may be tried, in their order."""

    outgoing: OutgoingRequest
    """The request for the current target."""
    _lost: Mapping[str, Sequence[Loss]] = MappingProxyType({})  # by target that strict mode skipped
    # What a thread has written of a large request: for the current target, and those that it cannot be written for.
    _written: Mapping[Plan, OutgoingRequest | Failure] = MappingProxyType({})
    _cooling: Sequence[Plan] | None = None  # the plans of targets that cooled down when the thread began
    # The URLs of media that a target does not fetch, until the gateway has tried to; and why that failed.
    _urls: tuple[str, ...] = ()
    _unfetched: Failure | None = None

    def __init__(
        self, services: ChatServices, call: Call, client: ChatClient, request: ClientRequest, plans: Sequence[Plan]
    ) -> None:
        self._services = services
        self._call = call
        self._client = client
        self._request = request
        self._plans = plans
        self.continuing: Continuing | None = None
        """Lets another target go on with the answer, if the route allows that."""
        self.large = request.has_many_values
        """Whether a thread does what takes time for each value or byte of the request."""

    def demand(self) -> TokenDemand:
        """What the request may consume. If traces include content, it is read for them here, too."""
        call, plan, request = self._call, self._plans[0], self._request
        if call.trace is not None and self._services.config.telemetry.content:
            call.trace.request = request.read()
        return chat_demand(request, plan.upstream.limits(request, plan.destination), plan.destination.overrides)

    # Writing the request.

    def prepare(self, plan: Plan) -> Failure | Work | None:
        """Write the request for a target. A thread does so if the request is large, and media may have to be fetched
        first. If the call is strict, a loss that changes the meaning is a failure."""
        if self.large and plan not in self._written:
            return self._write_in_thread(plan)
        written, call = self._write(plan), self._call
        if isinstance(written, Failure):
            if (media := self._services.media) is not None and self._urls and not self._is_fetched:
                return self._fetch(media)
            return from_request_losses(self._lost) if self._lost else written
        if call.routing_headers and (forwarded := plan.target.provider.forward_headers):
            given = {name.lower(): call.routing_headers.get(name.lower()) for name in forwarded}
            passed = {name: value for name, value in given.items() if value is not None}
            written = structs.replace(written, headers={**passed, **written.headers})
        if (going_on := self._going_on) is not None:
            continued = going_on.written(plan, written)
            if continued is None:
                return refusals.not_continued(plan.target.name)
            written = continued
        self.outgoing = written
        call.progress.losses = [*self._request.dropped, *written.losses]
        call.progress.breakpoints = written.breakpoints
        if not call.strict or not changes_meaning(written.losses):
            return None
        self._lost = {**self._lost, plan.target.name: written.losses}
        call.progress.losses = list(chain.from_iterable(self._lost.values()))
        return from_request_losses(self._lost)

    @property
    def _going_on(self) -> Continuing | None:
        """What goes on, if the client has the beginning of an answer."""
        return self.continuing if self.continuing is not None and self.continuing.active else None

    def _write(self, plan: Plan) -> OutgoingRequest | Failure:
        """The request for a target, or the failure if it cannot be written."""
        request = self._request
        if plan.dialect != request.dialect and request.provider_state:
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

    async def _write_in_thread(self, plan: Plan) -> None:
        """Write the request for a target, or the next one that it can be written for; if there is none, also for those
        that cool down, as `cooling_plans` does."""
        cooling = self._cooling = self._all_cooling()
        written: dict[Plan, OutgoingRequest | Failure] = {}

        def work() -> None:
            if any(each.repair_tool_arguments for each in self._plans):
                with suppress(RequestError):
                    self._request.read()
            following = self._plans[self._plans.index(plan) :] if plan in self._plans else (plan,)  # for a cause
            for each in following:
                outgoing = written[each] = self._write(each)
                if self._is_usable(outgoing):
                    return
            written.update((each, self._write(each)) for each in cooling)

        await asyncio.get_running_loop().run_in_executor(None, work)
        self._written = written

    @property
    def _is_fetched(self) -> bool:
        """Whether the gateway has tried to fetch the media."""
        return bool(self._request.fetched) or self._unfetched is not None

    async def _fetch(self, media: MediaFetcher) -> None:
        try:
            self._request.fetched = await media.fetch(self._urls)
        except MediaError as error:
            self._unfetched = refusals.media_not_fetched(str(error))
        self.large, self._written = True, {}  # a thread writes the data of the media

    def cooling_plans(self) -> Sequence[Plan]:
        """The plans whose targets cool down, and that the request can be written for."""
        cooling = self._all_cooling() if self._cooling is None else self._cooling
        return [plan for plan in cooling if self._is_usable(self._write(plan))]

    def _all_cooling(self) -> list[Plan]:
        plans = self._services.plans(self._call.model, self._request.dialect, stream=self._request.stream)
        return [plan for plan in plans if self._services.health.cooling_s(plan.target)]

    def _is_usable(self, written: OutgoingRequest | Failure) -> bool:
        return not isinstance(written, Failure) and not (self._call.strict and changes_meaning(written.losses))

    # Sending it.

    def ask(self, plan: Plan, report: Callable[[Outcome], None], *, fresh: bool) -> Work | None:
        """Send the request: on an idle connection of the pool, or on a new one."""
        endpoint = plan.endpoint
        if endpoint is None:
            endpoint = plan.endpoint = self._services.endpoint(plan)
        if self.outgoing.path:
            endpoint = self._services.endpoint_at(plan, self.outgoing.path)
        connection = None if self.large or fresh else endpoint.idle_connection()
        if connection is None:
            return self._open(plan, self._new_relay(plan, report), endpoint, fresh=fresh)
        headers = self.outgoing.headers
        request = endpoint.request(self.outgoing.body, header_lines(headers, plan) if headers else b"")
        self._call.progress.attempts[-1].sent = True
        # Before the relay is made: the provider works meanwhile.
        connection.send(request if self._call.trace is None else traced(request, self._call, plan))
        connection.redirect(self._attach(plan, self._new_relay(plan, report), connection))
        return None

    async def _open(self, plan: Plan, relay: Relay, endpoint: TargetEndpoint, *, fresh: bool) -> None:
        def content() -> tuple[bytes, bytes]:
            return self.outgoing.body, header_lines(self.outgoing.headers, plan)

        try:
            connection, request = await connect(plan, endpoint, content, large=self.large, fresh=fresh)
        except UpstreamError as error:
            failure = from_transport(error.code, error.message)
            relay.cancel(failure, "timed_out" if failure.status == 504 else "failed")
        else:
            receiver = self._attach(plan, relay, connection)
            connection.send(request if self._call.trace is None else traced(request, self._call, plan), receiver)

    def _attach(self, plan: Plan, relay: Relay, connection: PendingConnection) -> Receiver:
        """Connect a relay with its connection. Returns what receives the response: the relay, or what records it."""
        recording = None
        if plan.endpoint is not None and plan.endpoint.secrets:
            redact_credentials(self._call, plan, plan.endpoint)
        if plan.record:
            recording = self._services.recording(self._call, plan, self.outgoing.body, relay)
        relay.attach(connection, recording)
        return relay if recording is None else recording

    def _new_relay(self, plan: Plan, report: Callable[[Outcome], None]) -> Relay:
        """The relay of an attempt at a remote provider."""
        request = self._request
        opening = plan.opening_template if plan.dialect == request.dialect else None
        reader = StreamReader(
            plan.dialect, max_event=plan.max_event, opening_template=opening, whole=not request.stream
        )
        return self.relay(plan, reader, self.writer(plan), report)

    def writer(self, plan: Plan) -> StreamWriter:
        """The writer of the answer for the client."""
        call, request = self._call, self._request
        if (going_on := self._going_on) is not None:
            return going_on.writer(plan)
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
            heartbeats=call.progress.heartbeats,
            stream_type=call.stream_type,
            overrides=call.keeping.overrides(plan.issuer) if call.keeping is not None else {},
            end_marker=True,
            fallback_blocks=FALLBACK_BETA in request.headers.get("anthropic-beta", ""),
            clock=time.time,
        )
        return StreamWriter.for_call(request.dialect, facts)

    def relay(self, plan: Plan, reader: EventReader, writer: StreamWriter, report: Callable[[Outcome], None]) -> Relay:
        """The relay of the attempt that has begun."""
        call, client = self._call, self._client
        control, continuing = call.progress.control, self.continuing
        if control is not None and continuing is not None:
            if continuing.active:
                reader = continuing.reader(reader)
            control.keep_transcript(continuing.begin(plan, writer))
        elif self._services.keep_transcripts and control is not None:
            control.keep_transcript()
        if plan.repair_tool_arguments:
            reader = self._repairing(reader)
        if self.outgoing.tools:
            reader = RenamingReader(reader, self.outgoing.tools)
        traced = call.trace is not None and call.trace.request is not None
        if traced or call.compared or call.content is not None:
            reader = self._accumulating(reader, traced=traced)
        relay = Relay(call, client, reader, writer, plan.timeouts, report)
        relay.broken_answers = continuing
        client.attach(relay)
        return relay

    def _repairing(self, reader: EventReader) -> EventReader:
        """A reader that corrects JSON of the model, if the request has schemas for it."""
        try:
            schemas = AnswerSchemas.of(self._request.read(), self.outgoing.tools)
        except RequestError:  # of a request that only an API of its own kind takes
            return reader
        return RepairingReader(reader, schemas) if schemas.tools or schemas.text is not None else reader

    def _accumulating(self, reader: EventReader, *, traced: bool) -> AccumulatingReader:
        """A reader that collects the answer: for traces, to be kept, or to be compared."""
        call = self._call
        grow: Callable[[int], bool] | None = None
        if not traced:
            grow = call.content.grow if call.content is not None else _ComparedRoom()
        attempts, before = call.progress.attempts, None
        if self._going_on is not None and isinstance(last := attempts[-2].answer, AccumulatingReader):
            before = last
        attempts[-1].answer = accumulating = AccumulatingReader(reader, grow, before)
        if call.content is not None and before is not None:
            call.content.answer = accumulating
        elif call.content is not None:
            call.content.restart(accumulating)
        return accumulating


class _ComparedRoom:
    """Room for an answer that is compared with another one, so that a provider cannot fill the memory."""

    def __init__(self) -> None:
        self._left = _MOST_COMPARED

    def __call__(self, size: int) -> bool:
        self._left -= size
        return self._left >= 0
