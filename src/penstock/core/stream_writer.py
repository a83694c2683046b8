"""StreamWriter: events → a client's bytes."""

from collections.abc import Callable, Iterable, Mapping
from typing import Self, cast

import msgspec
from msgspec import Raw, structs

from penstock.core.dialects.answer_extras import NOTED, AnswerExtras
from penstock.core.dialects.answer_writer import AnswerFacts, AnswerWriter, TextWriter
from penstock.core.dialects.registry import answer_dialect, find_dialect
from penstock.core.fast.format import StreamTrailer, TextFollower, TextFormat
from penstock.core.fast.matcher import TextMatcher
from penstock.core.hub.blocks import Blocks
from penstock.core.hub.completion import Completion
from penstock.core.hub.events import Event
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import Loss
from penstock.core.json.members import JsonMembers


class StreamWriter:
    """Writes events as a correct stream in a client's dialect.

    `source` is the dialect that the events were read from. If it is the client's own, the writer also writes what only
    this dialect has: the usage as the provider reported it, and fields without an event of their own.
    `id`, `model` and `created` are defaults for what the provider did not send. With `include_usage` the client gets
    the usage, as from OpenAI when the client requests it with `stream_options`.
    """

    _made: AnswerWriter | None = None
    _extras: AnswerExtras | None = None
    _blocks: Blocks | None = None
    _noted: tuple[Iterable[Event], ...] = ()  # events to observe, until `_made` exists
    _compared: TextMatcher | None = None  # the last matcher whose deltas were compared, and the result
    _accepted = False
    _templated: TextMatcher | None = None  # the last matcher whose texts are written from a template, and that template
    _template: TextWriter | None = None

    def __init__(
        self,
        dialect: str = "openai_chat",
        *,
        source: str = "",
        include_usage: bool = False,
        id: str = "chatcmpl-penstock",
        model: str = "",
        created: int = 0,
    ) -> None:
        self.dialect = dialect
        answer_dialect(dialect)  # raises the error if there is none
        self._facts = AnswerFacts(
            call_id="",
            id=id,
            model=model,
            created=created,
            include_usage=include_usage,
            same_dialect=source == dialect,
        )

    @classmethod
    def for_call(cls, dialect: str, facts: AnswerFacts) -> Self:
        """A writer for one call of the gateway, with all facts about it."""
        writer = cls.__new__(cls)
        writer.dialect = dialect
        writer._facts = facts
        return writer

    @property
    def _writer(self) -> AnswerWriter:
        return self._made or self._make()

    def _make(self) -> AnswerWriter:
        """Make the dialect's own writer, on first use: most answers are forwarded unchanged and need none."""
        made = self._made = answer_dialect(self.dialect).writer(self._facts)
        if made.has_blocks:
            self._blocks = Blocks(made.losses, one_choice=made.one_choice)
        if not self._facts.same_dialect:
            self._extras = AnswerExtras(made.losses, find_dialect(self.dialect).carried)
        for events in self._noted:
            self.note(events)
        return made

    @property
    def _follower(self) -> TextFollower:
        """The writer of a dialect whose format says that it follows the text (`TextFormat.writer_follows`)."""
        return cast("TextFollower", self._writer)

    def forwards(self, format: TextFormat) -> bool:
        """Whether a provider's bytes may be forwarded, if it is of this writer's dialect.

        Not if the client gets the messages in another framing than that of server-sent events. What a writer overrides
        is in the first events of an answer, and in the last ones, or in every message. A writer that follows the text
        always writes the first and the last ones.
        """
        return not self._facts.stream_type and (not self._facts.overrides or format.writer_follows)

    @property
    def losses(self) -> list[Loss]:
        """What the client's dialect cannot express of the events written so far."""
        return self._made.losses if self._made is not None else []

    def heartbeat(self) -> bytes:
        """Bytes that keep the connection alive; may be empty."""
        self._accepted = False  # they may have the number that the next delta has
        return self._writer.heartbeat()

    def fail(self, failure: Failure) -> bytes:
        """The last bytes of a stream that has begun and cannot be completed because of this failure."""
        return self._writer.fail(failure)

    def write(self, events: Iterable[Event]) -> bytes:
        """The bytes of these events, as whole frames that can be sent at once."""
        made = self._made or self._make()
        if self._extras is not None:
            events = events if isinstance(events, list) else list(events)
            if not NOTED.isdisjoint(map(type, events)):
                events = self._extras.pass_on(events)
        if self._blocks is not None:
            events = self._blocks.order(events)
        for event in events:
            made.write(event)
        if made.pending is not None:
            made.flush()
        out, made.out = made.out, []
        return b"".join(out)

    def passed_on(self, events: Iterable[Event]) -> Iterable[Event]:
        """The events for the client's dialect; what only the provider's dialect has is noted as losses.

        An answer that is not streamed passes it before it is folded for `write_body`.
        """
        if self._made is None:
            self._make()
        return events if self._extras is None else self._extras.pass_on(events)

    def write_body(self, completion: Completion) -> bytes:
        """The body of the same answer without streaming."""
        return answer_dialect(self.dialect).write_body(completion, self._facts, self._writer.losses)

    def forward_body(self, data: bytes, changes: Mapping[str, Raw]) -> bytes:
        """The provider's own body, with these changes and the members that the gateway sets."""
        overrides = {name: Raw(msgspec.json.encode(value)) for name, value in self._facts.overrides.items()}
        return JsonMembers(data).edited({**changes, **overrides}) if changes or overrides else data

    def write_end(self, trailer: StreamTrailer | None, events: Iterable[Event]) -> bytes:
        """The bytes of the last events; the provider's own if the trailer can be forwarded."""
        return (self.forward(trailer) if trailer is not None else b"") or self.write(events)

    def forward(self, trailer: StreamTrailer) -> bytes:
        """The provider's bytes of the trailer; empty if the client must get something else."""
        return trailer.write(include_usage=self._facts.include_usage)

    def accepts(self, format: TextFormat, matcher: TextMatcher) -> bool:
        """Whether the text deltas that this matcher takes are what this writer would write, so that they may be
        forwarded. The events of all reads so far must have been written, or noted.

        They are compared once for each matcher. From then on the next delta of the matcher is one number higher, and so
        is the writer's, until the writer writes something else: a heartbeat.
        """
        if not format.writer_follows:
            return True
        if matcher is not self._compared:
            self._compared = matcher
            self._accepted = self._follower.continues_with(_next_delta(format, matcher))
        return self._accepted

    def text_writer(self, matcher: TextMatcher) -> TextWriter | None:
        """Writes the texts that this matcher takes, as `write` would write their deltas; None if only `write` can.

        The events of all reads so far must have been written, the last of which is a text that the matcher would take.
        The function is valid as long as the reader has this matcher, because nothing else is written meanwhile.
        """
        if matcher is not self._templated:
            self._templated, self._template = matcher, None
            delta, made, blocks = matcher.template.make_event(""), self._writer, self._blocks
            block = blocks.open_block(delta) if blocks is not None else None
            if blocks is None or block is not None:
                self._template = made.text_writer(structs.replace(delta, block=block))
        return self._template

    def text_follower(self, format: TextFormat) -> Callable[[str], None] | None:
        """The function to call with the text of each forwarded delta; None if the writer does not need it."""
        return self._follower.follow_text if format.writer_follows else None

    def note(self, events: Iterable[Event]) -> None:
        """Observe events whose bytes are forwarded unchanged (`StreamReader.forwardable`): later chunks must match."""
        made = self._made
        if made is None:
            self._noted = (*self._noted, events)
            return
        for event in events if self._blocks is None else self._blocks.order(events):
            made.note(event)


def _next_delta(format: TextFormat, matcher: TextMatcher) -> dict[str, object]:
    """The JSON of the next text delta that a matcher takes, without text and padding."""
    template = matcher.template
    path = format.text_path(template.make_event(""))
    delta = {name: value for name, value in template.json.items() if name not in (path[0], format.padding)}
    return delta if format.counter is None or not template.counted else delta | {format.counter: matcher.count}
