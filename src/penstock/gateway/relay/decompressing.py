"""DecompressingReceiver: decompresses an answer that a provider has compressed although that was not requested.

It stands between the connection and the relay: to the connection it is the receiver, and to the relay the connection.
Only a compressed answer has one, so other answers cost nothing more.

The body is decompressed in small steps, one per iteration of the event loop, and not while the relay is paused.
Meanwhile nothing more is read from the provider. So a decompression bomb neither fills the memory nor blocks the event
loop. The end of the body, or its failure, follows the last piece.
"""

import asyncio
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Protocol

from penstock.core.hub.events import Ending
from penstock.core.hub.failure import Failure
from penstock.core.slow_path import MAX_BODY
from penstock.error_codes import ErrorCode
from penstock.gateway.record.call import Call
from penstock.gateway.record.failure import from_transport
from penstock.gateway.relay.ports import Connection
from penstock.http.decompression import Decompressor
from penstock.http.upstream_connection import Receiver, ReceiverError, UpstreamError


class DecompressedReceiver(Receiver, Protocol):
    """The relay, as it is used here."""

    @property
    def frames(self) -> int:
        """How many frames have come so far."""

    @property
    def over(self) -> bool:
        """Whether the attempt has ended."""

    def cancel(self, failure: Failure, ending: Ending) -> None:
        """End the attempt."""


class DecompressingReceiver:
    """Decompresses a body and passes it to a relay. The relay must satisfy `can_decompress` before it makes one."""

    on_chunk: Callable[[bytes, bytes], bool] | None = None
    aligned_chunks: Sequence[bytes] = ()
    _pieces: Iterator[bytes] | None = None  # decompresses as it is iterated; None if no bytes wait
    _then: Callable[[], None] | None = None  # handles the end of the body, after the last piece
    _handle: asyncio.Handle | None = None
    _frames = _unframed = 0  # the frames so far, and the decompressed bytes since the last one

    def __init__(
        self, coding: str, call: Call, relay: DecompressedReceiver, connection: Connection, *, paused: bool
    ) -> None:
        self._call = call
        self._decompressor = Decompressor(coding)
        self._relay = relay
        self._connection: Connection | None = connection  # until the body has ended
        self._paused = paused

    # Called by the connection.

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Pass the head on."""
        self._relay.on_head(status, headers)

    def on_data(self, data: bytes, *, last: bool = False) -> None:  # noqa: ARG002 - more than one piece may follow
        """Take a piece of the compressed body."""
        pieces = self._decompressor.pieces(data)
        if self._pieces is None:
            self._pieces = pieces
            self._pass_on()
        else:
            self._pieces = chain(self._pieces, pieces)

    def on_end(self) -> None:
        """Pass the end of the body on."""
        self._end(self._relay.on_end)

    def on_error(self, error: UpstreamError) -> None:
        """Pass a failure of the connection on; an exception of ours at once."""
        if isinstance(error, ReceiverError):
            self._relay.on_error(error)
        else:
            self._end(partial(self._relay.on_error, error))

    def _end(self, then: Callable[[], None]) -> None:
        self._connection = None  # the pool may use it for another call already
        if self._pieces is None:
            then()
        else:
            self._then = then

    # Called by the relay.

    def pause(self) -> None:
        """Stop reading until `resume`."""
        self._paused = True
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        """Continue with the pieces that wait, or read again."""
        self._paused = False
        if self._pieces is not None:
            self._pass_on_soon()
        elif self._connection is not None:
            self._connection.resume()

    def redirect(self, receiver: Receiver) -> None:
        """Deliver the rest of the response to another receiver."""
        if self._connection is not None:
            self._connection.redirect(receiver)

    def abandon(self, receiver: Receiver) -> None:
        """The attempt has ended."""
        connection, self._connection, self._pieces = self._connection, None, None
        if connection is not None:
            connection.abandon(self if receiver is self._relay else receiver)

    def _pass_on(self) -> None:
        """Decompress the next piece and pass it on. The rest follows after the loop has served other calls."""
        self._handle = None
        if self._pieces is None or self._paused:
            return
        piece = b""
        try:
            piece = next(self._pieces, b"")
        except zlib.error as error:
            self._fail("upstream_bad_response", f"the answer cannot be decompressed: {error}")
        if piece and self._may_hold_event(piece):
            self._relay.on_data(piece)
        if piece and not self._relay.over:
            if self._connection is not None:
                self._connection.pause()
            self._pass_on_soon()
            return
        self._pieces = None
        if self._connection is not None and not self._paused:
            self._connection.resume()
        then, self._then = self._then, None
        if then is not None:
            then()

    def _pass_on_soon(self) -> None:
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_soon(self._call.guarded(self._pass_on))

    def _may_hold_event(self, piece: bytes) -> bool:
        """Whether the decompressed bytes since the last event may be one. If not, the attempt fails.

        A few kilobytes decompress to gigabytes of blank lines or comments, which take minutes to read.
        """
        frames = self._relay.frames
        self._unframed = self._unframed + len(piece) if frames == self._frames else len(piece)
        self._frames = frames
        if self._unframed > MAX_BODY:
            self._fail("upstream_event_too_large", f"the answer has more than {MAX_BODY} bytes without an event")
            return False
        return True

    def _fail(self, code: ErrorCode, message: str) -> None:
        self._relay.cancel(from_transport(code, message), "failed")
