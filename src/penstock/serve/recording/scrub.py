"""Scrubbing: replaces secrets by asterisks of the same length, even if a secret is split over several reads.

`gateway/mask.py` defines in which encoded forms a secret is recognised.
"""

from codecs import utf_8_decode

from penstock.capture import Read
from penstock.gateway.mask import MIN_PREFIX, Secrets

# At most so many bytes are retained per character of a secret. Nested escapes are long, but not that long.
_MAX_BYTES_PER_CHAR = 32


class Scrubber:
    """Masks secrets in a sequence of reads. Retains bytes that may be the start of a secret until that is decided."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._most = secrets.longest * _MAX_BYTES_PER_CHAR
        self._retained: list[Read] = []

    def feed(self, read: Read) -> list[Read]:
        """Add a read. Returns the reads that are safe to write, in order and with their sizes."""
        self._retained.append(read)
        data = b"".join(read.data for read in self._retained)
        text, size = utf_8_decode(data, "surrogateescape", False)  # an incomplete character is retained too
        partial_at = self._secrets.partial_at(text)
        safe = size if partial_at == len(text) else _size(text[:partial_at])
        if len(data) - safe > self._most:
            return self.close()
        # Spans that start later may still grow. A part of the spans before `partial_at` may be released now.
        spans = [span for span in self._secrets.spans(text) if span[0] < partial_at]
        if spans:
            data = _masked(text, spans) + data[size:]
        return self._release(data, safe)

    def close(self) -> list[Read]:
        """Returns the retained reads: there are no more."""
        text = b"".join(read.data for read in self._retained).decode(errors="surrogateescape")
        partial_at = self._secrets.partial_at(text, MIN_PREFIX)
        data = _masked(text, sorted([*self._secrets.spans(text), (partial_at, len(text))]))
        return self._release(data, len(data))

    def _release(self, data: bytes, safe: int) -> list[Read]:
        """Split masked data into its reads again. Reads that end after `safe` are retained."""
        reads, released, start = self._retained, 0, 0
        for number, read in enumerate(reads):
            end = start + len(read.data)
            reads[number] = Read(read.at_s, data[start:end])
            released += end <= safe
            start = end
        self._retained = reads[released:]
        return reads[:released]


def scrubbed(data: bytes, secrets: Secrets) -> bytes:
    """The data with every secret replaced by asterisks."""
    text = data.decode(errors="surrogateescape")
    spans = secrets.spans(text)
    return _masked(text, spans) if spans else data


def _masked(text: str, spans: list[tuple[int, int]]) -> bytes:
    pieces, at = [], 0
    for start, end in spans:
        pieces += [text[at:start], "*" * _size(text[max(start, at) : end])]
        at = max(at, end)
    return "".join([*pieces, text[at:]]).encode(errors="surrogateescape")


def _size(text: str) -> int:
    return len(text.encode(errors="surrogateescape"))
