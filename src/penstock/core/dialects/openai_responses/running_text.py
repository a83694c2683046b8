"""RunningText: what has arrived of a text, as its length and checksum, to compare with the whole text at its end.

Dialects that repeat a text as a whole behind its deltas need this: what the deltas lack is the rest of the whole. The
text itself is not kept, so the memory of one stream stays small.
"""

from zlib import crc32

from msgspec import Struct


class RunningText(Struct):
    """The length (in bytes of UTF-8) and the checksum of a text so far."""

    size: int = 0
    checksum: int = 0

    def add(self, data: bytes) -> None:
        """Count more of the text."""
        self.size += len(data)
        self.checksum = crc32(data, self.checksum)

    def rest_of(self, whole: str) -> str | None:
        """What the whole text has beyond the text so far; None if it does not begin with that text."""
        data = whole.encode(errors="surrogatepass")
        if len(data) < self.size or crc32(data[: self.size]) != self.checksum:
            return None
        try:
            return data[self.size :].decode(errors="surrogatepass")
        except UnicodeDecodeError:
            return None
