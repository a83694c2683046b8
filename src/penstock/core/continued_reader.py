"""ContinuedReader: reads an answer that goes on where another one broke off.

The client has the beginning of the answer, so the start of the choice, borders of blocks and what only the provider's
dialect has are left out. So is what the model repeats of the beginning:

1. White space at the end of the beginning was not sent to the model (`prefix_of`), so it generates that again. Whatever
   of it comes is left out. It is no repair: every model does that.
2. *Echo:* the answer begins with the whole beginning. Some servers return the message that they were asked to continue.
3. *Overlap:* the answer begins with the end of the beginning: the model says its last words again.

A repetition must have `_LEAST` characters in `_WORDS` words, which the beginning has nowhere before: others are too
often meant, as in a list, or in a text that repeats itself. Texts that may still become one
are pending until that is known.
"""

import re

from penstock.core.hub.events import (
    Annotation,
    BlockEnd,
    BlockStart,
    ChoiceStart,
    Event,
    Extra,
    Repair,
    Seal,
    Start,
    TextDelta,
)
from penstock.core.reader_decorator import ReaderDecorator
from penstock.core.stream import EventReader

_LEAST = 16
_WORDS = 3
# The characters at the end of the beginning in which an overlap may start.
_WINDOW = 256
_WORD = re.compile(r"\w+")
# The text of the choice goes on; nothing else of the answer's frame may come again.
_LEFT_OUT = frozenset((ChoiceStart, BlockStart, BlockEnd, Seal, Annotation, Extra))


def prefix_of(sent: str) -> str:
    """The text with which a model is asked to go on: without white space at its end, which some APIs refuse and models
    tokenize badly, and without the half of a surrogate pair."""
    return sent.encode(errors="ignore").decode().rstrip()


class ContinuedReader(ReaderDecorator):
    """Decorates a reader; `sent` is the text that the client has."""

    def __init__(self, reader: EventReader, sent: str) -> None:
        super().__init__(reader)
        self._sent = sent
        prefix = prefix_of(sent)
        self._again = sent[len(prefix) :] if sent.startswith(prefix) else ""  # white space that comes again
        self._prefix = prefix
        size = len(prefix)
        starts = {0, *range(max(0, size - _WINDOW), size)} if size >= _LEAST else set()
        # Where the text that waits may repeat the prefix from.
        self._starts = [start for start in sorted(starts) if size - start >= _LEAST]
        self._pending = ""
        self._begun = False  # whether the text of the continuation has begun: nothing more is left out

    def _convert(self, events: list[Event]) -> list[Event]:
        converted: list[Event] = []
        for event in events:
            if type(event) in _LEFT_OUT:
                continue
            if isinstance(event, Start):
                event = Start(event.id, event.model, event.created, event.tier, takes_over=True)
            elif isinstance(event, TextDelta):
                event = TextDelta(event.choice, event.text)
                if not self._begun:
                    converted += self._begin(event)
                    continue
            elif not isinstance(event, Repair):
                converted += self._release()
            converted.append(event)
        return converted

    def release(self) -> list[Event]:
        """Return the text that waits: the answer ends here."""
        return [*super().release(), *self._release()]

    def _begin(self, delta: TextDelta) -> list[Event]:
        """Take text while it may repeat what was sent. Returns what is known to be new."""
        self._pending += delta.text
        pending, prefix = self._pending, self._prefix
        self._starts = [at for at in self._starts if prefix.startswith(pending[: len(prefix) - at], at)]
        if any(len(prefix) - at > len(pending) for at in self._starts):
            return []
        if not self._starts and self._again.startswith(pending) and pending != self._again:
            return []
        return self._release()

    def _release(self) -> list[Event]:
        """What is pending, without what repeats the end of what was sent."""
        if self._begun:
            return []
        self._begun = True
        pending, self._pending, prefix = self._pending, "", self._prefix
        events: list[Event] = []
        for at in self._starts:  # the longest one first
            size = len(prefix) - at
            again = prefix[at:]
            if size <= len(pending) and len(_WORD.findall(again)) >= _WORDS and prefix.find(again) == at:
                pending = pending[size:]
                code = "continuation-echo" if at == 0 else "continuation-overlap"
                events.append(Repair(code, 0, 0, f"{size} characters"))
                break
        size = 0
        while size < min(len(self._again), len(pending)) and pending[size] == self._again[size]:
            size += 1
        pending = pending[size:]
        return [*events, TextDelta(0, pending)] if pending else events
