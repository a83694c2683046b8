"""TextFormat: what a dialect supplies for its fast path (`core/fast/__init__.py`).

It describes where the text is in the JSON of a text delta, what else varies there, how an answer opens and how it ends.
Everything else of the fast path is shared by all dialects.

A dialect that supplies one promises two things. Its frame reader makes exactly one text delta of JSON that matches a
template. And reading a text delta leaves the frame reader in a state in which it reads the next one in the same way.
`FrameReader.follow_text` tells it of text deltas that it has not read.
"""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypeAlias

from msgspec import Meta, Raw, Struct

from penstock.core.hub.events import Event, ReasoningDelta, TextDelta
from penstock.core.hub.grammar import Grammar
from penstock.core.hub.text import LINE_ENDS_TO_SOME
from penstock.core.hub.usage import Tokens
from penstock.core.wire.frame import Frame, Framed

Path: TypeAlias = tuple[str | int, ...]
"""The path of a value in JSON: names of members and indexes of elements."""
TextEvent: TypeAlias = TextDelta | ReasoningDelta
Forwardable: TypeAlias = Literal["no", "yes", "if last"]
"""Whether the bytes of a read may be forwarded as they are; `if last`: if no more bytes follow."""
FrameKind: TypeAlias = Literal["other", "text", "last text"]
"""What a frame is: healthy text and nothing else, such text that finishes the answer, or anything else."""

# As an integer: `in` finds it five times as fast as b"\r", because it tries the operand as an integer first.
_CR = ord("\r")
# Events of server-sent events that have data, and comments. Some clients fail on an event without data.
_EVENTS_WITH_DATA = re.compile(
    rb"(?>(?:[^d\n][^\n]*+\n)*+data:[^\n]*+\n(?:[^\n]++\n)*+\n|(?::[^\n]*+\n)++\n?)++"  # never backtracks
)
MISSING = object()


class SlowRead(Struct, eq=False):
    """What the slow path made of one read."""

    data: bytes
    events: list[Event]
    items: list[Framed]
    first: bool
    """Whether this is the first read of the stream."""
    whole: bool
    """Whether the read began and ended between two events of a healthy stream."""
    texts: int
    """How many frames were healthy text and nothing else."""
    opened: tuple[int, int]
    """In a first read: how many frames and events there are before the first of these frames; all, if it has none."""
    last: FrameKind
    """The kind of the last frame."""

    @property
    def is_text(self) -> bool:
        """Whether the read consists of healthy text and nothing else."""
        return self.whole and 0 < len(self.items) == self.texts


Name: TypeAlias = Annotated[str, Meta(min_length=1)]
"""A string that is not empty."""


class PlainBody(Struct, frozen=True):
    """What is booked of an unstreamed answer that may be forwarded: one frame, without any repair or loss.

    `finishes` and `chars` are those of all choices: their finish reasons, and the characters that the model has sent.
    """

    id: str
    model: str
    finishes: list[str]
    chars: int
    tokens: Tokens | None
    """The tokens of the reported usage; None if none was reported."""
    tiers: tuple[str | None, ...] = ()
    """The service tiers that the answer names, the one that counts last."""
    changes: Mapping[str, Raw] = {}
    """Members that clients get with these values."""


