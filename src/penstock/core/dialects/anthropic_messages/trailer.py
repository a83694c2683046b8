"""MessagesTrailer: the usual ending of a Messages stream: `content_block_stop`, `message_delta`, `message_stop`.

The first two must come in one read. A block that stops alone is read by the slow path, because the client must see that
at once, and other blocks may follow it. `core/fast/__init__.py` explains why the events are those of the slow path.

The usage of `message_delta` is merged with that of `message_start`, as the reader does it. If both have the usual
members only, the merged counts follow without that: the later count, or the earlier one if the later is zero or null.
"""

import re
from typing import Annotated, Literal, TypeAlias, TypeGuard

import msgspec
from msgspec import Meta, Struct

from penstock.core.dialects.anthropic_messages.usage import INPUT_COUNTS, merge, read_usage
from penstock.core.dialects.anthropic_messages.vocabulary import FINISH_REASONS
from penstock.core.hub.events import BlockEnd, End, Event, Finish, UsageReport
from penstock.core.hub.sink import Sink
from penstock.core.hub.usage import ABSURD_TOKENS, Tokens, Usage
from penstock.core.wire.payload import is_too_deep

_ENDING = re.compile(
    rb'event: content_block_stop\ndata: \{"type": ?"content_block_stop", ?"index": ?(\d{1,5}) *\}\n\n'
    rb"event: message_delta\ndata: (\{.+\})\n\n"
    rb'(event: message_stop\ndata: \{"type": ?"message_stop" *\}\n\n)?'
)
_STOP = re.compile(rb'event: message_stop\ndata: \{"type": ?"message_stop" *\}\n\n')
# White space in JSON, but a line end in SSE. As an integer, which `in` finds faster.
_CR = ord("\r")
# The members of a preliminary usage that decide the counts, or do not concern them. With others it is merged.
_USUAL = frozenset((*INPUT_COUNTS, "cache_creation", "service_tier", "inference_geo"))
_Count: TypeAlias = Annotated[int, Meta(ge=0, lt=ABSURD_TOKENS)]


class EndingDelta(Struct, forbid_unknown_fields=True, gc=False):
    """A stop reason that needs no repair, and neither tools nor details."""

    stop_reason: Literal["end_turn", "stop_sequence", "max_tokens"]
    stop_sequence: str | None = None
    stop_details: None = None
    container: None = None


class EndingUsage(Struct, forbid_unknown_fields=True, gc=False):
    """The usual members of a cumulative usage."""

    output_tokens: Annotated[int, Meta(ge=1, lt=ABSURD_TOKENS)]
    input_tokens: _Count | None = None
    cache_creation_input_tokens: _Count | None = None
    cache_read_input_tokens: _Count | None = None


class UsualEnding(Struct, forbid_unknown_fields=True, gc=False):
    """A `message_delta` whose usage has the usual members."""

    type: Literal["message_delta"]
    delta: EndingDelta
    usage: EndingUsage
    context_management: None = None


class AnyEnding(Struct, forbid_unknown_fields=True, gc=False):
    """A `message_delta` with any usage."""

    type: Literal["message_delta"]
    delta: EndingDelta
    usage: dict[str, object]
    context_management: None = None


_USUAL_ENDING = msgspec.json.Decoder(UsualEnding)
_ANY_ENDING = msgspec.json.Decoder(AnyEnding)


