"""A regular stream, which is forwarded chunk by chunk without being parsed, and everything that can end that.

Each thing is sent a moment after the one before, so that the gateway reads it alone.
"""

import pytest

from tests.faults.client import Response, body, post
from tests.faults.conftest import Starter
from tests.faults.gateway import Gateway
from tests.faults.scripts import ERROR_BODY, HELLO, REST
from tests.faults.upstream import Gate, Op, Script, chunk, fin, for_ever, head, last_chunk, rst, send, sleep
from tests.streams import says, sse

REGULAR = [sse(says(f" word{number}")) for number in range(6)]
SENT_TEXT = "Hello" + "".join(f" word{number}" for number in range(6))
MORE = sse(says(" more"))


def apart(*ops: Op) -> Script:
    return [each for op in ops for each in (op, sleep(0.003))]


def regular(*ops: Op) -> Script:
    return apart(head(), chunk(HELLO), *map(chunk, REGULAR), *ops)


def hexadecimal(size: str, data: bytes) -> Op:
    return send(size.encode() + b"\r\n" + data + b"\r\n")


ON = [*map(chunk, REGULAR[:3]), chunk(REST), last_chunk()]
ON_SENT = " word0 word1 word2"
# What interrupts the regular stream, and the text that the client then has.
TOLERATED: dict[str, tuple[list[Op], str]] = {
    "nothing": ([], ""),
    "two events in a chunk": ([chunk(MORE + MORE)], " more more"),
    "two chunks in a read": ([send(b"%x\r\n%b\r\n" % (len(MORE), MORE) * 2)], " more more"),
    "an event in two chunks": ([chunk(MORE[:50]), chunk(MORE[50:])], " more"),
    "a chunk in two reads": ([send(b"%x\r\n" % len(MORE) + MORE[:50]), send(MORE[50:] + b"\r\n")], " more"),
    "its size in two reads": ([send(b"%x" % len(MORE)), send(b"\r\n%b\r\n" % MORE)], " more"),
    "its end in two reads": ([send(b"%x\r\n%b\r" % (len(MORE), MORE)), send(b"\n")], " more"),
    "a size in capitals": ([hexadecimal(f"{len(MORE):X}", MORE)], " more"),
    "a size with zeros": ([hexadecimal(f"{len(MORE):08x}", MORE)], " more"),
    "a chunk with an extension": ([hexadecimal(f"{len(MORE):x};a=b", MORE)], " more"),
    "an escape": ([chunk(sse(says('"\n')))], '"\n'),
    "another script": ([chunk(sse(says("水 🌊")))], "水 🌊"),
    "a line end to some": ([chunk(sse(says("a\u2028b")))], "a\u2028b"),
    "a new field": ([chunk(sse(says(" more", padding="y")))], " more"),
    "a comment": ([chunk(b": still here\n\n")], ""),
    "no blank line": ([chunk(MORE[:-1])], " more"),
    "what looks like an end": ([chunk(sse(says("0\r\n\r\n")))], "0\r\n\r\n"),
}


@pytest.mark.parametrize(("ops", "sent_text"), TOLERATED.values(), ids=TOLERATED)
@pytest.mark.parametrize("usage", [True, False])
def test_an_interruption_changes_nothing(gateway: Gateway, ops: list[Op], sent_text: str, usage: bool) -> None:
    model = gateway.upstream.play(regular(*ops, *ON))
    options = {"stream_options": {"include_usage": True}} if usage else {}
    response = gateway.ask(f"main/{model}", stream=True, **options)
    assert (response.text, response.finish, response.done) == (SENT_TEXT + sent_text + ON_SENT, "stop", True)
    assert response.complete
    gateway.quiet()


def failed(response: Response, code: str, sent_text: str = SENT_TEXT) -> None:
    assert (response.text, response.error["code"], response.done) == (sent_text, code, False)
    assert response.complete


BROKEN: dict[str, tuple[list[Op], str]] = {
    "an error": ([chunk(b"data: " + ERROR_BODY + b"\n\n"), *ON], "upstream_error"),
    "a size that is none": ([hexadecimal("xyz", MORE), *ON], "upstream_bad_response"),
    "a size with a sign": ([hexadecimal(f"+{len(MORE):x}", MORE), *ON], "upstream_bad_response"),
    "a size in Python's manner": ([hexadecimal(f"0x{len(MORE):x}", MORE), *ON], "upstream_bad_response"),
    "a chunk without its end": ([send(b"%x\r\n%bxx" % (len(MORE), MORE)), *ON], "upstream_bad_response"),
    "the end between chunks": ([fin()], "upstream_truncated"),
    "a reset between chunks": ([rst()], "upstream_reset"),
    "the end in a chunk": ([send(b"%x\r\n" % len(MORE) + MORE[:50]), fin()], "upstream_truncated"),
    "the last chunk too early": ([last_chunk()], "upstream_truncated"),
}


@pytest.mark.parametrize(("ops", "code"), BROKEN.values(), ids=BROKEN)
def test_what_breaks_it_is_reported(gateway: Gateway, ops: list[Op], code: str) -> None:
    model = gateway.upstream.play(regular(*ops))
    response = gateway.ask(f"main/{model}", stream=True)
    assert response.text.startswith(SENT_TEXT)
    failed(response, code, response.text)
    gateway.quiet()


def test_a_client_that_leaves_a_regular_stream_ends_it(gateway: Gateway) -> None:
    model = gateway.upstream.play(apart(head(), chunk(HELLO), for_ever(MORE, 0.001)))
    with gateway.begin(f"main/{model}", stream=True) as client:
        client.read_until(b" more")
    gateway.upstream.until(lambda: not [each for each in gateway.upstream.open if each.busy])
    gateway.quiet()


def test_a_regular_stream_is_read_to_its_end_when_its_client_leaves(gateway: Gateway) -> None:
    """The relay must not use the function that forwarded its chunks any more: the client's side is gone."""
    gate = Gate()
    model = gateway.upstream.play([*regular(), gate, *apart(*[chunk(MORE)] * 10, chunk(REST), last_chunk())])
    with gateway.begin(f"heard/{model}", stream=True) as client:
        client.read_until(b"word5")
        end = gateway.end_of(client)
        client.rst()
    gateway.closes(end)
    gate.open()
    line = gateway.last_call()
    assert (line["ending"], line["code"], line["attempts"][0]["code"]) == ("cancelled", "client_gone", "")
    assert (line["input"], line["output"]) == (5, 3)
    gateway.quiet()


def test_a_client_that_speaks_the_old_http_gets_no_chunks(gateway: Gateway) -> None:
    model = gateway.upstream.play(regular(*ON))
    request = post(body(f"main/{model}", stream=True)).replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", 1)
    response = gateway.send(request, calls=1)
    assert (response.text, response.done) == (SENT_TEXT + ON_SENT, True)
    assert b"\r" not in response.body
    gateway.quiet()


def test_a_regular_stream_that_stops_is_noticed(start: Starter) -> None:
    gateway = start(timeouts={"gap_s": 0.3})
    gate = Gate()
    model = gateway.upstream.play([*regular(), gate])
    failed(gateway.ask(f"main/{model}", stream=True), "upstream_timeout_idle")
    gateway.quiet()


def test_a_large_event_is_refused_in_a_regular_stream_too(start: Starter) -> None:
    gateway = start(limits={"max_event": 2_000})
    model = gateway.upstream.play(regular(chunk(sse(says("x" * 3_000))), *ON))
    response = gateway.ask(f"main/{model}", stream=True)
    failed(response, "upstream_event_too_large")
    gateway.quiet()
