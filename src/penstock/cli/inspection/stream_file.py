"""ReadStream: one file or standard input, read to its end, and what both commands want to know about it.

The dialect is the one that `--dialect` names, else the one that a capture names, else the one that the first events
tell (`core/dialects/detect.py`).
A bare stream is read in blocks, so that it may be larger than memory as long as its answer is not. A capture, which its
first line tells, is read as it came, read by read. A file that cannot be opened, or is no good as a capture, is told on
standard error, with what to do about it, and the others are read all the same.
"""

import sys
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Protocol

import click
from msgspec import Struct, structs

from penstock import Accumulator, Completion, Ending, Fault, RepairCount, StreamReader
from penstock.capture import Capture, dialect_of, is_capture, locate
from penstock.cli.inspection.defect_locator import DefectLocator, DefectSpan
from penstock.cli.inspection.timing import Stopwatch, StreamTiming
from penstock.cli.text import file_name, one_line
from penstock.core.dialects.detect import Detected, Detection
from penstock.core.dialects.registry import upstream_dialect
from penstock.errors import CaptureError, UnknownDialectError

STDIN = "-"
# Large enough that the calls cost nothing, small enough that nobody notices the memory.
BLOCK = 1 << 18
# Of a stream that is not larger the bytes are kept, where somebody wants to know exactly where things are in them.
KEPT = 5_000_000
# After these faults nothing that follows can count, not even usage.
HOPELESS = frozenset(("binary", "html-page", "event-too-large"))

# How a capture ended that was not the stream's own doing: the ending, and why.
WHY: dict[str, tuple[Ending, str]] = {
    "cancelled": ("cancelled", "the client left"),
    "timed-out": ("timed_out", "the provider took too long"),
}

ADVICE: tuple[tuple[type[OSError], str], ...] = (
    (FileNotFoundError, "no such file; check the path, or give - to read standard input"),
    (IsADirectoryError, "a directory, not a file; name the files in it"),
    (PermissionError, "no permission to read it; ask its owner, or change its mode"),
)


class ReadStream(Struct, frozen=True):
    """A stream read to its end. `lines` counts an unterminated last line too.

    Of a capture there is more: `starts` are the lines of the file on which its reads begin. `data` are the bytes of the
    stream, where they were to be kept.
    """

    file: str
    dialect: Detected
    completion: Completion
    framing: str
    frames: int
    size: int
    lines: int
    capture: Capture | None = None
    starts: tuple[int, ...] = ()
    times: StreamTiming | None = None
    data: bytes | None = None

    @property
    def unreadable(self) -> bool:
        """Whether the bytes are no text at all."""
        return self.completion.fault is not None and self.completion.fault.code == "binary"

    def spots(self) -> Callable[[RepairCount | Fault], DefectSpan]:
        """What says where in the stream a defect is: exactly, if its bytes were kept, else where its event begins."""
        if self.data is not None:
            return DefectLocator(self.data, self.dialect.dialect).spot
        return lambda found: DefectSpan(found.offset, None, found.line)

    def line_in_file(self, line: int, offset: int) -> int:
        """Where in the file a place in the stream is: in a capture, other lines stand between those of the stream."""
        if self.capture is None:
            return line
        at = 1
        for read, start in zip(self.capture.reads, self.starts, strict=True):
            at = start + read.data.count(b"\n", 0, offset)
            if offset < len(read.data):
                break
            offset -= len(read.data)
        return at


class Input(Protocol):
    """Where bytes come from."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none at the end."""


def _check_files(ctx: click.Context, parameter: click.Parameter, files: tuple[str, ...]) -> tuple[str, ...]:
    if sys.stdin is None and (not files or STDIN in files):
        raise click.BadParameter("standard input is closed; name a file.", ctx, parameter)
    if not files and sys.stdin.isatty():
        raise click.UsageError("Name a file that holds a stream, or pipe one in.", ctx)
    if files.count(STDIN) > 1:
        raise click.BadParameter("standard input (-) can be read only once.", ctx, parameter)
    return files or (STDIN,)


takes_files = click.argument("files", metavar="FILE...|-", nargs=-1, type=click.Path(), callback=_check_files)


