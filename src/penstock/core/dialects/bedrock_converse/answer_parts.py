"""What streamed and unstreamed answers of the Converse API have in common: reasons, usage, seals, citations, errors."""

from base64 import b64encode
from collections.abc import Mapping

from penstock.core.dialects.answer_writer import AnswerFacts
from penstock.core.dialects.bedrock_converse.reader import FINISH_REASONS, SEAL_SCHEME
from penstock.core.hub.content import Citation, ReasoningSeal
from penstock.core.hub.events import Annotation, Finish
from penstock.core.hub.losses import Loss
from penstock.core.hub.seals import wrap
from penstock.core.hub.usage import Usage

Json = dict[str, object]
_REASONS: Mapping[str, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "content_filtered",
    "pause": "end_turn",
}
_IMAGE = "image/"
# The exceptions of the operation, by their HTTP status.
_EXCEPTIONS = {
    400: "validationException",
    401: "unrecognizedClientException",
    402: "serviceQuotaExceededException",
    403: "accessDeniedException",
    404: "resourceNotFoundException",
    408: "modelTimeoutException",
    424: "modelErrorException",
    429: "throttlingException",
    500: "internalServerException",
    503: "serviceUnavailableException",
    504: "modelTimeoutException",
}
# Those that may be in a stream.
_IN_STREAM = frozenset(_EXCEPTIONS[status] for status in (400, 429, 500, 503))
STREAM_ERROR = "modelStreamErrorException"
"""The exception for a stream that broke off."""


def stop(finish: Finish, losses: list[Loss], *, own: bool) -> Json:
    """The reason of an answer, that of a provider of the same API (`own`) as it was sent; and its stop sequence."""
    if finish.details is not None:
        losses.append(Loss("field-dropped", "stop_details"))
    if finish.reason == "pause":
        losses.append(Loss("pause-unknown", finish.native or ""))
    reason = _REASONS.get(finish.reason, "end_turn")
    if own and finish.native and (finish.native in FINISH_REASONS or finish.native == finish.reason):
        reason = finish.native
    elif finish.reason == "stop" and finish.stop_sequence is not None:
        reason = "stop_sequence"
    elif finish.reason not in _REASONS:
        losses.append(Loss("field-dropped", f"finish reason {finish.reason}"))
    sequence = finish.stop_sequence
    named = {"additionalModelResponseFields": {"delta": {"stop_sequence": sequence}}} if sequence is not None else {}
    return {"stopReason": reason, **named}


def metadata(usage: Usage | None, extras: Mapping[str, object], *, own: bool) -> Json:
    """The usage and the figures beside it. The latency of another API is 0: this one promises a figure."""
    kept = dict(extras) if own else {"metrics": {"latencyMs": 0}}
    tier: Json = {"serviceTier": {"type": usage.tier}} if own and usage is not None and usage.tier else {}
    counted: Json = {"usage": _write_usage(usage, own=own)} if usage is not None else {}
    return counted | tier | kept


def _write_usage(usage: Usage, *, own: bool) -> Json:
    if own and usage.raw:
        return usage.raw
    usage = usage.normal()
    input, output = usage.input or 0, usage.output or 0
    cached, written = usage.cached or 0, usage.cache_write or 0
    if cached + written > input:
        cached = written = 0
    report: Json = {
        "inputTokens": input - cached - written,
        "outputTokens": output,
        "totalTokens": input + output,
    }
    if usage.cached is not None or usage.cache_write is not None:
        report |= {"cacheReadInputTokens": cached, "cacheWriteInputTokens": written}
    if written and usage.cache_write_1h:
        report["cacheDetails"] = [{"inputTokens": usage.cache_write_1h, "ttl": "1h"}]
    return report


def call_id(facts: AnswerFacts, number: int) -> str:
    """The id of a call that the provider gave none."""
    return f"tooluse_{facts.call_id}_{number}"


def seal_body(seal: ReasoningSeal, issuer: str) -> Json:
    """A seal: a signature, or reasoning that is encrypted as a whole. One of another API is wrapped."""
    value = seal.value if seal.scheme == SEAL_SCHEME else wrap(seal, issuer)
    if not seal.redacted:
        return {"signature": value}
    return {"redactedContent": value if seal.scheme == SEAL_SCHEME else b64encode(value.encode()).decode()}


def citation_body(citation: Annotation | Citation, *, own: bool) -> Json | None:
    """A citation; None if it names no source that the API has."""
    if own and citation.data is not None:
        return citation.data
    if not citation.url:
        return None
    body: Json = {"title": citation.title, "sourceContent": [{"text": citation.quote}] if citation.quote else []}
    return {name: value for name, value in body.items() if value} | {"location": {"web": {"url": citation.url}}}


def image_format(mime: str) -> str:
    """The format of an image; empty if it is none."""
    return mime.removeprefix(_IMAGE) if mime.startswith(_IMAGE) else ""


def exception_name(status: int) -> str:
    """The exception for a response of this status."""
    return _EXCEPTIONS.get(status) or ("validationException" if status < 500 else "internalServerException")


def stream_exception_name(status: int | None) -> str:
    """The exception for an error of this status inside a stream."""
    name = _EXCEPTIONS.get(503 if status == 529 else status or 0, "")
    return name if name in _IN_STREAM else STREAM_ERROR
