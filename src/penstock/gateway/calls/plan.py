"""Plan: all that attempts at one target have in common, looked up once. Plans: those for each name of a model.

Who answers to a name, where and how, is settled by the configuration alone; a reload makes new plans. There are plans
for each way of asking: a chat that is streamed, one that is not, and embeddings.
"""

from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from penstock.core.dialects.dialect import Destination, UpstreamDialect
from penstock.core.dialects.registry import upstream_dialect
from penstock.core.templates import OpeningTemplate
from penstock.gateway.billing.prices import Quote
from penstock.gateway.config import Config, Route, Target
from penstock.gateway.relay.ports import AttemptTimeouts, Connection
from penstock.http.client import Receiver

Way: TypeAlias = Literal["streamed", "whole", "embeddings"]

# More models than anybody calls. Beyond the routes, their names come from clients.
_MAX_NAMES = 1_000
# An unstreamed answer is one event to the reader, and may hold images or sound.
_MAX_BODY = 32_000_000


class PendingConnection(Connection, Protocol):
    """A connection, as the pipeline sees it."""

    def send(self, request: bytes, receiver: Receiver, *, recorded: bool = False) -> None:
        """Send a request; its answer goes to the receiver. `recorded`: reads are to stay as they came if they can."""


class TargetEndpoint(Protocol):
    """Where a target is asked."""

    def request(self, body: bytes) -> bytes:
        """The whole request that carries the body."""

    def idle_connection(self) -> PendingConnection | None:
        """A connection to it that was kept, if there is one."""

    async def open(self, timeout_s: float) -> PendingConnection:
        """A fresh connection to it; raises `UpstreamError`."""


class Plan(Struct, eq=False, kw_only=True):
    """How a target is asked, in one way, for one route."""

    route: str
    """The model as its calls are accounted: see `Plans.full_name`."""
    target: Target
    among: tuple[Target, ...]
    """All that may answer in its place, itself among them."""
    provider: str
    model: str
    secrets: tuple[str, ...]
    """What nobody may be told of an attempt."""
    destination: Destination
    """Whom requests are written for."""
    here: bool
    """Whether it is a model on this machine, which has no endpoint."""
    dialect: str
    upstream: UpstreamDialect
    """How requests are written, and answers read."""
    max_event: int
    timeouts: AttemptTimeouts
    strict: bool
    """Whether its route is strict."""
    record: str
    """Where captures of its answers go; empty for nowhere."""
    opening: OpeningTemplate | None = None
    """How its streams open, for the fast path."""
    endpoint: TargetEndpoint | None = None
    """Made when it is first asked."""
    quote: Quote | None = None
    """What it cost when that was last looked up."""

    def __repr__(self) -> str:
        return f"Plan({self.target.name!r})"  # nothing that is secret


class Plans(dict[str, tuple[Plan, ...] | None]):
    """The plans of all targets that may answer to a name; None where nobody has that name.

    Names come from clients: only so many are remembered, beside those of routes.
    """

    def __init__(self, config: Config, way: Way, *, recorded: bool) -> None:
        self._config = config
        self._way = way
        self._recorded = recorded

    def __missing__(self, name: str) -> tuple[Plan, ...] | None:
        route = self._config.route(name)
        if route is None:
            return None
        able = tuple(target for target in route.targets if self._way != "embeddings" or target.provider.embeddings)
        plans = tuple(self._plan(route, target, able) for target in able)
        if name in self._config.routes or len(self) < _MAX_NAMES:
            self[name] = plans
            for plan in plans if self._way == "streamed" else ():
                plan.opening = OpeningTemplate()  # which is learned for those that are asked again
        return plans

    def full_name(self, name: str) -> str:
        """How calls for a model are accounted: as it is named, or as provider/model in place of a bare name."""
        plans = self.get(name)
        if plans:
            return plans[0].route
        route = self._config.route(name)
        return name if route is None else route.name

    def _plan(self, route: Route, target: Target, among: tuple[Target, ...]) -> Plan:
        provider, server = target.provider, self._config.server
        whole_body = self._way == "whole" and not provider.embedded  # which streams always
        max_event = max(route.max_event, _MAX_BODY) if whole_body else route.max_event
        directory = server.record if route.record is None else route.record
        return Plan(
            route=route.name,
            target=target,
            among=among,
            provider=provider.name,
            model=target.model,
            secrets=provider.secrets(),
            destination=Destination(
                model=target.model,
                overrides=MappingProxyType(dict(route.set)),
                include_usage=provider.include_usage,
                stream=True if provider.embedded else None,  # only so does it notice at once that a client has left
            ),
            here=provider.embedded,
            dialect=provider.dialect,
            upstream=upstream_dialect(provider.dialect),
            max_event=max_event,
            timeouts=self._timeouts(target, max_event),
            strict=route.strict or server.strict,
            record=directory if self._recorded else "",
        )

    def _timeouts(self, target: Target, max_body: int) -> AttemptTimeouts:
        """A chat that is not streamed may be silent until it is whole."""
        timeouts, heartbeat_s = target.timeouts, self._config.server.heartbeat_s
        first_event_s = timeouts.answer_s if self._way == "whole" else timeouts.first_event_s
        return AttemptTimeouts(
            first_event_s=first_event_s,
            gap_s=timeouts.gap_s,
            heartbeat_s=heartbeat_s,
            total_s=timeouts.total_s,
            first_check_s=min(first_event_s, heartbeat_s) if self._way == "streamed" else first_event_s,
            drain_s=target.provider.drain_s if target.provider.abort == "drain" else 0.0,
            max_body=max_body,
        )
