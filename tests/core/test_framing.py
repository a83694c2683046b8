"""Framing: one answer in every framing that providers use; and what is refused, because it would have to be guessed."""

import itertools
import json

import msgspec
import pytest

from penstock import ChoiceStart, Event, Repair, Start, StreamReader, TextDelta
from penstock.core.wire.frame import Frame
from penstock.core.wire.sse import SseReader
from tests.cpu import calls_of
from tests.streams import (
    DONE,
    Json,
    begins,
    bill,
    bytewise,
    completion,
    counts,
    dumps,
    finishes,
    read,
    repairs,
    says,
    sse,
)

TEXT = "Grüße, \N{EARTH GLOBE EUROPE-AFRICA}!"
CHUNKS: list[Json] = [
    begins(),
    says("Grüße"),
    says(", \N{EARTH GLOBE EUROPE-AFRICA}!"),
    finishes(),
    bill(**counts(7, 4)),
]
LINES: list[str] = [*(dumps(chunk) for chunk in CHUNKS), DONE]
HEALTHY = sse(*CHUNKS, DONE)


def sent_text(events: list[Event]) -> list[Event]:
    """The events without the repairs. A defect of the framing must not change them."""
    return [event for event in events if not isinstance(event, Repair)]


def joined(*lines: str, end: str = "\n") -> bytes:
    return end.join(lines).encode()


def with_line_ends(*ends: str) -> bytes:
    """The healthy stream, with these line ends in turn."""
    lines = HEALTHY.decode().split("\n")[:-1]
    return "".join(line + end for line, end in zip(lines, itertools.cycle(ends), strict=False)).encode()


def between(middle: str) -> bytes:
    """The healthy stream with something between its second event and its third."""
    return sse(*LINES[:2]) + middle.encode() + sse(*LINES[2:])


def with_second(event: str) -> bytes:
    """The healthy stream with its second event written otherwise."""
    return sse(LINES[0]) + event.encode() + sse(*LINES[2:])


def pretty(chunk: Json) -> list[str]:
    return json.dumps(chunk, ensure_ascii=False, indent=2).split("\n")


