"""JsonScan gives the same answer however a text is split, and for long pieces as for short ones."""

import json
from random import Random

import pytest

from penstock.core.wire.scan import JsonScan, brackets_of, is_deeper, marks_of, outside_strings
from tests.mutation import split


def scanned(*pieces: bytes) -> tuple[int, int, bool, bool]:
    scan = JsonScan()
    for piece in pieces:
        scan.feed(piece)
    return min(scan.closed, 2), scan.depth, scan.in_string, scan.whole


@pytest.mark.parametrize("seed", range(300))
def test_a_text_is_scanned_the_same_however_it_is_split(seed: int) -> None:
    random = Random(seed)
    alphabet = random.choice((b'{}[]"\\a', b'{}[]"a', b'"\\', b"{}[]", b'{}{}{}{}"\\\\a \n'))
    text = bytes(random.choices(alphabet, k=random.randrange(1_000)))
    bytewise = scanned(*(text[i : i + 1] for i in range(len(text))))
    assert scanned(text) == bytewise
    assert scanned(*split(text, random)) == bytewise
    half = random.randrange(len(text) + 1)
    assert scanned(text[:half], text[half:]) == bytewise


def test_depth_is_that_of_brackets_outside_of_strings() -> None:
    for depth in (0, 1, 99, 100, 101, 1000):
        for brackets in ("[]", "{}"):
            nested = (brackets[0] * depth + brackets[1] * depth).encode()
            data = b"[1," + nested + b"," + nested + b"]"
            assert is_deeper(outside_strings(data), 100) == is_deeper(brackets_of(data), 100) == (depth > 99)
    quoted = json.dumps({"a": "[" * 1000, "b": '\\"[[' * 1000, "c": "\n" * 9}).encode()
    assert not is_deeper(outside_strings(quoted), 100)
    assert brackets_of(quoted) == b"{}"
    assert is_deeper(b"[" * 101, 100)


@pytest.mark.parametrize("seed", range(100))
def test_brackets_are_found_without_the_bytes_that_do_not_matter(seed: int) -> None:
    random = Random(seed)
    strings = ["".join(random.choices('a/bfnrtu"\\{}[]\n\t\x01\u20ac', k=random.randrange(30))) for _ in range(50)]
    text = json.dumps([{string: [string, {}]} for string in strings]).encode()
    assert brackets_of(marks_of(text)) == brackets_of(text) == b"[" + b"{[{}]}" * len(strings) + b"]"
    assert len(marks_of(text)) < len(text)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_string_may_be_longer_than_what_is_cut_at_once(seed: int) -> None:
    random = Random(seed)
    longest = random.choice((10, 1_000, 100_000, 300_000))
    strings = [
        random.choice(('[{"', "a\\", "")) * random.randrange(longest // 3 + 1) for _ in range(1_000_000 // longest)
    ]
    text = json.dumps(strings).encode()
    assert outside_strings(text) == b"[%b]" % b", ".join([b""] * len(strings))
    assert outside_strings(text + b'"[') == outside_strings(text)
