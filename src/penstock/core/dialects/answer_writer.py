"""AnswerWriter: the base of the writers of all dialects, and the facts about a call that they need.

`core/stream_writer.py` puts the other stages before it: what only the provider's dialect has is noted as a loss, and
blocks come one after the other (`core/hub/blocks.py`). A dialect derives from it, and writes one event at a time:

    def write(self, event: Event) -> None:
        match event:
            case ...:                           # what the API has
            case _:
                self.write_rest(event)          # the ending, and what it lacks
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import msgspec
from msgspec import Raw, Struct

from penstock.core.dialects.answer_parts import note_hidden
from penstock.core.hub.events import (
    Annotation,
    BlockEnd,
    BlockStart,
    ChoiceStart,
    End,
    Ending,
    Event,
    Extra,
    Fault,
    Finish,
    MediaDelta,
    ReasoningDelta,
    Repair,
    Seal,
    Start,
    TextDelta,
    ToolCallStart,
    UsageReport,
)
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import ReasoningShown
from penstock.core.hub.text import without_line_ends
from penstock.core.hub.usage import Usage

TextWriter: TypeAlias = Callable[[str], bytes]
"""Writes one more text of a block: a whole frame."""
TEXT = Raw(b"\0")
"""Stands for the text in the JSON of a template. Encoded JSON has this byte nowhere else."""
_ENDING_WORDS: Mapping[Ending, str] = {
    "truncated": "the provider's stream ended before the answer was complete",
    "timed_out": "the provider took too long",
    "cancelled": "the answer was cancelled",
    "failed": "the provider failed",
}
# What an API may lack: all events but texts and the arguments of calls.
_Rest: TypeAlias = (
    Annotation
    | BlockEnd
    | BlockStart
    | ChoiceStart
    | End
    | Extra
    | Fault
    | Finish
    | MediaDelta
    | Repair
    | Seal
    | Start
    | ToolCallStart
    | UsageReport
)
_encode = msgspec.json.Encoder().encode


class AnswerFacts(Struct, frozen=True, kw_only=True):
    """The facts about a call that a writer needs. `model` and `created` are defaults for what the provider omits."""

    call_id: str
    """The id of the call. Errors contain it, and the id of the answer is derived from it unless `id` is set."""
    id: str = ""
    model: str
    created: int
    include_usage: bool = False
    input_estimate: int = 0
    """The estimated tokens of the input, for dialects that report them before the provider does."""
    same_dialect: bool = True
    """Whether the provider speaks the client's dialect: then the writer also writes what only this dialect has."""
    issuer: str = ""
    """Identifies the provider and account that made the seals of the answer. Seals of other dialects are marked with
    it."""
    echo: Mapping[str, object] = MappingProxyType({})
    """Members of the request that the answer repeats, in dialects whose answers do (`ClientRequest.echo`)."""
    reasoning: ReasoningShown = "all"
    """How much of the reasoning of a provider of another dialect the client gets."""
    heartbeats: int = 0
    """How many heartbeats the client has got from earlier attempts at the same call."""
    stream_type: str = ""
    """The content type of a streamed answer, if it is not that of server-sent events (`ClientRequest.stream_type`)."""
    overrides: Mapping[str, object] = MappingProxyType({})
    """Members of the answer that the gateway sets in place of the provider's (`StoredAnswers.overrides`)."""
    end_marker: bool = False
    """Whether a stream of Responses ends with `[DONE]`, as Open Responses demands. OpenAI sends none."""
    fallback_blocks: bool = False
    """Whether a client of Messages has announced that it knows the block `fallback`."""
    clock: Callable[[], float] | None = None
    """The time in Unix seconds, for APIs that say when an answer was complete. Without it, that was when it began."""


