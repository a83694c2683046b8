"""Forwards requests of the Anthropic Messages dialect: the changes that a client's own messages need.

A request for a provider of the same dialect keeps its bytes, except where the provider is known to refuse it:

1. Thinking that no Anthropic API has signed. Clients get the reasoning of other providers as thinking blocks with an
   empty or a wrapped signature (`core/hub/seals.py`), and send them back also when a later request goes to another
   target. Providers that want thinking without a signature (`unsigned_thinking`) get it all the same.
2. `system` messages between other messages, where the provider's data says so (`mid_system`). Their text becomes a
   block of the user's message before or after them.
3. The scope of breakpoints for the prompt cache, where the provider's data says so (`cache_scope`).
4. URLs of images and documents, where the provider fetches none (`url_media`). The gateway may have fetched them.
5. The block of the system prompt that Claude Code addresses to Anthropic, where the provider is not Anthropic. Other
   providers would take it for a part of the prompt, and versions of it that change with each request miss their caches.
"""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

import msgspec
from msgspec import Raw

from penstock.core.dialects.anthropic_messages.request import ATTRIBUTION, Json
from penstock.core.dialects.anthropic_messages.request_writer import MessagesSettings, source_of
from penstock.core.dialects.bodies import MediaUrlsError, refused
from penstock.core.hub.content import MediaPart
from penstock.core.hub.losses import Loss
from penstock.core.hub.seals import PREFIX
from penstock.core.json.getters import objects_of

# Thinking that may have to be removed. Most requests have none, and are not decoded.
_UNSIGNED = re.compile(rb'"(?:signature|data)"\s*:\s*"(?:"|' + re.escape(PREFIX.encode()) + rb")")
_SYSTEM = re.compile(rb'"role"\s*:\s*"system"')

# The prefix of the betas that belong to a field, where it is not the name of the field.
_BETAS = {
    "context_management": ("compact-", "context-management-"),
    "defer_loading": ("advanced-tool-use-", "tool-search-tool-"),
    "eager_input_streaming": ("fine-grained-tool-streaming-",),
    "input_examples": ("advanced-tool-use-", "tool-examples-"),
    "output_config": ("effort-", "structured-outputs-", "task-budgets-"),
    "output_format": ("structured-outputs-",),
}


def edit_messages(written: Raw, settings: MessagesSettings, losses: list[Loss]) -> Raw | None:
    """The messages as the provider accepts them; None if they can stay as the client wrote them."""
    data = bytes(written)
    unsigned = not settings.unsigned_thinking and b'thinking"' in data and _UNSIGNED.search(data)
    system = not settings.mid_system and _SYSTEM.search(data)
    if not unsigned and not system:
        return None
    messages = msgspec.json.decode(data)
    if not isinstance(messages, list):
        return None
    found = len(losses)
    if unsigned:
        edited = (_without_unsigned(message, losses) for message in messages)
        messages = [message for message in edited if message is not None]
    if system:
        messages = _without_system(messages, losses)
    return Raw(msgspec.json.encode(messages)) if len(losses) > found else None


def _without_unsigned(message: object, losses: list[Loss]) -> object | None:
    """The message without unsigned thinking; None if it has nothing else."""
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return message
    kept = [block for block in message["content"] if not _is_unsigned(block)]
    dropped = len(message["content"]) - len(kept)
    if not dropped:
        return message
    losses.extend(Loss("reasoning-dropped") for _ in range(dropped))
    return message | {"content": kept} if kept else None


def _is_unsigned(block: object) -> bool:
    match block:
        case {"type": "thinking", "signature": str(proof)} | {"type": "redacted_thinking", "data": str(proof)}:
            return not proof or proof.startswith(PREFIX)
        case {"type": "thinking"}:
            return True
        case _:
            return False


def _without_system(messages: list[object], losses: list[Loss]) -> list[object]:
    """The messages, with the text of system messages in the user's message before or after them."""
    folded: list[object] = []
    for message in messages:
        moved = isinstance(message, dict) and message.get("role") == "system"
        if moved:
            losses.append(Loss("system-moved"))
        blocks = [_reminder(block) for block in _blocks(message)] if moved else _blocks(message)
        last = folded[-1] if folded else None
        if _role(last) == "user" and (moved or _role(message) == "user"):
            folded[-1] = {"role": "user", "content": [*_blocks(last), *blocks]}
        else:
            folded.append({"role": "user", "content": blocks} if moved else message)
    return folded


def _role(message: object) -> object:
    return message.get("role") if isinstance(message, dict) else None


def _blocks(message: object) -> list[object]:
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []


def _reminder(block: object) -> object:
    if not isinstance(block, dict) or not isinstance(block.get("text"), str):
        return block
    return block | {"text": f"<system-reminder>\n{block['text']}\n</system-reminder>"}