def _check_dialect(ctx: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    try:
        if name is not None:
            upstream_dialect(name)
    except UnknownDialectError as error:
        raise click.BadParameter(str(error), ctx, parameter) from None
    return name


takes_dialect = click.option(
    "--dialect",
    callback=_check_dialect,
    metavar="NAME",
    help="Take the bytes for this dialect.",
)


def read_all(files: tuple[str, ...], *, dialect: str | None = None, kept: int = 0) -> Iterator[ReadStream | None]:
    """Read each file in turn; None stands for one that could not be opened or read, once that has been told.

    Without a dialect, that of each file is looked for. Streams of `kept` bytes or less are kept.
    """
    for path in files:
        try:
            with click.open_file(path, "rb") as source:
                reading = read(file_name(path), source, dialect=dialect, kept=kept)
        except (OSError, CaptureError) as error:
            advice = _advice(error) if isinstance(error, OSError) else one_line(str(error))
            click.echo(f"penstock: {one_line(file_name(path))}: {advice}", err=True)
            yield None
        else:
            yield reading


def read(name: str, source: Input, *, dialect: str | None = None, kept: int = 0) -> ReadStream:
    """Read a stream to its end, or to where nothing more can count; raises `CaptureError` for a bad capture."""
    first = source.read(BLOCK)
    blocks = chain((first,), iter(lambda: source.read(BLOCK), b""))
    asked = Detected(dialect, "option") if dialect is not None else None
    if not is_capture(first):
        return _read_bare(name, blocks, asked, kept)
    reading = _read_capture(name, b"".join(blocks), asked)
    return structs.replace(reading, data=reading.capture.data) if kept and reading.capture is not None else reading


def _read_bare(name: str, blocks: Iterator[bytes], asked: Detected | None, kept: int) -> ReadStream:
    beginning: list[bytes] = []
    dialect = asked or _detect(blocks, beginning)
    reader, answer = StreamReader(dialect.dialect), Accumulator(dialect.dialect)
    size = ends = 0
    last = b""
    whole: list[bytes] = []
    for data in chain(beginning, blocks):
        size += len(data)
        if size <= kept:
            whole.append(data)
        else:
            whole.clear()
        # A line ends with LF, CR or CRLF, also where one block ends with the CR and the next begins with the LF.
        ends += data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n") - (last == b"\r" and data[:1] == b"\n")
        last = data[-1:]
        events = reader.feed(data)
        answer.extend(events)
        if any(isinstance(event, Fault) and event.code in HOPELESS for event in events):
            break
    answer.extend(reader.close())
    lines = ends + (last not in (b"\n", b"\r"))
    return ReadStream(
        name,
        dialect,
        answer.completion,
        reader.framing,
        reader.frames,
        size,
        lines,
        data=b"".join(whole) if size <= kept else None,
    )


def _detect(blocks: Iterator[bytes], beginning: list[bytes]) -> Detected:
    """The dialect of a bare stream. The blocks that had to be read for it are added to its beginning."""
    detection = Detection()
    for block in blocks:
        beginning.append(block)
        if detection.feed(block):
            break
    return detection.close()


def _read_capture(name: str, data: bytes, asked: Detected | None) -> ReadStream:
    capture, starts = locate(data)
    dialect = asked or dialect_of(capture)
    reader, answer, watch = StreamReader(dialect.dialect), Accumulator(dialect.dialect), Stopwatch()
    for part in capture.reads:
        events = reader.feed(part.data)
        answer.extend(events)
        watch.note(part.at_s, events, reader.frames)
    answer.extend(reader.close())
    completion = _as_it_ended(answer.completion, capture)
    size = sum(len(part.data) for part in capture.reads)
    return ReadStream(
        name,
        dialect,
        completion,
        reader.framing,
        reader.frames,
        size,
        data.count(b"\n"),
        capture=capture,
        starts=tuple(starts),
        times=watch.times(capture, completion),
    )


def _as_it_ended(completion: Completion, capture: Capture) -> Completion:
    """A stream that stops too early says not why; its capture may."""
    how = capture.closing.how if capture.closing is not None else None
    if completion.ending != "truncated" or how not in WHY:
        return completion
    ending, detail = WHY[how]
    return structs.replace(completion, ending=ending, ending_detail=f"{detail}: {completion.ending_detail}")


def _advice(error: OSError) -> str:
    for kind, advice in ADVICE:
        if isinstance(error, kind):
            return advice
    return error.strerror or str(error)
