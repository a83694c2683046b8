"""Spans: a settled call as trace spans: one for the call, and one child span for each attempt."""

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.amounts import NANODOLLARS
from penstock.core.hub.repairs import by_level
from penstock.gateway.billing.entry import AttemptEntry, Entry
from penstock.gateway.calls.call import Attempt, Call
from penstock.gateway.calls.trace import new_span
from penstock.serve.telemetry import otel_names as named
from penstock.serve.telemetry.content import messages_in, messages_out

Attribute: TypeAlias = str | bool | int | float | tuple[str, ...]
# Maps a provider's name to its host and port; an empty host and port 0 if it has no address.
Address: TypeAlias = Callable[[str], tuple[str, int]]
_NS = 1_000_000_000


class TraceSpan(Struct, frozen=True, kw_only=True):
    """One span. Times are in nanoseconds since the Unix epoch, ids in hexadecimal."""

    name: str
    kind: Literal["server", "client"]
    trace: str
    id: str
    parent: str
    began_ns: int
    ended_ns: int
    failed: bool
    attributes: Mapping[str, Attribute]


def spans_of(call: Call, entry: Entry, ended_ns: int, address: Address) -> list[TraceSpan]:
    """The spans of a call that ended at `ended_ns`; the call's own span is the first."""
    trace = call.trace
    assert trace is not None
    began_ns = ended_ns - round(call.total_s * _NS)
    own = TraceSpan(
        name=f"POST {named.route_of(entry.surface)}",
        kind="server",
        trace=trace.id,
        id=call.span,
        parent=trace.parent,
        began_ns=began_ns,
        ended_ns=ended_ns,
        failed=entry.status >= 500 or entry.outcome in ("failed", "truncated", "timed_out"),
        attributes=_of_call(entry),
    )
    spans = [own]
    for number, (attempt, tried) in enumerate(zip(call.attempts, entry.attempts, strict=True)):
        start_ns = began_ns + round(attempt.began_s * _NS)
        spans.append(
            TraceSpan(
                name=f"{named.operation_of(entry.surface)} {tried.model}",
                kind="client",
                trace=trace.id,
                id=attempt.span or new_span(),
                parent=own.id,
                began_ns=start_ns,
                ended_ns=start_ns + round(attempt.seconds * _NS),
                failed=tried.outcome in ("failed", "truncated", "timed_out"),
                attributes={
                    **identity(entry, tried, address),
                    **_parameters(call),
                    **_of_attempt(entry, attempt, tried),
                    **_content(call, attempt),
                    named.ATTEMPT: number,
                },
            )
        )
    return spans


def identity(entry: Entry, tried: AttemptEntry, address: Address) -> dict[str, Attribute]:
    """The attributes that identify an attempt, in spans and in histograms."""
    attributes: dict[str, Attribute] = {
        named.OPERATION: named.operation_of(entry.surface),
        named.PROVIDER: named.PROVIDERS.get(tried.provider, tried.provider),
        named.REQUEST_MODEL: tried.model,
    }
    host, port = address(tried.provider)
    if host:
        attributes |= {named.SERVER_ADDRESS: host, named.SERVER_PORT: port}
    if tried.outcome != "completed":
        attributes[named.ERROR_TYPE] = tried.code or tried.outcome
    return attributes


def _of_call(entry: Entry) -> dict[str, Attribute]:
    attributes: dict[str, Attribute] = {
        named.HTTP_METHOD: "POST",
        named.HTTP_ROUTE: named.route_of(entry.surface),
        named.HTTP_STATUS: entry.status,
        named.REQUEST_ID: entry.id,
        named.ROUTE: entry.model,
        named.OUTCOME: entry.outcome,
        named.ATTEMPTS: len(entry.attempts),
        named.COST: entry.priced / NANODOLLARS,
    }
    if entry.key:
        attributes[named.KEY] = entry.key
    if entry.code:
        attributes |= {named.CODE: entry.code, named.ERROR_TYPE: entry.code}
    for name, counts in zip((named.REPAIRS, named.FINDINGS, named.NOTICES), by_level(entry.repairs), strict=True):
        if counts:
            attributes[name] = sum(counts.values())
    if entry.losses:
        attributes[named.LOSSES] = tuple(entry.losses)
    return attributes


def _of_attempt(entry: Entry, attempt: Attempt, tried: AttemptEntry) -> dict[str, Attribute]:
    attributes: dict[str, Attribute] = {named.OUTCOME: tried.outcome, named.MEASURE: tried.measure}
    if named.has_answers(entry.surface):
        attributes |= {named.REQUEST_STREAM: entry.stream, named.DIALECT: attempt.dialect}
    if tried.status:
        attributes[named.HTTP_STATUS] = tried.status
    if attempt.response_id:
        attributes[named.RESPONSE_ID] = attempt.response_id
    if attempt.response_model:
        attributes[named.RESPONSE_MODEL] = attempt.response_model
    if attempt.finishes:
        attributes[named.FINISH_REASONS] = tuple(attempt.finishes)
    if entry.stream and attempt.commit_s is not None:
        attributes[named.TIME_TO_FIRST_CHUNK] = attempt.commit_s
        attributes[named.EVENTS] = tried.events
        attributes[named.LONGEST_GAP] = attempt.gaps.longest_s
    if tried.measure != "void":
        tokens = tried.tokens
        attributes |= {named.INPUT_TOKENS: tokens.input, named.OUTPUT_TOKENS: tokens.output}
        further = {
            named.CACHE_READ_TOKENS: tokens.cached,
            named.CACHE_CREATION_TOKENS: tokens.cache_write,
            named.REASONING_TOKENS: tokens.reasoning,
        }
        attributes |= {name: count for name, count in further.items() if count}
    if tried.cost is not None:
        attributes[named.COST] = tried.cost / NANODOLLARS
    return attributes


def _content(call: Call, attempt: Attempt) -> dict[str, Attribute]:
    """The messages of the request and of the answer, if `[telemetry] content` is set."""
    if attempt.answer is None or call.request is None:
        return {}
    messages = {
        named.INPUT_MESSAGES: messages_in(call.request),
        named.OUTPUT_MESSAGES: messages_out(attempt.answer.completion),
    }
    return {name: text for name, text in messages.items() if text}


def _parameters(call: Call) -> dict[str, Attribute]:
    return {named.PARAMETERS[name]: value for name, value in call.parameters.items() if name in named.PARAMETERS}
