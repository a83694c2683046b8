"""PassThroughFormat: what a dialect supplies for its fast path (`core/fast/passthrough.py`).

It describes where the text is in the JSON of a text delta, which other members vary, how an answer opens and how it
ends. The code that learns and proves templates is shared by all dialects (`core/fast/templates.py`).

A dialect that supplies one promises two things. Its frame reader makes exactly one text delta of JSON that matches a
template. And reading a text delta leaves the frame reader in a state in which it reads the next one in the same way.
"""

import re
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from penstock.core.hub.events import Event, ReasoningDelta, TextDelta
from penstock.core.hub.grammar import Grammar
from penstock.core.hub.usage import Tokens

Path: TypeAlias = tuple[str | int, ...]
"""The path of a value in JSON: names of members and indexes of elements."""
TextEvent: TypeAlias = TextDelta | ReasoningDelta


class TemplateSlot(NamedTuple):
    """A member of a text delta's JSON, other than the text, whose value varies between events.

    `padding` is a string without meaning, which some providers add to hide the length of the text. A `counter` is an
    integer that grows by one with each event; a dialect has at most one. `spaces` is not a member, and has no path: it
    is any number of spaces before the last bracket.
    """

    name: str
    path: Path
    kind: Literal["padding", "counter", "spaces"]


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
    """How an answer opens: one event in which these fields vary, perhaps others that do not, then text deltas.

    In dialects whose `PassThroughFormat` has `frames` it is one event.
    """

    fields: tuple[OpeningField, ...]
    make: Callable[[list[Event], dict[str, bytes]], tuple[list[Event], dict[str, object]] | None]
    """Takes the events of the learned opening, and the values (ASCII) of the fields in another opening. Returns the
    events of that opening, and the fields of its stream, with the padding; None if it has other events. The fields
    change during the stream."""
    choice: Callable[[list[Event]], int | None]
    """The choice that the events open; None if they are not those of a usual opening."""
    in_deltas: bool = True
    """Whether text deltas repeat the fields of the opening, except for padding."""


class TrailerFormat(Struct, frozen=True, kw_only=True):
    """How an answer ends. `mark` occurs in the first read of every trailer, and hardly ever in text."""

    mark: re.Pattern[bytes]
    make: "Callable[[list[Event], dict[str, object]], StreamTrailer]"
    """Takes the events of the opening and the fields of the stream. Returns an empty `StreamTrailer`."""
    after: "Callable[[object, Grammar], StreamTrailer | None] | None" = None
    """Takes the frame reader and the grammar of a stream of which the slow path has read text. Returns an empty
    trailer, or None if the stream cannot have the usual one. Dialects without `frames` need it."""


class PassThroughFormat(Struct, frozen=True, kw_only=True):
    """What is specific to a dialect's fast path. A dialect that has one makes the promises at the top of this file."""

    text_path: Callable[[TextEvent], Path]
    """Returns the path of the text in the JSON of this event."""
    block_path: Path | None = None
    """The path of the block number in a text delta, in dialects that number blocks. A text delta is forwarded only
    while a block of this number is open, so that the client knows the block by the same number."""
    name_path: Path | None = None
    """The path of the member that repeats the name of the event, in dialects whose clients recognise a text delta by
    that name. A text delta without it is not forwarded."""
    slots: tuple[TemplateSlot, ...] = ()
    padding_event: Callable[[dict[str, object]], Event] | None = None
    """Makes the event for padding that has changed; None if the dialect has no such event."""
    opening: OpeningFormat | None = None
    trailer: TrailerFormat | None = None
    repeated: "RepeatedText | None" = None
    """What follows the forwarded text, in dialects that repeat it as a whole; None if the dialect does not."""
    reported: "ReportedUsage | None" = None
    """Where text deltas report usage, in dialects in which they do; None if the dialect does not."""
    frames: "Callable[[object], FastFrameReader] | None" = None
    """Takes the stream's frame reader. Returns the one that recognises healthy frames without decoding all of their
    JSON. None if the dialect has none; then only the slow path decides what is healthy text."""


