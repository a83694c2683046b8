"""The capture file: what is written is read back, complete reads of a cut file count, and errors name their line."""

import random
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capture import (
    HOWS,
    Capture,
    CaptureEnd,
    CaptureHeader,
    CaptureRequest,
    CaptureWriter,
    Read,
    dump,
    is_capture,
    locate,
    parse,
)
from penstock.errors import CaptureError
from tests.cli.support import SEEDS

HEADER = CaptureHeader(
    at="2026-02-03T10:20:30.123456Z",
    call="req_1",
    provider="groq",
    model="llama-3.3-70b-versatile",
    request=CaptureRequest(method="POST", path="/openai/v1/chat/completions", body={"model": "llama", "messages": []}),
    status=200,
    head_s=0.25,
    headers={"content-type": "text/event-stream"},
)
READS = (Read(0.5, b"data: one\n\n"), Read(0.75, b"data: tw"), Read(0.75, b"o\n\n"))
CAPTURE = Capture(HEADER, READS, CaptureEnd(1.0, "complete"))
FILE = """\
penstock capture 1
{
  "at": "2026-02-03T10:20:30.123456Z",
  "call": "req_1",
  "provider": "groq",
  "model": "llama-3.3-70b-versatile",
  "request": {
    "method": "POST",
    "path": "/openai/v1/chat/completions",
    "body": {
      "model": "llama",
      "messages": []
    }
  },
  "status": 200,
  "head_s": 0.25,
  "headers": {
    "content-type": "text/event-stream"
  }
}

--- 0.500000 s, 11 bytes
data: one

--- 0.750000 s, 8 bytes
data: tw
--- 0.750000 s, 3 bytes
o

--- 1.000000 s, complete
"""


def test_a_capture_reads_well() -> None:
    assert dump(CAPTURE) == FILE.encode()
    assert parse(FILE.encode()) == CAPTURE


def test_it_is_written_piece_by_piece() -> None:
    writer = CaptureWriter()
    pieces = [writer.begin(HEADER), *map(writer.read, READS), writer.end(CaptureEnd(1.0, "complete"))]
    assert b"".join(pieces) == FILE.encode()


@pytest.mark.parametrize("how", HOWS)
def test_every_ending_is_kept(how: str) -> None:
    (closing,) = (CaptureEnd(None, each) for each in HOWS if each == how)
    assert parse(dump(Capture(HEADER, READS, closing))).closing == closing


AS_THEY_ARE = {
    "text": b"data: {}\n\n",
    "no newline at the end": b"data: {",
    "other languages": "Łódź, 東京 🚰\n".encode(),
    "CR and tab": b"a\r\nb\rc\td",
    "what looks like a mark": b"--- 0.1 s, 3 bytes\nabc\n--- 1 s, complete\n",
    "what looks like an escape": rb"\x41 \\x42 \u0041",
    "a blank": b"\n",
    "nothing": b"",
}
ESCAPED = {
    "half a character": (b"\xe2\x80", rb"\xe2\x80"),
    "the other half": (b"\xa6!\n", rb"\xa6!" + b"\n"),
    "gzip": (b"\x1f\x8b\x08\x00", rb"\x1f\x8b\x08\x00"),
    "a terminal's commands": (b"\x1b[2J \xc2\x9b \x7f", rb"\x1b[2J \xc2\x9b \x7f"),
    "beside what looks like an escape": (rb"\x41 \\x42" + b"\0", rb"\x5cx41 \\x5cx42\x00"),
}


@pytest.mark.parametrize("data", AS_THEY_ARE.values(), ids=AS_THEY_ARE)
def test_text_stands_as_it_is(data: bytes) -> None:
    written = dump(Capture(HEADER, (Read(0.5, data), Read(None, data)), CaptureEnd(1.0, "closed")))
    assert b"\n--- 0.500000 s, %d bytes\n%b" % (len(data), data) in written
    assert [read.data for read in parse(written).reads] == [data, data]