SAME_ANSWER: dict[str, tuple[bytes, dict[str, int]]] = {
    # Line ends and prefixes
    "LF": (HEALTHY, {}),
    "CRLF": (with_line_ends("\r\n"), {}),
    "CR": (with_line_ends("\r"), {}),
    "LF, CRLF and CR in turn": (with_line_ends("\n", "\r\n", "\r", "\r"), {}),
    "CRLF within an event, LF between events": (with_line_ends("\r\n", "\n"), {}),
    "byte order mark": (b"\xef\xbb\xbf" + HEALTHY, {"bom": 1}),
    "byte order mark and blank lines": (b"\xef\xbb\xbf\n\r\n" + HEALTHY, {"bom": 1}),
    "no space behind the colon": (sse(*LINES, prefix="data:"), {}),
    "tab behind the colon": (sse(*LINES[:-1], prefix="data:\t") + sse(DONE), {}),
    "white space behind the JSON": (sse(*LINES[:-1], end=" \t\n\n") + sse(DONE), {}),
    "blank lines before, between and behind": (b"\n\n\n" + sse(*LINES, end="\n\n\n\n") + b"\n", {}),
    "fields in capitals or indented": (sse(*LINES, prefix=" DATA: "), {"field-misspelled": 6}),
    # Several lines in one event
    "several data lines": (with_second("".join(f"data: {line}\n" for line in pretty(CHUNKS[1])) + "\n"), {}),
    "several data lines, no spaces": (with_second("".join(f"data:{line}\n" for line in pretty(CHUNKS[1])) + "\n"), {}),
    "empty data lines around": (with_second(f"data:\ndata: {LINES[1]}\ndata:\n\n"), {}),
    "data alone, JSON on the next line": (with_second(f"data:\n{LINES[1]}\n\n"), {"json-on-next-line": 1}),
    "data without colon, JSON on the next line": (with_second(f"data\n{LINES[1]}\n\n"), {"json-on-next-line": 1}),
    "JSON goes on unprefixed": (
        with_second("data: " + "\n".join(pretty(CHUNKS[1])) + "\n\n"),
        {"unprefixed-continuation": 1},
    ),
    "JSON on a line of its own": (with_second(f"{LINES[1]}\n\n"), {"no-data-prefix": 1}),
    "pretty JSON on lines of its own": (with_second("\n".join(pretty(CHUNKS[1])) + "\n\n"), {"no-data-prefix": 1}),
    # Comments and other fields
    "comments everywhere": (
        b": connected\n\n:\n" + between(": PROCESSING\n\n:no space\n") + b": bye\n",
        {},
    ),
    "a comment within an event": (with_second(f": before\ndata: {LINES[1]}\n: behind\n\n"), {}),
    "a comment between data lines": (with_second("data: {\n: why not\ndata: " + LINES[1][1:] + "\n\n"), {}),
    "a comment that looks like data": (between(': data: {"choices":[]}\n\n'), {}),
    "event, id and retry fields": (
        b"retry: 3000\n\n" + b"".join(b"event: message\nid: 7\ndata: " + line.encode() + b"\n\n" for line in LINES),
        {},
    ),
    "fields behind the data": (with_second(f"data: {LINES[1]}\nevent: message\nid: 8\nretry: 1\n\n"), {}),
    "events without data": (between("event: ping\n\nid: 5\n\nretry: 10\n\nid\n\n"), {}),
    "an unknown field": (between("latency: 12\n\n"), {"unknown-field": 1}),
    # What the standard's readers skip
    "an unknown field between data lines": (
        with_second("data: {\nfoobar:xxx\ndata: " + LINES[1][1:] + "\n\n"),
        {"unknown-field": 1},
    ),
    "data in capitals, without JSON": (between("Data:data\n\n"), {"unknown-field": 1}),
    "data in capitals between data lines": (
        with_second("data: {\nData:1\n data:32\ndata: " + LINES[1][1:] + "\n\n"),
        {"unknown-field": 2},
    ),
    "an id with NUL at the start": (b"id: x\0\n\n" + HEALTHY, {}),
    "a comment with NUL at the start": (b": \0\n" + HEALTHY, {}),
    "an event with NUL at the start": (b"event: \0\n\n" + HEALTHY, {}),
    "two byte order marks": (b"\xef\xbb\xbf" * 2 + HEALTHY, {"bom": 2}),
    "a byte order mark before a later event": (between("\ufeff"), {"bom": 1}),
    "a byte order mark before a comment and a blank line": (between("\ufeff: hi\n\ufeff\n"), {"bom": 2}),
    # Missing blank lines
    "no blank line anywhere": (sse(*LINES, end="\n"), {"missing-blank-line": 5}),
    "no blank line anywhere, CRLF": (sse(*LINES, end="\r\n"), {"missing-blank-line": 5}),
    "no blank line anywhere, CR": (sse(*LINES, end="\r"), {"missing-blank-line": 5}),
    "one blank line missing": (sse(LINES[0], end="\n") + sse(*LINES[1:]), {"missing-blank-line": 1}),
    "a comment in place of a blank line": (
        sse(LINES[0], end="\n: ping\n") + sse(*LINES[1:]),
        {"missing-blank-line": 1},
    ),
    "no blank lines between named events": (
        joined(*(f"event: message\nid: 1\ndata: {line}" for line in LINES)) + b"\n\n",
        {"missing-blank-line": 5},
    ),
    "no blank lines, each data alone": (
        joined(*(f"data:\n{line}" for line in LINES[:-1]), "data: [DONE]\n\n"),
        {"json-on-next-line": 5, "missing-blank-line": 5},
    ),
    "white space on blank lines": (sse(*LINES, end="\n \n"), {"blank-line-with-spaces": 6}),
    # Several values in one event
    "two objects on one line": (sse(LINES[0], LINES[1] + LINES[2], *LINES[3:]), {"glued-events": 1}),
    "two objects, a prefix between": (sse(LINES[0], f"{LINES[1]}data: {LINES[2]}", *LINES[3:]), {"glued-events": 1}),
    "all objects on one line": (sse("".join(LINES[:-1]), DONE), {"glued-events": 1}),
    "one prefix doubled": (with_second(f"data: data: {LINES[1]}\n\n"), {"data-prefix-twice": 1}),
    "every prefix doubled": (sse(*LINES, prefix="data: data: "), {"data-prefix-twice": 6}),
    "events that say nothing": (between(sse("", "null", "0", '"hi"', "[]").decode()), {"empty-event": 5}),
    # No SSE framing
    "JSON lines": (joined(*LINES[:-1], ""), {"json-lines": 1}),
    "JSON lines, CRLF, unterminated": (joined(*LINES[:-1], end="\r\n"), {"json-lines": 1}),
    "JSON lines apart": (joined(*LINES[:-1], "", end="\n\n"), {"json-lines": 1}),
    "JSON lines with [DONE]": (joined(*LINES, ""), {"json-lines": 1}),
    "pretty JSON throughout": (joined(*(line for chunk in CHUNKS for line in pretty(chunk)), ""), {"json-lines": 1}),
    "a JSON array": (json.dumps(CHUNKS).encode(), {"json-array": 1}),
    "a pretty JSON array": (json.dumps(CHUNKS, indent=1, ensure_ascii=False).encode() + b"\n", {"json-array": 1}),
    "a JSON array behind blank lines": (b"\r\n\n  [\n " + joined(*LINES[:-1], end=",\n") + b"\n]", {"json-array": 1}),
    "a JSON array that is not closed": (b"[" + joined(*LINES[:-1], end=","), {"json-array": 1, "array-unclosed": 1}),
    # The last event
    "no blank line at the end": (HEALTHY[:-1], {"no-final-blank-line": 1}),
    "no newline at the end": (HEALTHY[:-2], {"no-final-newline": 1}),
    "CR of CRLF at the end": (with_line_ends("\r\n")[:-3], {"no-final-blank-line": 1}),
    "no newline behind the usage": (sse(*CHUNKS)[:-2], {"no-final-newline": 1, "no-done": 1}),
    "no [DONE]": (sse(*CHUNKS), {"no-done": 1}),
    "[DONE] padded": (sse(*CHUNKS, "  [DONE] "), {"done-misspelled": 1}),
    "[DONE] quoted": (sse(*CHUNKS, '"[DONE]"'), {"done-misspelled": 1}),
    "[DONE] in small letters": (sse(*CHUNKS, "[done]"), {"done-misspelled": 1}),
    "[DONE] twice": (sse(*CHUNKS, DONE, DONE), {"done-repeated": 1}),
    "[DONE] before the usage": (sse(*LINES[:4], DONE, LINES[4]), {"data-after-done": 1}),
    "[DONE] on a line of its own": (sse(*CHUNKS) + b"[DONE]\n", {"no-data-prefix": 1}),
    "[DONE] glued to the last chunk": (sse(*LINES[:4], f"{LINES[4]}data: [DONE]"), {"glued-events": 1}),
}  # fmt: skip


