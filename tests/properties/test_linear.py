"""Twice the bytes take twice the work: counted in calls, not timed, so that a busy machine cannot make it fail."""

import pytest

from penstock import StreamReader
from penstock.core.dialects.registry import DEFAULT_DIALECT
from tests import gemini
from tests.cpu import calls_of
from tests.messages import DIALECT as MESSAGES
from tests.messages import begins, calls, delta, finishes, opens, passes, says, signs, thinks, wire
from tests.streams import read

pytestmark = pytest.mark.slow


def _chunk(delta: str, more: str = "") -> bytes:
    return f'data: {{"choices":[{{"index":0,"delta":{{{delta}}}}}]{more}}}\n\n'.encode()


# Each grows with the number of repetitions in a way that has tempted a reader to look at the same bytes again.
GROWING: dict[str, tuple[bytes, bytes]] = {
    "plain deltas": (b"", _chunk('"content":"a"')),
    "one event over many data lines": (b"data: [\ndata: {}", b"\ndata: ,{}"),
    "one event over many bare lines": (b'data: {"a":[1\n', b",1\n"),
    "bare JSON that never ends": (b"{", b'"a":{\n'),
    "no blank lines": (b"", _chunk('"content":"a"').rstrip() + b"\n"),
    "one string that never ends": (b'data: {"a":"', b"\\\\x\n"),
    "glued objects": (b"data: ", b'{"choices":[]}'),
    "a JSON array": (b"[", b'{"choices":[]},'),
    "brackets": (b"data: ", b"["),
    "half characters": (b"", _chunk('"content":"\\ud83c"')),
    "usage in every chunk": (b"", _chunk('"content":"a"', ',"usage":{"prompt_tokens":1,"completion_tokens":2}')),
    "arguments without an id": (b"", _chunk('"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{"}}]')),
    "arguments without an index": (b"", _chunk('"tool_calls":[{"function":{"name":"f","arguments":"1,"}}]')),
    "many tool calls": (b"", _chunk('"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]')),
    "comments": (b"", b": wait\n"),
    "empty events": (b"", b"data:\n\n"),
    "carriage returns": (b"", b"data: {}\r\r"),
    "extras that change": (b"", _chunk('"content":"a"', ',"p":"x"') + _chunk('"content":"a"', ',"p":"y"')),
}


MESSAGE = wire(begins(), opens())
GROWING_MESSAGES: dict[str, tuple[bytes, bytes]] = {
    "text": (MESSAGE, wire(says("a"))),
    "text that its start has": (wire(begins(), opens(text="a" * 1_000)), wire(says("a"))),
    "blocks that are never stopped": (MESSAGE, wire(opens())),
    "calls that are never stopped": (MESSAGE, b"".join(wire(calls(index, f"c{index}")) for index in range(1, 9))),
    "arguments": (wire(begins(), calls()), wire(passes("[1"))),
    "a call that starts again": (
        wire(begins()),
        wire(calls(), passes("["), {"type": "content_block_stop", "index": 0}),
    ),
    "an unknown block": (wire(begins(), opens(0, "tide")), wire(delta(0, "tide_delta", level="high"))),
    "unknown deltas": (MESSAGE, wire(delta(0, "tide_delta", level="high"))),
    "unknown events": (MESSAGE, wire({"type": "tide", "level": 3})),
    "thinking in a block of text": (MESSAGE, wire(says("a"), thinks("b"))),
    "signatures": (wire(begins(), opens(0, "thinking")), wire(signs("abc"))),
    "usage": (MESSAGE, wire(finishes(usage={"output_tokens": 5, "iterations": [{"input_tokens": 3}] * 5}))),
    "deltas without an index": (MESSAGE, b'data: {"type":"content_block_delta","delta":{"type":"text_delta"}}\n\n'),
    "half characters": (MESSAGE, wire(says("a")).replace(b'"a"', b'"\\ud83c"')),
}
GROWING_GEMINI: dict[str, tuple[bytes, bytes]] = {
    "text": (b"", gemini.wire(gemini.says("a"))),
    "thoughts and texts in turn": (b"", gemini.wire(gemini.thinks("a"), gemini.says("b"))),
    "an array": (b"[", gemini.array(gemini.says("a"))[1:-1] + b","),
    "calls": (b"", gemini.wire(gemini.message(gemini.calls()))),
    "calls that are never ended": (b"", gemini.wire(gemini.passes(name="f"))),
    "streamed arguments": (
        gemini.wire(gemini.passes(name="f")),
        gemini.wire(
            gemini.passes({"jsonPath": "$.a.b", "numberValue": 1}, {"jsonPath": "$.a.c[0]", "boolValue": True})
        ),
    ),
    "a streamed string": (
        gemini.wire(gemini.passes(name="f")),
        gemini.wire(gemini.passes({"jsonPath": "$.a", "stringValue": "x", "willContinue": True})),
    ),
    "signatures": (b"", gemini.wire(gemini.message({"thoughtSignature": "c2VhbA=="}))),
    "sources": (b"", gemini.wire(gemini.says("High", **gemini.GROUNDING))),
    "usage": (b"", gemini.wire(gemini.says("a", usage=gemini.USAGE))),
    "half characters": (b"", gemini.wire(gemini.says("a")).replace(b'"a"', b'"\\ud83c"')),
}
CASES = {
    **{name: (DEFAULT_DIALECT, *case) for name, case in GROWING.items()},
    **{f"messages: {name}": (MESSAGES, *case) for name, case in GROWING_MESSAGES.items()},
    **{f"gemini: {name}": (gemini.DIALECT, *case) for name, case in GROWING_GEMINI.items()},
}


# Each byte of the smaller stream is read by itself, with a profiler.
_MAX_BYTES = 25_000


@pytest.mark.parametrize(("dialect", "first", "repeated"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("bytewise", [False, True], ids=["whole", "byte by byte"])
def test_twice_the_bytes_take_twice_the_work(dialect: str, first: bytes, repeated: bytes, bytewise: bool) -> None:
    def work(times: int) -> int:
        data = first + repeated * times
        pieces = [data[i : i + 1] for i in range(len(data))] if bytewise else [data]
        return calls_of(lambda: read(*pieces, reader=StreamReader(dialect)))

    times = min(200, _MAX_BYTES // len(repeated))
    assert work(2 * times) < 2.3 * work(times)
