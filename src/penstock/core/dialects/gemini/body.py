"""The Gemini dialect, unstreamed: a whole completion → the body of one `GenerateContentResponse`."""

import msgspec

from penstock.core.dialects.answer_parts import CallInputs
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.gemini.answer_parts import Json, answer_id, call_part, finish_reason, grounding
from penstock.core.dialects.gemini.signatures import write_signature
from penstock.core.dialects.gemini.usage import write_usage
from penstock.core.hub.completion import Choice, Completion
from penstock.core.hub.content import (
    Citation,
    MediaPart,
    OpaquePart,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
    ToolChange,
    ToolResult,
)
from penstock.core.hub.losses import Loss
from penstock.core.json.getters import object_of


def write_body(completion: Completion, facts: AnswerFacts, losses: list[Loss]) -> bytes:
    """The body of an answer."""
    own = facts.same_dialect
    body: Json = {
        "modelVersion": completion.model or facts.model,
        "responseId": completion.id or answer_id(facts),
    }
    inputs = CallInputs(losses)
    choices = completion.choices or (Choice(0),)
    feedback = object_of(completion.extras.get("promptFeedback")) if own else {}
    if "blockReason" not in feedback or any(
        choice.parts or choice.finish_reason != "content_filter" for choice in choices
    ):
        body["candidates"] = [_candidate(choice, losses, facts, inputs) for choice in choices]
    if completion.usage is not None:
        body["usageMetadata"] = write_usage(completion.usage, same_dialect=own)
    return msgspec.json.encode(completion.extras | body if own else body)


def _candidate(choice: Choice, losses: list[Loss], facts: AnswerFacts, inputs: CallInputs) -> Json:
    parts: list[Json] = []
    signature = ""
    for part in choice.parts:
        if isinstance(part, ReasoningPart):
            value = _signature(part, facts)
            if signature and value:
                parts.append({"text": "", "thoughtSignature": signature})
                signature = ""
            text = part.readable
            if text:
                parts.append({"text": text, "thought": True} | ({"thoughtSignature": value} if value else {}))
            else:
                signature = value or signature
            continue
        body = _part(part, losses, inputs, own=facts.same_dialect)
        if body is not None:
            parts.append(body | ({"thoughtSignature": signature} if signature else {}))
            signature = ""
    if signature:
        parts.append({"text": "", "thoughtSignature": signature})
    if parts and facts.same_dialect:
        parts[-1] |= choice.message_extras
    candidate: Json = {
        "content": {"parts": parts, "role": "model"},
        "finishReason": finish_reason(choice.finish, losses, own=facts.same_dialect, refused=bool(choice.refusal)),
        "index": choice.index,
    }
    if facts.same_dialect:
        return choice.extras | candidate
    return candidate | grounding(_cited(choice, losses))


def _signature(part: ReasoningPart, facts: AnswerFacts) -> str:
    seal = part.seals[0] if part.seals else None
    return write_signature(seal.scheme, seal.value, facts.issuer, redacted=seal.redacted) if seal is not None else ""


def _part(part: Part, losses: list[Loss], inputs: CallInputs, *, own: bool) -> Json | None:
    match part:
        case TextPart(text) | RefusalPart(text):
            return {"text": text} if text else None
        case ToolCall(server=False):
            return call_part(part, part.arguments, inputs, part.extras if own else {})
        case ToolCall():
            losses.append(Loss("server-activity-hidden", part.name))
        case MediaPart(mime=mime, data=data, extras=extras) if data or own:
            own_members = extras if own else {}
            return {"inlineData": {"mimeType": mime or "application/octet-stream", "data": data} | own_members}
        case MediaPart(mime=mime):
            losses.append(Loss("media-dropped", mime))
        case OpaquePart(data=data) if own:
            return dict(data)
        case OpaquePart(_, type):
            losses.append(Loss("server-activity-hidden", type))
        case ToolResult():
            losses.append(Loss("server-activity-hidden", part.name))
        case ReasoningPart() | ToolChange():
            pass  # the one is written by the caller, only requests have the other
    return None


def _cited(choice: Choice, losses: list[Loss]) -> list[tuple[str, Citation]]:
    """Each citation of a choice, counted from the beginning of the whole text."""
    cited: list[tuple[str, Citation]] = []
    before = 0
    for part in choice.parts:
        if not isinstance(part, TextPart):
            continue
        for citation in part.citations:
            if not citation.url:
                losses.append(Loss("citation-dropped", citation.title))
                continue
            start, end = (None if at is None else at + before for at in (citation.start, citation.end))
            cited.append((choice.text, msgspec.structs.replace(citation, start=start, end=end)))
        before += len(part.text)
    return cited
