"""The OpenAI chat-completions dialect, unstreamed: a whole completion → the body of one answer."""

import msgspec

from penstock.core.completion import Choice, Completion
from penstock.core.content import ToolCall
from penstock.core.dialects.openai_chat.writer import usage_body

# Padding against eavesdroppers who measure the pieces of a stream; a whole answer has no pieces.
_PADDING = frozenset(("obfuscation",))


def write_body(completion: Completion, *, id: str, model: str, created: int) -> bytes:
    """The body of a `chat.completion`; `id`, `model` and `created` stand in for what the provider did not send."""
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
