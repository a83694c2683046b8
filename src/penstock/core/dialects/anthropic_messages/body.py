"""The Anthropic Messages dialect, unstreamed: a whole completion → the body of one message."""

import msgspec

from penstock.core.dialects.answer_parts import CallInputs, call_name, first_choice
from penstock.core.dialects.anthropic_messages.content_blocks import SEAL_SCHEME
from penstock.core.dialects.anthropic_messages.usage import write_usage
from penstock.core.dialects.anthropic_messages.writer import answer_id, call_id, citation_body, stop_reason
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.hub.completion import Completion
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
from penstock.core.hub.request import ReasoningShown
from penstock.core.hub.seals import wrap


def write_body(completion: Completion, facts: AnswerFacts, losses: list[Loss]) -> bytes:
    """The body of a message."""
    choice = first_choice(completion, losses)
    inputs = CallInputs(losses)
    blocks = [block for part in choice.parts if (block := _block(part, losses, facts, inputs)) is not None]
    calls = [block for block in blocks if "input" in block and "id" in block]
    for number, call in enumerate(calls):
        call["id"] = call["id"] or call_id(facts, number)
    message: dict[str, object] = {
        "id": (completion.id if facts.same_dialect else None) or answer_id(facts),
        "type": "message",
        "role": "assistant",
        "model": completion.model or facts.model,
        "content": blocks,
        "stop_reason": stop_reason(choice.finish, refused=bool(choice.refusal)),
        "stop_sequence": choice.stop_sequence,
    }
    if choice.finish_details is not None:
        message["stop_details"] = choice.finish_details
    empty = {"input_tokens": 0, "output_tokens": 0}
    message["usage"] = (
        write_usage(completion.usage, same_dialect=facts.same_dialect) if completion.usage is not None else empty
    )
    if facts.same_dialect:
        message = (
            message | completion.extras | choice.extras | choice.message_extras | message
        )  # extras replace nothing
    return msgspec.json.encode(message)


def _block(part: Part, losses: list[Loss], facts: AnswerFacts, inputs: CallInputs) -> dict[str, object] | None:
    match part:
        case TextPart(text, citations, extras=extras):
            return (extras if facts.same_dialect else {}) | _text(text, citations, losses, own=facts.same_dialect)
        case RefusalPart(text):
            return {"type": "text", "text": text}
        case ReasoningPart() if not facts.same_dialect and _is_hidden(part, facts.reasoning):
            losses.append(Loss("reasoning-hidden"))
        case ReasoningPart(extras=extras):
            return (extras if facts.same_dialect else {}) | _thinking(part, facts)
        case ToolCall(server=True) if not facts.same_dialect:
            losses.append(Loss("server-activity-hidden", part.name))
        case ToolCall():
            return _call(part, inputs, own=facts.same_dialect)
        case OpaquePart(_, type, data) if facts.same_dialect:
            return {"type": type} | data
        case OpaquePart(_, type):
            losses.append(Loss("server-activity-hidden", type))
        case MediaPart(mime=mime):
            losses.append(Loss("media-dropped", mime))
        case ToolResult():
            losses.append(Loss("server-activity-hidden", part.name))
        case ToolChange():
            pass  # only requests have it
    return None


def _text(text: str, citations: tuple[Citation, ...], losses: list[Loss], *, own: bool) -> dict[str, object]:
    block: dict[str, object] = {"type": "text", "text": text}
    written = [(citation.title, citation_body(citation, own=own)) for citation in citations]
    losses.extend(Loss("citation-dropped", title) for title, body in written if body is None)
    if written:
        block["citations"] = [body for _, body in written if body is not None]
    return block


def _is_hidden(part: ReasoningPart, shown: ReasoningShown) -> bool:
    """Whether a client that does not expect reasoning does not get this part (rule 5 of the writer)."""
    sealed = bool(part.seals) and not part.text and not part.summary
    return shown == "none" or (shown == "seals" and not sealed)


def _thinking(part: ReasoningPart, facts: AnswerFacts) -> dict[str, object]:
    seal = part.seals[0] if part.seals else None
    value = "" if seal is None else seal.value if seal.scheme == SEAL_SCHEME else wrap(seal, facts.issuer)
    if seal is not None and seal.redacted:
        return {"type": "redacted_thinking", "data": value}
    return {"type": "thinking", "thinking": part.readable, "signature": value}


def _call(call: ToolCall, inputs: CallInputs, *, own: bool) -> dict[str, object]:
    block: dict[str, object] = {
        "type": "server_tool_use" if call.server else "tool_use",
        "id": call.id,
        "name": call_name(call),
        "input": inputs.read(call, call.arguments),
    }
    return block | (call.extras if own else {})
