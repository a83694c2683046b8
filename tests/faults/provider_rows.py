"""Faults of the dialects that only providers speak: of JSON lines, of AWS event streams, and of their own events."""

import json
import re

from tests import bedrock, cohere, ollama, streams
from tests.event_streams import event, exception, framed, header, message, prelude
from tests.faults.case import Broken, Tolerated, bad, truncated
from tests.faults.dialects import BEDROCK, CHAT, COHERE, OLLAMA, OVERLOADED, TEXT, Provider, stream
from tests.faults.upstream import JSON, chunk, fin, hang, head, last_chunk, rst, status

AWS = {"content-type": "application/vnd.amazon.eventstream"}
LINES = {"content-type": "application/x-ndjson"}


def instead(each: Provider, *data: bytes) -> Broken:
    """Something after the first word that is no event, and then the rest of the answer."""
    return bad(stream(each.hello, b"".join(data), each.world, each.rest), "Hello")


def fails(each: Provider, data: bytes, words: str = OVERLOADED, code: str = "upstream_error") -> dict[str, Broken]:
    """An error, first and after a word."""
    name = words.split()[-1]
    return {
        f"U38 {name} first": Broken(stream(data), code, words=words),
        f"U37 {name} after content": Broken(stream(each.hello, data), code, sent_text="Hello", words=words),
    }


# AWS event streams.


def changed(data: bytes, place: int) -> bytes:
    """The data with another byte at this place."""
    place %= len(data)
    return data[:place] + bytes((data[place] ^ 0x41,)) + data[place + 1 :]


_WORLD = BEDROCK.world
_HEADERS = int.from_bytes(_WORLD[4:8], "big")
_CUTS = {"the lengths": 5, "their checksum": 10, "the headers": 30, "the payload": _HEADERS + 20, "the checksum": -2}
_DAMAGED = {
    "a wrong checksum of the lengths": changed(_WORLD, 9),
    "a wrong checksum": changed(_WORLD, -1),
    "a changed header": changed(_WORLD, 20),
    "a changed text": changed(_WORLD, -8),
    "a length of 4 GB": prelude(2**32 - 1, 50),
    "headers of 4 GB": prelude(100, 2**32 - 1),
    "a length of 0": prelude(0),
    "a length below the least": prelude(15),
    "headers that are longer than the message": prelude(100, 90),
    "headers of 200 KB": prelude(300_000, 200_000),
    "a header of an unknown type": framed(header(":event-type", "contentBlockDelta", 10), b"{}"),
    "headers that end in a name": framed(b"\x20:event", b"{}"),
    "headers that end in a value": framed(header(":event-type", "contentBlockDelta")[:-4], b"{}"),
    "a header that is no UTF-8": framed(b"\x02\xff\xfe\x07\x00\x00", b"{}"),
    "garbage between messages": b"garbage between messages",
    "NUL bytes between messages": bytes(40),
    "an event of chat completions": streams.sse(streams.says("!")),
    "a line of JSON": b'{"contentBlockDelta": {"delta": {"text": "!"}}}\n',
}
_ERROR = framed(
    header(":message-type", "error") + header(":error-code", "InternalFailure") + header(":error-message", OVERLOADED),
    b"",
)
_OTHER_HEADERS = framed(
    b"".join(
        (
            b"\x04flag\x00\x03off\x01\x04byte\x02\x01\x05short\x03\x00\x01\x03int\x04" + bytes(4),
            b"\x04long\x05" + bytes(8) + b"\x04time\x08" + bytes(8) + b"\x04uuid\x09" + bytes(16),
            header("bytes", "b", 6) + header(":event-type", "contentBlockDelta") + header(":message-type", "event"),
        )
    ),
    json.dumps({"contentBlockIndex": 0, "delta": {"text": ", world"}}).encode(),
)
_UNTYPED = message(b'{"contentBlockIndex": 0, "delta": {"text": ", world"}}', event_type="contentBlockDelta")
_INVALID = message(b'{"contentBlockIndex": 0, "delta": {"text": ", \xff\xfe"}}', event_type="contentBlockDelta")
_PRINTED = "".join(
    json.dumps(line) + "\n"
    for line in (
        {"messageStart": {"role": "assistant"}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": TEXT}}},
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"messageStop": {"stopReason": "end_turn"}},
        {"metadata": {"usage": {"inputTokens": 5, "outputTokens": 3, "totalTokens": 8}}},
    )
).encode()

# Ollama.


def lines(data: bytes) -> list[bytes]:
    return data.splitlines()


def rewritten(old: bytes, new: bytes) -> Tolerated:
    return Tolerated(stream(OLLAMA.wire.replace(old, new)))


_UNDONE = OLLAMA.finish.replace(b'"done": true', b'"done": false')

