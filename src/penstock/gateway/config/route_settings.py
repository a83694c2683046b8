"""The settings of [routes]: a route, and its targets."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, field

from penstock.gateway.content.collected import ContentRule
from penstock.gateway.streams.sharing import Pace, Scope
from penstock.gateway.streams.stream_settings import Durability
from penstock.providers.provider import Seconds, Timeouts

Size: TypeAlias = Annotated[int, Meta(ge=1024)]
StrategyName: TypeAlias = Literal["order", "weights", "least_busy", "latency", "cost", "cheapest"]
MEASURED: frozenset[StrategyName] = frozenset(("least_busy", "latency", "cheapest"))
"""The strategies that depend on how targets have answered lately."""


PACE_WINDOW_S = 10.0
ContinueRule: TypeAlias = Literal["no", "same-model", "any"]
"""Which targets may go on with an answer that broke off."""
Cause: TypeAlias = Literal["too_long", "content_policy", "refusal", "rate_limit", "overload"]
"""Why an attempt has failed, as far as a route may name other targets for it."""


class TargetTable(Struct, frozen=True, kw_only=True):
    """A target with its weight or dialect, as an item of `targets`."""

    target: str
    """provider/model"""
    weight: Annotated[float, Meta(gt=0)] | None = None
    """Its share of the calls, relative to the other weights."""
    dialect: str = ""
    """The API to use, if the provider offers several."""


class ShadowTable(Struct, frozen=True, kw_only=True):
    """[Shadow traffic](shadow.md): a share of the calls of the route is repeated at another target and compared, after
    the client was served."""

    target: str
    """provider/model"""
    share: Annotated[float, Meta(gt=0, le=1)] = 0.01
    """The share of the calls: 0.01 is 1 %."""
    concurrent: Annotated[int, Meta(ge=1, le=100)] = 2
    """The most calls at a time in each process; others are not repeated."""


class RouteTable(Struct, frozen=True, kw_only=True):
    """A public model name, or a pattern of such names, and its targets."""

    targets: Annotated[tuple[str | TargetTable, ...], Meta(min_length=1)]
    """At least one `provider/model`, or a table such as `{ target = "provider/model", weight = 3 }`. Either all have a
    weight or none. `dialect` names the API to use, if the provider offers
    [several](providers.md#providers-with-several-apis)."""
    timeouts: Timeouts = Timeouts()
    """Overrides of the providers' timeouts for this route."""
    set: Mapping[str, Any] = {}
    """Request fields that the route sets, whatever the client sends. Not `model`, `messages`, `stream` or
    `stream_options`."""
    max_event: Size | None = None
    """Overrides `limits.max_event`."""
    strict: bool = False
    """`true` makes its calls [strict](reference/losses.md#strict-mode): a translation that would change the meaning
    fails."""
    cache: Literal["auto", "off"] = "auto"
    """`"off"`: requests that are translated get no [breakpoints for the prompt cache](caching.md) by themselves."""
    repair_tool_arguments: bool = False
    """`true` [corrects](providers.md#repair-of-tool-calls) JSON of tool calls and of structured output that models
    write wrong, where it has one reading that fits its schema."""
    record: str | None = None
    """Overrides `server.record`; `""` records nothing."""
    durable: Durability | None = None
    """Which streams of the route are [durable](streams.md): overrides `durable` in
    [`[streams]`](reference/configuration.md#streams)."""
    coalesce: Scope | None = None
    """Whose identical requests [share one call](streams.md#one-call-for-identical-requests) while it is in progress:
    those of one `"key"`, of a `"team"`, or of all callers of the `"route"`."""
    cache_answers: Scope | None = None
    """Whose identical requests get a [kept answer](streams.md#cached-answers): those of one `"key"`, of a `"team"`, or
    of all callers of the `"route"`."""
    cache_answers_s: Seconds = 3600.0
    """Seconds for which `cache_answers` keeps an answer."""
    cache_tools: bool = False
    """`true`: `cache_answers` also keeps answers to requests with tools."""
    cache_pace: Pace = "max"
    """How a kept answer is streamed: at once, or with the `"original"` times between its events."""
    content: ContentRule | None = None
    """Of which calls of the route the content is kept: overrides `keep` in
    [`[content]`](reference/configuration.md#content)."""
    strategy: StrategyName | None = None
    """How the order of the targets is [chosen](routing.md#strategies): `"order"` (as listed), `"weights"` (at random,
    by weight), `"least_busy"` (the fewest answers in progress), `"latency"` (soonest and fastest), `"cost"` (the lowest
    price) or `"cheapest"` (the lowest price of those that are soon enough). Default: `"weights"` if the targets have
    weights, otherwise `"order"`."""
    fallbacks: Mapping[Cause, tuple[str | TargetTable, ...]] = {}
    """Targets that are tried only [for a cause](routing.md#fallbacks-by-cause): `too_long`, `content_policy`,
    `refusal`, `rate_limit` or `overload`, such as `fallbacks.too_long = ["gemini/gemini-2.5-pro"]`."""
    shadow: ShadowTable | None = None
    """A target at which some calls are repeated, to compare it."""
    retry_billed: bool = False
    """`true` also retries at the same target what the provider bills although it failed, such as an answer that broke
    off."""
    continue_: ContinueRule = field(name="continue", default="no")
    """Which targets may go on with [an answer that broke off](routing.md#answers-that-break-off): `"no"`,
    `"same-model"` (those with a model of the same name, and the same target again) or `"any"`."""
    max_first_event_s: Seconds | None = None
    """With `strategy = "cheapest"`: how soon the first event should come, in seconds."""
    min_tokens_per_s: Annotated[float, Meta(gt=0, le=10_000)] | None = None
    """How fast a streamed answer [must come](routing.md#least-pace), at four characters per token. If it is slower, the
    next target is tried, or the stream ends with the error `upstream_too_slow` if the client has a part of it."""
    pace_window_s: Seconds = PACE_WINDOW_S
    """With `min_tokens_per_s`: how long an answer may be slower, in seconds."""
    leave_late: bool = False
    """`true` leaves a target [that begins later than usual](routing.md#targets-that-begin-late): if the first content
    of a stream is not there when that of 95 of 100 calls was, the next target is tried."""
    require: str = ""
    """What its calls [require](routing.md#requirements) of providers, such as `"zdr, region=eu"`. A request can demand
    more with `x-penstock-require`."""
    affinity: str = ""
    """Keeps a conversation at the target and the key that have its [prompt cache](routing.md#prompt-cache-affinity):
    `"prompt"` recognises it by the beginning of its requests or the client's `prompt_cache_key`, `"user"` by the end
    user, and `"header:NAME"` by a header."""
