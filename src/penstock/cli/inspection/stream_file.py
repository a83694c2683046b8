"""ReadStream: the result of reading one file or standard input to its end, for `inspect` and `lint`.

The dialect is that of `--dialect`, else that of the capture, else the one detected from the first events
(`core/dialects/detect.py`). A bare stream is read in blocks, so that it may be larger than memory as long as its answer
is not. A capture, which is recognised by its first line, is replayed read by read. If a file cannot be opened or is not
a valid capture, an error with advice goes to standard error, and the other files are read all the same.
"""

import sys
from collections.abc import Callable, Iterator
from itertools import chain
from typing import IO

import click
import msgspec
from msgspec import Struct, structs

from penstock import Accumulator, Completion, Ending, Fault, RepairCount, StreamReader
from penstock.capture import Capture, dialect_of, is_capture, locate
from penstock.cli.inspection.defect_locator import DefectLocator, DefectSpan
from penstock.cli.inspection.timing import Stopwatch, StreamTiming
from penstock.cli.parsing import checked_by
from penstock.cli.text import file_name, one_line
from penstock.core.dialects.detect import Detected, Detection
from penstock.core.dialects.dialect import RequestError
from penstock.core.dialects.registry import find_dialect, upstream_dialect
from penstock.core.repairing_reader import AnswerSchemas, RepairingReader
from penstock.core.stream import EventReader
from penstock.errors import CaptureError

STDIN = "-"
# Large enough to make the cost of system calls negligible, and small enough for memory.
BLOCK = 1 << 18
# The bytes of a stream up to this size are kept to locate defects exactly.
MAX_KEPT_BYTES = 5_000_000
# After these faults the rest of the stream is not read: it cannot contain even usage.
FATAL = frozenset(("binary", "html-page", "event-too-large"))

# Endings that the capture knows and the stream does not: the ending and its reason.
CAPTURE_ENDINGS: dict[str, tuple[Ending, str]] = {
    "cancelled": ("cancelled", "the client left"),
    "timed-out": ("timed_out", "the provider took too long"),
}

ADVICE: tuple[tuple[type[OSError], str], ...] = (
    (FileNotFoundError, "no such file; check the path, or use - for standard input"),
    (IsADirectoryError, "a directory, not a file; give the files in it"),
    (PermissionError, "no permission to read it; ask its owner, or change its mode"),
)