BROKEN: dict[str, dict[str, Broken]] = {
    OLLAMA.dialect: {
        "U16 the last line is not done": truncated(stream(OLLAMA.hello, OLLAMA.world, _UNDONE), TEXT),
        "U16 the last line is cut": truncated(stream(OLLAMA.hello, OLLAMA.world, OLLAMA.finish[:-2]), TEXT),
        "U19 reset in the last line": Broken(
            [head(headers=LINES), chunk(OLLAMA.hello + OLLAMA.finish[:-2]), rst()],
            "upstream_reset",
            sent_text="Hello",
            ending="truncated",
        ),
        # The lines after it could be a part of it: there is no way to tell.
        "U35 a line that is not closed": truncated(stream(OLLAMA.hello, b'{"message": \n', OLLAMA.world, OLLAMA.rest)),
        "U35 a text in place of a line": instead(OLLAMA, b"upstream connect error\n"),
        "U35 a page in place of a line": instead(OLLAMA, b"<html><body>Bad gateway</body></html>\n"),
        "U35 bytes in place of a line": instead(OLLAMA, b"\x00\x01\x02\xff\n"),
        "U36 a message that is a list": instead(OLLAMA, b'{"model": "weir-3", "message": [], "done": false}\n'),
        "U36 an event of chat completions": instead(OLLAMA, streams.sse(streams.says("!"))),
        "U36 a call without a name": instead(
            OLLAMA, ollama.wire(ollama.message(tool_calls=[ollama.call("call_1", {}, "")]))
        ),
        "U40 chat completions": bad(stream(CHAT.wire)),
        "U40 an event stream": bad(stream(BEDROCK.wire), code="upstream_empty"),
    },
    COHERE.dialect: {
        "U16 only a start and [DONE]": truncated(stream(COHERE.begin, COHERE.end), ""),
        "U36 a second message": instead(COHERE, cohere.wire(cohere.BEGIN | {"id": "co_2"})),
        "U36 arguments without a call": instead(COHERE, cohere.wire(cohere.calls_all("c1", "{}")[1])),
        "U36 a call without a name": instead(COHERE, cohere.wire(*cohere.calls_all("c1", name=""))),
        "U36 an event of version 1": instead(COHERE, b'data: {"event_type": "text-generation", "text": "!"}\n\n'),
        "U37 a timeout as a finish reason": Broken(
            stream(COHERE.hello, cohere.wire(cohere.ends("TIMEOUT", {})), COHERE.end),
            "upstream_error",
            sent_text="Hello",
            words="TIMEOUT",
        ),
        "U40 an event stream": bad(stream(BEDROCK.wire), code="upstream_empty"),
    },
    BEDROCK.dialect: {
        **{
            f"U16 ends in {place}": truncated([head(headers=AWS), chunk(BEDROCK.hello + _WORLD[:at]), last_chunk()])
            for place, at in _CUTS.items()
        },
        "U16 ends in the first message": truncated(stream(BEDROCK.begin[:40]), ""),
        "U16 ends in the stop": truncated(stream(BEDROCK.hello, BEDROCK.finish[:-3])),
        "U15 closed in the headers": truncated([head(headers=AWS), chunk(BEDROCK.hello + _WORLD[:30]), fin()]),
        "U19 reset in the payload": Broken(
            [head(headers=AWS), chunk(BEDROCK.hello + _WORLD[: _CUTS["the payload"]]), rst()],
            "upstream_reset",
            sent_text="Hello",
            ending="truncated",
        ),
        **{f"U35 {name}": instead(BEDROCK, data) for name, data in _DAMAGED.items()},
        "U35 a wrong checksum, first": bad(stream(changed(BEDROCK.begin, -1), BEDROCK.world, BEDROCK.rest)),
        "U35 a wrong checksum, and no end": bad(
            [head(headers=AWS), chunk(BEDROCK.hello + changed(_WORLD, -1)), hang()], "Hello"
        ),
        "U35 a length of 4 GB, first": bad(stream(prelude(2**32 - 1, 50) + BEDROCK.wire)),
        "U35 a length of 0, first": bad(stream(prelude(0) + BEDROCK.wire)),
        "U33 a byte order mark": bad(stream(b"\xef\xbb\xbf" + BEDROCK.wire)),
        "U36 an event of Messages": instead(BEDROCK, event("chunk", {"type": "message_start", "message": {}})),
        "U36 arguments without a call": instead(BEDROCK, bedrock.passes("{}", 1)),
        **fails(BEDROCK, _ERROR),
        **fails(BEDROCK, exception("internalServerException", "an internal failure"), "failure"),
        **fails(BEDROCK, message(b"no JSON", exception_type="odd", message_type="exception"), "no JSON"),
        "U37 malformed output": Broken(
            stream(BEDROCK.hello, bedrock.stops("malformed_model_output"), BEDROCK.bill),
            "upstream_bad_finish",
            sent_text="Hello",
            words="malformed_model_output",
        ),
        "U40 chat completions": bad(stream(CHAT.wire)),
        "U40 lines of JSON": bad([status(200, JSON, OLLAMA.wire)], code="upstream_empty"),
    },
}
TOLERATED: dict[str, dict[str, Tolerated]] = {
    OLLAMA.dialect: {
        "as it should be, with its type": Tolerated([head(headers=LINES), chunk(OLLAMA.wire), last_chunk()]),
        "U32 no newline at the end": Tolerated(stream(OLLAMA.wire.removesuffix(b"\n"))),
        "U31 blank lines": rewritten(b"\n", b"\n\n"),
        "U31 all on one line": Tolerated(stream(OLLAMA.wire.replace(b"\n", b"")), ("glued-events",)),
        "U31 two on each line": Tolerated(stream(re.sub(rb"\n(.*\n)", rb"\1", OLLAMA.wire)), ("glued-events",)),
        "U31 each over several lines": Tolerated(
            stream(*(json.dumps(json.loads(line), indent=2).encode() + b"\n" for line in lines(OLLAMA.wire)))
        ),
        "U31 `data:` before each": Tolerated(
            stream(*(b"data: " + line + b"\n" for line in lines(OLLAMA.wire))), ("missing-blank-line",)
        ),
        "U31 as events": Tolerated(stream(*(b"data: " + line + b"\n\n" for line in lines(OLLAMA.wire)))),
        "U31 an array": Tolerated(stream(b"[" + b",\n".join(lines(OLLAMA.wire)) + b"]"), ("json-array",)),
        "U45 text after the end": Tolerated(stream(OLLAMA.wire, OLLAMA.says("?")), ("data-after-done",), TEXT + "?"),
        "U45 [DONE] after the end": Tolerated(stream(OLLAMA.wire, CHAT.end), ("done-unexpected",)),
        "U45 garbage after the end": Tolerated(stream(OLLAMA.wire, b"and then some"), ("data-after-done",)),
        "U36 an unknown line": Tolerated(
            stream(OLLAMA.hello, b'{"status": "loading"}\n', OLLAMA.world, OLLAMA.rest), ("event-unknown",)
        ),
        "U47 no usage": Tolerated(
            stream(OLLAMA.hello, OLLAMA.world, ollama.wire(ollama.message() | {"done": True, "done_reason": "stop"})),
            usage=None,
        ),
    },
    COHERE.dialect: {
        "U31 no names of events": Tolerated(stream(re.sub(rb"event: [\w-]+\n", b"", COHERE.wire))),
        "U36 a delta without its block": Tolerated(
            stream(cohere.wire(cohere.BEGIN), COHERE.says(TEXT), COHERE.rest), ("block-start-missing",)
        ),
        "U36 a block without its end": Tolerated(
            stream(COHERE.wire.replace(cohere.wire(cohere.closes()), b"")), ("block-unclosed",)
        ),
        "U36 a ping between events": Tolerated(
            stream(COHERE.hello, b"event: ping\ndata: {}\n\n", COHERE.world, COHERE.rest), ("keepalive-event",)
        ),
        "U45 finished twice": Tolerated(
            stream(COHERE.hello, COHERE.world, COHERE.finish, COHERE.rest), ("done-repeated",)
        ),
        "U45 text after the end": Tolerated(stream(COHERE.wire, COHERE.says("?")), ("data-after-done",), TEXT + "?"),
        "U47 no usage": Tolerated(
            stream(COHERE.hello, COHERE.world, cohere.wire(cohere.closes(), cohere.ends(counts={})), COHERE.end),
            usage=None,
        ),
    },
    BEDROCK.dialect: {
        "as it should be, with its type": Tolerated([head(headers=AWS), chunk(BEDROCK.wire), last_chunk()]),
        "U31 headers of every type": Tolerated(stream(BEDROCK.hello, _OTHER_HEADERS, BEDROCK.rest)),
        "U31 no type of the message": Tolerated(stream(BEDROCK.hello, _UNTYPED, BEDROCK.rest)),
        "U33 invalid UTF-8": Tolerated(
            stream(BEDROCK.hello, _INVALID, BEDROCK.rest), ("invalid-utf8",), "Hello, \ufffd\ufffd"
        ),
        "U36 an initial response": Tolerated(stream(event("initial-response", {}), BEDROCK.wire), ("keepalive-event",)),
        "U36 an unknown event": Tolerated(
            stream(BEDROCK.hello, event("tideEvent", {"level": 3}), BEDROCK.world, BEDROCK.rest), ("event-unknown",)
        ),
        "U36 no start of the message": Tolerated(
            stream(BEDROCK.wire.removeprefix(BEDROCK.begin)), ("message-start-missing",)
        ),
        "U36 a block without its stop": Tolerated(
            stream(BEDROCK.hello, BEDROCK.world, bedrock.stops(), BEDROCK.bill), ("block-unclosed",)
        ),
        "U42 events as lines of JSON": Tolerated(stream(_PRINTED), ("json-lines",)),
        "U45 a message after the end": Tolerated(
            stream(BEDROCK.wire, BEDROCK.says("?")), ("data-after-done",), TEXT + "?"
        ),
        "U45 a few bytes after the end": Tolerated(stream(BEDROCK.wire, b"\0\0\0"), ("data-after-done",)),
        "U45 garbage after the end": Tolerated(stream(BEDROCK.wire, b"garbage " * 9), ("data-after-done",)),
        "U47 no usage": Tolerated(stream(BEDROCK.hello, BEDROCK.world, BEDROCK.finish), ("no-done",), usage=None),
    },
}
