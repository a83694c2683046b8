"""Library: an index of capture files, which chooses the capture that answers a request.

| pick | takes |
|---|---|
| `request` | a capture of the same request, except for the incidental fields of its dialect; the same model first |
| `model` | a capture of the requested model, as `model` or `provider/model` |
| `turn` | the next capture, round robin |

Only captures in the dialect of the request can answer it, unless they are translated. Where several match, they are
played round robin. Files are indexed once and read again when they are played, so that a directory may be larger than
memory.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from penstock.capture import Capture, dialect_of, parse
from penstock.core.dialects.dialect import Dialect, RequestError
from penstock.core.dialects.paths import model_at
from penstock.core.dialects.registry import DEFAULT_DIALECT, find_dialect
from penstock.core.hub.completion import Accumulator
from penstock.core.hub.request import ClientRequest
from penstock.core.stream import StreamReader
from penstock.errors import CaptureError

Pick: TypeAlias = Literal["request", "model", "turn"]

# The files that are read from a directory. A file that is given by its own name may have any suffix.
SUFFIXES = (".capture", ".sse", ".txt", ".json", ".ndjson")
EVERY_PICK: tuple[Pick, ...] = ("request", "model", "turn")
# How much of a stream is read to find its model, which is in the first events.
_MODEL_WITHIN_BYTES = 65_536


class LibraryCapture(Struct, frozen=True):
    """One capture: its file, the names of its model, the key of its request (empty if unknown), and its dialect."""

    path: Path
    models: tuple[str, ...]
    request: bytes
    dialect: str = DEFAULT_DIALECT

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.path.name


class ChosenCapture(Struct, frozen=True):
    """A capture that was chosen, and the pick that chose it."""

    entry: LibraryCapture
    why: Pick


class Library:
    """An index of captures. Only its round-robin counters change."""

    def __init__(
        self,
        entries: Sequence[LibraryCapture],
        picks: Sequence[Pick] = EVERY_PICK,
        left_out: Counter[str] | None = None,
    ) -> None:
        self.entries = tuple(entries)
        self.picks = tuple(picks)
        self.left_out = Counter(left_out)
        """How many captures of other dialects were left out, by dialect."""
        self._turns: Counter[object] = Counter()

    @property
    def models(self) -> tuple[str, ...]:
        """The models of all captures, without duplicates."""
        return self.models_of(None)

    @property
    def dialects(self) -> Counter[str]:
        """The number of captures in each dialect."""
        return Counter(entry.dialect for entry in self.entries)

    def models_of(self, dialect: str | None) -> tuple[str, ...]:
        """The models of the captures in a dialect, or in any."""
        entries = (entry for entry in self.entries if dialect in (None, entry.dialect))
        return tuple(dict.fromkeys(entry.models[0] for entry in entries if entry.models))

    def choose(
        self, body: bytes, path: str = "", dialect: str = DEFAULT_DIALECT, *, translated: bool = False
    ) -> ChosenCapture | None:
        """The capture that answers a request in that dialect; None if none matches.

        `translated`: captures of all dialects can answer it.
        """
        fields, model = fields_of(body), model_of_request(body, path, dialect)
        entries = [entry for entry in self.entries if translated or entry.dialect == dialect]
        for pick in self.picks:
            if pick == "request":
                key = request_key(fields, dialect)
                same = [entry for entry in entries if key and entry.request == key]
                matches = [entry for entry in same if model in entry.models] or same
            else:
                key = str(model).encode() if pick == "model" else b""
                matches = [entry for entry in entries if pick == "turn" or model in entry.models]
            if matches:
                turn = (dialect, pick, key)
                self._turns[turn] += 1
                return ChosenCapture(matches[(self._turns[turn] - 1) % len(matches)], pick)
        return None


class UnusableCapture(Struct, frozen=True):
    """A file that is not in the library, and why. `named`: whether it was given by its own name, not by a directory."""

    path: Path
    reason: str
    named: bool


def load(
    paths: Iterable[Path],
    picks: Sequence[Pick] = EVERY_PICK,
    *,
    dialects: Collection[str] | None = None,
    read_as: str | None = None,
    assumed: str = DEFAULT_DIALECT,
) -> tuple[Library, list[UnusableCapture]]:
    """Index files, and the files of directories; returns the library and the files that cannot be used.

    If `dialects` are given, captures of other dialects are left out and counted. If `read_as` is given, all captures
    are read in that dialect; otherwise, a capture without evidence of its dialect is read in the `assumed` one.
    """
    entries: list[LibraryCapture] = []
    left_out: Counter[str] = Counter()
    unusable: list[UnusableCapture] = []
    for path, named in _files(paths, unusable):
        try:
            entry = index(path, read_as, assumed)
            if dialects is None or entry.dialect in dialects:
                entries.append(entry)
            else:
                left_out[entry.dialect] += 1
        except OSError as error:
            unusable.append(UnusableCapture(path, error.strerror or str(error), named))
        except CaptureError as error:
            unusable.append(UnusableCapture(path, str(error), named))
    return Library(entries, picks, left_out), unusable


def _files(paths: Iterable[Path], unusable: list[UnusableCapture]) -> Iterator[tuple[Path, bool]]:
    for path in paths:
        if not path.is_dir():
            yield path, True
            continue
        try:
            listed = sorted(path.iterdir())
        except OSError as error:
            unusable.append(UnusableCapture(path, error.strerror or str(error), named=True))
            continue
        yield from ((file, False) for file in listed if file.suffix in SUFFIXES and file.is_file())


def index(path: Path, read_as: str | None = None, assumed: str = DEFAULT_DIALECT) -> LibraryCapture:
    """Read the facts of a file by which it is chosen."""
    capture = parse(path.read_bytes())
    header, detected = capture.header, dialect_of(capture)
    dialect = read_as or (assumed if detected.by == "default" else detected.dialect)
    names = [header.model, f"{header.provider}/{header.model}" if header.provider and header.model else ""]
    names.append("" if header.model else _model_of(capture, dialect))
    body = header.request.body if header.request is not None else None
    request = request_key(body, dialect) if isinstance(body, dict) else b""
    return LibraryCapture(Path(os.path.abspath(path)), tuple(filter(None, names)), request, dialect)


def request_key(fields: dict[str, object], dialect: str) -> bytes:
    """A hash of the fields that matter, in any order; equal requests have equal keys. Empty for an empty request."""
    incidental = find_dialect(dialect).incidental
    relevant = {
        name: value
        for name, value in fields.items()
        if name not in incidental and value is not None and value is not False
    }
    if not relevant:
        return b""
    return hashlib.sha256(msgspec.json.encode(relevant, order="deterministic")).digest()


def model_of_request(body: bytes, path: str, dialect: str) -> object:
    """The model that a request names; the raw value of its `model` field if the request is not valid."""
    row = find_dialect(dialect)
    request = _client_request(body, path, row)
    if request is not None:
        return request.model
    templates = (row.answers.path if row.answers is not None else "", row.unstreamed_path)
    named = (model_at(path, template) for template in templates if template)
    return next(filter(None, named), None) or fields_of(body).get("model")


def asks_for_stream(body: bytes, path: str, dialect: str) -> bool:
    """Whether a request asks for a stream: by its path, or by its `stream` field."""
    row = find_dialect(dialect)
    request = _client_request(body, path, row)
    if request is not None:
        return request.stream
    if row.unstreamed_path:
        return model_at(path, row.unstreamed_path) is None
    return fields_of(body).get("stream", row.streams_by_default) is True


def _client_request(body: bytes, path: str, dialect: Dialect) -> ClientRequest | None:
    """The request as the dialect's surface reads it; None if there is no surface, or if the request is not valid."""
    try:
        return dialect.surface.read_request(body, {}, path) if dialect.surface is not None else None
    except RequestError:
        return None


def fields_of(body: bytes) -> dict[str, object]:
    """The fields of a request; empty if it is not a JSON object."""
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _model_of(capture: Capture, dialect: str) -> str:
    """The model that the stream itself names."""
    reader, answer = StreamReader(dialect), Accumulator(dialect)
    answer.extend(reader.feed(capture.data[:_MODEL_WITHIN_BYTES]))
    answer.extend(reader.close())
    return answer.completion.model