@pytest.mark.parametrize(("wire", "expected"), SAME_ANSWER.values(), ids=SAME_ANSWER)
def test_the_answer_is_the_same_in_every_framing(wire: bytes, expected: dict[str, int]) -> None:
    events = read(wire)
    assert completion(wire).text == TEXT
    assert sent_text(events) == sent_text(read(HEALTHY))
    assert repairs(events) == expected


@pytest.mark.parametrize(("wire", "expected"), SAME_ANSWER.values(), ids=SAME_ANSWER)
def test_one_byte_at_a_time_gives_the_same_events(wire: bytes, expected: dict[str, int]) -> None:
    events = read(*bytewise(wire))
    assert events == read(wire)
    assert repairs(events) == expected


def test_any_split_in_two_gives_the_same_events() -> None:
    wire = sse(begins(), says('naïve \N{SNOWMAN} \\ " \u2028'), end="\r\n\r\n") + sse(
        json.dumps(says("\N{EARTH GLOBE AMERICAS}\n")), finishes(), end="\r\r"
    )
    expected = read(wire)
    for i in range(len(wire)):
        assert read(wire[:i], wire[i:]) == expected, f"split at {i}"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("empty", ["data:\n", "data\n", "data: \n"])
def test_each_line_of_an_event_ends_with_lf_however_it_was_ended(end: str, empty: str) -> None:
    """Also if a CR precedes an empty line: the two must not be read as one CRLF."""
    reader = SseReader(10_000)
    items = reader.feed(f"data: {{{end}{empty}data: }}{end}{end}".encode())
    assert [item.data for item in items if isinstance(item, Frame)] == [b" {\n\n}"]


def test_events_come_as_soon_as_their_blank_line_does() -> None:
    reader = StreamReader()
    assert reader.feed(sse(begins())) == [Start("chatcmpl-1", "sluice-1", 1_700_000_000), ChoiceStart(0, "assistant")]
    assert reader.feed(sse(says("Hi"))[:-1]) == []
    assert reader.feed(b"\n") == [TextDelta(0, "Hi")]


def test_without_blank_lines_events_come_with_their_line() -> None:
    reader = StreamReader()
    reader.feed(sse(begins(), says("Hi"), end="\n"))
    assert TextDelta(0, "!") in reader.feed(sse(says("!"), end="\n"))


