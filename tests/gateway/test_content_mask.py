"""What is masked in content before it is kept, and how long that takes at most."""

import time
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.content.content_mask import PATTERNS, ContentMask, parse_pattern
from tests.promptness import cpu_s

SECRET = "canary-of-the-provider-93ab"
MASK = ContentMask([*PATTERNS.values(), parse_pattern(r"EMP-\d{6}")], (SECRET,))

CASES = {
    "nothing": ("Say hello to 3 people.", "Say hello to 3 people."),
    "email": ("write to ann.o+x@mail.example.co.uk, please", "write to [email], please"),
    "card": ("4111 1111 1111 1111 and 5500-0000-0000-0004", "[card] and [card]"),
    "no card": ("4111 1111 1111 1112", "4111 1111 1111 1112"),
    "iban": ("to DE89 3704 0044 0532 0130 00.", "to [iban]."),
    "no iban": ("to DE88 3704 1144 0532 0130 22.", "to DE88 3704 1144 0532 0130 22."),
    "phone": ("+49 (30) 1234-567 or 0044 20 7946 0958", "[phone] or [phone]"),
    "ip": ("from 10.0.0.17, version 1.2.3.4.5", "from [ip], version 1.2.3.4.5"),
    "expression": ("EMP-123456 EMP-12", "[masked] EMP-12"),
    "a secret": (f"key={SECRET}.", "key=…."),
    "an encoded secret": (f"key={b64encode(SECRET.encode()).decode()}", None),
    "an unknown key": ("use sk-proj-0123456789abcdefghij now", "use [key] now"),
    "a user": ("I am user-ann, really", "I am u_1, really"),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_masks(text: str, expected: str | None) -> None:
    masked = MASK.text(text, {"user-ann": "u_1", "a": "u_2"})
    if expected is None:
        assert SECRET not in masked
        assert b64encode(SECRET.encode()).decode()[4:-4] not in masked
    else:
        assert masked == expected
    # The same in the middle of a long text, at each border of a window.
    for before in (2_040, 2_048 - len(text) // 2, 4_096):
        long = MASK.text(f"{'x ' * (before // 2)}{text} {'y ' * 1_500}", {"user-ann": "u_1"})
        assert long == f"{'x ' * (before // 2)}{masked} {'y ' * 1_500}"


def test_json_is_masked_in_names_values_and_numbers() -> None:
    value = {"to ann@x.example": [{"card": 4111111111111111, "n": 17, "ok": True, "none": None, "x": 1.5}, SECRET]}
    assert MASK.json(value, {}) == {
        "to [email]": [{"card": "[card]", "n": 17, "ok": True, "none": None, "x": 1.5}, "…"]
    }


@given(st.lists(st.sampled_from(["a", "@", "b.c", " ", "4111111111111111", "x" * 50, "1.2.3.4", "."]), max_size=100))
def test_windows_change_nothing(pieces: list[str]) -> None:
    text = "".join(pieces) * 20
    email = ContentMask([PATTERNS["email"]], ())
    assert email.text(text, {}) == PATTERNS["email"].expression.sub("[email]", text)


REFUSED = {
    "a star": "a*",
    "a plus": r"\d+",
    "no upper limit": r"\d{3,}",
    "a group": "(a)",
    "alternatives": "a|b",
    "an anchor": "^a",
    "a backreference": r"\1",
    "too long": "x{999}y{2}",
    "too many ways": "[a-z]{1,20}[a-z]{1,20}",
    "nothing": "",
    "perhaps nothing": "a?",
    "an edge only": r"\b",
    "an open class": "[a",
    "an escape at the end": "a\\",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_an_expression_that_may_take_long_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="the expression"):
        parse_pattern(text)


@pytest.mark.parametrize("text", [r"\bEMP-\d{6}\b", "[A-Z]{2}[0-9]{1,30}x?", r"[^\]]{3}\.", "id=.{8}"])
def test_a_plain_expression_is_accepted(text: str) -> None:
    assert parse_pattern(text).expression.pattern == text


@pytest.mark.slow
@pytest.mark.parametrize("character", ["a", "1", "1 ", "+1", "A", "@", "a@", "1.", "a.", "\\u0061", "sk-", "bearer "])
def test_time_is_proportional_to_the_length(character: str) -> None:
    mask = ContentMask([*PATTERNS.values(), parse_pattern("[a-z1 ]{1,10}[a-z1 ]{1,10}!")], (SECRET,))
    text = character * (50_000 // len(character))
    started = time.process_time()
    mask.text(text, {})
    assert time.process_time() - started < cpu_s(1.5)


def test_the_expression_of_items_is_itself_linear() -> None:
    started = time.process_time()
    with pytest.raises(ValueError, match="the expression"):
        parse_pattern("[" + "a" * 50_000)
    assert time.process_time() - started < cpu_s(1.0)