def inline_media(messages: object, fetched: Mapping[str, MediaPart]) -> bool:
    """Put media that the gateway has fetched in place of their URLs, for a provider that fetches none.

    Returns whether there are any. Raises `RequestError` if one is missing, or is not what its block says.
    """
    blocks = [block for message in objects_of(messages) for block in _media_by_url(message.get("content"))]
    missing = [url for _, url in blocks if url not in fetched]
    if missing:
        raise MediaUrlsError(missing)
    for block, url in blocks:
        source = source_of(fetched[url])
        if source is None or (fetched[url].kind == "image") != (block["type"] == "image"):
            raise refused(f"the URL of the block ({block['type']}) leads to media of the type {fetched[url].mime}")
        block["source"] = source
    return bool(blocks)


def _media_by_url(content: object) -> Iterator[tuple[Json, str]]:
    """The images and documents with a URL, also those in results of tools."""
    for block in objects_of(content):
        match block:
            case {"type": "image" | "document", "source": {"type": "url", "url": str(url)}}:
                yield block, url
            case {"type": "tool_result", "content": nested}:
                yield from _media_by_url(nested)
            case _:
                pass


def edit_system(written: Raw, settings: MessagesSettings, losses: list[Loss]) -> dict[str, Raw | None]:
    """The change of the request's `system`, if it has a block for Anthropic and the provider is another one."""
    if settings.attribution or ATTRIBUTION.encode() not in bytes(written):
        return {}
    system = msgspec.json.decode(written)
    blocks = system if isinstance(system, list) else [{"type": "text", "text": system}]
    kept = [block for block in blocks if not _is_attribution(block)]
    losses.extend(Loss("attribution-dropped", "attribution") for _ in range(len(blocks) - len(kept)))
    if len(kept) == len(blocks):
        return {}
    return {"system": Raw(msgspec.json.encode(kept)) if kept else None}


def _is_attribution(block: object) -> bool:
    return isinstance(block, dict) and isinstance(text := block.get("text"), str) and text.startswith(ATTRIBUTION)


def betas_without(betas: str, refused: tuple[str, ...]) -> str:
    """The betas without those of the refused fields: a provider accepts or refuses a field and its beta together."""
    stems = tuple(stem for name in refused for stem in _BETAS.get(name, (name.replace("_", "-"),)))
    return ",".join(beta for beta in betas.split(",") if not beta.strip().startswith(stems))


def accepted_betas(betas: str, settings: MessagesSettings, losses: list[Loss]) -> list[str]:
    """The betas that a provider accepts, by its names. The others are a loss each, as it would refuse the request."""
    accepted: dict[str, None] = {}
    for beta in betas.split(","):
        names = settings.beta_names.get(beta.strip(), (beta.strip(),))
        known = [name for name in names if any(fnmatchcase(name, pattern) for pattern in settings.body_betas or ())]
        accepted |= dict.fromkeys(known)
        if not known:
            losses.append(Loss("option-refused-by-provider", beta.strip()))
    return list(accepted)


def without_tool_fields(written: Raw, refused: tuple[str, ...], losses: list[Loss]) -> Raw | None:
    """The tools without the options that the provider refuses; None if they can stay as the client wrote them."""
    if not any(f'"{name}"'.encode() in bytes(written) for name in refused):
        return None
    tools = msgspec.json.decode(written)
    if not isinstance(tools, list):
        return None
    kept = [_without(tool, refused, losses) for tool in tools]
    return Raw(msgspec.json.encode(kept)) if kept != tools else None


def _without(tool: object, refused: tuple[str, ...], losses: list[Loss]) -> object:
    if not isinstance(tool, dict):
        return tool
    losses.extend(Loss("option-refused-by-provider", f"tools.{name}") for name in refused if name in tool)
    kept: Json = {name: value for name, value in tool.items() if name not in refused}
    return kept


def without_cache_scope(written: Raw, losses: list[Loss]) -> Raw | None:
    """The messages, system prompt or tools without the scope of cache breakpoints; None if none of them has one."""
    if b'"scope"' not in bytes(written) or b'"cache_control"' not in bytes(written):
        return None
    found = len(losses)
    edited = _unscoped(msgspec.json.decode(written), losses)
    return Raw(msgspec.json.encode(edited)) if len(losses) > found else None


def _unscoped(value: object, losses: list[Loss]) -> object:
    if isinstance(value, list):
        return [_unscoped(each, losses) for each in value]
    if not isinstance(value, dict):
        return value
    edited: Json = {name: _unscoped(each, losses) if name == "content" else each for name, each in value.items()}
    cache = value.get("cache_control")
    if isinstance(cache, dict) and "scope" in cache:
        losses.append(Loss("option-refused-by-provider", "cache_control.scope"))
        edited["cache_control"] = {name: each for name, each in cache.items() if name != "scope"}
    return edited
