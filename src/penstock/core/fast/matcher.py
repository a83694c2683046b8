"""TextMatcher: recognises the text deltas of a stream by their bytes.

`take` gets the bytes of one event, and returns its text, or an empty text: then the event must take the slow path, and
the matcher is as it was before. It also counts what it has taken, until the slow path catches up (`take_all`).
`mark` and `undo` let a read of several events be taken as a whole or not at all.
"""

import re
from typing import NamedTuple, TypeAlias

import msgspec

from penstock.core.fast.templates import DeltaTemplate

_STRING = msgspec.json.Decoder(str)
# What a text may not have as it was sent: control characters, and line ends that only some clients know.
_ODD = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class TakenText(NamedTuple):
    """What the slow path has not seen: a number of events, their bytes, the last of them, and their text.

    The text is empty if the frame reader does not need it.
    """

    frames: int = 0
    size: int = 0
    last: bytes = b""
    text: str = ""


Mark: TypeAlias = tuple[int, int, bytes, bytes, int, int]
"""The state of a matcher."""


class TextMatcher:
    """Matches a template without a counter. `prefix` and `value` are those of this stream, if they are not its own."""

    frames = 0
    """The events that the slow path has not seen."""
    last = b""
    """The bytes of the last of them."""
    count = 0
    """The counter of the next event, if there is one."""
    _size = 0  # of these events, in bytes

    def __init__(self, template: DeltaTemplate, prefix: bytes = b"", value: bytes = b"") -> None:
        self.template = template
        self.value = value or template.sample
        """The value behind the text of the last event, such as its padding."""
        self._texts: list[str] | None = [] if template.keeps_text else None
        self._prefix = prefix = prefix or template.prefix
        self._start = len(prefix)
        self._suffix, self._tail = template.suffix, template.tail
        self._end = -len(self._tail)

    def take(self, event: bytes) -> str:
        """The text of an event, which is counted; empty if the event does not match and must take the slow path.

        This is the hottest code of the gateway: nearly every event passes through it, so it makes as few calls as
        possible.
        """
        if not event.startswith(self._prefix) or not event.endswith(self._tail):
            return ""
        raw, value = event[self._start : self._end], self.value
        if self._suffix:  # no value has it, so the last one ends the text
            raw, suffix, value = raw.rpartition(self._suffix)
            if not suffix or (value != self.value and self.template.value.fullmatch(value) is None):
                return ""
        try:
            text = raw.decode()
            if not text or (not text.isprintable() and _ODD.search(text) is not None):
                return ""
            if "\\" in text or '"' in text:  # it refuses a quote that is not escaped, and halves of surrogate pairs
                text = _STRING.decode(b'"%b"' % raw)
        except ValueError:
            return ""
        self.frames += 1
        self._size += len(event)
        self.last = event
        self.value = value
        if self._texts is not None:
            self._texts.append(text)
        return text

    def mark(self) -> Mark:
        """The state, for `undo`."""
        return self.frames, self._size, self.last, self.value, self.count, len(self._texts or ())

    def undo(self, mark: Mark) -> None:
        """Return to an earlier state."""
        self.frames, self._size, self.last, self.value, self.count, texts = mark
        if self._texts is not None:
            del self._texts[texts:]

    def take_all(self) -> TakenText:
        """What the slow path has not seen, and will now have seen."""
        taken = TakenText(self.frames, self._size, self.last, "".join(self._texts or ()))
        self.frames = self._size = 0
        if self._texts is not None:
            self._texts = []
        return taken

    @property
    def last_json(self) -> bytes:
        """The JSON of the last event; empty if there was none."""
        return self.last[self.template.json_start :]


class CountedMatcher(TextMatcher):
    """Matches a template with a counter: the next event has the next number."""

    def __init__(self, template: DeltaTemplate) -> None:
        super().__init__(template)
        self._expect(template.next_count)

    def take(self, event: bytes) -> str:
        """The text of an event with the expected number; empty if the event does not match."""
        text = super().take(event)
        if text:
            self._expect(self.count + 1)
        return text

    def undo(self, mark: Mark) -> None:
        """Return to an earlier state."""
        super().undo(mark)
        self._expect(self.count)

    def _expect(self, count: int) -> None:
        """Expect an event with this number."""
        self.count = count
        template = self.template
        if template.counted == "prefix":
            self._prefix = prefix = template.prefix % count
            self._start = len(prefix)
        elif template.counted == "suffix":
            self._suffix = template.suffix % count
        else:
            self._tail = tail = template.tail % count
            self._end = -len(tail)


def matcher_of(template: DeltaTemplate) -> TextMatcher:
    """A matcher of events after the one that the template was learned from."""
    return CountedMatcher(template) if template.counted else TextMatcher(template)
