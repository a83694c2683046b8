"""Content parts: what the turns of a conversation are made of, in the order in which they were said.

The same parts stand in a request (`core/request.py`) and in an answer (`core/completion.py`), so that an answer can
become a turn of the next request. No part is in one provider's terms. `extras` holds fields of a part that have no
meaning to us, as the dialect that was read wrote them; only a writer of the same dialect writes them again.

`cache` is a hint of the client that the provider should cache the prompt up to the end of this part: its lifetime in
the words of the API (`5m`, `1h`), or empty where there is none.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.core.events import ToolKind

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
    """Opaque proof of reasoning, which only its issuer can check. `redacted`: no readable text belongs to it."""

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
    """What the model thought: the reasoning itself, a summary of it in parts, or only its seals.

    `field` is the provider's name for such text, where the dialect has several.
    """

    text: str = ""
    summary: tuple[str, ...] = ()
    seals: tuple[ReasoningSeal, ...] = ()
    field: str = ""
    extras: dict[str, object] = {}


class RefusalPart(Struct, frozen=True, gc=False):
    """Why the model does not answer, in its own words."""

    text: str


class MediaPart(Struct, frozen=True, gc=False, kw_only=True):
    """An image, a sound, a video or a document: as data (base64), by its URL, or by a provider's own file id."""

    kind: MediaKind
    mime: str = ""
    data: str = ""
    url: str = ""
    file_id: str = ""
    name: str = ""
    cache: str = ""
    extras: dict[str, object] = {}


class ToolCall(Struct, frozen=True):
    """A call that the model wants made. `arguments` is JSON text exactly as the model wrote it, whole or not.

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
    """What a call returned. `call_id` is the id of the call; `name` that of the tool, where the dialect tells it."""

    call_id: str
    parts: tuple["Part", ...] = ()
    is_error: bool = False
    name: str = ""
    cache: str = ""
    extras: dict[str, object] = {}


class OpaquePart(Struct, frozen=True, gc=False):
    """A part that only one dialect knows, as it was written there."""

    dialect: str
    type: str
    data: dict[str, object]


Part: TypeAlias = TextPart | ReasoningPart | RefusalPart | MediaPart | ToolCall | ToolResult | OpaquePart
