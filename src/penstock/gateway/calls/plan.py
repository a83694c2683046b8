"""Plan: everything that attempts at one target have in common, computed once. Plans: the plans for each model name.

Plans depend on the configuration only; a reload makes new ones. There are separate plans for each kind of call (a
streamed chat, an unstreamed chat, and embeddings) and for each dialect of clients, because a provider may offer several
dialects. Which of them a target is asked in:

1. the one that the route demands of the target;
2. the one that the model requires (`OfferedDialect.required_for`);
3. the client's own, if the provider offers it for the model, so that nothing is translated. Not if the route sets
   fields of the request: their names are those of the provider's first dialect;
4. the provider's first one.
"""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import chain
from math import inf
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct, structs

from penstock.core.dialects.dialect import Destination, RequestError, UpstreamDialect
from penstock.core.dialects.registry import DEFAULT_DIALECT, upstream_dialect
from penstock.core.fast.openings import OpeningTemplate
from penstock.core.slow_path import MAX_BODY
from penstock.gateway.billing.prices import Quote
from penstock.gateway.calls import refusals
from penstock.gateway.calls.measures import measure_key
from penstock.gateway.config import Config, ContentRule, Provider, Route, Target
from penstock.gateway.config.route_settings import Cause
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.keys.quota import Quota
from penstock.gateway.limits.provider_keys import quota_of
from penstock.gateway.record.client_credentials import ClientCredentials
from penstock.gateway.record.timeouts import AttemptTimeouts
from penstock.gateway.relay.ports import Connection
from penstock.http.upstream_connection import Receiver, RequestBytes

CallKind: TypeAlias = Literal["streamed", "whole", "embeddings"]

# The place of the target at which calls are repeated, which is no target of the route.
_SHADOW = 1_000
# More models than a gateway serves. Names that are not routes come from clients, so their number must be bounded.
_MAX_NAMES = 1_000
_CHARS_PER_TOKEN = 4


class PendingConnection(Connection, Protocol):
    """A connection, as attempts use it."""

    def send(self, request: RequestBytes, receiver: Receiver | None = None) -> None:
        """Send a request; the receiver gets its response. Without one, `redirect` must set it before the event loop
        goes on."""


class TargetEndpoint(Protocol):
    """The HTTP endpoint of a target."""

    def request(self, body: bytes, headers: bytes = b"") -> RequestBytes:
        """The complete HTTP request with this body."""

    async def large_request(self, body: bytes, headers: bytes = b"") -> RequestBytes:
        """The bytes of a request with a large body: a thread computes what depends on them; raises `UpstreamError`."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Secrets of its requests that the configuration does not have, such as access tokens."""

    def idle_connection(self) -> PendingConnection | None:
        """A connection to it that was kept, if there is one."""

    async def open(self, timeout_s: float) -> PendingConnection:
        """A fresh connection to it; raises `UpstreamError`."""


class Plan(Struct, eq=False, kw_only=True):
    """How a target of a route is called, for one kind of call, with one key of its provider."""

    route: str
    """The model's name in the ledger: see `Plans.full_name`."""
    target: Target
    settings: Route
    """The route that it belongs to."""
    measure_key: int
    """Names the target in the measures (`measures.py`)."""
    measured: bool
    """Whether its attempts are measured."""
    place: int
    """The place of the target in the route. The plans for the keys of one provider have the same place."""
    alternatives: tuple[Target, ...]
    """All targets of the route that can serve this kind of call, with each key; itself included."""
    provider_key: str
    """The name of the provider's key; empty if the provider has no `keys`."""
    quota: Quota | None
    """The limits of that key; None if it has none."""
    provider: str
    model: str
    secrets: tuple[str, ...]
    """The provider's credentials, which are redacted in errors."""
    destination: Destination
    """The settings for writing its requests."""
    is_local: bool
    """Whether it is the local model, which has no endpoint."""
    own_headers: frozenset[str]
    """The names of the headers that its provider's configuration sets, in lower case."""
    issuer: str
    """Identifies the provider and its account, for seals of reasoning (`core/hub/seals.py`)."""
    dialect: str
    upstream: UpstreamDialect
    """Writes requests and reads answers."""
    max_event: int
    timeouts: AttemptTimeouts
    strict: bool
    """Whether its route is strict."""
    repair_tool_arguments: bool
    """Whether JSON of tool calls and of structured output is corrected."""
    unasked_thinking: bool
    """Whether clients get reasoning that they did not ask for."""
    content: ContentRule
    """Of which of its calls the content is kept."""
    record: str
    """The directory for captures of its answers; empty if it is not recorded."""
    fallbacks: Mapping[Cause, Sequence["Plan"]] = MappingProxyType({})
    """The plans that follow for a cause only, for all plans of the route."""
    salts_cache: bool = False
    """Whether any provider of the route takes a salt for its prompt cache."""
    client_only: bool = False
    """Whether only credentials of clients can authorize it."""
    client_credentials: bool = False
    """Whether a credential of the client authorizes it. Then it is for one call, and no table has it."""
    client_headers: Mapping[str, str] = MappingProxyType({})
    """The client's headers that go with this credential."""
    shadow: "Plan | None" = None
    """That of the target at which some calls of the route are repeated."""
    opening_template: OpeningTemplate | None = None
    """The learned opening of its streams, for the fast path."""
    endpoint: TargetEndpoint | None = None
    """Created at its first call."""
    quote: Quote | None = None
    """The result of the last price lookup."""

    def __repr__(self) -> str:
        return f"Plan({self.target.name!r})"  # without secrets


