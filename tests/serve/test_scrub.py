"""No secret stays in what is recorded, however reads fall on it; and nothing else changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capture import Read
from penstock.serve.scrub import Scrubber, Secrets

KEY = "sk-0123456789abcdef"
OTHER = 'odd/"key\\+ of 1'
SECRETS = Secrets((KEY, OTHER))


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


def test_reads_are_not_held_longer_than_they_must() -> None:
    scrubber = Scrubber(SECRETS)
    assert scrubber.feed(Read(0.0, b"data: {}\n\n")) == [Read(0.0, b"data: {}\n\n")]
    assert scrubber.feed(Read(1.0, b"task sk-01")) == []
    assert scrubber.feed(Read(2.0, b" no!")) == [Read(1.0, b"task sk-01"), Read(2.0, b" no!")]


def test_most_of_a_secret_at_the_end_is_masked_too() -> None:
    assert scrub(b"key: sk-0123456789") == [b"key: *************"]
    assert scrub(b"ask") == [b"ask"]


def test_one_secret_may_begin_with_another() -> None:
    assert scrub(b"abcdefgh-longer", secrets=Secrets(("abcdefgh", "abcdefgh-longer"))) == [b"*" * 15]


def test_without_secrets_nothing_is_held() -> None:
    assert Scrubber(Secrets(())).feed(Read(0.0, b"sk-")) == [Read(0.0, b"sk-")]


@given(st.lists(st.sampled_from([KEY[:5], KEY[5:], KEY, "a", "sk-", "\n", OTHER]), max_size=12), st.randoms())
def test_whatever_the_reads_no_secret_is_left(words: list[str], chance: object) -> None:
    wire = "".join(words).encode()
    cuts = sorted(chance.sample(range(len(wire) + 1), min(4, len(wire)))) if wire else []  # type: ignore[attr-defined]
    parts = [wire[start:end] for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    scrubbed = scrub(*parts)
    assert [len(part) for part in scrubbed] == [len(part) for part in parts]
    assert not any(secret.encode() in b"".join(scrubbed) for secret in (KEY, OTHER))
