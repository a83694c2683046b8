"""Habit: how the answers of one target begin, learnt from one of them.

The first chunk of an answer is that of the answer before, but for its id, the second in which it was made, what made it
and some padding; and so are the chunks of its first words. Once that is proved of one answer, the beginning of the next
one is read by its bytes, and the mould of its words (`openai_chat/mould.py`) is known before they come. An answer that
begins so, and goes on so, needs no framer, no decoder and no grammar.
"""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import structs

from penstock.core.dialects.openai_chat.mould import Mould
from penstock.core.dialects.openai_chat.plain import HEAD_CHUNK, PLAIN_CHUNK, HeadChunk, PlainChunk, extras_of
from penstock.core.events import ChoiceStart, Event, Extra, ReasoningDelta, Start, TextDelta

_Chunk = TypeVar("_Chunk", HeadChunk, PlainChunk)
# What is another one in each answer, and what may stand there: nothing that could end a JSON string, or a number.
_KINDS = {
    "id": rb"[\w.:-]{1,128}",
    "made": rb"[1-9][0-9]{8,10}",
    "maker": rb"[\w.:-]{1,128}",
    "padding": rb"[0-9A-Za-z]+",
}
# Others of their kinds, to try with.
_OTHERS = {"id": b"other-id", "made": b"1234567890", "maker": b"fp_other", "padding": b"padding"}
# A habit is kept for each of many targets. Compiling its pattern takes a microsecond and ten bytes for each byte.
_LONGEST = 4_096
# So often must a habit have been met to be learnt anew as soon as it changes.
_WORTH_IT = 16


class Beginning(NamedTuple):
    """The usual beginning of an answer: what it says, the mould of what follows it, and how many bytes it has.

    `extras` are those of the stream, which change as it goes on; `told` are those that it begins with.
    """

    start: Start
    told: dict[str, object]
    choice: ChoiceStart
    extras: dict[str, object]
    mould: Mould
    size: int
    said: int
    """Characters of the words behind it, where it was read with them."""

    @property
    def events(self) -> list[Event]:
        """What it says."""
        if self.told:
            return [self.start, Extra("chunk", self.told), self.choice]
        return [self.start, self.choice]


class Habit:
    """How the answers of one target begin, as far as it is known."""

    __slots__ = ("_known", "_met", "_missed")

    def __init__(self) -> None:
        self._known: _Known | None = None
        self._met = self._missed = 0

    def read(self, data: bytes, words: bytes = b"") -> Beginning | None:
        """The beginning of an answer, if it is the one that is known. More may stand behind it.

        `words` is the HTTP chunk that follows it, where there is one, and must be cast in the mould that is expected.
        """
        known = self._known
        found = known.pattern.match(data) if known is not None else None
        if known is None or found is None:
            return None
        id, made, maker, padding = found.group("id", "made", "maker", "padding")
        extras = known.extras.copy()
        if maker:
            extras["system_fingerprint"] = maker.decode()
        if padding:
            extras["obfuscation"] = padding.decode()
        start = Start(id.decode(), known.model, int(made))
        mould = Mould(known.before % found.group(*known.places), known.behind, known.tail, known.said, extras)
        told = extras.copy()
        said = mould.read_chunk(words) if words else 0
        if words and not said:
            return None
        self._met += 1
        return Beginning(start, told, known.choice, extras, mould, found.end(), said)

    def learn(self, first: bytes, mould: Mould) -> None:
        """An answer began in another way, which is usual too: with this read. Its first words made this mould."""
        if len(first) + sum(map(len, mould.shape)) > _LONGEST:
            return
        if self._met >= _WORTH_IT:
            self._missed = 0
        self._missed += 1
        if self._missed & (self._missed - 1) == 0:  # where each begins in its own way: ever more seldom
            self._met = 0
            self._known = _known(first, mould)