class Plans(dict[str, tuple[Plan, ...] | None]):
    """The plans of all targets by model name, for clients of one dialect; None for an unknown name.

    Names come from clients: at most `_MAX_NAMES` are cached, besides those of routes.
    """

    def __init__(self, config: Config, kind: CallKind, client: str = DEFAULT_DIALECT, *, recorded: bool) -> None:
        self._config = config
        self._kind = kind
        self._client = client
        self._recorded = recorded

    def __missing__(self, name: str) -> tuple[Plan, ...] | None:
        route = self._config.route(name)
        if route is None:
            return None
        plans = self._for_targets(route, route.targets, 0)
        if route.fallbacks and plans:
            self._add_fallbacks(route, plans)
        if route.shadow is not None and plans and self._kind != "embeddings":
            (shadow, *_) = self._for_targets(route, (route.shadow.target,), _SHADOW)
            for plan in plans:
                plan.shadow = shadow
        if name in self._config.routes or len(self) < _MAX_NAMES:
            self[name] = plans
            for plan in plans if self._kind == "streamed" else ():
                plan.opening_template = OpeningTemplate()  # only a cached plan can learn it
        return plans

    def _for_targets(self, route: Route, targets: Sequence[Target], first: int) -> tuple[Plan, ...]:
        """The plans of those targets that serve this kind of call; `first` is the place of the first one."""
        client = "" if route.set or self._kind == "embeddings" else self._client
        able = [
            target.for_client(client).by_key()
            for target in targets
            if self._kind != "embeddings" or target.provider.embeddings
        ]
        all_able = tuple(chain.from_iterable(able))
        return tuple(
            self._plan(route, target, place, all_able) for place, each in enumerate(able, first) for target in each
        )

    def _add_fallbacks(self, route: Route, plans: Sequence[Plan]) -> None:
        """Give these plans, and those that follow for a cause, the plans that do."""
        place, fallbacks = len(route.targets), dict[Cause, Sequence[Plan]]()
        for cause, targets in route.fallbacks.items():
            fallbacks[cause] = self._for_targets(route, targets, place)
            place += len(targets)
        for plan in (*plans, *chain.from_iterable(fallbacks.values())):
            plan.fallbacks = MappingProxyType(fallbacks)

    def full_name(self, name: str) -> str:
        """The model's name in the ledger: the name of its route, or provider/model if the client sent a bare name."""
        plans = self.get(name)
        if plans:
            return plans[0].route
        route = self._config.route(name)
        return name if route is None else route.name

    def _plan(self, route: Route, target: Target, place: int, alternatives: tuple[Target, ...]) -> Plan:
        provider, server = target.provider, self._config.server
        whole_body = self._kind == "whole" and not provider.embedded  # the local model always streams
        max_event = max(route.max_event, MAX_BODY) if whole_body else route.max_event
        directory = server.record if route.record is None else route.record
        issuer = _issuer(provider)
        return Plan(
            route=route.name,
            target=target,
            settings=route,
            measure_key=measure_key(provider.name, provider.base_url, target.dialect, target.model, self._kind),
            measured=route.measured,
            place=place,
            alternatives=alternatives,
            provider_key=provider.key.name if provider.key is not None else "",
            quota=quota_of(provider),
            provider=provider.name,
            model=target.model,
            secrets=provider.secrets(),
            destination=Destination(
                model=target.model,
                overrides=MappingProxyType(dict(route.set)),
                include_usage=provider.include_usage,
                stream=True if provider.embedded else None,  # so that it notices a disconnect at once
                settings=provider.settings_for(target.model, target.dialect),
                issuer=issuer,
                shared_state=self._config.server.shared_state,
                cache=route.cache,
            ),
            own_headers=frozenset(name.lower() for name in provider.credentials(target.dialect)),
            issuer=issuer,
            is_local=provider.embedded,
            dialect=target.dialect,
            upstream=upstream_dialect(target.dialect),
            max_event=max_event,
            timeouts=self._timeouts(route, target, max_event),
            strict=route.strict or server.strict,
            repair_tool_arguments=route.repair_tool_arguments,
            unasked_thinking=server.unasked_thinking,
            content=route.content or self._config.content.keep,
            record=directory if self._recorded else "",
            client_only=provider.client_only,
            salts_cache=any(
                _names_cache(each) for each in (*route.targets, *chain.from_iterable(route.fallbacks.values()))
            ),
        )

    def _timeouts(self, route: Route, target: Target, max_body: int) -> AttemptTimeouts:
        """The timeouts of an attempt. An unstreamed chat may send nothing until it is complete (`answer_s`)."""
        timeouts, heartbeat_s = target.timeouts, self._config.server.heartbeat_s
        first_event_s = timeouts.answer_s if self._kind == "whole" else timeouts.first_event_s
        return AttemptTimeouts(
            first_event_s=first_event_s,
            gap_s=timeouts.gap_s,
            heartbeat_s=heartbeat_s,
            total_s=timeouts.total_s,
            first_check_s=min(first_event_s, heartbeat_s) if self._kind == "streamed" else first_event_s,
            drain_s=target.provider.drain_s if target.provider.abort == "drain" else 0.0,
            max_body=max_body,
            pace_window_s=route.pace_window_s if route.min_tokens_per_s else inf,
            pace_chars=route.min_tokens_per_s * _CHARS_PER_TOKEN * route.pace_window_s if route.min_tokens_per_s else 0,
        )


