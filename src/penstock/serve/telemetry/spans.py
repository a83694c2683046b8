"""Spans: a settled call as trace spans: one for the call, and one child span for each attempt.

The attributes are those of OpenTelemetry's semantic conventions for generative AI. Attributes that the conventions do
not define have the prefix `penstock.`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.amounts import NANODOLLARS
from penstock.core.dialects.registry import DIALECTS
from penstock.core.hub.repairs import by_level
from penstock.gateway.content.content_mask import ContentMask
from penstock.gateway.mask import MASK
from penstock.gateway.record.attempt import Attempt
from penstock.gateway.record.call import EMBEDDINGS, Call
from penstock.gateway.record.entry import AttemptEntry, Entry
from penstock.gateway.record.trace import Trace, new_span
from penstock.serve.telemetry.content import messages_in, messages_out

Attribute: TypeAlias = str | bool | int | float | tuple[str, ...]
# Maps a provider's name to its host and port; an empty host and port 0 if it has no address.
Address: TypeAlias = Callable[[str], tuple[str, int]]
_NS = 1_000_000_000
# Sampling parameters of a request, and the attribute of each.
PARAMETERS = {
    "max_tokens": "gen_ai.request.max_tokens",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "seed": "gen_ai.request.seed",
    "n": "gen_ai.request.choice.count",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
}
# Provider names of the conventions, where they differ from ours.
PROVIDERS = {
    "azure": "azure.ai.openai",
    "azure-anthropic": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex": "gcp.vertex_ai",
    "vertex-anthropic": "gcp.vertex_ai",
    "xai": "x_ai",
}


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


def spans_of(call: Call, entry: Entry, ended_ns: int, address: Address, mask: ContentMask) -> list[TraceSpan]:
    """The spans of a call that ended at `ended_ns`; the call's own span is the first."""
    trace = call.trace
    assert trace is not None
    began_ns = ended_ns - round(call.progress.total_s * _NS)
    own = TraceSpan(
        name=f"POST {_route_of(entry.surface)}",
        kind="server",
        trace=trace.id,
        id=trace.span,
        parent=trace.parent,
        began_ns=began_ns,
        ended_ns=ended_ns,
        failed=entry.status >= 500 or entry.outcome in ("failed", "truncated", "timed_out"),
        attributes=_of_call(call, entry),
    )
    spans = [own]
    for number, (attempt, tried) in enumerate(zip(call.progress.attempts, entry.attempts, strict=True)):
        start_ns = began_ns + round(attempt.began_s * _NS)
        spans.append(
            TraceSpan(
                name=f"{_operation_of(entry.surface)} {tried.model}",
                kind="client",
                trace=trace.id,
                id=attempt.span or new_span(),
                parent=own.id,
                began_ns=start_ns,
                ended_ns=start_ns + round(attempt.seconds * _NS),
                failed=tried.outcome in ("failed", "truncated", "timed_out"),
                attributes={
                    **identity(entry, tried, address),
                    **_parameters(trace),
                    **_of_attempt(entry, attempt, tried),
                    **_content(call, attempt, mask),
                    "penstock.attempt": number,
                },
            )
        )
    return spans


def identity(entry: Entry, tried: AttemptEntry, address: Address) -> dict[str, Attribute]:
    """The attributes that identify an attempt, in spans and in histograms."""
    attributes: dict[str, Attribute] = {
        "gen_ai.operation.name": _operation_of(entry.surface),
        "gen_ai.provider.name": PROVIDERS.get(tried.provider, tried.provider),
        "gen_ai.request.model": tried.model,
    }
    host, port = address(tried.provider)
    if host:
        attributes |= {"server.address": host, "server.port": port}
    if tried.outcome != "completed":
        attributes["error.type"] = tried.code or tried.outcome
    return attributes


