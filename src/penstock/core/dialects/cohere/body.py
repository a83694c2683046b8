"""The dialect of Cohere, unstreamed: a whole completion → the body of an answer of `/v2/chat`."""

import msgspec

from penstock.core.dialects.answer_parts import call_name, first_choice, note_hidden
from penstock.core.dialects.cohere.answer_parts import (
    Json,
    call_id,
    citation_body,
    finish_reason,
    with_extras,
    write_usage,
)
from penstock.core.dialects.cohere.reader import PLAN
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.openai_errors import MAX_MESSAGE
from penstock.core.hub.completion import Completion
from penstock.core.hub.content import (
    MediaPart,
    OpaquePart,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
    ToolChange,
    ToolResult,
)
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import Loss
from penstock.core.hub.tool_map import arguments_of


def write_body(completion: Completion, facts: AnswerFacts, losses: list[Loss]) -> bytes:
    """The body of an answer."""
    choice, own = first_choice(completion, losses), facts.same_dialect
    contents: list[Json] = []
    calls: list[Json] = []
    citations: list[Json] = []
    plan = ""
    for part in choice.parts:
        match part:
            case TextPart(text):
                contents.append({"type": "text", "text": text})
                for citation in part.citations:
                    if (cited := citation_body(citation, own=own)) is None:
                        losses.append(Loss("citation-dropped", citation.title))
                    else:
                        citations.append(cited)
            case RefusalPart(text):
                contents.append({"type": "text", "text": text})
            case ReasoningPart(text, extras=extras):
                if own and extras.get("type") == PLAN:
                    plan += text
                else:
                    contents.append({"type": "thinking", "thinking": text or "\n\n".join(part.summary)})
                losses.extend(Loss("seal-dropped") for _ in part.seals)
            case ToolCall(server=False):
                function = {"name": call_name(part), "arguments": arguments_of(part)}
                calls.append({"id": part.id or call_id(facts, len(calls)), "type": "function", "function": function})
            case ToolCall() | MediaPart() | OpaquePart() | ToolResult() | ToolChange():
                note_hidden(part, losses)
    message: Json = {"role": "assistant"}
    named = {"content": contents, PLAN: plan, "tool_calls": calls, "citations": citations}
    message |= {name: value for name, value in named.items() if value}
    body: Json = {
        "id": completion.id or facts.id or facts.call_id,
        "finish_reason": finish_reason(choice.finish, losses, own=own),
        "message": message,
    }
    if completion.usage is not None:
        body["usage"] = write_usage(completion.usage, own=own)
    if own:
        extras = {name.removeprefix("delta."): value for name, value in completion.extras.items()}
        with_extras(body, extras | choice.message_extras)
    return msgspec.json.encode(body)


def write_error(failure: Failure, request_id: str) -> bytes:
    """The body of an error: the id of the request, a message, and Penstock's own code."""
    known = {"id": request_id} if request_id else {}
    return msgspec.json.encode(known | {"message": failure.message[:MAX_MESSAGE], "code": failure.code})