TEXTS = {
    "U+2028, U+2029 and U+0085": "a\u2028b\u2029c\u0085d",
    "vertical tab, form feed, file separator": "a\x0bb\x0cc\x1cd",
    "what looks like framing": 'data: {"a":1}\n\ndata: [DONE]\n\nevent: error\r\n: comment',
    "[DONE] alone": "[DONE]",
    "brackets and quotes": '}]"{[\\"',
    "a byte order mark": "\ufeffx\ufeff",
    "NUL and the replacement character": "a\0b\N{REPLACEMENT CHARACTER}c",
    "characters beyond the first plane": "\N{EARTH GLOBE AMERICAS}\U0010ffff",
    "white space": " \t\n\r ",
}


@pytest.mark.parametrize("escaped", [False, True], ids=["raw", "escaped"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_no_text_is_mistaken_for_framing(text: str, *, escaped: bool) -> None:
    payload = json.dumps(says(text), ensure_ascii=escaped)
    wire = sse(begins(), payload, payload, finishes(), DONE)
    assert completion(wire).text == text * 2
    assert repairs(read(wire)) == {}
    assert read(*bytewise(wire)) == read(wire)


# A string with a raw line end is not JSON. It is read only if there is one possible meaning.
RAW_LINE_ENDS: dict[str, tuple[str, str]] = {
    "a line end": ("one\ntwo", "one\ntwo"),
    "several line ends": ("one\n two\nthree", "one\n two\nthree"),
    "a tab": ("one\ttwo", "one\ttwo"),
}


@pytest.mark.parametrize(("raw", "text"), RAW_LINE_ENDS.values(), ids=RAW_LINE_ENDS)
def test_raw_control_characters_in_a_string_are_read(raw: str, text: str) -> None:
    answer = completion(with_raw(raw))
    assert (answer.ending, answer.text) == ("completed", text)
    assert "raw-control-character" in {repair.code for repair in answer.repairs}


LOOKS_LIKE_FRAMING = {
    "a blank line": "one\n\ntwo",
    "a blank line with spaces": "one\n  \ntwo",
    "a comment": "one\n: two\nthree",
    "an id": "one\nid: two\nthree",
    "an event": "one\nevent: two\nthree",
    "a retry": "one\nretry: 2\nthree",
    "an error": "one\nerror: two\nthree",
    "data with JSON": 'one\ndata: {\\"a\\":1}\nthree',
}


@pytest.mark.parametrize("raw", LOOKS_LIKE_FRAMING.values(), ids=LOOKS_LIKE_FRAMING)
def test_a_raw_line_end_never_loses_text_silently(raw: str) -> None:
    answer = completion(with_raw(raw))
    assert answer.ending == "failed" or answer.text == json.loads(f'"{raw}"', strict=False)


DAMAGED_PREFIXES = ["ddata: ", "dat:a: ", "ata: ", "chunk: ", "\x00data: ", "\ufeffdata: "]


@pytest.mark.parametrize("prefix", DAMAGED_PREFIXES, ids=repr)
def test_json_behind_a_damaged_prefix_never_vanishes_from_a_completed_answer(prefix: str) -> None:
    answer = completion(sse(begins(), says("H")) + sse(says("i"), prefix=prefix) + sse(finishes(), DONE))
    assert answer.ending == "failed" or answer.text == "Hi"


def with_raw(text: str) -> bytes:
    """A stream whose only text is in its JSON string unescaped."""
    return sse(begins(), dumps(says("~")).replace("~", text), finishes(), DONE)


REFUSED: dict[str, tuple[bytes, str, str]] = {
    "broken JSON": (sse(begins(), says("Hi"), '{"choices":[{"delta":'), "bad-json", "Hi"),
    "broken JSON, then more": (sse(begins(), says("Hi"), '{"choices":[', finishes(), DONE), "bad-json", "Hi"),
    "a string cut, next event without blank line": (
        sse(begins(), says("Hi")) + b'data: {"id":"chatcmpl-jQu\n' + sse(says("!"), finishes(), DONE),
        "bad-json",
        "Hi",
    ),
    "an event cut, next events without blank lines": (
        sse(begins(), says("Hi"), end="\n") + b'data: {"choices":[\n' + sse(says("!"), finishes(), end="\n"),
        "bad-json",
        "Hi",
    ),
    "one event written into another": (
        sse(begins(), says("Hi"), dumps(says("lost"))[:40] + "data: " + dumps(says("!")), finishes(), DONE),
        "bad-json",
        "Hi",
    ),
    "Python in place of JSON": (sse(begins(), str(says("Hi"))), "bad-json", ""),
    "words in place of JSON": (sse(begins(), says("Hi"), "upstream went away"), "bad-json", "Hi"),
    "words between events": (sse(begins(), says("Hi")) + b"Killed\n", "not-a-stream", "Hi"),
    "words at the end": (sse(begins(), says("Hi"), finishes()) + b"Internal Server Error", "not-a-stream", "Hi"),
    "plain text": (b"no healthy upstream", "not-a-stream", ""),
    "one word of plain text": (b"Error", "not-a-stream", ""),
    "plain text with a colon": (b"error code: 524\n", "not-a-stream", ""),
    "a page": (b"<html><head><title>502 Bad Gateway</title></head></html>", "html-page", ""),
    "a page behind a byte order mark": (b"\xef\xbb\xbf\n\n<!doctype html><p>Sorry", "html-page", ""),
    "an XML document": (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', "html-page", ""),
    "a page behind an event": (sse(begins(), says("Hi")) + b"<html>502</html>\n", "not-a-stream", "Hi"),
    "gzip": (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", "binary", ""),
    "gzip behind a blank line": (b"\r\n\x1f\x8b\x08\x00\x00\x00\x00\x00", "binary", ""),
    "gzip behind a byte order mark": (b"\xef\xbb\xbf\x1f\x8b\x08\x00\x00\x00\x00\x00", "binary", ""),
    "binary": (b"\0\0\0\x10asdf", "binary", ""),
    "another encoding": ("data: {}\n\n".encode("utf-16"), "binary", ""),
    "chunked transfer coding left in": (b"1a\r\n" + sse(begins(), end="\r\n\r\n"), "not-a-stream", ""),
    "an array with words in it": (b"[" + joined(*LINES[:2], end=",") + b"oops]", "not-a-stream", "Grüße"),
    "an array with more behind it": (b"[" + joined(*LINES[:2], end=",") + b"] {}", "not-a-stream", "Grüße"),
    "an array of very many texts": (b"[" + joined(*LINES[:2], end=",") + b'""' * 1_001, "event-too-complex", "Grüße"),
    "objects divided by commas": (joined(*LINES[:2], end=",\n"), "bad-json", ""),
    "nesting without end": (b"data: " + b"[" * 100_000 + b"\n\n", "bad-json", ""),
    "nesting beyond reason": (b"data: " + b"[" * 30_000 + b"]" * 30_000 + b"\n\n", "bad-json", ""),
}  # fmt: skip


@pytest.mark.parametrize(("wire", "code", "text"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_refused(wire: bytes, code: str, text: str) -> None:
    answer = completion(wire)
    assert answer.fault is not None
    assert (answer.fault.code, answer.ending, answer.text) == (code, "failed", text)
    assert answer.fault.message
    assert read(*bytewise(wire)) == read(wire)


def test_a_fault_quotes_the_page_without_its_markup() -> None:
    page = (
        b"<html><style>p { color: red }</style><script>var x = 1</script><h1>503</h1><p>Back&nbsp;soon &amp; well</p>"
    )
    answer = completion(page)
    assert answer.fault is not None
    assert answer.fault.message == "503 Back soon & well"


INVALID_UTF8 = {
    "a Latin-1 letter": (b"caf\xe9!", "caf\N{REPLACEMENT CHARACTER}!"),
    "half a character": (b"\xf0\x9f\x8c!", "\N{REPLACEMENT CHARACTER}!"),
    "a stray continuation": (b"a\x80b", "a\N{REPLACEMENT CHARACTER}b"),
}


@pytest.mark.parametrize(("raw", "text"), INVALID_UTF8.values(), ids=INVALID_UTF8)
def test_invalid_utf8_is_replaced_and_the_chunk_kept(raw: bytes, text: str) -> None:
    wire = sse(begins(), says("~"), finishes(), DONE).replace(b"~", raw)
    answer = completion(wire)
    assert (answer.ending, answer.text) == ("completed", text)
    assert repairs(read(wire)) == {"invalid-utf8": 1}
    assert read(*bytewise(wire)) == read(wire)


def test_blank_lines_in_bare_json_do_not_end_it() -> None:
    pretty = json.dumps(says("Hi"), indent=1).replace("\n", "\n\n").encode() + b"\n\n"
    wire = sse(begins()) + pretty + sse(finishes(), DONE)
    assert (completion(wire).ending, completion(wire).text) == ("completed", "Hi")
    assert repairs(read(wire)) == {"no-data-prefix": 1}
    assert read(*bytewise(wire)) == read(wire)


@pytest.mark.parametrize("line", [b":\n", b"id: 1\n", b"event: x\n", b"data:\n", b"data :\n", b"latency: 1\n"])
def test_lines_after_whole_json_do_not_parse_it_again(line: bytes) -> None:
    reader = SseReader(10_000)
    reader.feed(sse(says("x"))[:-1])
    assert calls_of(lambda: reader.feed(line * 100), msgspec.json.decode) <= 1
