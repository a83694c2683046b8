"""Citations in the Gemini dialect: grounding and citation metadata → `Annotation`.

`groundingMetadata` has a list of sources, and a list of passages that refer to them by number. `citationMetadata` lists
passages with their source. Both name passages by their position in the whole text, in bytes of UTF-8; the hub counts
the characters of one block.
"""

from itertools import chain, islice

from penstock.core.dialects.gemini.members import member
from penstock.core.hub.events import Annotation, Extra
from penstock.core.hub.sink import Sink
from penstock.core.json.getters import integer_of, list_of, object_of, objects_of, text_of

# More than a real answer has: each citation becomes one event.
_MAX_CITATIONS = 500
# The bytes of UTF-8 that begin no character.
_CONTINUATION = bytes(range(0x80, 0xC0))
_SOURCES = ("web", "retrievedContext", "maps")


class TextBlocks:
    """The texts of one candidate, by block."""

    def __init__(self) -> None:
        self._pieces: dict[int, list[str]] = {}

    def add(self, block: int, text: str) -> None:
        """Add text to a block."""
        self._pieces.setdefault(block, []).append(text)

    def data(self) -> list[tuple[int, bytes]]:
        """Each block and its text, in UTF-8."""
        return [(block, "".join(pieces).encode(errors="surrogatepass")) for block, pieces in self._pieces.items()]

    @property
    def last(self) -> int | None:
        """The number of the last block with text."""
        return next(reversed(self._pieces), None)


def read_citations(
    metadata: dict[str, object], choice: int, texts: TextBlocks, seen: set[tuple[object, ...]], sink: Sink
) -> None:
    """Emit the citations in the metadata of a candidate. `seen` are those of earlier messages."""
    grounding, cited = object_of(member(metadata, "groundingMetadata")), object_of(member(metadata, "citationMetadata"))
    found: list[tuple[str, str, dict[str, object], dict[str, object]]] = []
    chunks = objects_of(member(grounding, "groundingChunks"))
    supports = objects_of(member(grounding, "groundingSupports"))
    named = [list_of(member(support, "groundingChunkIndices")) for support in supports]
    if [] in named:
        sink.events.append(Extra("event", {"type": "passage without a source"}))
    if set(map(text_of, chain.from_iterable(named))) != set(map(str, range(len(chunks)))):
        sink.events.append(Extra("event", {"type": "source without a passage"}))
    for support in supports:
        for number in list_of(member(support, "groundingChunkIndices")):
            if isinstance(number, int) and 0 <= number < len(chunks):
                url, title = _source(chunks[number])
                found.append((url, title, object_of(support.get("segment")), support))
    for name in ("citationSources", "citations"):
        found += [
            (text_of(each.get("uri")), text_of(each.get("title")), each, each)
            for each in objects_of(member(cited, name))
        ]
    new = [each for each in islice(found, _MAX_CITATIONS) if (each[0], *_range(each[2])) not in seen]
    if not new or len(seen) > _MAX_CITATIONS:
        return
    places = _places(texts, {position for each in new for position in _range(each[2])})
    for url, title, segment, native in new:
        start, end = _range(segment)
        seen.add((url, start, end))
        first, last = places.get(start), places.get(end)
        quote = text_of(segment.get("text"))
        if start < end and first is not None and last is not None and first[0] == last[0]:
            sink.events.append(Annotation(choice, first[0], url, title, quote, first[1], last[1], native))
        elif texts.last is not None:
            sink.events.append(Annotation(choice, texts.last, url, title, quote, data=native))
        else:
            sink.events.append(Extra("event", {"type": "citation without text"}))


def _range(segment: dict[str, object]) -> tuple[int, int]:
    """The first and the last byte of a passage; 0 is the default value, which the API leaves out."""
    start, end = (integer_of(member(segment, name)) or 0 for name in ("startIndex", "endIndex"))
    return start, end


def _places(texts: TextBlocks, positions: set[int]) -> dict[int, tuple[int, int]]:
    """By position in the whole text: the block there, and the number of characters of the block before it."""
    places: dict[int, tuple[int, int]] = {}
    waiting = sorted(positions, reverse=True)
    before = 0
    for block, data in texts.data():
        position = characters = 0
        while waiting and waiting[-1] <= before + len(data):
            next = max(waiting.pop() - before, 0)
            characters += len(data[position:next].translate(None, _CONTINUATION))
            position = next
            places[before + next] = (block, characters)
        before += len(data)
    return places


def _source(chunk: dict[str, object]) -> tuple[str, str]:
    """The address and the title of a source."""
    for name in _SOURCES:
        source = object_of(member(chunk, name))
        if source:
            return text_of(source.get("uri")), text_of(source.get("title"))
    return "", ""
