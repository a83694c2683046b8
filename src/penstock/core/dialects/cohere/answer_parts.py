"""What streamed and unstreamed answers in the dialect of Cohere have in common: finish reasons, usage, citations."""

from collections.abc import Mapping

from penstock.core.dialects.answer_writer import AnswerFacts
from penstock.core.dialects.cohere.reader import FINISH_REASONS
from penstock.core.hub.content import Citation
from penstock.core.hub.events import Annotation, Finish
from penstock.core.hub.losses import Loss
from penstock.core.hub.usage import Usage

Json = dict[str, object]
_REASONS: Mapping[str, str] = {
    "stop": "COMPLETE",
    "length": "MAX_TOKENS",
    "tool_calls": "TOOL_CALL",
    "function_call": "TOOL_CALL",
}


def finish_reason(finish: Finish, losses: list[Loss], *, own: bool) -> str:
    """Cohere's finish reason; that of a provider of the same API (`own`) as it was sent."""
    if finish.details is not None:
        losses.append(Loss("field-dropped", "stop_details"))
    if own and finish.native and (finish.native in FINISH_REASONS or finish.native == finish.reason):
        return finish.native
    if finish.reason == "stop" and finish.stop_sequence is not None:
        return "STOP_SEQUENCE"
    if finish.reason == "pause":
        losses.append(Loss("pause-unknown", finish.native or ""))
    elif finish.reason not in _REASONS:
        losses.append(Loss("field-dropped", f"finish reason {finish.reason}"))
    return _REASONS.get(finish.reason, "COMPLETE")


def call_id(facts: AnswerFacts, number: int) -> str:
    """The id of a call that the provider gave none."""
    return f"call_{facts.call_id}_{number}"


def with_extras(body: Json, extras: Mapping[str, object]) -> Json:
    """The JSON with members that Cohere sent and nothing reads, each at its place; at the top if that is a list."""
    for name, value in extras.items():
        *path, last = name.split(".")
        holder: object = body
        for step in path:
            holder = holder.setdefault(step, {}) if isinstance(holder, dict) else None
        if isinstance(holder, dict):
            holder[last] = value
        else:
            body[name] = value
    return body


def write_usage(usage: Usage, *, own: bool) -> Json:
    """The usage in Cohere's format. What is charged is what the model read and wrote, unless Cohere said otherwise."""
    if own and usage.raw:
        return usage.raw
    usage = usage.normal()
    counts: Json = {"input_tokens": usage.input or 0, "output_tokens": usage.output or 0}
    details: Json = {"reasoning_tokens": usage.reasoning} if usage.reasoning is not None else {}
    cached: Json = {"cached_tokens": usage.cached} if usage.cached is not None else {}
    return {"billed_units": counts, "tokens": counts | details, **cached}


def citation_body(citation: Annotation | Citation, *, own: bool) -> Json | None:
    """A citation in Cohere's format: a passage of the text, and the document that it refers to. None if nothing says
    which document that is."""
    if own and citation.data is not None:
        return citation.data
    if not (citation.url or citation.title or citation.quote):
        return None
    document = {name: value for name, value in (("title", citation.title), ("url", citation.url)) if value}
    source = {"type": "document", "id": citation.url or citation.title, "document": document}
    quoted: Json = {"start": citation.start, "end": citation.end, "text": citation.quote}
    return {name: value for name, value in quoted.items() if value is not None} | {
        "sources": [source],
        "type": "TEXT_CONTENT",
    }
