"""The stable prefix of a conversation: what every request of it begins with, in all APIs.

A provider's prompt cache has the beginning of a request. All requests of a conversation begin with the same tools,
system prompt and first message of the user, so a digest of these recognises the conversation, in every turn and without
any state. Only texts and tools count: a hint such as `cache_control` moves from turn to turn. Nor does the block of
Claude Code's system prompt that has its version and a checksum of the request (`_CHANGING`).
"""

from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b

import msgspec
from msgspec import Struct

from penstock.core.hub.request import ClientRequest
from penstock.core.json.getters import list_of, object_of, text_of

# What texts begin with that change from turn to turn.
_CHANGING = ("x-anthropic-billing-header:",)
_TEXTS = ("text", "content", "parts")


class _PrefixMembers(Struct, frozen=True):
    """Where an API has them: the members with the system prompt, and that with the messages."""

    system: tuple[str, ...]
    messages: str


_OF_OPENAI = _PrefixMembers((), "messages")
_PREFIXES = {
    "openai_chat": _OF_OPENAI,
    "openai_responses": _PrefixMembers(("instructions",), "input"),
    "anthropic_messages": _PrefixMembers(("system",), "messages"),
    "gemini": _PrefixMembers(("systemInstruction", "system_instruction"), "contents"),
    "bedrock_converse": _PrefixMembers(("system",), "messages"),
    "cohere": _OF_OPENAI,
    "ollama": _OF_OPENAI,
}
_TOOLS = ("tools", "toolConfig")
_HINT = "cache_control"


def prefix_digest(request: ClientRequest, model: str) -> bytes:
    """A digest of the stable prefix of a request for a model."""
    prefix, fields = _PREFIXES.get(request.dialect, _OF_OPENAI), request.fields
    digest = blake2b(model.encode(errors="surrogatepass"), digest_size=16)
    _add_tools(request, digest.update)
    for text in _prefix_texts(prefix, fields):
        digest.update(b"\0")
        digest.update(text.encode(errors="surrogatepass"))
    return digest.digest()


def _add_tools(request: ClientRequest, add: Callable[[bytes], None]) -> None:
    for name in _TOOLS:
        tools = request.fields.get(name)
        if tools is not None:
            add(msgspec.json.encode([_without_hints(tool) for tool in tools] if isinstance(tools, list) else tools))


def _without_hints(tool: object) -> object:
    return {name: value for name, value in tool.items() if name != _HINT} if isinstance(tool, dict) else tool


def _prefix_texts(prefix: _PrefixMembers, fields: Mapping[str, object]) -> Iterator[str]:
    for name in prefix.system:
        yield from _texts(fields.get(name))
    messages = fields.get(prefix.messages)
    if isinstance(messages, str):
        yield messages
    for item in list_of(messages):
        yield from _texts(item)
        if text_of(object_of(item).get("role")) == "user":
            return


def _texts(value: object) -> Iterator[str]:
    """The texts of a message or of a part, in order."""
    if isinstance(value, str):
        if not value.startswith(_CHANGING):
            yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for name in _TEXTS:
            if name in value:
                yield from _texts(value[name])