class _Known(NamedTuple):
    """A beginning that was proved: the pattern of its bytes, what is the same in all that have it; and their moulds.

    In `before` there are holes for what `places` names.
    """

    pattern: re.Pattern[bytes]
    model: str
    extras: dict[str, object]
    choice: ChoiceStart
    before: bytes
    places: list[str]
    behind: bytes
    tail: bytes
    said: Callable[[str], Event]


def _known(first: bytes, mould: Mould) -> _Known | None:
    """What is known by a first chunk and the mould of its words; None where it cannot be proved.

    The proof is that of moulds: with others of their kinds in the places of what varies, both chunks differ in those
    and in nothing else.
    """
    head = _decoded(HEAD_CHUNK, first)
    choice = ChoiceStart(head.choices[0].index, head.choices[0].delta.role)
    before, behind, tail = mould.shape
    tokens = _tokens(head, before)
    said = mould.said("")
    if tokens is None or bool(tail) != ("padding" in tokens) or not isinstance(said, TextDelta | ReasoningDelta):
        return None
    if said.choice != choice.choice or any(first.count(token) != 1 for token in tokens.values()):
        return None
    places = sorted(tokens.keys() - {"padding"}, key=lambda name: before.find(tokens[name]))
    if any(before.count(tokens[name]) != 1 for name in places):
        return None
    holed = _replaced(before.replace(b"%", b"%%"), tokens, dict.fromkeys(places, b"%b"))
    rest = b"text" + behind + (b"padding" + tail if tail else b"")
    others = tuple(_OTHERS[name] for name in places)
    try:
        words, other_words = _decoded(PLAIN_CHUNK, before + rest), _decoded(PLAIN_CHUNK, holed % others + rest)
        other_head = _decoded(HEAD_CHUNK, _replaced(first, tokens, _OTHERS))
    except ValueError:
        return None
    proved = other_words == _varied(words, places) and other_head == _varied(head, tokens)
    if not proved or not head.model or not first.isascii():
        return None
    groups = {name: b"(?P<%b>%b)" % (name.encode(), kind) for name, kind in _KINDS.items()}
    pattern = _replaced(re.escape(first), {name: re.escape(token) for name, token in tokens.items()}, groups)
    absent = b"".join(b"(?P<%b>)" % name.encode() for name in _KINDS if name not in tokens)
    extras = extras_of(head)
    return _Known(re.compile(pattern + absent), head.model, extras, choice, holed, places, behind, tail, mould.said)


def _tokens(head: HeadChunk, before: bytes) -> dict[str, bytes] | None:
    """What varies, as it stands in the bytes; None if something of it is not of its kind.

    What made an answer (its fingerprint) is as good as constant, unless the words repeat it before what they say.
    """
    values = {"id": head.id, "made": str(head.created)}
    if isinstance(head.obfuscation, str):
        values["padding"] = head.obfuscation
    if isinstance(head.system_fingerprint, str) and b'"%b"' % head.system_fingerprint.encode() in before:
        values["maker"] = head.system_fingerprint
    if not all(re.fullmatch(_KINDS[name], value.encode()) for name, value in values.items()):
        return None
    return {name: (b"%b" if name == "made" else b'"%b"') % value.encode() for name, value in values.items()}


def _decoded(decoder: msgspec.json.Decoder[_Chunk], event: bytes) -> _Chunk:
    return decoder.decode(event.removeprefix(b"data:"))


def _replaced(data: bytes, tokens: dict[str, bytes], others: dict[str, bytes]) -> bytes:
    """The data with others in the places of tokens, inside the same quotes."""
    for name, token in tokens.items():
        if name in others:
            data = data.replace(token, others[name] if name == "made" else b'"%b"' % others[name])
    return data


def _varied(chunk: _Chunk, names: Iterable[str]) -> _Chunk:
    """The chunk with others of their kinds in the fields that vary."""
    fields = {"id": "id", "made": "created", "maker": "system_fingerprint", "padding": "obfuscation"}
    others = {fields[name]: int(_OTHERS[name]) if name == "made" else _OTHERS[name].decode() for name in names}
    return structs.replace(chunk, **others)