@pytest.mark.parametrize(("data", "stored"), ESCAPED.values(), ids=ESCAPED)
def test_what_is_no_text_is_escaped(data: bytes, stored: bytes) -> None:
    written = dump(Capture(HEADER, (Read(0.5, data),), CaptureEnd(1.0, "closed")))
    assert b"\n--- 0.500000 s, %d bytes, %d escaped\n%b" % (len(data), len(stored), stored) in written
    assert parse(written).data == data


def test_a_read_without_a_time_has_none() -> None:
    written = dump(Capture(HEADER, (Read(None, b"x\n"),), CaptureEnd(None, "complete")))
    assert written.endswith(b"\n--- 2 bytes\nx\n--- complete\n")
    assert not parse(written).timed


def test_no_header_speaks_to_the_terminal() -> None:
    written = dump(Capture(CaptureHeader(model="\x1b[2J\x9b\x7f"), ()))
    assert not set(written.decode()) & set("\x1b\x9b\x7f")
    assert parse(written).header.model == "\x1b[2J\x9b\x7f"


# Files that are bare streams.


@pytest.mark.parametrize("seed", SEEDS, ids=lambda path: path.name)
def test_a_bare_stream_is_a_capture_of_one_read(seed: Path) -> None:
    data = seed.read_bytes()
    capture = parse(data)
    assert capture.reads == (Read(None, data),)
    assert (capture.header.status, capture.closing) == (200, CaptureEnd(None, "complete"))
    assert not is_capture(data)


def test_an_empty_file_is_a_capture_of_no_read() -> None:
    assert parse(b"").reads == ()


# Files that were cut off.


def test_wherever_a_file_is_cut_off_what_is_whole_counts() -> None:
    written = FILE.encode()
    begun = written.index(b"\n\n---") + 2
    for size in range(begun, len(written)):
        capture = parse(written[:size])
        assert capture.closing is None
        assert capture.cut_off, size
        assert capture.reads == READS[: len(capture.reads)]
    whole = [len(parse(written[:size]).reads) for size in range(begun, len(written))]
    assert whole == sorted(whole)
    assert whole[-1] == 3


def test_a_file_that_is_cut_off_says_where() -> None:
    written = FILE.encode()
    assert parse(written[: written.index(b"tw\n")]).cut_off == "the read in line 25 is not whole"
    assert parse(written[: written.index(b"--- 1.0")]).cut_off == "after line 29 there is no end"
    assert parse(written[:-3]).cut_off == "line 30 is not whole"


def test_a_file_that_is_cut_off_in_its_header_is_of_no_use() -> None:
    for size in range(len(b"penstock capture 1\n"), FILE.index("\n\n") + 2):
        with pytest.raises(CaptureError, match=r"^line 2: the header has no end"):
            parse(FILE.encode()[:size])


# Files that are wrong.

WRONG = {
    "another version": (FILE.replace("capture 1", "capture 3"), "line 1: this is version '3' of the format"),
    "no version": ("penstock capture \n{}\n\n", "line 1: this is version '' of the format"),
    "other line ends": (FILE.replace("\n", "\r\n"), "line 1: the lines end with CR LF"),
    "no JSON": (FILE.replace('"call"', "call"), "line 2: the header is not as it should be: JSON is malformed"),
    "an unknown field": (FILE.replace('"call"', '"cal"'), "unknown field `cal`"),
    "a wrong type": (FILE.replace('"status": 200', '"status": "200"'), "Expected `int | null`, got `str`"),
    "an impossible status": (FILE.replace('"status": 200', '"status": 7'), ">= 200"),
    "deep nesting": (
        FILE.replace('"messages": []', '"messages": ' + "[" * 5000),
        "line 2: the header is nested too deep",
    ),
    "a longer text": (FILE.replace("data: one", "data: ones"), "line 24: expected `--- TIME s, SIZE bytes`, not ''"),
    "a shorter text": (FILE.replace("data: one\n", "data: o\n"), "line 25: the bytes that line 22 announces"),
    "a backward clock": (FILE.replace("--- 0.75", "--- 0.25", 1), "line 25: 0.25 s is before the 0.5 s"),
    "an unknown ending": (FILE.replace("complete\n", "completed\n"), "line 30: a capture ends in one of complete,"),
    "something behind the end": (FILE + "--- 1.000000 s, complete\n", "line 31: something follows the end"),
    "a bad escape": ("penstock capture 1\n{}\n\n--- 1 bytes, 4 escaped\n\\xZZ\n", "line 4: an escape below this line"),
    "a wrong escape": ("penstock capture 1\n{}\n\n--- 2 bytes, 4 escaped\n\\x00\n", "come to 1, not 2"),
    "no mark at all": ("penstock capture 1\n{}\n\nhello\n", "line 4: expected `--- TIME s, SIZE bytes`, not 'hello'"),
}


