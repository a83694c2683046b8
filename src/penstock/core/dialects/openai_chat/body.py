"""Writes answers without streaming in the OpenAI chat-completions dialect: a completion → the body of a response."""

import msgspec

from penstock.core.dialects.answer_parts import call_name
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.openai_chat.writer import (
    answer_id,
    call_id,
    citation_body,
    finish_reason,
    seal_body,
    usage_body,
)
from penstock.core.hub.completion import Choice, Completion
from penstock.core.hub.content import MediaPart, OpaquePart, ReasoningPart, TextPart, ToolCall
from penstock.core.hub.events import Finish
from penstock.core.hub.losses import Loss
from penstock.core.json.getters import list_of

# Padding that hides the lengths of the pieces of a stream from eavesdroppers. A whole answer has no pieces.
_PADDING = frozenset(("obfuscation",))


def write_body(completion: Completion, facts: AnswerFacts, losses: list[Loss]) -> bytes:
    """The body of a `chat.completion`; the facts stand in for what the provider did not send."""
    for choice in completion.choices:
        _note_losses(choice, losses, own=facts.same_dialect)
    body: dict[str, object] = {
        "id": completion.id or answer_id(facts),
        "object": "chat.completion",
        "created": completion.created or facts.created,
        "model": completion.model or facts.model,
        "choices": [_choice_body(choice, losses, facts) for choice in completion.choices],
    }
    if completion.usage is not None:
        body["usage"] = usage_body(completion.usage, own=facts.same_dialect)
    if facts.same_dialect:
        body.update({key: value for key, value in completion.extras.items() if key not in _PADDING})
    return msgspec.json.encode(body)


def _note_losses(choice: Choice, losses: list[Loss], *, own: bool) -> None:
    for part in choice.parts:
        match part:
            case ToolCall(name=name, server=True) | OpaquePart(type=name):
                losses.append(Loss("server-activity-hidden", name))
            case MediaPart(mime=mime):
                losses.append(Loss("media-dropped", mime))
            case TextPart(citations=citations) if not own:
                losses.extend(Loss("citation-dropped", each.title) for each in citations if not each.url)
            case _:
                pass


def _choice_body(choice: Choice, losses: list[Loss], facts: AnswerFacts) -> dict[str, object]:
    own = facts.same_dialect
    finish = Finish(
        0, choice.finish_reason or "", choice.native_finish_reason, choice.stop_sequence, choice.finish_details
    )
    body: dict[str, object] = {
        "index": choice.index,
        "message": _message_body(choice, facts),
        "logprobs": None,
        "finish_reason": finish_reason(finish, losses, own=own) or None,
    }
    if choice.native_finish_reason is not None:
        body["native_finish_reason"] = choice.native_finish_reason
    if own:
        return body | choice.extras
    logprobs = choice.extras.get("logprobs")
    return body | ({"logprobs": logprobs} if isinstance(logprobs, dict) else {})


def _message_body(choice: Choice, facts: AnswerFacts) -> dict[str, object]:
    silent = not choice.text and (choice.tool_calls or choice.refusal)
    body: dict[str, object] = {
        "role": choice.role,
        "content": None if silent else choice.text,
        "refusal": choice.refusal or None,
    }
    if choice.reasoning and choice.reasoning_field != "reasoning_details":
        body[choice.reasoning_field] = choice.reasoning
    sealed = _seals(choice, facts) if not facts.same_dialect else []  # those of this dialect are extras
    if sealed:
        body["reasoning_details"] = sealed
    cited = [citation for part in choice.parts if isinstance(part, TextPart) for citation in part.citations]
    own = facts.same_dialect
    annotations: list[object] = [
        citation_body(citation, len(choice.text), own=own) for citation in cited if citation.url or own
    ]
    if own:
        body.update(choice.message_extras)
        annotations += list_of(choice.message_extras.get("annotations"))
    if annotations:
        body["annotations"] = annotations
    calls = [_call_body(choice.index, number, call, facts) for number, call in enumerate(choice.tool_calls)]
    if calls and choice.tool_calls[0].kind == "function_call":
        call = choice.tool_calls[0]
        body["function_call"] = {"name": call.name, "arguments": call.arguments} | (call.extras if own else {})
    elif calls:
        body["tool_calls"] = calls
    return body


def _call_body(choice: int, number: int, call: ToolCall, facts: AnswerFacts) -> dict[str, object]:
    content = {"name": call_name(call), ("input" if call.kind == "custom" else "arguments"): call.arguments}
    body = {"id": call.id or call_id(facts, choice, number), "type": call.kind, call.kind: content}
    return body | (call.extras if facts.same_dialect else {})


def _seals(choice: Choice, facts: AnswerFacts) -> list[dict[str, object]]:
    """The seals of a choice, as `writer.py` writes them (rule 6)."""
    bodies: list[dict[str, object]] = []
    skipped = calls = 0
    waiting: list[dict[str, object]] = []  # seals without text directly before the part
    for part in choice.parts:
        if isinstance(part, ReasoningPart):
            length = len(part.readable)
            waiting = []
            for seal in part.seals:
                bodies.append(seal_body(seal, facts.issuer, length, skipped if length else 0) | {"index": len(bodies)})
                waiting = [] if length else [bodies[-1]]
                skipped, length = (0, 0) if length else (skipped, 0)
            skipped += length
            continue
        if isinstance(part, ToolCall) and not part.server:
            for body in waiting:
                body["id"] = part.id or call_id(facts, choice.index, calls)
            calls += 1
        waiting = []
    return bodies
