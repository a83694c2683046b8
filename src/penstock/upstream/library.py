"""Library: captures in files, and which of them answers a request.

| pick | takes |
|---|---|
| `request` | a capture of the same request, all fields but `model` and `stream_options`; of the same model first |
| `model` | a capture of the model that is asked for, as `model` or `provider/model` |
| `turn` | whichever is next |

Where several fit, they take turns. Files are indexed once and read again when they are played, so that a directory may
be larger than memory.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from penstock.capture import Capture, parse
from penstock.core.completion import Accumulator
from penstock.core.stream import StreamReader
from penstock.errors import CaptureError

Pick: TypeAlias = Literal["request", "model", "turn"]

# What is taken from a directory. A file that is named by itself may be called anything.
SUFFIXES = (".capture", ".sse", ".txt", ".json")
EVERY_PICK: tuple[Pick, ...] = ("request", "model", "turn")
# Which model is asked for is a question of its own; and Penstock asks for usage wherever it may.
_NOT_COMPARED = ("model", "stream_options")
# A model's name comes first in a stream.
_TELLING_BYTES = 65_536


class Entry(Struct, frozen=True):
    """One capture: its file, the names of its model, and what its request was, if that is known."""

    path: Path
    models: tuple[str, ...]
    request: bytes

    @property
    def name(self) -> str:
        """What it is called: the name of its file."""
        return self.path.name


class Choice(Struct, frozen=True):
    """A capture that was chosen, and why."""

    entry: Entry
    why: Pick


class Library:
    """The captures that there are. Which of several is next is all that changes in it."""

    def __init__(self, entries: Sequence[Entry], picks: Sequence[Pick] = EVERY_PICK) -> None:
        self.entries = tuple(entries)
        self.picks = tuple(picks)
        self._turns: Counter[object] = Counter()

    @property
    def models(self) -> tuple[str, ...]:
        """The models that there are captures of, each once."""
        return tuple(dict.fromkeys(entry.models[0] for entry in self.entries if entry.models))

    def choose(self, body: bytes) -> Choice | None:
        """The capture that answers a request; None if there is none."""
        fields = fields_of(body)
        model = fields.get("model")
        for pick in self.picks:
            if pick == "request":
                key = request_key(fields)
                same = [entry for entry in self.entries if key and entry.request == key]
                found = [entry for entry in same if model in entry.models] or same
            else:
                key = str(model).encode() if pick == "model" else b""
                found = [entry for entry in self.entries if pick == "turn" or model in entry.models]
            if found:
                turn = (pick, key)
                self._turns[turn] += 1
                return Choice(found[(self._turns[turn] - 1) % len(found)], pick)
        return None


class Unusable(Struct, frozen=True):
    """A file that is not in the library, and why. `named`: whether it was asked for by its own name."""

    path: Path
    reason: str
    named: bool


def load(paths: Iterable[Path], picks: Sequence[Pick] = EVERY_PICK) -> tuple[Library, list[Unusable]]:
    """Index files, and the files of directories; what is no good is left out, and told."""
    entries: list[Entry] = []
    unusable: list[Unusable] = []
    for path, named in _files(paths, unusable):
        try:
            entries.append(index(path))
        except OSError as error:
            unusable.append(Unusable(path, error.strerror or str(error), named))
        except CaptureError as error:
            unusable.append(Unusable(path, str(error), named))
    return Library(entries, picks), unusable


def _files(paths: Iterable[Path], unusable: list[Unusable]) -> Iterator[tuple[Path, bool]]:
    for path in paths:
        if not path.is_dir():
            yield path, True
            continue
        try:
            listed = sorted(path.iterdir())
        except OSError as error:
            unusable.append(Unusable(path, error.strerror or str(error), named=True))
            continue
        yield from ((file, False) for file in listed if file.suffix in SUFFIXES and file.is_file())


def index(path: Path) -> Entry:
    """What has to be known of a file to choose it."""
    capture = parse(path.read_bytes())
    header = capture.header
    names = [header.model, f"{header.provider}/{header.model}" if header.provider and header.model else ""]
    names.append("" if header.model else _model_of(capture))
    body = header.request.body if header.request is not None else None
    request = request_key(body) if isinstance(body, dict) else b""
    return Entry(Path(os.path.abspath(path)), tuple(filter(None, names)), request)


def request_key(fields: dict[str, object]) -> bytes:
    """The same for requests that are the same, in whatever order their fields stand; nothing for no request at all."""
    told = {
        name: value
        for name, value in fields.items()
        if name not in _NOT_COMPARED and value is not None and value is not False
    }
    if not told:
        return b""
    return hashlib.sha256(msgspec.json.encode(told, order="deterministic")).digest()


def fields_of(body: bytes) -> dict[str, object]:
    """The fields of a request; none where it is no JSON object."""
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _model_of(capture: Capture) -> str:
    """The model that a stream names itself."""
    reader, answer = StreamReader(), Accumulator()
    answer.extend(reader.feed(capture.data[:_TELLING_BYTES]))
    answer.extend(reader.close())
    return answer.completion.model
