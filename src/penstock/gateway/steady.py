"""SteadyRelay: a relay with a shortcut past the parser, for what comes in HTTP chunks and is what it is expected to be.

First the usual beginning and the first words, by the habit of the target (`_begin`, `_take_first`); then chunks that
are all cast in one mould (`_take_steady`), which go on as they came; at last the usual ending (`_hold`). Whatever is
anything else goes back to the parser, which stands where the shortcut began. So nothing is lost by trying.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence

from penstock.core.dialects.openai_chat.mould import Mould
from penstock.gateway.gaps import BOUNDS
from penstock.gateway.relay import Relay

# No read of a socket has more bytes.
_LONGEST_READ = 262_144


class SteadyRelay(Relay):
    """Relays a steady stream by its bytes, and any other as a relay does."""

    # What reads chunks that need no parser, and what sends them on.
    _read_chunk: Callable[[bytes], int]
    _write_chunk: Callable[[bytes], None]

    def _chunks(self) -> Sequence[bytes]:
        """What came now, by HTTP chunks, if a shortcut may lead past the parser; nothing if not."""
        connection = self._connection
        if connection is None or self._tape is not None or self._answer is not None or self._call.on_text is not None:
            return ()
        if not self._forwards:
            return ()
        return connection.chunks if self._reader.max_event >= _LONGEST_READ else ()

    def _begin(self) -> bool:
        """Take the usual beginning, and the first words behind it if they have come: each in an HTTP chunk of its own.

        If it is so, nobody needs to be told what it says.
        """
        chunks = self._chunks()
        if not 1 <= len(chunks) <= 2 or self._attempt.transcript is not None:
            return False
        first, words = chunks if len(chunks) == 2 else (chunks[0], b"")
        beginning = self._reader.begin(first, b"%x\r\n%b\r\n" % (len(words), words) if words else b"")
        if beginning is None:
            return False
        self._see_first()
        attempt, start = self._attempt, beginning.start
        attempt.response_id, attempt.response_model = start.id, start.model
        attempt.report_tier(beginning.told.get("service_tier"))
        self._writer.note(beginning.events)
        self._held = first
        if words:
            self._say_first(words, beginning.mould, beginning.said)
        elif self._connection is not None:
            self._connection.shortcut = self._take_first
        return True

    def _offer_shortcut(self) -> None:
        """The stream is steady. What comes in the same HTTP chunks and the same mould needs no parser any more."""
        connection, mould = self._connection, self._reader.mould
        if connection is None or mould is None or not self._chunks():
            return
        if self._phase == "waiting":
            connection.shortcut = self._take_first
        else:
            self._go_steady(mould)

    def _go_steady(self, mould: Mould) -> None:
        """Take the shortcut for what is cast in a mould, if it may go on in chunks."""
        write, connection = self._client.chunk_writer(), self._connection
        if write is None or connection is None:
            return
        self._keep_in(mould)
        self._read_chunk = mould.read_chunk
        self._write_chunk = write
        connection.shortcut = self._take_steady

    def _keep_in(self, mould: Mould) -> None:
        """Keep the text of what is cast in a mould, where that is wanted."""
        kept = self._attempt.transcript
        mould.keep = len if kept is None else kept.writer(mould.said(""))

    def _take_first(self, chunk: bytes) -> None:
        """The first words, if they are cast in the mould that was expected: the answer is committed."""
        mould = self._reader.mould
        size = 0
        if mould is not None and self._call.on_text is None:
            self._keep_in(mould)
            size = mould.read_chunk(chunk)
        if mould is None or not size:
            self._give_back(chunk)
            return
        self._advance()
        self._say_first(chunk[chunk.index(b"\n") + 1 : -len(b"\r\n")], mould, size)

    def _say_first(self, words: bytes, mould: Mould, size: int) -> None:
        """The first words, of so many characters: what was held goes out with them."""
        self._commit()
        self._client.write(self._held + words)
        self._held = b""
        self._go_steady(mould)
        self._count(size)

    def _take_steady(self, chunk: bytes) -> None:
        """More words, if they are cast in the mould of those before.

        Nearly every event there is comes here: so what `_advance` and `_count` do is written out.
        """
        if self._call.on_text is not None:
            self._give_back(chunk)  # who reads along is told by the parser's lane
            return
        size = self._read_chunk(chunk)
        if not size:
            self._hold(chunk)
            return
        now = self._loop.time()
        gap = now - self._progress
        self._progress = now
        gaps = self._gaps
        gaps.counts[bisect_left(BOUNDS, gap)] += 1
        if gap > gaps.notable_s:
            gaps.note(gap, now - gap - self._begun)
        self._write_chunk(chunk)
        attempt = self._attempt
        attempt.said = said = attempt.said + size
        if said >= attempt.due:
            self._count(0)

    def _hold(self, chunk: bytes) -> None:
        """Take a chunk of the usual ending, behind those that were cast in the mould, without the parser too."""
        data = chunk[chunk.find(b"\n") + 1 : -len(b"\r\n")]
        whole = chunk == b"%x\r\n%b\r\n" % (len(data), data)
        tail, connection = self._reader.hold(data) if whole else None, self._connection
        if tail is None or connection is None:
            self._give_back(chunk)
            return
        # No text may follow. What comes behind the usage comes with the end of the body, which is the parser's.
        connection.shortcut = self._hold if tail.tokens is None else None
        self._hear_end(tail)

    def _give_back(self, read: bytes) -> None:
        """Leave the shortcut: the parser has to look at this read."""
        connection = self._connection
        if connection is not None:
            connection.shortcut = None
            connection.data_received(read)
