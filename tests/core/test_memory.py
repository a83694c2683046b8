"""Memory: what is kept from one answer for the next does not grow, whatever new names a provider sends.

Everything else is freed at once. It does not wait for the garbage collector, which would delay all calls.
"""

import gc
import sys
import tracemalloc
from collections.abc import Callable

import pytest

from penstock import StreamReader, StreamWriter
from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.core.fast.openings import OpeningTemplate
from penstock.core.wire.complexity import outline_of
from tests.streams import DONE, Json, begins, bill, by_event, choice, chunk, delta, finishes, says, sse

pytestmark = pytest.mark.slow

ANSWERS = 8_000
# After this many answers everything is learned that can be, and the bounded tables are nearly full.
FIRST = 2_000
# A parser may cache some hundred names. One more object per answer would be 6,000.
FEW = 1_000

NEW: list[Callable[[str], list[Json]]] = [
    lambda name: [finishes() | {name: name}],
    lambda name: [chunk(choice({}, finish="stop", **{name: 1}))],
    lambda name: [delta({name: {name: [name]}}, finish="stop")],
    lambda name: [finishes(name)],
    lambda name: [finishes(), bill(prompt_tokens=1, completion_tokens=3, total_tokens=4, **{name: 1})],
    lambda name: [finishes(system_fingerprint=name, service_tier=name)],
    lambda name: [says("more", **{name: 1}), finishes()],
]


def answer(number: int, opening: OpeningTemplate) -> int:
    """Read an answer as a relay does, with something new in its ending, and write it; the bytes that a client gets."""
    ending = NEW[number % len(NEW)](f"new_{number}")
    named: Json = {"id": f"chatcmpl-{number}", "created": 1_700_000_000 + number}
    events = [event | named for event in (begins(), says("a"), says("b"), says("c"), *ending)]
    reader, writer, size = (
        StreamReader(opening_template=opening),
        StreamWriter(source=DEFAULT_DIALECT, include_usage=True),
        0,
    )
    for read in by_event(sse(*events, DONE)):
        emitted = reader.feed(read)
        if reader.forwardable == "yes":
            writer.note(emitted)
        else:
            size += len(writer.write(emitted))
    return size + len(writer.write_end(reader.trailer, reader.close()))


def kept() -> tuple[int, int]:
    """The number of objects, and of the memory blocks that they take, including strings."""
    gc.collect()
    return len(gc.get_objects()), sys.getallocatedblocks()


def test_answers_with_ever_new_fields_leave_nothing_behind() -> None:
    opening = OpeningTemplate()
    assert all(answer(number, opening) for number in range(FIRST))
    objects, blocks = kept()
    for number in range(FIRST, ANSWERS):
        answer(number, opening)
    more_objects, more_blocks = kept()
    assert more_objects - objects < FEW
    assert more_blocks - blocks < FEW


@pytest.mark.parametrize(
    "event",
    [
        "[]",
        "[]{}",
        '{"a":[{"b":0}]}',
        '{"choices":[{"index":[0],"delta":{}}]}',
        '{"choices":[{"logprobs":[{}]}]}',
        '{"choices":[],"object":[{}],"usage":[{}]}',
        '{"id":[{}],"model":{"a":[]},"choices":[]}',
    ],
)
def test_a_defective_event_leaves_no_reference_cycles(event: str) -> None:
    reader, writer = StreamReader(), StreamWriter()
    writer.write(reader.feed(sse(begins())))
    gc.collect()
    gc.disable()
    try:
        emitted = reader.feed(sse(*[event] * 500))
        assert len(emitted) >= 500
        writer.write(emitted)
        del emitted
        assert gc.collect() < 50
    finally:
        gc.enable()


def test_a_large_text_is_counted_without_a_copy_of_each_string_in_it() -> None:
    text = b"{%b}" % b",".join(b'"%x":{},"%xa":{}' % (number, number) for number in range(50_000))
    tracemalloc.start()
    try:
        outline_of(text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(text), f"{peak:,} bytes to count {len(text):,}"
