"""FrameReader: the base of the readers of all dialects. It reads what is no event of the dialect, or not one in JSON.

A dialect derives from it, and reads the events of an answer in `read`. Everything else is the same in all APIs, and is
read here: halves of surrogate pairs, JSON that is not an object, data that is not JSON (`read_odd` and
`read_undecodable`, which the slow path calls); errors, heartbeats, events of other APIs, and unknown events:

    def read(self, value: dict[str, object], event: str) -> None:
        ...                                     # the events of the dialect
        self.read_unknown(value, event)         # all others
"""

import re
from abc import ABC, abstractmethod

from penstock.core.fast.format import StreamTrailer, TextEvent
from penstock.core.hub.events import Extra
from penstock.core.hub.grammar import Grammar
from penstock.core.hub.sink import Sink
from penstock.core.hub.text import TextPath, whole, whole_json, whole_json_except
from penstock.core.json.getters import object_of, shown, text_of
from penstock.core.provider_errors.error_shapes import is_heartbeat, read_error

# The maximum length of a sentinel or a heartbeat. A longer text, which may be a megabyte, is not compared with them.
_MAX_WORD = 80
EVENT_NAME = re.compile(r"[\w.-]{1,100}", re.ASCII)
"""The types of unknown events that may be written again as the name of an event: another one could write frames."""


class FrameReader(ABC):
    """Reads the JSON of one stream, frame by frame, and puts its events into the sink that it was made with.

    It emits events in the order in which it reads them. `core/hub/grammar.py` puts them into legal order.
    """

    title: str
    """The name of the dialect for people."""
    noun = "event"
    """What the dialect calls a frame."""
    done = False
    """Whether the provider has sent the end of the stream."""
    unread = ""
    """The beginning of the first frame that was of no known kind; empty if there was none."""
    sentinel = ""
    """The text that the dialect sends in place of JSON at the end, such as `[DONE]`; empty if it has none."""
    marks_end = True
    """Whether every complete stream says that nothing more will come: by the sentinel, or by an event of its own."""
    finish_is_last = True
    """Whether nothing of an answer follows its finish reason: then a stream that is cut off behind it is complete."""
    envelope: tuple[str, ...] = ()
    """The fields of `Start` that every answer of the dialect has."""
    limits_pieces = False
    """Whether the reader itself limits how many pieces of an answer it makes of one event; if not,
    `core/wire/complexity.py` counts them before the event is read."""
    texts: frozenset[TextPath] = frozenset()
    """Where the texts are that the next event may continue. Half of a surrogate pair at the end of one stays in it."""
    foreign_types: tuple[str, ...] = ("response.", "message_", "content_block_")
    """How the types of events begin that belong to other APIs."""
    foreign_members: tuple[str, ...] = ("choices", "candidates")
    """Members that only events of other APIs have."""
    keeps_unknown = True
    """Whether every unknown event is kept as an extra."""
    _surrogates = False  # whether texts may contain halves of surrogate pairs

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    @abstractmethod
    def read(self, value: dict[str, object], event: str) -> None:
        """Read the JSON object of one frame. `event` is the name of its SSE event, empty if it has none."""

    def flush(self) -> None:  # noqa: B027
        """Emit everything that is buffered: the rest of it will not be read. Nothing, unless a dialect buffers."""

    def close(self) -> None:
        """Emit everything that is buffered: no more frames will come."""
        self.flush()

    def read_undecodable(self, data: bytes, event: str) -> None:
        """Read the data of a frame that is not JSON, such as the sentinel."""
        text = data.decode(errors="replace").strip()
        word = text.strip("[]") if len(text) <= _MAX_WORD else ""
        if text == "[DONE]":
            self._sink.repair("done-unexpected")
        elif event == "error":
            self._fail("provider-error", text[:500] or "an error event without data")
        elif not text or is_heartbeat(event) or is_heartbeat(word):
            named = text or is_heartbeat(event)
            self._sink.repair("keepalive-event" if named else "empty-event", event or text[:80])
        elif self.done:
            self._sink.repair("data-after-done", text[:80])  # garbage after a complete answer
        else:
            self._fail("bad-json", text[:500])

    def read_odd(self, value: object, event: str, *, surrogates: bool = False) -> None:
        """Read JSON that is not an object, or that may have halves of surrogate pairs in its strings."""
        self._surrogates = self._surrogates or surrogates
        if isinstance(value, list) and value and event != "error" and all(isinstance(item, dict) for item in value):
            for item in value:
                self.read_odd(item, event, surrogates=surrogates)
        elif isinstance(value, dict):
            texts = self._open_texts(value)
            self.read(object_of(whole_json_except(value, texts, self._sink)) if surrogates else value, event)
        else:
            self._read_other(whole_json(value, self._sink) if surrogates else value, event)

    def read_unknown(self, value: dict[str, object], event: str) -> bool:
        """Read an error, a heartbeat, an event of another API, or an unknown event; return whether it is unknown."""
        kind = text_of(value.get("type")) or event
        if (error := read_error(value, event)) is not None:
            self._report(error)
        elif kind.startswith(self.foreign_types) or not value.keys().isdisjoint(self.foreign_members):
            self._fail("other-dialect", f"this is no {self.noun} of the {self.title} dialect: {shown(value)}")
        elif is_heartbeat(kind) or not value:
            self._sink.repair("keepalive-event", kind)
        else:
            self._sink.repair("event-unknown", kind or shown(value))
            if self.keeps_unknown and (not kind or EVENT_NAME.fullmatch(kind)):  # writers write it into a line
                self._sink.events.append(Extra("event", {**value, "type": kind}))
            self.unread = self.unread or shown(value)
            return True
        return False

    # The fast path (`core/fast/__init__.py`), for dialects that have one.

    def read_usual(self, data: bytes) -> bool:  # noqa: ARG002
        """Read the data of one frame by typed decoders, if it is one healthy delta and nothing else; or do nothing.

        It is called while the grammar expects text. Returns whether it was read."""
        return False

    def follow_text(self, delta: TextEvent, last: bytes) -> None:  # noqa: B027
        """Continue after text deltas that the fast path has read, all of the choice and kind of `delta`.

        `delta` has their text if the format says so (`TextFormat.keeps_text`). `last` is the JSON of the last one."""

    def trailer(self, grammar: Grammar) -> StreamTrailer | None:  # noqa: ARG002
        """An empty trailer for a stream that expects text; None if the stream cannot have the usual ending."""
        return None

    def _open_texts(self, value: dict[str, object]) -> frozenset[TextPath]:  # noqa: ARG002
        """Where this object has texts that the next event may continue."""
        return self.texts

    def _read_other(self, value: object, event: str) -> None:
        """Read JSON that is neither an object nor a list of objects."""
        if event == "error":
            self._fail("provider-error", f"{value or 'an error event without data'!s:.500}")
        elif isinstance(value, list) and value:
            self._fail("bad-shape", f"an event is a list: {shown(value)}")
        else:
            self._sink.repair("empty-event", shown(value))

    def _report(self, error: tuple[str, dict[str, object]]) -> None:
        """Emit an error of the provider, without halves of surrogate pairs that were left for a later event."""
        words, provider = error
        self._fail("provider-error", whole(words, self._sink), object_of(whole_json(provider, self._sink)))

    def _fail(self, code: str, message: str, provider: dict[str, object] | None = None) -> None:
        """Emit that the stream has failed."""
        self._sink.fault(code, message, provider)