@pytest.mark.parametrize(("text", "words"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_reported_with_its_line(text: str, words: str) -> None:
    with pytest.raises(CaptureError) as raised:
        parse(text.encode())
    assert words in str(raised.value)
    assert str(raised.value).startswith(f"line {raised.value.line}: ")


def test_the_lines_of_reads_are_known() -> None:
    capture, lines = locate(FILE.encode())
    text = FILE.split("\n")
    assert [text[line - 1] for line in lines] == ["data: one", "data: tw", "o"]
    assert len(capture.reads) == 3


# All there can be.

times = st.integers(0, 10**9).map(lambda microseconds: microseconds / 1e6)
texts = st.text(max_size=20)
reads = st.lists(st.binary(max_size=40) | texts.map(str.encode), max_size=8)
headers = st.builds(
    CaptureHeader,
    at=texts,
    provider=texts,
    model=texts,
    status=st.none() | st.integers(200, 599),
    head_s=st.none() | times,
    headers=st.dictionaries(texts, texts, max_size=3),
    request=st.none()
    | st.builds(
        CaptureRequest,
        method=texts,
        path=texts,
        omitted=texts,
        body=st.recursive(
            st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | texts,
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
            max_leaves=8,
        ),
    ),
)


@pytest.mark.slow
@given(headers, reads, st.lists(times, min_size=9, max_size=9), st.sampled_from(HOWS), st.booleans())
def test_what_is_written_is_read_back(
    header: CaptureHeader, data: list[bytes], clock: list[float], how: str, timed: bool
) -> None:
    at = sorted(clock)
    (word,) = (each for each in HOWS if each == how)
    closing = CaptureEnd(at[8] if timed else None, word)
    capture = Capture(header, tuple(Read(at[i] if timed else None, part) for i, part in enumerate(data)), closing)
    assert parse(dump(capture)) == capture


@given(st.binary(max_size=300))
def test_no_bytes_make_it_raise_anything_else(data: bytes) -> None:
    for file in (data, b"penstock capture 1\n{}\n\n" + data, b"penstock capture 1\n" + data):
        with suppress(CaptureError):
            parse(file)


@given(st.randoms(use_true_random=False))
def test_no_damage_makes_it_raise_anything_else(chance: random.Random) -> None:
    file = bytearray(FILE.encode())
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(file))
        match chance.randrange(3):
            case 0:
                file[at] = chance.randrange(256)
            case 1:
                del file[at : at + chance.randint(1, 5)]
            case _:
                file[at:at] = bytes(chance.randrange(256) for _ in range(3))
    with suppress(CaptureError):
        parse(bytes(file))


def test_a_capture_that_knows_its_dialect_is_format_2() -> None:
    capture = Capture(
        CaptureHeader(model="m", dialect="openai_chat"), (Read(0.5, b"data: {}\n\n"),), CaptureEnd(0.6, "complete")
    )
    file = dump(capture)
    assert file.startswith(b"penstock capture 2\n")
    assert parse(file) == capture
    assert dump(Capture(CaptureHeader(model="m"), ())).startswith(b"penstock capture 1\n")