class ReadStream(Struct, frozen=True):
    """A stream read to its end. `lines` counts an unterminated last line too.

    For a capture, `starts` are the lines of the file on which its reads start. `data` are the bytes of the stream, if
    they were kept.
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
        """Whether the bytes are binary."""
        return self.completion.fault is not None and self.completion.fault.code == "binary"

    def locator(self) -> Callable[[RepairCount | Fault], DefectSpan]:
        """A function that locates a defect: exactly if the bytes were kept, otherwise by the start of its event."""
        if self.data is not None:
            return DefectLocator(self.data).locate
        return lambda defect: DefectSpan(defect.offset, None, defect.line)

    def line_in_file(self, line: int, offset: int) -> int:
        """The line of the file for a position in the stream. They differ in a capture, which has lines of its own."""
        if self.capture is None:
            return line
        at = 1
        for read, start in zip(self.capture.reads, self.starts, strict=True):
            at = start + read.data.count(b"\n", 0, offset)
            if offset < len(read.data):
                break
            offset -= len(read.data)
        return at


def _check_files(ctx: click.Context, parameter: click.Parameter, files: tuple[str, ...]) -> tuple[str, ...]:
    if sys.stdin is None and (not files or STDIN in files):
        raise click.BadParameter("standard input is closed; give a file.", ctx, parameter)
    if not files and sys.stdin.isatty():
        raise click.UsageError("Give a file with a stream, or pipe one in.", ctx)
    if files.count(STDIN) > 1:
        raise click.BadParameter("standard input (-) can be read only once.", ctx, parameter)
    return files or (STDIN,)


takes_files = click.argument("files", metavar="FILE...|-", nargs=-1, type=click.Path(), callback=_check_files)


takes_dialect = click.option(
    "--dialect",
    callback=checked_by(upstream_dialect),
    metavar="NAME",
    help="Read the bytes as this dialect.",
)


def read_all(
    files: tuple[str, ...], *, dialect: str | None = None, kept: int = 0, repair: bool = False
) -> Iterator[ReadStream | None]:
    """Read each file in turn. Yields None for a file that could not be read, after the error has been printed.

    Without a dialect, that of each file is detected. The bytes of streams up to `kept` bytes are kept. With `repair`,
    captures are read as for a route with `repair_tool_arguments`.
    """
    for path in files:
        try:
            with click.open_file(path, "rb") as source:
                reading = read(file_name(path), source, dialect=dialect, kept=kept, repair=repair)
        except (OSError, CaptureError) as error:
            advice = _advice(error) if isinstance(error, OSError) else one_line(str(error))
            click.echo(f"penstock: {one_line(file_name(path))}: {advice}", err=True)
            yield None
        else:
            yield reading


def read(
    name: str, source: IO[bytes], *, dialect: str | None = None, kept: int = 0, repair: bool = False
) -> ReadStream:
    """Read a stream to its end or to a fatal fault. Raises `CaptureError` for an invalid capture."""
    first = source.read(BLOCK)
    blocks = chain((first,), iter(lambda: source.read(BLOCK), b""))
    chosen = Detected(dialect, "option") if dialect is not None else None
    if not is_capture(first):
        if repair:
            raise CaptureError(1, "not a capture: --repair needs the request, with the schemas of its tools")
        return _read_bare(name, blocks, chosen, kept)
    reading = _read_capture(name, b"".join(blocks), chosen, repair=repair)
    return structs.replace(reading, data=reading.capture.data) if kept and reading.capture is not None else reading


def _read_bare(name: str, blocks: Iterator[bytes], chosen: Detected | None, kept: int) -> ReadStream:
    beginning: list[bytes] = []
    dialect = chosen or _detect(blocks, beginning)
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
        if any(isinstance(event, Fault) and event.code in FATAL for event in events):
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
    """Detect the dialect of a bare stream. Adds the blocks that were read for it to `beginning`."""
    detection = Detection()
    for block in blocks:
        beginning.append(block)
        if detection.feed(block):
            break
    return detection.close()


def _read_capture(name: str, data: bytes, chosen: Detected | None, *, repair: bool) -> ReadStream:
    capture, starts = locate(data)
    dialect = chosen or dialect_of(capture)
    plain, answer, watch = StreamReader(dialect.dialect), Accumulator(dialect.dialect), Stopwatch()
    reader: EventReader = RepairingReader(plain, _schemas_of(capture, dialect.dialect)) if repair else plain
    for part in capture.reads:
        events = reader.feed(part.data)
        answer.extend(events)
        watch.record(part.at_s, events, reader.frames)
    answer.extend(reader.close())
    completion = _with_recorded_ending(answer.completion, capture)
    size = sum(len(part.data) for part in capture.reads)
    return ReadStream(
        name,
        dialect,
        completion,
        plain.framing,
        plain.frames,
        size,
        data.count(b"\n"),
        capture=capture,
        starts=tuple(starts),
        times=watch.times(capture, completion),
    )


def _schemas_of(capture: Capture, dialect: str) -> AnswerSchemas:
    """What the answer must satisfy, by the request in its capture; raises `CaptureError` if it cannot be read."""
    request, surface = capture.header.request, find_dialect(dialect).surface
    if surface is None:
        raise CaptureError(1, f"--repair cannot read requests of {dialect}")
    if request is None or request.body is None:
        raise CaptureError(1, "the capture has no request, which --repair needs for the schemas of its tools")
    try:
        read = surface.read_request(msgspec.json.encode(request.body), {}, request.path)
        return AnswerSchemas.of(read.read(), {})
    except RequestError as error:
        raise CaptureError(1, f"the request in the capture cannot be read: {error.failure.message}") from None


def _with_recorded_ending(completion: Completion, capture: Capture) -> Completion:
    """Replace the ending of a truncated stream by the one that its capture recorded."""
    how = capture.closing.how if capture.closing is not None else None
    if completion.ending != "truncated" or how not in CAPTURE_ENDINGS:
        return completion
    ending, detail = CAPTURE_ENDINGS[how]
    return structs.replace(completion, ending=ending, ending_detail=f"{detail}: {completion.ending_detail}")


def _advice(error: OSError) -> str:
    for kind, advice in ADVICE:
        if isinstance(error, kind):
            return advice
    return error.strerror or str(error)
