"""The dialect of Bedrock's Converse API, unstreamed: a whole completion → the body of an answer of `Converse`."""

import msgspec

from penstock.core.dialects.answer_parts import CallInputs, call_name, first_choice, note_hidden
from penstock.core.dialects.bedrock_converse.answer_parts import (
    Json,
    call_id,
    citation_body,
    exception_name,
    image_format,
    metadata,
    seal_body,
    stop,
)
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.openai_errors import MAX_MESSAGE
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
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import Loss


def write_body(completion: Completion, facts: AnswerFacts, losses: list[Loss]) -> bytes:
    """The body of an answer."""
    choice, own = first_choice(completion, losses), facts.same_dialect
    inputs = CallInputs(losses)
    content = [body for part in choice.parts for body in _content(part, losses, facts, inputs)]
    calls = [use for body in content if isinstance(use := body.get("toolUse"), dict)]
    for number, use in enumerate(calls):
        use["toolUseId"] = use["toolUseId"] or call_id(facts, number)
    body: Json = {"output": {"message": {"role": "assistant", "content": content}}}
    return msgspec.json.encode(
        body | stop(choice.finish, losses, own=own) | metadata(completion.usage, completion.extras, own=own)
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
        case OpaquePart(data=kept) | MediaPart(mime="", extras=kept) if facts.same_dialect:
            return [kept]
        case ToolCall() | MediaPart() | OpaquePart() | ToolResult() | ToolChange():
            note_hidden(part, losses)
    return []


def _cited(part: TextPart, losses: list[Loss], *, own: bool) -> Json:
    written = [citation_body(citation, own=own) for citation in part.citations]
    dropped = (cited for cited, body in zip(part.citations, written, strict=True) if body is None)
    losses.extend(Loss("citation-dropped", citation.title) for citation in dropped)
    citations = [body for body in written if body is not None]
    return {"citationsContent": {"content": [{"text": part.text}], "citations": citations}}


def _reasoning(part: ReasoningPart, facts: AnswerFacts) -> list[Json]:
    """The text and its signature are one block, and encrypted reasoning another."""
    seals = [(seal.redacted, seal_body(seal, facts.issuer)) for seal in part.seals]
    text = part.readable
    signature = next((body for redacted, body in seals if not redacted), {})
    readable: list[Json] = [{"reasoningText": {"text": text} | signature}] if text or signature else []
    return [{"reasoningContent": each} for each in [*readable, *(body for redacted, body in seals if redacted)]]


def write_error(failure: Failure, request_id: str) -> bytes:  # noqa: ARG001
    """The body of an error. `__type` names its exception, which clients raise; the message ends with Penstock's code.

    The code is no member: SDKs would take it for the exception."""
    name = exception_name(failure.status)
    message = f"{failure.message[:MAX_MESSAGE]} ({failure.code})"
    return msgspec.json.encode({"__type": name[0].upper() + name[1:], "message": message})
