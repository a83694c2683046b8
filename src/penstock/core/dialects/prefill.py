"""Prefill: lets a model go on with an answer that broke off, by its text as the last message of the conversation.

Which targets can do so is the provider's data (`prefill` in its settings, by patterns of models): what is not known to
go on would start anew, or refuse the request.

| `prefill` | what the request has | known of |
|---|---|---|
| `last` | the text as the last message, of the assistant | llama.cpp, Claude before 4.6 |
| `prefix` | and `prefix: true` in that message | Mistral, DeepSeek |
| `partial` | and `partial: true` in that message | Moonshot, Qwen |
| `continue_final_message` | and the members of that name in the body | vLLM, SGLang |
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec
from msgspec import Raw

from penstock.core.json.getters import object_of
from penstock.core.json.members import JsonMembers

Prefill: TypeAlias = Literal["", "last", "prefix", "partial", "continue_final_message"]
LEAST_OUTPUT = 16
"""The output tokens that a continuation must be allowed at least."""
_IN_MESSAGE: dict[Prefill, dict[str, object]] = {"prefix": {"prefix": True}, "partial": {"partial": True}}
_IN_BODY: dict[Prefill, dict[str, Raw]] = {
    "continue_final_message": {"add_generation_prompt": Raw(b"false"), "continue_final_message": Raw(b"true")}
}
_MESSAGES = msgspec.json.Decoder(list[Raw])


def continued_body(body: bytes, prefix: str, form: Prefill, caps: Sequence[str], spent: int) -> bytes | None:
    """A body with `messages` that asks a model to go on with this text, or anew if there is none; None if it cannot.

    `caps` are the members that limit the output, which is less by the `spent` tokens.
    """
    members = JsonMembers(body)
    changes: dict[str, Raw | None] = {}
    for name in caps:
        cap = msgspec.json.decode(members.values[name]) if name in members.values else None
        if isinstance(cap, int) and not isinstance(cap, bool):
            if cap - spent < LEAST_OUTPUT:
                return None
            changes[name] = Raw(b"%d" % (cap - spent))
    if prefix:
        if not form or (messages := _with_prefix(members.values.get("messages"), prefix, form)) is None:
            return None
        changes |= {"messages": messages, **_IN_BODY.get(form, {})}
    return members.edited(changes)


def _with_prefix(written: Raw | None, prefix: str, form: Prefill) -> Raw | None:
    """The messages and the beginning of the answer. The client may have sent an earlier beginning as the last one."""
    messages = _MESSAGES.decode(written) if written is not None else []
    last = object_of(msgspec.json.decode(messages[-1])) if messages else {}
    if last.get("role") == "assistant":
        begun = last.get("content")
        if not isinstance(begun, str) or last.get("tool_calls"):
            return None
        messages.pop()
        prefix = begun + prefix
    else:
        last = {"role": "assistant"}
    messages.append(Raw(msgspec.json.encode({**last, "content": prefix, **_IN_MESSAGE.get(form, {})})))
    return Raw(msgspec.json.encode(messages))
