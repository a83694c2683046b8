"""ContinuedWriter: writes the rest of an answer that another target goes on with, as the same answer.

The client has one stream: its id, its time and its model are those of the first target, and so is its role. The usage
says what the client asked for and got: the tokens of the first request as the input, and those of all that was sent as
the output. What each target has reported is in the ledger.
"""

from collections.abc import Iterable, Mapping
from typing import Self

from msgspec import structs

from penstock.core.hub.events import (
    ChoiceStart,
    Event,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    Start,
    TextDelta,
    ToolCallStart,
    UsageReport,
)
from penstock.core.hub.usage import Usage
from penstock.core.stream_writer import StreamWriter

# What a block of text does not go on with.
_OTHER_BLOCKS = (ReasoningDelta, RefusalDelta, ToolCallStart)
# Before the first of these the client learns that another target goes on.
_SHOWN = (TextDelta, *_OTHER_BLOCKS, Finish)


class ContinuedWriter(StreamWriter):
    """Goes on where another writer stopped."""

    _seam: Mapping[str, object] | None  # until the client knows
    _sent: int
    _input: int | None

    @classmethod
    def after(cls, writer: StreamWriter, seam: Mapping[str, object], sent: int, input: int | None) -> Self:
        """A writer that goes on after this one. `seam` says from which target, to which, and why.

        `sent` are the tokens of the output so far, `input` those of the first request, if the provider reported them.
        """
        continued = cls.__new__(cls)
        continued.__dict__.update(writer.__dict__)
        continued._seam, continued._sent, continued._input = seam, sent, input
        return continued

    def write(self, events: Iterable[Event]) -> bytes:
        """The bytes of these events, without those that begin an answer."""
        data, waiting = b"", list[Event]()
        for event in events:
            if isinstance(event, Start | ChoiceStart):
                continue
            if isinstance(event, _OTHER_BLOCKS) or (self._seam is not None and isinstance(event, _SHOWN)):
                data, waiting = data + super().write(waiting), []
                self._prepare(event)
            waiting.append(UsageReport(self._whole(event.usage)) if isinstance(event, UsageReport) else event)
        return data + super().write(waiting)

    def _prepare(self, event: Event) -> None:
        """End the open block if this event has no place in it, and tell the client of the seam before the first."""
        made, blocks, seam = self._writer, self._blocks, self._seam
        ends = isinstance(event, _OTHER_BLOCKS) and (
            isinstance(event, ToolCallStart) or blocks is None or blocks.open_block(event) is None
        )
        if blocks is not None and (ends or (seam is not None and self._facts.fallback_blocks)):
            for end in blocks.end_open(0):
                made.write(end)
        if seam is not None:
            self._seam = None
            made.go_on(seam)

    def _whole(self, usage: Usage) -> Usage:
        """The usage of the whole answer: what the continuation has read again of it is not a part of the input."""
        if usage.input is None or usage.output is None:
            return usage
        input = self._input if self._input is not None else max(usage.input - self._sent, 0)
        output = usage.output + self._sent
        return structs.replace(usage, input=input, output=output, total=input + output, raw={})
