"""The corpus as captures: each is written as a file, played by a process, and read back as `inspect` reads it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from penstock.capture import Capture, CaptureEnd, CaptureHeader, Read, dump, parse
from penstock.cli.inspect import describe
from penstock.cli.inspection.stream_file import read
from tests import corpus
from tests.faults.client import RawClient, body, post
from tests.replay.support import Player


@dataclass(frozen=True)
class Replayed:
    """One recorded stream that was played, and what differs from it."""

    original: corpus.Capture
    reads: int
    size: int
    differences: list[str]


def replay(originals: Sequence[corpus.Capture], folder: Path) -> Iterator[Replayed]:
    """Play every one of them, at full speed, through a real socket."""
    for number, original in enumerate(originals):
        (folder / f"{number}.capture").write_bytes(dump(as_capture(original, f"model-{number}")))
    with Player(folder, "--speed", "max", "--pick", "model") as player, RawClient(player.port) as client:
        for number, original in enumerate(originals):
            client.send(post(body(f"model-{number}", stream=True)))
            response = client.response()
            capture = as_capture(original, f"model-{number}")
            file = (folder / f"{number}.capture").read_bytes()
            wanted = inspected(original.data)
            checks = {
                "the file": parse(file) == capture,
                "its reads": [part.data for part in capture.reads] == [part for part in original.reads if part],
                "its reading": inspected(file) == wanted,
                "the status": response.status == original.status,
                "the body": (response.body, response.complete) == (original.data, True),
                "the body's reading": inspected(response.body) == wanted,
            }
            differences = [f"{name} is not as it was" for name, same in checks.items() if not same]
            yield Replayed(original, len(capture.reads), len(response.body), differences)


def as_capture(original: corpus.Capture, model: str) -> Capture:
    """The capture that a recorder would have stored; the times of its reads are unknown."""
    header = CaptureHeader(provider=original.vendor, model=model, status=original.status)
    reads = tuple(Read(None, part) for part in original.reads if part)
    return Capture(header, reads, CaptureEnd(None, "complete"))


def inspected(file: bytes) -> dict[str, object]:
    """What `inspect --json` says of the stream itself."""
    return describe(read("", BytesIO(file))) | {"capture": None}
