"""JsonMembers: edits top-level members of a JSON object, and leaves all other bytes as they are.

A request that is forwarded to a provider of the client's own dialect is not encoded again: that would reorder and
reformat it, lose what we do not know, and break signatures and cache keys. Members are replaced, added or removed;
every other byte stays as the client wrote it.

Most bodies are *regular*: no name occurs twice, and the white space between members is that of an encoder, none or that
of Python's `json.dumps`. Encoding the members of a regular body gives the same bytes, so it is edited by encoding them
with other values. In any other body the positions of the members follow from the lengths of the values, which the JSON
decoder returns: only the bytes *between* values are scanned.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

_VALUES = msgspec.json.Decoder(dict[str, Raw])
_OPENING = re.compile(rb"\s*\{\s*")
_KEY = re.compile(rb'"(?:[^"\\]|\\.)*"\s*:\s*', re.DOTALL)
# The maximum number of members that are located one by one, at some 10 microseconds each.
_MOST_SCANNED = 1_000
# Bytes of a body that is not encoded to find out whether it is regular.
_LARGE = 65_536
# Members of a body with spaces that is encoded: half a microsecond each.
_MOST_SPACED = 64
_BETWEEN = re.compile(rb"\s*,\s*")


class Member(Struct, frozen=True, gc=False):
    """One member: its name, where its key begins, and where its value begins and ends."""

    name: str
    key: int
    value: int
    end: int


class JsonMembers:
    """The members of a body. The body is not nested too deep. Raises `ValueError` if it is not a JSON object.

    `values` are the bytes of the values, by name. If a name occurs twice, the last value counts.
    """

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.values = _VALUES.decode(body)
        self.encode = _encoder(self.values, body)
        """Encodes its members to the same bytes; None if the body is not regular."""
        self._members: list[Member] | None = None

    @property
    def members(self) -> list[Member]:
        """All members, in the order of the body."""
        if self._members is None:
            self._members = self._located() or _scanned(self.body)
        return self._members

    @property
    def is_located(self) -> bool:
        """Whether each name occurs once, so that the members are located without decoding the body again."""
        if self._members is None:
            self._members = self._located() or None
        return self._members is not None

    def repeated(self) -> set[str]:
        """The names that occur more than once: two parsers could read such a body as two different requests."""
        if self.encode is not None:
            return set()
        if len(self.members) == len(self.values):
            return set()
        counts = Counter(member.name for member in self.members)
        return {name for name, count in counts.items() if count > 1}

    def edited(self, changes: Mapping[str, Raw | None]) -> bytes:
        """The body with these values in place of its own, and without the members whose value is None."""
        if (encode := self.encode) is not None:
            if changes.items() <= self.values.items():  # it has them already
                return self.body
            values = {**self.values, **changes}
            for name, change in changes.items():
                if change is None:
                    del values[name]
            return encode(values)
        body = self.body
        pieces: list[bytes] = []
        first, last = len(body), 0
        before: Member | None = None
        for member in self.members:
            first = min(first, member.key)
            last = member.end
            value = changes[member.name] if member.name in changes else body[member.value : member.end]
            if value is not None:
                if pieces:
                    pieces.append(body[before.end : member.key] if before is not None else b",")
                pieces += (body[member.key : member.value], value)
            before = member
        for name, value in changes.items():
            if value is not None and name not in self.values:
                pieces += (b"," if pieces else b"", msgspec.json.encode(name), b":", value)
        if not self.members:
            first = last = body.index(b"{") + 1
        return b"".join((body[:first], *pieces, body[last:]))

    def _located(self) -> list[Member]:
        """Locate the members by the lengths of their values; returns none if a name occurs twice."""
        body = self.body
        view = memoryview(body)
        members: list[Member] = []
        opening = _OPENING.match(body)
        position = opening.end() if opening is not None else 0
        for name, raw in self.values.items():
            if members:
                between = _BETWEEN.match(body, position)
                if between is None:
                    return []
                position = between.end()
            key = _KEY.match(body, position)
            value = memoryview(raw)
            size = len(value)
            if key is None or view[key.end() : key.end() + size] != value:
                return []
            members.append(Member(name, key.start(), key.end(), key.end() + size))
            position = key.end() + size
        return members if body[position:].strip() == b"}" else []


def _encoder(values: Mapping[str, Raw], body: bytes) -> Callable[[Mapping[str, Any]], bytes] | None:
    """What encodes these members to the body; None if nothing does."""
    if _is_compact(values, body):
        return msgspec.json.encode
    spaced = len(body) <= _LARGE and len(values) <= _MOST_SPACED and _encode_spaced(values) == body
    return _encode_spaced if spaced else None


def _encode_spaced(values: Mapping[str, Any]) -> bytes:
    """Encode members with the spaces that Python's `json.dumps` writes."""
    encode = msgspec.json.encode
    return b"{%b}" % b", ".join([b"%b: %b" % (encode(name), value) for name, value in values.items()])


def _is_compact(values: Mapping[str, Raw], body: bytes) -> bool:
    """Whether encoding these members without white space gives the body.

    Encoding a large body takes long. Its length is enough: the values are those of the body, so white space, a repeated
    name or another way to write a name makes the body longer. Only a name with a backslash may have as many bytes.
    """
    if len(body) > _LARGE:
        names = msgspec.json.encode(dict.fromkeys(values, Raw()))
        if b"\\" not in names:
            return len(names) + sum(memoryview(value).nbytes for value in values.values()) == len(body)
    return msgspec.json.encode(values) == body


def _scanned(body: bytes) -> list[Member]:
    """Locate the members of any body, also with repeated names, by decoding it again."""
    text = body.decode()
    decoder = json.JSONDecoder(parse_int=str, parse_float=str)  # of any length
    members: list[Member] = []
    # Offsets count characters here. `place` converts them to bytes.
    place = _ByteOffset(text)
    position = _end_of(r"\s*\{\s*", text, 0)
    while text[position] != "}":
        if members:
            position = _end_of(r"\s*,\s*", text, position)
        name, end = decoder.raw_decode(text, position)
        value = _end_of(r"\s*:\s*", text, end)
        _, after = decoder.raw_decode(text, value)
        members.append(Member(name, place.to(position), place.to(value), place.to(after)))
        if len(members) > _MOST_SCANNED:
            raise ValueError(f"it has more than {_MOST_SCANNED} members, and some of them twice")
        position = after if text[after] == "," else _end_of(r"\s*", text, after)
    return members


class _ByteOffset:
    """Converts offsets in characters to offsets in bytes. Each offset must be at least the one before."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._characters = self._bytes = 0

    def to(self, character: int) -> int:
        self._bytes += len(self._text[self._characters : character].encode())
        self._characters = character
        return self._bytes


def _end_of(pattern: str, text: str, position: int) -> int:
    match = re.compile(pattern).match(text, position)
    return match.end() if match is not None else position
