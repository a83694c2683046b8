"""Writes answers without streaming in the OpenAI chat-completions dialect: a completion → the body of a response."""

import msgspec

from penstock.core.completion import Choice, Completion
from penstock.core.content import MediaPart, OpaquePart, ReasoningPart, TextPart, ToolCall
from penstock.core.dialects.openai_chat.writer import citation_body, usage_body
from penstock.core.losses import Loss

# Padding that hides the lengths of the pieces of a stream from eavesdroppers. A whole answer has no pieces.
_PADDING = frozenset(("obfuscation",))


def write_body(completion: Completion, losses: list[Loss], *, id: str, model: str, created: int) -> bytes:
    """The body of a `chat.completion`. `id`, `model` and `created` are defaults for what the provider did not send."""
    for choice in completion.choices:
        _note_losses(choice, losses)
    body: dict[str, object] = {
        "id": completion.id or id,
        "object": "chat.completion",
        "created": completion.created or created,
        "model": completion.model or model,
        "choices": [_choice_body(choice) for choice in completion.choices],
    }
    if completion.usage is not None:
        body["usage"] = usage_body(completion.usage)
    body.update({key: value for key, value in completion.extras.items() if key not in _PADDING})
    return msgspec.json.encode(body)


def _note_losses(choice: Choice, losses: list[Loss]) -> None:
    for part in choice.parts:
        match part:
            case ToolCall(name=name, server=True) | OpaquePart(type=name):
                losses.append(Loss("server-activity-hidden", name))
            case MediaPart(mime=mime):
                losses.append(Loss("media-dropped", mime))
            case ReasoningPart(seals=seals):
                losses.extend(Loss("seal-dropped", seal.scheme) for seal in seals)
            case _:
                pass


def _choice_body(choice: Choice) -> dict[str, object]:
    body: dict[str, object] = {
        "index": choice.index,
        "message": _message_body(choice),
        "logprobs": None,
        "finish_reason": choice.finish_reason,
    }
    if choice.native_finish_reason is not None:
        body["native_finish_reason"] = choice.native_finish_reason
    return body | choice.extras


def _message_body(choice: Choice) -> dict[str, object]:
    silent = not choice.text and (choice.tool_calls or choice.refusal)
    body: dict[str, object] = {
        "role": choice.role,
        "content": None if silent else choice.text,
        "refusal": choice.refusal or None,
    }
    if choice.reasoning and choice.reasoning_field != "reasoning_details":
        body[choice.reasoning_field] = choice.reasoning
    cited = [citation for part in choice.parts if isinstance(part, TextPart) for citation in part.citations]
    if cited:
        body["annotations"] = [citation_body(citation) for citation in cited]
    body.update(choice.message_extras)
    calls = [_call_body(choice.index, number, call) for number, call in enumerate(choice.tool_calls)]
    if calls and choice.tool_calls[0].kind == "function_call":
        body["function_call"] = {"name": choice.tool_calls[0].name, "arguments": choice.tool_calls[0].arguments}
    elif calls:
        body["tool_calls"] = calls
    return body


def _call_body(choice: int, number: int, call: ToolCall) -> dict[str, object]:
    content = {"name": call.name, ("input" if call.kind == "custom" else "arguments"): call.arguments}
    return {"id": call.id or f"call_{choice}_{number}", "type": call.kind, call.kind: content} | call.extras