def _of_call(call: Call, entry: Entry) -> dict[str, Attribute]:
    attributes: dict[str, Attribute] = {
        "http.request.method": "POST",
        "http.route": _route_of(entry.surface),
        "http.response.status_code": entry.status,
        "penstock.request.id": entry.id,
        "penstock.route": entry.model,
        "penstock.outcome": entry.outcome,
        "penstock.attempts": len(entry.attempts),
        "penstock.cost_usd": entry.priced / NANODOLLARS,
    }
    if entry.key:
        attributes["penstock.key.id"] = entry.key
    if entry.team:
        attributes["penstock.team"] = entry.team
    if call.key is not None and call.key.name:
        attributes["penstock.key.name"] = call.key.name
    # A client's own tags are its words, as its messages are.
    with_content = call.trace is not None and call.trace.request is not None
    tags = entry.tags if with_content else call.key.tags if call.key is not None else {}
    attributes |= {f"penstock.tag.{name}": value for name, value in tags.items()}
    if entry.code:
        attributes |= {"penstock.code": entry.code, "error.type": entry.code}
    levels = ("penstock.repairs", "penstock.findings", "penstock.notices")
    for name, counts in zip(levels, by_level(entry.repairs), strict=True):
        if counts:
            attributes[name] = sum(counts.values())
    if entry.losses:
        attributes["penstock.losses"] = tuple(entry.losses)
    return attributes


def _of_attempt(entry: Entry, attempt: Attempt, tried: AttemptEntry) -> dict[str, Attribute]:
    attributes: dict[str, Attribute] = {"penstock.outcome": tried.outcome, "penstock.measure": tried.measure}
    if entry.surface != EMBEDDINGS:
        attributes |= {"gen_ai.request.stream": entry.stream, "penstock.dialect": attempt.dialect}
    if tried.status:
        attributes["http.response.status_code"] = tried.status
    if attempt.response_id:
        attributes["gen_ai.response.id"] = attempt.response_id
    if attempt.response_model:
        attributes["gen_ai.response.model"] = attempt.response_model
    if attempt.finishes:
        attributes["gen_ai.response.finish_reasons"] = tuple(attempt.finishes)
    if entry.stream and attempt.commit_s is not None:
        attributes["gen_ai.response.time_to_first_chunk"] = attempt.commit_s
        attributes["penstock.events"] = tried.events
        attributes["penstock.longest_gap"] = attempt.gaps.longest_s
    if tried.measure != "void":
        tokens = tried.tokens
        attributes |= {"gen_ai.usage.input_tokens": tokens.input, "gen_ai.usage.output_tokens": tokens.output}
        further = {
            "gen_ai.usage.cache_read.input_tokens": tokens.cached,
            "gen_ai.usage.cache_creation.input_tokens": tokens.cache_write,
            "gen_ai.usage.reasoning.output_tokens": tokens.reasoning,
        }
        attributes |= {name: count for name, count in further.items() if count}
    if tried.cost is not None:
        attributes["penstock.cost_usd"] = tried.cost / NANODOLLARS
    return attributes


def _content(call: Call, attempt: Attempt, mask: ContentMask) -> dict[str, Attribute]:
    """The messages of the request and of the answer, if `[telemetry] content` is set."""
    if attempt.answer is None or call.trace is None or call.trace.request is None:
        return {}
    own = call.credentials.secrets.values() if call.credentials is not None else ()
    masked = partial(mask.json, names=dict.fromkeys(own, MASK))
    messages = {
        "gen_ai.input.messages": messages_in(call.trace.request, masked),
        "gen_ai.output.messages": messages_out(attempt.answer.completion, masked),
    }
    return {name: text for name, text in messages.items() if text}


def _parameters(trace: Trace) -> dict[str, Attribute]:
    return {PARAMETERS[name]: value for name, value in trace.parameters.items() if name in PARAMETERS}


def _operation_of(surface: str) -> str:
    return "chat" if surface != EMBEDDINGS else "embeddings"


def _route_of(surface: str) -> str:
    paths = {dialect.surface.name: dialect.surface.path for dialect in DIALECTS.values() if dialect.surface is not None}
    paths |= {each.name: each.path for dialect in DIALECTS.values() if (each := dialect.compaction) is not None}
    return f"/v1{paths.get(surface, '/embeddings')}"
