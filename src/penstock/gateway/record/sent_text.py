"""SentText: all that a client has of an answer, if another target may go on with it.

It takes the place of the transcript: writing the text down is counting it, so a call that may go on costs nothing more
per event. It has the transcript in it, for an operator who may read the call.
"""

from collections.abc import Callable
from io import StringIO

from penstock.core.hub.events import Event, Extra, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStart
from penstock.core.wire.scan import JsonScan
from penstock.gateway.record.transcript import Transcript, TranscriptPart, count_chars

# In characters: far more than any answer has, and a request with more would take long to write.
_MAX_TEXT = 1_000_000
# Fields of a delta that are content.
_MEDIA = frozenset(("audio", "images"))


class SentText:
    """What the attempts at one call have sent. Only text and reasoning can be continued."""

    __slots__ = ("_calls", "_text", "_unfit", "chars", "shown")

    def __init__(self, *, shown: bool) -> None:
        """`shown`: an operator may read the call."""
        self.shown = Transcript() if shown else None
        self.chars = 0
        """All characters that were counted, but for those that the fast path has written into the text."""
        self._text = StringIO()
        self._calls: dict[int, JsonScan] = {}
        self._unfit = False

    @property
    def text(self) -> str:
        """The text of the answer."""
        return self._text.getvalue()

    @property
    def size(self) -> int:
        """The characters of text, reasoning and calls."""
        return self.chars + self._text.tell()

    @property
    def continuable(self) -> bool:
        """Whether it has only text and reasoning, so that another model can go on with it."""
        return not self._unfit and not self._calls and self._text.tell() <= _MAX_TEXT

    @property
    def has_whole_calls(self) -> bool:
        """Whether it has calls of tools, and the arguments of each are whole: nothing is missing for the client."""
        return (
            not self._unfit and bool(self._calls) and all(each.closed and each.whole for each in self._calls.values())
        )

    def append(self, events: list[Event]) -> int:
        """Append these events; return the number of their characters of text."""
        if self.shown is not None:
            self.shown.append(events)
        size = count_chars(events)
        text = 0
        for event in events:
            if isinstance(event, TextDelta) and not event.choice:
                text += self._text.write(event.text)
            elif isinstance(event, ToolCallStart):
                self._calls[event.call] = JsonScan()
                self._unfit = self._unfit or event.kind != "function" or event.server or bool(event.choice)
            elif isinstance(event, ToolCallDelta) and event.call in self._calls:
                self._calls[event.call].feed(event.arguments.encode(errors="surrogatepass"))
            elif isinstance(event, Extra):
                self._unfit = self._unfit or (event.place == "delta" and not _MEDIA.isdisjoint(event.fields))
            elif not isinstance(event, ReasoningDelta) and count_chars([event]):
                self._unfit = True  # a refusal, or another choice
        self.chars += size - text
        return size

    def writer(self, event: Event) -> Callable[[str], int]:
        """As that of a transcript: the function that appends texts of this event's kind."""
        show = self.shown.writer(event) if self.shown is not None else None
        if isinstance(event, TextDelta) and not event.choice:
            write = self._text.write
        elif isinstance(event, ReasoningDelta):
            write = self._add_chars
        else:
            self._unfit = True
            write = self._add_chars
        if show is None:
            return write
        shown = show

        def both(text: str) -> int:
            shown(text)
            return write(text)

        return both

    def _add_chars(self, text: str) -> int:
        self.chars += len(text)
        return len(text)

    def show(self, *, shown: bool) -> None:
        """Begin a transcript: another attempt goes on."""
        self.shown = Transcript() if shown else None

    def trim(self) -> None:
        """Drop what the transcript has too much. Writers become invalid."""
        if self.shown is not None:
            self.shown.trim()

    def clear(self) -> None:
        """Drop the transcript: the attempt is over, or the operator may not read it any more."""
        if self.shown is not None:
            self.shown.clear()
            self.shown = None

    def parts(self) -> list[TranscriptPart]:
        """What the operator may read."""
        return self.shown.parts() if self.shown is not None else []
