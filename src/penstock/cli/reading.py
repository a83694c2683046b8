"""Reading: one file or standard input, read to its end, and what both commands want to know about it.

A file is read in blocks, so that it may be larger than memory as long as its answer is not. One that cannot be opened
is told on standard error, with what to do about it, and the others are read all the same.
"""

import sys
from collections.abc import Iterator
from typing import Protocol

import click
from msgspec import Struct

from penstock import Accumulator, Completion, Fault, StreamReader
from penstock.cli.text import file_name, one_line

STDIN = "-"
# Large enough that the calls cost nothing, small enough that nobody notices the memory.
BLOCK = 1 << 18
# After these faults nothing that follows can count, not even usage.
HOPELESS = frozenset(("binary", "html-page", "event-too-large"))

ADVICE: tuple[tuple[type[OSError], str], ...] = (
    (FileNotFoundError, "no such file; check the path, or give - to read standard input"),
    (IsADirectoryError, "a directory, not a file; name the files in it"),
    (PermissionError, "no permission to read it; ask its owner, or change its mode"),
)


class Reading(Struct, frozen=True):
    """A stream read to its end. `lines` counts an unterminated last line too."""

    file: str
    completion: Completion
    framing: str
    frames: int
    size: int
    lines: int

    @property
    def unreadable(self) -> bool:
        """Whether the bytes are no text at all."""
        return self.completion.fault is not None and self.completion.fault.code == "binary"


class Readable(Protocol):
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


def read_all(files: tuple[str, ...]) -> Iterator[Reading | None]:
    """Read each file in turn; None stands for one that could not be opened or read, once that has been told."""
    for path in files:
        try:
            with click.open_file(path, "rb") as source:
                reading = read(file_name(path), source)
        except OSError as error:
            click.echo(f"penstock: {one_line(file_name(path))}: {_advice(error)}", err=True)
            yield None
        else:
            yield reading


def read(name: str, source: Readable) -> Reading:
    """Read a stream to its end, or to where nothing more can count."""
    reader, answer = StreamReader(), Accumulator()
    size = ends = 0
    last = b""
    while data := source.read(BLOCK):
        size += len(data)
        # A line ends with LF, CR or CRLF, also where one block ends with the CR and the next begins with the LF.
        ends += data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n") - (last == b"\r" and data[:1] == b"\n")
        last = data[-1:]
        events = reader.feed(data)
        answer.extend(events)
        if any(isinstance(event, Fault) and event.code in HOPELESS for event in events):
            break
    answer.extend(reader.close())
    lines = ends + (last not in (b"\n", b"\r"))
    return Reading(name, answer.completion, reader.framing, reader.frames, size, lines)


def _advice(error: OSError) -> str:
    for kind, advice in ADVICE:
        if isinstance(error, kind):
            return advice
    return error.strerror or str(error)