class MessagesTrailer:
    """The usual ending of one stream (`StreamTrailer`).

    `block` is the index of the only open block, which is also its number in the hub. `usage` is the usage so far, as it
    was sent, without output; `before` is the same as the grammar has it, or None to read it from `usage` when needed.
    """

    frames = 0
    """The number of frames in the buffer."""
    raw = b""
    """Their bytes."""
    done = False
    """Whether `message_stop` has arrived, so that the trailer is complete."""
    finish_reason = ""
    tokens: Tokens | None = None
    """The tokens of the reported usage."""
    tier: str | None = None
    """The service tier of the reported usage, if it names one."""
    _ending = b""  # the JSON of `message_delta`

    def __init__(self, block: int, model: str, usage: dict[str, object], before: Usage | None = None) -> None:
        self._block = block
        self._model = model
        self._usage = usage
        self._before = before

    def feed(self, data: bytes) -> bool:
        """Add one read if it continues the trailer. Otherwise return False; the trailer must not be fed again."""
        if self.raw:
            if self.done or _STOP.fullmatch(data) is None:
                return False
            self.raw += data
            self.frames += 1
            self.done = True
            return True
        ending = _ENDING.fullmatch(data) if _CR not in data and data.isascii() else None
        if ending is None or int(ending[1]) != self._block or not (self._take(ending[2]) or self._take_any(ending[2])):
            return False
        self.raw = data
        self._ending = ending[2]
        self.done = ending[3] is not None
        self.frames = 3 if self.done else 2
        return True

    def events(self) -> list[Event]:
        """The events of a complete trailer."""
        ending = _ANY_ENDING.decode(self._ending)
        reason, sequence = ending.delta.stop_reason, ending.delta.stop_sequence
        return [
            BlockEnd(0, self._block),
            Finish(0, self.finish_reason, reason, sequence),
            UsageReport(self._merged(ending.usage, Sink())),
            End("completed"),
        ]

    def write(self, *, include_usage: bool) -> bytes:  # noqa: ARG002 - this API always reports usage
        """The provider's bytes."""
        return self.raw

    def _take(self, data: bytes) -> bool:
        """Take a `message_delta` if its usage, and that before it, have the usual members only."""
        before = self._usage
        try:
            ending = _USUAL_ENDING.decode(data)
        except ValueError:
            return False
        usage, tier, lifetimes = ending.usage, before.get("service_tier"), before.get("cache_creation")
        if not before.keys() <= _USUAL or not (tier is None or isinstance(tier, str)):
            return False
        hour = lifetimes.get("ephemeral_1h_input_tokens") or 0 if isinstance(lifetimes, dict) else 0
        fresh = usage.input_tokens or before.get("input_tokens")
        written = usage.cache_creation_input_tokens or before.get("cache_creation_input_tokens") or 0
        cached = usage.cache_read_input_tokens or before.get("cache_read_input_tokens") or 0
        if not (_is_count(fresh) and _is_count(written) and _is_count(cached) and _is_count(hour)):
            return False
        total = fresh + written + cached
        if hour > written or total + usage.output_tokens >= ABSURD_TOKENS:
            return False
        self.tokens = Tokens(
            input=total, output=usage.output_tokens, cached=cached, cache_write=written, cache_write_1h=hour
        )
        self.tier = tier
        self.finish_reason = FINISH_REASONS[ending.delta.stop_reason]
        return True

    def _take_any(self, data: bytes) -> bool:
        """Take a `message_delta` with any usage, by the code of the slow path."""
        if is_too_deep(data):
            return False
        try:
            ending = _ANY_ENDING.decode(data)
        except ValueError:
            return False
        defects = Sink()
        usage = self._merged(ending.usage, defects)
        tokens = Tokens.of_sound(usage)
        if (
            not ending.usage
            or tokens is None
            or not tokens.output
            or usage.others
            or usage.model
            or usage.tool_requests
        ):
            return False
        if defects.events:
            return False
        self.tokens = tokens
        self.tier = usage.tier
        self.finish_reason = FINISH_REASONS[ending.delta.stop_reason]
        return True

    def _merged(self, report: dict[str, object], defects: Sink) -> Usage:
        """The usage after this report, as the reader and the grammar make it."""
        before = self._before
        if before is None and self._usage:
            before = read_usage(self._usage, Sink(), self._model)
        usage = read_usage(merge(self._usage, report), defects, self._model)
        return (usage if before is None else before.updated(usage)).with_total()


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and value >= 0
