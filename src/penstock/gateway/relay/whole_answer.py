"""WholeAnswer: an unstreamed answer, which the client gets when it is complete.

It is collected from the same events as a stream, and written anew. If the client speaks the provider's dialect, and
nothing between reader and writer needs the events, a healthy body takes a shorter way: its pieces are kept until its
end, the dialect's typed decoders read it (`TextFormat.read_body`), and the client gets it as it came, but for members
that the gateway sets. Of a body that they refuse, the reader gets the same pieces, one after the other.
"""

import re

from penstock.core.fast.format import PlainBody, TextFormat
from penstock.core.hub.completion import Accumulator
from penstock.core.hub.events import Event
from penstock.core.hub.failure import Failure
from penstock.core.stream import EventReader, StreamReader
from penstock.core.stream_writer import StreamWriter
from penstock.gateway.record.call import Call
from penstock.gateway.relay.answer_events import new_losses
from penstock.gateway.relay.ports import Client

# In bytes. Far above answers without media, and so little that decoding it delays no other call.
_MAX_KEPT = 262_144
# As integers, which `in` finds faster.
_CR, _LF = b"\r\n"
_BLANK_LINE = re.compile(rb"\n[ \t]*\n")


class WholeAnswer:
    """The answer of one attempt, for a client that is not streamed to."""

    _size = 0  # of the pieces that are kept

    def __init__(self, call: Call, client: Client, reader: EventReader, writer: StreamWriter) -> None:
        self.client = client
        self._call = call
        self._writer = writer
        self._collected = Accumulator()
        self._pieces: list[bytes] = []
        # While it is set, pieces of the body are kept.
        self._format: TextFormat | None = None
        if isinstance(reader, StreamReader) and reader.dialect == writer.dialect:
            self._format = reader.format

    # The body as it came.

    def hold(self, data: bytes, *, last: bool) -> bool:
        """Hold a piece of the body; `last`: the body ends there. False if the reader must have it, and before it what
        is kept, because they may be events that come one by one."""
        if self._format is None:
            return False
        self._size += len(data)
        begins = self._pieces or data.startswith(b"{")
        if not begins or self._size > _MAX_KEPT or (not last and data.endswith(b"\n")):
            return False
        self._pieces.append(data)
        return True

    def take_kept(self) -> list[bytes]:
        """The pieces that are kept, which the reader must have now. No more are kept."""
        kept, self._pieces, self._format = self._pieces, [], None
        return kept

    def plain_body(self) -> PlainBody | None:
        """What is booked of the body, if all of it is kept and it is healthy."""
        if self._format is None:
            return None
        if len(self._pieces) != 1:
            self._pieces = [b"".join(self._pieces)]
        body = self._pieces[0]
        if _CR in body or (_LF in body and _BLANK_LINE.search(body)):
            return None  # to the framing these are events
        return self._format.read_body(body)

    def forward(self, plain: PlainBody) -> bytes:
        """The kept body for the client."""
        return self._writer.forward_body(self._pieces[0], plain.changes)

    # The body as it is written from events.

    def write(self, events: list[Event]) -> Failure | None:
        """Collect events. None: what is lost is known at the end."""
        self._collected.extend(self._writer.passed_on(events))
        return None

    def finish(self, events: list[Event]) -> bytes | Failure:
        """The body, after the last events; the failure if the call is strict and a loss changes the meaning."""
        self._collected.extend(self._writer.passed_on(events))
        body = self._writer.write_body(self._collected.completion)
        return new_losses(self._call, self._writer) or body

    def end(self, body: bytes) -> None:
        """Send the answer."""
        self.client.answer(body)
