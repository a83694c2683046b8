"""Scrubbing: secrets become stars of the same length, also where one is spread over several reads.

What a secret may look like is `gateway/mask.py`'s to say.
"""

from codecs import utf_8_decode

from penstock.capture import Read
from penstock.gateway.mask import TELLING, Secrets

# Held back at most: so many bytes for each character of a secret. Escapes in escapes are long, but not that long.
_MOST_FOR_EACH = 32


class Scrubber:
    """Reads without secrets. What may be the beginning of one is held back until it is known."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._most = secrets.longest * _MOST_FOR_EACH
        self._held: list[Read] = []

    def feed(self, read: Read) -> list[Read]:
        """Take in a read; return those that are safe, in their order and of their size."""
        self._held.append(read)
        data = b"".join(held.data for held in self._held)
        text, size = utf_8_decode(data, "surrogateescape", False)  # a character that is not whole yet waits too
        begun = self._secrets.begun(text)
        safe = size if begun == len(text) else _size(text[:begun])
        if len(data) - safe > self._most:
            return self.close()
        # Those behind may be longer than they seem by now. Of these a part may be released, and the rest be held.
        spans = [span for span in self._secrets.spans(text) if span[0] < begun]
        if spans:
            data = _starred(text, spans) + data[size:]
        return self._release(data, safe)

    def close(self) -> list[Read]:
        """Nothing more comes: return what was held."""
        text = b"".join(held.data for held in self._held).decode(errors="surrogateescape")
        begun = self._secrets.begun(text, TELLING)
        data = _starred(text, sorted([*self._secrets.spans(text), (begun, len(text))]))
        return self._release(data, len(data))

    def _release(self, data: bytes, safe: int) -> list[Read]:
        """Put masked data back into its reads; those that end beyond what is safe stay."""
        reads, released, start = self._held, 0, 0
        for number, read in enumerate(reads):
            end = start + len(read.data)
            reads[number] = Read(read.at_s, data[start:end])
            released += end <= safe
            start = end
        self._held = reads[released:]
        return reads[:released]


def scrubbed(data: bytes, secrets: Secrets) -> bytes:
    """The data with stars where a secret was."""
    text = data.decode(errors="surrogateescape")
    spans = secrets.spans(text)
    return _starred(text, spans) if spans else data


def _starred(text: str, spans: list[tuple[int, int]]) -> bytes:
    pieces, at = [], 0
    for start, end in spans:
        pieces += [text[at:start], "*" * _size(text[max(start, at) : end])]
        at = max(at, end)
    return "".join([*pieces, text[at:]]).encode(errors="surrogateescape")


def _size(text: str) -> int:
    return len(text.encode(errors="surrogateescape"))
