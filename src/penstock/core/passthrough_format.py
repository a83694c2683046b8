"""PassThroughFormat: what a dialect supplies for its fast path (`core/passthrough.py`).

It says where the text is, what else varies, how an answer opens and how it closes. Learning and proving is shared code.
"""

import re
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from penstock.core.events import Event, ReasoningDelta, TextDelta
from penstock.core.usage import Tokens

Path: TypeAlias = tuple[str | int, ...]
"""Where a value stands in JSON: names of members and indexes of elements."""
TextEvent: TypeAlias = TextDelta | ReasoningDelta


class Slot(NamedTuple):
    """A member of a text delta's JSON, beside the text, that may vary from one event to the next."""

    name: str
    path: Path
    kind: Literal["padding", "counter"]


class OpeningField(NamedTuple):
    """A member of the first event that is another one in each answer. `kind` says what may stand there.

    `if_repeated`: it is as good as constant, unless text deltas repeat it.
    """

    name: str
    path: Path
    kind: Literal["token", "seconds", "padding"]
    if_repeated: bool = False


class OpeningFormat(Struct, frozen=True, kw_only=True):
    """How an answer opens: with one event, in which these fields vary; text follows at once."""

    fields: tuple[OpeningField, ...]
    make: Callable[[list[Event], dict[str, bytes]], tuple[list[Event], dict[str, object]]]
    """Given the events of the learned opening and the values of the fields in another one, which are ASCII: the events
    of that, and the fields of its stream (among them the padding), which change as it goes on."""
    choice: Callable[[list[Event]], int]
    """The choice that the events open."""


class TrailerFormat(Struct, frozen=True, kw_only=True):
    """How an answer closes. `mark` is found in the first event of a trailer, and hardly ever in text."""

    mark: re.Pattern[bytes]
    make: "Callable[[list[Event], dict[str, object]], StreamTrailer]"
    """Given the events of an opening and the fields of the stream: what takes the trailer."""


class PassThroughFormat(Struct, frozen=True, kw_only=True):
    """What is specific to a dialect's fast path. A dialect that has one makes the promise at the top of this file."""

    text_path: Callable[[TextEvent], Path]
    """Where the text of this event stands in its JSON."""
    block_path: Path | None = None
    """Where a text delta names its block. It is forwarded only while a block of this number is open: then the client
    knows the block by the same number."""
    slots: tuple[Slot, ...] = ()
    tell_padding: Callable[[dict[str, object]], Event] | None = None
    """The event that tells padding which has changed; None where nobody is told."""
    opening: OpeningFormat | None = None
    trailer: TrailerFormat | None = None
    frames: "Callable[[object], FastFrameReader] | None" = None
    """Given the stream's frame reader: the one that recognises healthy frames before their JSON is decoded. None where
    the slow path alone decides what is healthy text."""


class FastFrameReader(Protocol):
    """A frame reader that recognises usual frames by typed decoders, in less time than the slow path takes."""

    @property
    def expects_text(self) -> bool:
        """Whether the stream is in a state in which `read_fast` may be tried."""

    @property
    def fields(self) -> dict[str, object]:
        """The fields of the stream so far, padding among them. The pass-through changes the padding in it."""

    def read_fast(self, data: bytes) -> "FastResult":
        """Take in the data of one frame if it says one thing and no more; otherwise do nothing."""

    def read_opening(self, data: bytes) -> bool:
        """Take in the data of the first frame if it opens an answer in the usual way; otherwise do nothing."""

    def resume(self, opening: "Opening") -> None:
        """The answer was opened so; the pass-through has read it."""

    def note_text(self, event: TextEvent) -> None:
        """The pass-through has read text deltas like this one."""

    def trailer(self) -> "StreamTrailer | None":
        """Where text is expected: what takes the trailer of this stream, if it can have a usual one."""


FastResult: TypeAlias = Literal["refused", "text", "finish"]
"""What a `FastFrameReader` did with a frame."""


class StreamTrailer(Protocol):
    """The usual ending of one stream, held until it is whole."""

    frames: int
    """How many frames it holds."""
    raw: bytes
    """Their bytes."""
    done: bool
    """Whether the sentinel has come, and so all of it."""
    finish_reason: str
    tokens: Tokens | None
    """What the reported usage comes to, of which the output is some; None if there is none."""
    tier: str | None
    """The service tier that the reported usage names, if it names one."""

    def feed(self, data: bytes) -> bool:
        """Take in one read if it continues the trailer. Otherwise return False, and take nothing any more."""

    def events(self) -> list[Event]:
        """What it comes to, when it is done."""

    def write(self, *, include_usage: bool) -> bytes:
        """The same ending for a client, as it came; empty where the client is promised more."""


# What is learned.


class DeltaTemplate(NamedTuple):
    """The bytes of a text delta: literals, and slots between them.

    The literals in `before` have the `counters` between them, and end with the text's opening quote; before the text
    there are no other slots. `behind` begins with its closing quote. In `slots` each slot has the literal behind it.
    """

    before: tuple[bytes, ...]
    counters: tuple[Slot, ...]
    behind: bytes
    slots: tuple[tuple[Slot, bytes], ...]
    lines: int
    make_event: Callable[[str], TextEvent]

    @property
    def size(self) -> int:
        """How many bytes the literals have."""
        return sum(map(len, self.before)) + len(self.behind) + sum(len(literal) for _, literal in self.slots)


class Opening(Struct, eq=False):
    """The opening of an answer, read by its bytes: its events, its size, the template of the text that should follow.

    `fields` are those of the stream, which change as it goes on. In place of the template's own literal, text deltas
    begin with `before`. `chars` counts the text that came with the opening.
    """

    events: list[Event]
    fields: dict[str, object]
    choice: int
    size: int
    template: DeltaTemplate
    before: bytes
    chars: int = 0