class TextFormat:
    """What is specific to a dialect's fast path. A dialect that has one makes the promises at the top of this file."""

    path: Path = ()
    """The path of the text in the JSON of a text delta, if all have the same."""
    event = re.compile(rb"(?:event:[^\r\n]*\n)?data:([^\r\n]*)(\n\n)")
    """The only form of an event that is learned: a pattern with two groups, the JSON and the line ends."""
    block_path: Path | None = None
    """The path of the block number in a text delta, in dialects that number blocks. A text delta is forwarded only
    while a block of this number is open, so that the client knows the block by the same number."""
    name_path: Path | None = None
    """The path of the member that repeats the name of the event, in dialects whose clients recognise a text delta by
    that name. A text delta without it is not forwarded."""
    padding: str | None = None
    """The member of a text delta with a string without meaning, which hides the length of the text."""
    spaces = False
    """Whether any number of spaces may be before the last bracket, for the same purpose."""
    counter: str | None = None
    """The member of a text delta with a number that grows by one with each event."""
    report: str | None = None
    """The member of a text delta with a report of the usage so far. Counts in it vary between events."""
    typed = False
    """Whether the frame reader has typed decoders, which alone decide what is healthy (`FrameReader.read_usual`)."""
    keeps_text = False
    """Whether the frame reader needs the text of the deltas that it has not read (`FrameReader.follow_text`)."""
    writer_follows = False
    """Whether the dialect's writer is a `TextFollower`. Then it must know the forwarded text, and a text delta is
    forwarded only if it is what the writer would write (`StreamWriter.accepts`)."""
    opening: "OpeningFormat | None" = None
    """How answers open, if an opening can be recognised by its bytes."""
    trailer_mark: re.Pattern[bytes] | None = None
    """Occurs in the first event of every trailer, and hardly ever in text; None if there are no trailers."""

    def text_path(self, event: TextEvent) -> Path:  # noqa: ARG002
        """The path of the text in the JSON of this event; empty if such events are never forwarded."""
        return self.path

    def padding_event(self, padding: str) -> Event | None:  # noqa: ARG002
        """The event for padding that has changed; None if the dialect has no such event."""
        return None

    def kind_of(
        self, frame: Frame, value: object, seen: list[Event], ordered: list[Event], grammar: Grammar
    ) -> FrameKind:
        """The kind of a frame with this JSON, which was read as `seen`, and of which the grammar made `ordered`."""
        is_text = len(seen) == 1 and seen == ordered and self.is_text(frame, value, ordered[0], grammar)
        return "text" if is_text else "other"

    def is_text(self, frame: Frame, value: object, event: Event, grammar: Grammar) -> bool:
        """Whether a frame with this JSON, which produced this event, is a text delta that may be forwarded."""
        if value is None or not isinstance(event, TextEvent) or grammar.has_open_call(event.choice):
            return False
        if self.name_path is not None and frame.event != value_at(value, self.name_path):
            return False
        if value_at(value, self.text_path(event)) != event.text:
            return False  # the event includes text that was held back before
        return self.block_path is None or grammar.has_block(event.choice, value_at(value, self.block_path))

    def read_body(self, data: bytes) -> PlainBody | None:  # noqa: ARG002
        """Read an unstreamed answer by typed decoders, if it is healthy and says the same as what the dialect's writer
        would make of it; None for any other bytes, and in a dialect without such decoders."""
        return None

    def forwardable(self, read: SlowRead) -> Forwardable:
        """Whether the bytes of a read that took the slow path may be forwarded."""
        healthy = read.is_text and not has_odd_line_ends(read.data, crlf=False)
        return "yes" if healthy and _EVENTS_WITH_DATA.fullmatch(read.data) else "no"


class OpeningField(NamedTuple):
    """A member of the first event whose value varies between answers. `kind` restricts its values.

    A `count` may be missing. `if_repeated`: the value rarely changes, so it is a literal of the opening, unless text
    deltas repeat it.
    """

    name: str
    path: Path
    kind: Literal["token", "seconds", "padding", "count"]
    if_repeated: bool = False


class OpeningFormat(Struct, frozen=True, kw_only=True):
    """How an answer opens: one event in which these fields vary, perhaps others that do not, then text deltas."""

    fields: tuple[OpeningField, ...]
    make: Callable[[list[Event], dict[str, bytes]], list[Event] | None]
    """Takes the events of the learned opening, and the values (ASCII) of the fields in another opening. Returns the
    events of that opening; None if it has other events."""
    choice: Callable[[list[Event]], int | None]
    """The choice that the events open; None if they are not those of a usual opening."""
    trailer: "Callable[[list[Event], bytes], StreamTrailer]"
    """Takes the events of the opening, and the JSON of the last text delta (empty if there was none). Returns an empty
    `StreamTrailer`."""
    in_deltas: bool = True
    """Whether text deltas repeat the fields of the opening, except for padding."""


class TextFollower(Protocol):
    """A writer that numbers all events and repeats the text of the deltas at their end (`writer_follows`)."""

    def continues_with(self, delta: Mapping[str, object]) -> bool:
        """Whether a delta with these members and a text would continue the open text, with the next number."""

    def follow_text(self, text: str) -> None:
        """Continue after a delta with this text that was forwarded."""


class StreamTrailer(Protocol):
    """The usual ending of one stream: finish, usage, sentinel. It is buffered until it is complete."""

    frames: int
    """The number of frames in the buffer."""
    raw: bytes
    """Their bytes."""
    done: bool
    """Whether the sentinel has arrived, so that the trailer is complete."""
    finish_reason: str
    tokens: Tokens | None
    """The tokens of the reported usage, if one was reported and its output is not zero."""
    tier: str | None
    """The service tier of the reported usage, if it names one."""

    def feed(self, data: bytes) -> bool:
        """Add one read if it continues the trailer. Otherwise return False; the trailer must not be fed again."""

    def events(self) -> list[Event]:
        """The events of a complete trailer."""

    def write(self, *, include_usage: bool) -> bytes:
        """The provider's bytes for the client; empty if the client must get something else, which a writer writes."""


def value_at(value: Any, path: Path) -> Any:
    """The value at a path; `MISSING` if there is none."""
    for step in path:
        if not (step in value if isinstance(value, dict) else isinstance(value, list) and step in range(len(value))):
            return MISSING
        value = value[step]
    return value


def has_odd_line_ends(data: bytes, *, crlf: bool) -> bool:
    """Whether the data contains line ends that clients treat differently: CR, U+2028, U+2029, U+0085.

    With `crlf`, the clients of the dialect read lines that end with CRLF.
    """
    odd_cr = _CR in (data.replace(b"\r\n", b"") if crlf else data)
    return odd_cr or (not data.isascii() and any(end in data for end in LINE_ENDS_TO_SOME))
