"""No secret remains in a recording, however reads split it; and nothing else changes."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capture import Read
from penstock.gateway.mask import Secrets
from penstock.serve.recording.scrub import Scrubber

KEY = "sk-0123456789abcdef"
OTHER = 'odd/"key\\+ of 1'
FOREIGN = "schl\u00fcssel-\u20ac-9"
SECRETS = Secrets((KEY, OTHER, FOREIGN))


def scrub(*data: bytes, secrets: Secrets = SECRETS) -> list[bytes]:
    scrubber = Scrubber(secrets)
    reads = [read for number, part in enumerate(data) for read in scrubber.feed(Read(float(number), part))]
    reads += scrubber.close()
    assert [read.at_s for read in reads] == [float(number) for number in range(len(data))]
    return [read.data for read in reads]


FORMS = {
    "as it is": KEY.encode(),
    "another": OTHER.encode(),
    "in JSON": rb"odd/\"key\\+ of 1",
    "in JSON with escaped slashes": rb"odd\/\"key\\+ of 1",
    "in a URL": b"odd%2F%22key%5C%2B%20of%201",
    "with escapes": rb"sk\u002d01234\u00356789abcde\u0066",
    "all escapes": "".join(f"\\u{ord(letter):04X}" for letter in KEY).encode(),
    "escapes of escapes": "".join(f"\\\\u{ord(letter):04x}" for letter in KEY).encode(),
    "in a page": b"sk&#45;0123456789abcde&#x66;",
    "in a URL in a page": b"sk&#37;2d0123456789abcdef",
    "with other letters": "schl\u00fcssel-\u20ac-9".encode(),
    "with other letters, in JSON": rb"schl\u00fcssel-\u20ac-9",
    "with other letters, in a URL": b"schl%C3%BCssel-%E2%82%AC-9",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_secret_becomes_stars_in_every_form(form: bytes) -> None:
    assert scrub(b"<" + form + b">") == [b"<" + b"*" * len(form) + b">"]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_secret_may_be_spread_over_reads(form: bytes) -> None:
    wire = b"before " + form + b" after"
    for cut in range(len(wire)):
        assert b"".join(scrub(wire[:cut], wire[cut:])) == b"before " + b"*" * len(form) + b" after"
    bytewise = [wire[i : i + 1] for i in range(len(wire))]
    assert scrub(*bytewise) == [bytes([byte]) for byte in b"before " + b"*" * len(form) + b" after"]


def test_reads_are_not_buffered_longer_than_they_must() -> None:
    scrubber = Scrubber(SECRETS)
    assert scrubber.feed(Read(0.0, b"data: {}\n\n")) == [Read(0.0, b"data: {}\n\n")]
    assert scrubber.feed(Read(1.0, b"task sk-01")) == []
    assert scrubber.feed(Read(2.0, b" no!")) == [Read(1.0, b"task sk-01"), Read(2.0, b" no!")]


def test_the_rest_of_a_secret_is_masked_also_where_another_may_begin_behind_it() -> None:
    assert scrub(b"x sk-0123", b"456789abcdef s", b"z") == [b"x *******", b"************ s", b"z"]


def test_a_secret_may_be_longer_than_it_seemed() -> None:
    both = Secrets(("abcdefgh", "abcdefgh-longer"))
    assert scrub(b"abcdefgh", b"-longer", b".", secrets=both) == [b"*" * 8, b"*" * 7, b"."]
    assert scrub(b"abcdefgh", b"-later", secrets=both) == [b"*" * 8, b"-later"]


def test_what_is_buffered_is_bounded() -> None:
    """Escapes without a meaning could follow the beginning of a secret forever."""
    scrubber = Scrubber(SECRETS)
    fed = released = 0
    for _ in range(2_000):
        read = Read(0.0, b"sk-0" + b"&#1;" * 4)
        fed += len(read.data)
        released += sum(len(each.data) for each in scrubber.feed(read))
        assert fed - released < 100 * SECRETS.longest


def test_most_of_a_secret_at_the_end_is_masked_too() -> None:
    assert scrub(b"key: sk-0123456789") == [b"key: *************"]
    assert scrub(b"ask") == [b"ask"]


def test_one_secret_may_begin_with_another() -> None:
    assert scrub(b"abcdefgh-longer", secrets=Secrets(("abcdefgh", "abcdefgh-longer"))) == [b"*" * 15]


def test_without_secrets_nothing_is_buffered() -> None:
    assert Scrubber(Secrets(())).feed(Read(0.0, b"sk-")) == [Read(0.0, b"sk-")]


WRITTEN: dict[str, Callable[[str], str]] = {
    "plain": str,
    "json": lambda letter: f"\\u{ord(letter):04x}",
    "json in json": lambda letter: f"\\\\u{ord(letter):04X}",
    "url": lambda letter: f"%{ord(letter):02x}",
    "page": lambda letter: f"&#{ord(letter)};",
    "url in a page": lambda letter: f"&#37;{ord(letter):02X}",
    "page in json": lambda letter: f"\\u0026#x{ord(letter):x};",
}


@given(st.lists(st.sampled_from(sorted(WRITTEN)), min_size=len(KEY), max_size=len(KEY)), st.data())
def test_however_it_is_written_and_read_only_stars_are_left(ways: list[str], data: st.DataObject) -> None:
    form = "".join(WRITTEN[way](letter) for way, letter in zip(ways, KEY, strict=True)).encode()
    wire = b'{"key": "' + form + b'"}\n\n'
    cuts = sorted(data.draw(st.sets(st.integers(1, len(wire) - 1), max_size=5)))
    parts = [wire[start:end] for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    assert b"".join(scrub(*parts)) == b'{"key": "' + b"*" * len(form) + b'"}\n\n'


@given(st.lists(st.sampled_from([KEY[:5], KEY[5:], KEY, "a", "sk-", "\n", OTHER]), max_size=12), st.randoms())
def test_whatever_the_reads_no_secret_is_left(words: list[str], chance: object) -> None:
    wire = "".join(words).encode()
    cuts = sorted(chance.sample(range(len(wire) + 1), min(4, len(wire)))) if wire else []  # type: ignore[attr-defined]
    parts = [wire[start:end] for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    scrubbed = scrub(*parts)
    assert [len(part) for part in scrubbed] == [len(part) for part in parts]
    assert not any(secret.encode() in b"".join(scrubbed) for secret in (KEY, OTHER))