class FastFrameReader(Protocol):
    """A frame reader that recognises the usual frames with typed decoders, which are faster than the slow path."""

    @property
    def expects_text(self) -> bool:
        """Whether the stream is in a state in which `read_fast` may be tried."""

    @property
    def fields(self) -> dict[str, object]:
        """The fields of the stream so far, with the padding. `PassThrough` updates the padding in this dictionary."""

    def read_fast(self, data: bytes) -> "FastResult":
        """Read the data of one frame if it is one text delta, or one finish, and nothing else; or do nothing."""

    def read_opening(self, data: bytes) -> bool:
        """Read the data of the first frame if it opens an answer in the usual way; or do nothing."""

    def resume(self, opening: "Opening") -> None:
        """Continue after an opening that `PassThrough` has read."""

    def note_text(self, event: TextEvent) -> None:
        """Continue after text deltas of this choice and kind that `PassThrough` has read."""

    def trailer(self) -> "StreamTrailer | None":
        """An empty trailer for this stream, which expects text; None if the stream cannot have the usual one."""


class RepeatedText(Struct, frozen=True, kw_only=True):
    """For dialects whose answers repeat the text of the deltas at their end, and which number all events.

    The frame reader and the writer must know the text that the fast path read. A text delta is forwarded only if its
    JSON is what the writer would write next, apart from padding. Text, padding and counters are members of the JSON
    object itself.
    """

    reader: "Callable[[object], TextFollowingReader]"
    """Takes the stream's frame reader, and returns it as one that follows the text."""
    writer: "Callable[[object], TextFollowingWriter]"
    """Takes the answer's writer, and returns it as one that follows the text."""


class ReportedUsage(Struct, frozen=True, kw_only=True):
    """For dialects whose text deltas may report the usage so far (`core/fast/reported_usage.py`).

    The first text delta opens the answer. There are no other slots. Lines may end with CRLF, and clients may refuse
    every line that is neither blank nor `data: ` with JSON.
    """

    path: Path
    """The path of the report in a text delta. Integers in it vary between events."""
    reader: "Callable[[object], UsageFollowingReader]"
    """Takes the stream's frame reader, and returns it as one that follows the text and the usage."""


class UsageFollowingReader(Protocol):
    """A frame reader of messages each of which may have text and a report of the usage so far."""

    def note_deltas(self, text: str, last: bytes) -> None:
        """Continue after text deltas that `PassThrough` has read: their text, and the JSON of the last one.

        The report in the last one is emitted. Those before it had the same members, so they do not count.
        """


class TextFollowingReader(Protocol):
    """A frame reader that compares the text of the deltas with the whole text at their end."""

    def note_text(self, text: str, number: int | None) -> None:
        """Continue after text deltas that `PassThrough` has read: their text, and the number of the next event.

        They belong to the same text as the last text delta that the frame reader has read. `number` is None if they
        have none.
        """


class TextFollowingWriter(Protocol):
    """A writer that repeats the text of the deltas at their end."""

    def next_delta(self) -> Mapping[str, object] | None:
        """The JSON of the delta that would continue the open text, without the text; None if no text is open."""

    def note_text(self, text: str) -> int:
        """Continue after a text delta that was forwarded; returns the length of its text."""


FastResult: TypeAlias = Literal["refused", "text", "finish"]
"""What a `FastFrameReader` did with a frame."""


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


# What is learned.


class DeltaTemplate(NamedTuple):
    """The bytes of a text delta: literals, and slots between them.

    `prefix` are the literals before the text: one, or two with the counter between them. No other slot is before the
    text. The last literal ends with the opening quote of the text. `suffix` is the literal after the text and begins
    with the closing quote. Each of the `suffix_slots` is followed by its literal. `lines` counts the line ends.
    `members` is the JSON without the text, padding and counters (`members_of`).
    """

    prefix: tuple[bytes, ...]
    suffix: bytes
    suffix_slots: tuple[tuple[TemplateSlot, bytes], ...]
    lines: int
    make_event: Callable[[str], TextEvent]
    members: Mapping[str, object]

    @property
    def size(self) -> int:
        """The length of all literals, in bytes."""
        return sum(map(len, self.prefix)) + len(self.suffix) + sum(len(literal) for _, literal in self.suffix_slots)


class Opening(Struct, eq=False):
    """The opening of an answer, recognised by its bytes.

    The first of its `events` is a `Start`; the others have no id, no usage and no audio. `fields` are the fields of the
    stream, which change during the stream. `template` is that of the text deltas which should follow; they begin with
    `prefix`, in which the values of this answer are filled in, instead of the template's own prefix. `chars` counts the
    characters of text that arrived with the opening.
    """

    events: list[Event]
    fields: dict[str, object]
    choice: int
    raw: bytes
    """Its bytes."""
    frames: int
    """The number of its events on the wire."""
    tier: object
    """The service tier that it names, or None."""
    template: DeltaTemplate
    prefix: bytes
    chars: int = 0
