"""Breakpoints for the provider's prompt cache, in requests that are translated and whose client has set none.

A provider with breakpoints caches the beginning of a request up to each of them: first the tools, then the system
prompt, then the messages. A later request with the same beginning reads it for a tenth of the price, and the first one
pays a quarter more for what it writes. Without breakpoints every turn of a conversation pays the full price for all
turns before it. Clients of other APIs have no word for them.

1. Tools and system prompt are the same in many requests, so each gets a breakpoint.
2. The last message of the user gets one if the next request will probably repeat it: the model has answered before,
   or it may call tools. A single question, such as one item of a batch, would pay for a cache that is never read.
3. So does the message of the user before it, where the request before this one ended: a provider looks for an entry
   only at a breakpoint and at about 20 blocks before it, and a turn of an agent may have more.
4. None is set below the least size of a prompt that the model caches (`cache_minimum`); it would have no effect.
5. None is set if the client has set one, or says that it sets them all. There are at most four.

Breakpoints depend on the request alone: the same request has the same bytes.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from penstock.core.hub.content import MediaPart, Part, TextPart, ToolCall, ToolResult
from penstock.core.hub.input_estimate import estimate_input
from penstock.core.hub.request import Request
from penstock.core.json.getters import object_of

Breakpoint: TypeAlias = Literal["tools", "system", "history", "message", "key"]
"""What ends at a breakpoint: the tools, the system prompt, the request before this one, or this request. `key` is no
breakpoint: the conversation has a name in the cache."""
Blocks: TypeAlias = list[dict[str, object]]


class PromptSections(Struct, frozen=True, kw_only=True):
    """The parts of a body that may get breakpoints, in the order in which the provider caches them."""

    tools: Blocks = []
    system: Blocks = []
    messages: Blocks = []
    """The messages, with their `role` and `content`; empty if the provider sets these breakpoints itself."""
    mark: Callable[[Blocks], None]
    """Sets a breakpoint after the last of these blocks."""


def set_breakpoints(sections: PromptSections, request: Request, least: int) -> tuple[Breakpoint, ...]:
    """Set breakpoints where they pay, and return where. `least` are the least tokens of a prompt that are cached."""
    if _sets_its_own(request):
        return ()
    found: list[Breakpoint] = []
    tokens = counted = 0
    for place, blocks, end in _places(sections, request):
        if tokens < least:
            new = blocks if end is None else sections.messages[counted:end]
            counted, tokens = end or 0, tokens + _tokens(new)
        if blocks and tokens >= least:
            sections.mark(blocks)
            found.append(place)
    return tuple(found)


def _places(sections: PromptSections, request: Request) -> Iterator[tuple[Breakpoint, Blocks, int | None]]:
    """The places that may get a breakpoint, their blocks, and the number of messages up to there."""
    yield "tools", sections.tools, None
    yield "system", sections.system, None
    if _continues(request):
        turns = [place for place, message in enumerate(sections.messages) if message["role"] == "user"]
        names: tuple[Breakpoint, ...] = ("history", "message")
        for name, place in zip(names[-len(turns) :], turns[-2:], strict=False):
            content = sections.messages[place]["content"]
            assert isinstance(content, list)
            yield name, content, place + 1


def _sets_its_own(request: Request) -> bool:
    """Whether the client has set breakpoints, or has asked OpenAI to set none by itself."""
    options = object_of(request.extras.get("prompt_cache_options"))
    if options.get("mode") == "explicit" or any(tool.cache for tool in request.tools):
        return True
    return any(_has_mark(parts) for parts in (request.system, *(turn.parts for turn in request.turns)))


def _has_mark(parts: Sequence[Part]) -> bool:
    for part in parts:
        if isinstance(part, TextPart | MediaPart | ToolCall | ToolResult) and part.cache:
            return True
        if isinstance(part, ToolResult) and _has_mark(part.parts):
            return True
    return False


def _continues(request: Request) -> bool:
    """Whether a next request will probably repeat the messages of this one."""
    if any(turn.role == "assistant" for turn in request.turns):
        return True
    forced = request.tool_choice is not None and request.tool_choice.mode not in ("auto", "allowed")
    return bool(request.tools) and not forced


def _tokens(blocks: Blocks) -> int:
    """About how many tokens blocks or messages have."""
    prompt = {"messages": blocks}
    return estimate_input(msgspec.json.encode(prompt), prompt).tokens if blocks else 0