def _names_cache(target: Target) -> bool:
    """Whether requests for a target name or salt its provider's prompt cache, although the client does not."""
    settings = target.provider.settings_for(target.model, target.dialect)
    return bool(settings.get("cache_salt") or settings.get("cache_key"))


def with_credentials(
    plans: Sequence[Plan], given: ClientCredentials, client: str, key: ClientKey | None
) -> Sequence[Plan]:
    """The plans for a call with a credential of the client's own: that of the first target which takes it.

    Only that target is tried: the credential must reach no other provider, and its account is not in the breakers. If
    no target takes credentials of clients, those that need none at all are tried. Raises `RequestError` if there is no
    plan: the call never has the credentials of the gateway instead, because the client would not know whose account it
    uses.
    """
    taking = [plan for plan in plans if plan.target.provider.client_credentials]
    allowed = [plan for plan in taking if key is None or plan.provider in key.client_credentials]
    for plan in allowed:
        provider = plan.target.provider.for_client(given.secrets, client, plan.dialect)
        if provider is not None:
            return (_for_call(plan, provider, given, key.id if key is not None else ""),)
    if taking:
        raise RequestError(refusals.client_credentials(taking[0].provider, by_key=not allowed))
    if needing_none := [plan for plan in plans if not plan.target.provider.authorized]:
        return needing_none
    if plans:
        raise RequestError(refusals.unused_client_credentials(plans[0].provider))
    return plans


def _for_call(plan: Plan, provider: Provider, given: ClientCredentials, key: str) -> Plan:
    target = structs.replace(plan.target, provider=provider)
    # Not of the credential, which changes with each login, and of which nothing may be stored.
    issuer = _digest(provider, "client", key)
    return structs.replace(
        plan,
        target=target,
        alternatives=(target,),
        fallbacks=MappingProxyType({}),
        provider_key="",
        quota=None,
        secrets=provider.secrets(),
        destination=structs.replace(plan.destination, issuer=issuer),
        own_headers=frozenset((*provider.credentials(plan.dialect), *given.headers)),
        issuer=issuer,
        client_only=False,
        client_credentials=True,
        client_headers=given.headers,
        endpoint=None,
        quote=None,
    )


def _issuer(provider: Provider) -> str:
    """A digest of the provider's address and account: seals are valid for one account only."""
    return _digest(provider, *provider.account_identity())


def _digest(provider: Provider, *account: str) -> str:
    identity = "\n".join((provider.name, provider.base_url, *account))
    return hashlib.sha256(identity.encode()).hexdigest()[:8]


def header_lines(headers: Mapping[str, str], plan: Plan) -> bytes:
    """Headers as lines of a request's head, without those that the provider's configuration sets."""
    lines = [f"{name}: {value}\r\n" for name, value in headers.items() if name not in plan.own_headers]
    return "".join(lines).encode("latin-1", "replace")
