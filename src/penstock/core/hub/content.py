"""Content parts: the ordered elements of the turns of a conversation.

Requests (`core/hub/request.py`) and answers (`core/hub/completion.py`) have the same parts, so that an answer can
become a turn of the next request. No part is specific to a provider. `extras` holds fields of a part that have no
meaning to us, as they were in the dialect that was read; only a writer of the same dialect writes them again.

`cache` is a hint of the client that the provider should cache the prompt up to the end of this part. Its value is the
lifetime as the API writes it (`1h`, `30m`; `5m` is the default), or empty without a hint.
"""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from penstock.core.hub.events import ToolKind
from penstock.core.json.getters import list_of, object_of, text_of

MediaKind: TypeAlias = Literal["image", "audio", "video", "file"]


class Citation(Struct, frozen=True, gc=False):
    """A source that a text refers to. `start` and `end` count characters of that text; `data` is the native object."""

    url: str = ""
    title: str = ""
    quote: str = ""
    start: int | None = None
    end: int | None = None
    data: dict[str, object] | None = None


class ReasoningSeal(Struct, frozen=True, gc=False):
    """An opaque signature of reasoning, which only its issuer can check. `redacted`: it has no readable text."""

    scheme: str
    value: str
    redacted: bool = False


class TextPart(Struct, frozen=True, gc=False):
    """Text, and the sources that it refers to."""

    text: str
    citations: tuple[Citation, ...] = ()
    cache: str = ""
    extras: dict[str, object] = {}


class ReasoningPart(Struct, frozen=True, gc=False):
    """Reasoning of the model: the text itself, a summary of it in parts, or only its seals.

    `field` is the JSON field that the provider sent it in, if the dialect has several.
    """

    text: str = ""
    summary: tuple[str, ...] = ()
    seals: tuple[ReasoningSeal, ...] = ()
    field: str = ""
    extras: dict[str, object] = {}

    @property
    def thought(self) -> str:
        """The reasoning itself; its summary if there is nothing else."""
        return self.text or "\n\n".join(self.summary)

    @property
    def readable(self) -> str:
        """The summary, and the reasoning itself."""
        return "\n\n".join((*self.summary, self.text) if self.text else self.summary)


class RefusalPart(Struct, frozen=True, gc=False):
    """The model's explanation why it does not answer."""

    text: str
    extras: dict[str, object] = {}


class MediaPart(Struct, frozen=True, gc=False, kw_only=True):
    """An image, an audio clip, a video or a document: as base64 data, as a URL, or as a provider's file id."""

    kind: MediaKind
    mime: str = ""
    data: str = ""
    url: str = ""
    file_id: str = ""
    name: str = ""
    cache: str = ""
    extras: dict[str, object] = {}


class ToolCall(Struct, frozen=True):
    """A tool call of the model. `arguments` is JSON text exactly as the model wrote it, complete or not.

    `namespace` groups tools of equal names. A `server` call is executed by the provider itself.
    """

    id: str | None
    name: str
    arguments: str
    kind: ToolKind = "function"
    extras: dict[str, object] = {}
    namespace: str | None = None
    server: bool = False
    cache: str = ""


class ToolResult(Struct, frozen=True, gc=False):
    """The result of a tool call. `call_id` is the id of the call; `name` is the tool's, if the dialect has it."""

    call_id: str
    parts: tuple["Part", ...] = ()
    is_error: bool = False
    name: str = ""
    cache: str = ""
    extras: dict[str, object] = {}


class ToolChange(Struct, frozen=True, gc=False):
    """Tools that the model may call from here on, and tools that it may no longer call, by name."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    extras: dict[str, object] = {}

    def __str__(self) -> str:
        """The change as a sentence, for APIs that have no such part."""
        sentences = (("Tools that are available now", self.added), ("Tools that are no longer available", self.removed))
        return " ".join(f"{words}: {', '.join(names)}." for words, names in sentences if names)


class OpaquePart(Struct, frozen=True, gc=False):
    """A part that only one dialect knows, as it was in that dialect. `loss`: the code of the loss if it is dropped."""

    dialect: str
    type: str
    data: dict[str, object]
    loss: str = "content-dropped"


Part: TypeAlias = TextPart | ReasoningPart | RefusalPart | MediaPart | ToolCall | ToolResult | ToolChange | OpaquePart


def take_cache(fields: dict[str, object]) -> str:
    """Remove the mark for the prompt cache from the fields of a part or a tool, and return its lifetime; empty if none.

    Anthropic's `cache_control` is accepted in the APIs of OpenAI too, as other gateways do. OpenAI's own mark is
    `prompt_cache_breakpoint`. A mark without a lifetime asks for the provider's default. Unknown members of it stay.
    """
    lifetime = ""
    for name in ("cache_control", "prompt_cache_breakpoint"):
        if isinstance(fields.get(name), dict):
            mark = object_of(fields.pop(name))
            lifetime = lifetime or text_of(mark.get("ttl")) or "5m"
            unknown = {key: value for key, value in mark.items() if key not in ("type", "mode", "ttl")}
            fields |= {f"{name}.{key}": value for key, value in unknown.items() if value is not None}
    return lifetime


def read_content(content: object, read: Callable[[object], Part]) -> list[Part]:
    """The parts of content that is a text, or a list of texts and of what `read` reads."""
    if isinstance(content, str):
        return [TextPart(content)] if content else []
    return [TextPart(part) if isinstance(part, str) else read(part) for part in list_of(content)]


def with_extras(parts: Sequence[Part], extras: dict[str, object]) -> list[Part]:
    """The parts of a message, the first of which gets the fields of the message that have no meaning to us."""
    for place, part in enumerate(parts) if extras else ():
        if not isinstance(part, OpaquePart):
            return [*parts[:place], structs.replace(part, extras=part.extras | extras), *parts[place + 1 :]]
    return list(parts)