class AnswerWriter(ABC):
    """Writes one streamed answer."""

    has_blocks = True
    """Whether answers of the API have blocks of content. Then each event of a block names it, and one block follows the
    other."""
    one_choice = True
    """Whether answers of the API have one choice. Then further choices of a dialect with blocks are dropped."""
    tells_seams = False
    """Whether the stream can say that another target goes on with the answer (`go_on`)."""
    pending: object = None
    """What waits for the next event of the same read; None if nothing does."""
    _finish: Finish | None = None
    _usage: Usage | None = None
    _failed = False  # whether an error is written, so that no other one follows

    def __init__(self, facts: AnswerFacts) -> None:
        self._facts = facts
        self._own = facts.same_dialect
        self.losses: list[Loss] = []
        """What the client's dialect cannot express of the events written so far."""
        self.out: list[bytes] = []
        """The bytes that are written and not taken yet: whole frames."""

    @abstractmethod
    def write(self, event: Event) -> None:
        """Write an event."""

    @abstractmethod
    def complete(self, finish: Finish) -> None:
        """Write the end of a complete answer. `_usage` is its usage, if that was reported."""

    @abstractmethod
    def write_error(self, message: str, code: str, provider: dict[str, object]) -> None:
        """Write the error that ends an answer which is not complete.

        `code` is that of the `Failure` or the `Fault`, or the ending of a stream that has neither. `provider` is the
        provider's own object; empty if it sent none."""

    def fail(self, failure: Failure) -> bytes:
        """The last bytes of a stream that has begun and cannot be completed."""
        self._end_with(failure.message, failure.code, {})
        return self.take()

    def write_rest(self, event: _Rest) -> None:
        """Write an event that ends an answer, or note the loss of one that the API lacks."""
        match event:
            case Finish():
                self._finish = event
            case UsageReport(usage):
                self._usage = usage
            case Fault(code, message, provider=provider):
                self._end_with(message, code, provider or {})
            case End("completed"):
                self.complete(self._finish or Finish(0, "stop"))
            case End(ending):
                self._end_with(_ENDING_WORDS[ending], ending, {})
            case Annotation() | BlockStart() | Seal() | ToolCallStart():
                note_hidden(event, self.losses)
            case Start() | ChoiceStart() | BlockEnd() | MediaDelta() | Extra() | Repair():
                pass  # no content; a loss by its block; a loss already; counted, not shown

    def _end_with(self, message: str, code: str, provider: dict[str, object]) -> None:
        if not self._failed:
            self._failed = True
            self.write_error(message, code, provider)

    def text_writer(self, delta: TextDelta | ReasoningDelta) -> TextWriter | None:  # noqa: ARG002
        """Writes texts of the kind and block of this delta, as `write` and `flush` do; None if only those can.

        The last event that was written is such a delta. The function is valid until another event is written."""
        return None

    def flush(self) -> None:  # noqa: B027
        """Write what is pending: the events of a read have been written."""

    def note(self, event: Event) -> None:
        """Observe an event whose bytes are forwarded unchanged: what is written later must match it."""
        self.write(event)
        self.out.clear()

    def go_on(self, seam: Mapping[str, object]) -> None:  # noqa: ARG002
        """Another target goes on with the answer, which broke off; `seam` says from which one, to which, and why. What
        only the dialect of a provider has is not written any more."""
        self._own = False

    def heartbeat(self) -> bytes:
        """Bytes without meaning that keep the connection alive, such as a comment of server-sent events; empty if none
        can be sent now, or the API has none."""
        return b": penstock\n\n"

    def take(self) -> bytes:
        """The bytes that are written and not taken yet."""
        out, self.out = self.out, []
        return b"".join(out)


def text_template(frame: bytes, follow: Callable[[str], object] | None = None) -> TextWriter:
    """Writes this frame with a text in the place of `TEXT`, and calls `follow` with the text."""
    before, after = frame.split(b"\0")

    def write(text: str) -> bytes:
        if follow is not None:
            follow(text)
        data = _encode(text)
        return b"%b%b%b" % (before, data if data.isascii() else without_line_ends(data), after)

    return write
