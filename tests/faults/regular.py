"""A regular stream, which is forwarded chunk by chunk, and everything that can interrupt or break it.

The tables are functions of a `Provider` (`dialects.py`): the faults are the same for every dialect with a fast path.
"""

from tests.faults.dialects import CHAT, OVERLOADED, Provider
from tests.faults.upstream import Op, Script, chunk, fin, head, last_chunk, rst, send, until_read

SENT_TEXT = "Hello" + "".join(f" word{number}" for number in range(6))


def apart(*ops: Op) -> Script:
    return [each for op in ops for each in (op, until_read())]


def words(each: Provider, count: int = 6) -> list[Op]:
    return [chunk(each.says(f" word{number}")) for number in range(count)]


def regular(*ops: Op, each: Provider = CHAT) -> Script:
    return apart(head(), chunk(each.hello), *words(each), *ops)


def on(each: Provider) -> list[Op]:
    """How a stream goes on to its end."""
    return [*words(each, 3), chunk(each.rest), last_chunk()]


def hexadecimal(size: str, data: bytes) -> Op:
    return send(size.encode() + b"\r\n" + data + b"\r\n")


ON_SENT = " word0 word1 word2"


def tolerated(each: Provider) -> dict[str, tuple[list[Op], str]]:
    """What interrupts the steady stream, and what is said by it."""
    more = each.says(" more")
    return {
        "nothing": ([], ""),
        "two events in a chunk": ([chunk(more + more)], " more more"),
        "two chunks in a read": ([send(b"%x\r\n%b\r\n" % (len(more), more) * 2)], " more more"),
        "an event in two chunks": ([chunk(more[:50]), chunk(more[50:])], " more"),
        "a chunk in two reads": ([send(b"%x\r\n" % len(more) + more[:50]), send(more[50:] + b"\r\n")], " more"),
        "its size in two reads": ([send(b"%x" % len(more)), send(b"\r\n%b\r\n" % more)], " more"),
        "its end in two reads": ([send(b"%x\r\n%b\r" % (len(more), more)), send(b"\n")], " more"),
        "a size in capitals": ([hexadecimal(f"{len(more):X}", more)], " more"),
        "a size with zeros": ([hexadecimal(f"{len(more):08x}", more)], " more"),
        "a chunk with an extension": ([hexadecimal(f"{len(more):x};a=b", more)], " more"),
        "an escape": ([chunk(each.says('"\n'))], '"\n'),
        "another script": ([chunk(each.says("水 🌊"))], "水 🌊"),
        "a line end to some": ([chunk(each.says("a\u2028b"))], "a\u2028b"),
        "a new field": ([chunk(each.says(" more", padding="y"))], " more"),
        "a comment": ([chunk(b": still here\n\n")], ""),
        "no blank line": ([chunk(more[:-1])], " more"),
        "what looks like an end": ([chunk(each.says("0\r\n\r\n"))], "0\r\n\r\n"),
    }


def broken(each: Provider) -> dict[str, tuple[list[Op], str]]:
    """What breaks the steady stream, and how it is reported."""
    more, rest = each.says(" more"), on(each)
    return {
        "an error": ([chunk(each.fails(OVERLOADED)), *rest], "upstream_error"),
        "a size that is none": ([hexadecimal("xyz", more), *rest], "upstream_bad_response"),
        "a size with a sign": ([hexadecimal(f"+{len(more):x}", more), *rest], "upstream_bad_response"),
        "a size in Python's manner": ([hexadecimal(f"0x{len(more):x}", more), *rest], "upstream_bad_response"),
        "a chunk without its end": ([send(b"%x\r\n%bxx" % (len(more), more)), *rest], "upstream_bad_response"),
        "the end between chunks": ([fin()], "upstream_truncated"),
        "a reset between chunks": ([rst()], "upstream_reset"),
        "the end in a chunk": ([send(b"%x\r\n" % len(more) + more[:50]), fin()], "upstream_truncated"),
        "the last chunk too early": ([last_chunk()], "upstream_truncated"),
    }
