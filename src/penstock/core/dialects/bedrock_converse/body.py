"""The dialect of Bedrock's Converse API, unstreamed: a whole completion → the body of an answer of `Converse`."""

import msgspec

from penstock.core.dialects.answer_parts import CallInputs, call_name, first_choice, note_hidden
from penstock.core.dialects.bedrock_converse.answer_parts import (
    Json,
    citation_body,
    image_format,
    metadata,
    seal_body,
    stop,
)
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.hub.completion import Completion
from penstock.core.hub.content import (
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
from penstock.core.hub.events import Finish
from penstock.core.hub.losses import Loss


def write_body(completion: Completion, facts: AnswerFacts, losses: list[Loss]) -> bytes:
    """The body of an answer."""
    choice, own = first_choice(completion, losses), facts.same_dialect
    inputs = CallInputs(losses)
    content = [body for part in choice.parts for body in _content(part, losses, facts, inputs)]
    finish = Finish(
        0,
        choice.finish_reason or "stop",
        choice.native_finish_reason,
        choice.stop_sequence,
        choice.finish_details,
    )
    body: Json = {"output": {"message": {"role": "assistant", "content": content}}}
    return msgspec.json.encode(
        body | stop(finish, losses, own=own) | metadata(completion.usage, completion.extras, own=own)
    )


def _content(part: Part, losses: list[Loss], facts: AnswerFacts, inputs: CallInputs) -> list[Json]:
    match part:
        case TextPart() if part.citations:
            return [_cited(part, losses, own=facts.same_dialect)]
        case TextPart(text) | RefusalPart(text):
            return [{"text": text}] if text or facts.same_dialect else []
        case ReasoningPart():
            return _reasoning(part, facts)
        case ToolCall(server=server) if facts.same_dialect or not server:
            use: Json = {
                "toolUseId": part.id,
                "name": call_name(part),
                "input": inputs.read(part, part.arguments),
            }
            return [{"toolUse": use | ({"type": "server_tool_use"} if server else {})}]
        case MediaPart(mime=mime, data=data) if image_format(mime):
            return [{"image": {"format": image_format(mime), "source": {"bytes": data}}}]
        case ToolCall() | MediaPart() | OpaquePart() | ToolResult() | ToolChange():
            note_hidden(part, losses)
    return []


def _cited(part: TextPart, losses: list[Loss], *, own: bool) -> Json:
    written = [citation_body(citation, own=own) for citation in part.citations]
    losses.extend(Loss("citation-dropped") for body in written if body is None)
    citations = [body for body in written if body is not None]
    return {"citationsContent": {"content": [{"text": part.text}], "citations": citations}}


def _reasoning(part: ReasoningPart, facts: AnswerFacts) -> list[Json]:
    """The text and its signature are one block, and encrypted reasoning another."""
    seals = [(seal.redacted, seal_body(seal, facts.issuer)) for seal in part.seals]
    text = part.readable
    signature = next((body for redacted, body in seals if not redacted), {})
    readable: list[Json] = [{"reasoningText": {"text": text} | signature}] if text or signature else []
    return [{"reasoningContent": each} for each in [*readable, *(body for redacted, body in seals if redacted)]]
