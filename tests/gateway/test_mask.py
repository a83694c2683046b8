"""Masks: a secret is removed in every form in which it could be read, and nothing else is changed."""

import base64
import html
import json
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.mask import MASK, Secrets, masked, masked_json

SECRET = "sk-proj/a+b=_9zQ&x%41"

FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "in JSON": lambda text: json.dumps(text)[1:-1],
    "in JSON, every character": lambda text: "".join(f"\\u{ord(character):04X}" for character in text),
    "in JSON, the slash": lambda text: text.replace("/", "\\/"),
    "in JSON in JSON": lambda text: json.dumps("".join(f"\\u{ord(character):04x}" for character in text))[1:-1],
    "in a URL": lambda text: quote(text, safe=""),
    "in a URL, every character": lambda text: "".join(f"%{ord(character):02x}" for character in text),
    "in a URL in a URL": lambda text: quote(quote(text, safe=""), safe=""),
    "in a page": html.escape,
    "in a page, every character": lambda text: "".join(f"&#{ord(character)};" for character in text),
    "in a page, in hexadecimal": lambda text: "".join(f"&#x{ord(character):x};" for character in text),
    "in Python": lambda text: "".join(f"\\x{ord(character):02x}" for character in text),
    "a URL in a page in JSON": lambda text: json.dumps(html.escape(quote(text, safe="")).replace("%", "&#37;"))[1:-1],
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_is_masked_and_nothing_else(form: Callable[[str], str]) -> None:
    before, after = 'a "100%" \\ & ', " and so on; 5 % of \\u00e9"
    assert masked(before + form(SECRET) + after, (SECRET,)) == before + MASK + after
    assert masked(form(SECRET) * 2, (SECRET,)) in (MASK, MASK * 2)
    assert masked(before + after, (SECRET,)) == before + after


@pytest.mark.parametrize("before", ["", "u", "us", "us:"])
def test_base64_is_masked_wherever_the_secret_begins(before: str) -> None:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = encode(f"{before}{SECRET}:x".encode()).decode()
        left = masked(text, (SECRET,)).partition(MASK)
        assert left[1], text
        assert len(left[0] + left[2]) <= 10


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_of_a_secret_that_was_cut_no_telling_part_stays(form: Callable[[str], str]) -> None:
    whole = form(SECRET)
    for size in range(len(whole)):
        left = masked("x " + whole[:size], (SECRET,))
        assert left == f"x {MASK}" or len(left) <= 2 + len(form(SECRET[:4])) + 6, left


WIDE = "pass\U0001f600-wörd-long"
WIDE_FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "in JSON": lambda text: json.dumps(text)[1:-1],
    "in JSON in JSON": lambda text: json.dumps(json.dumps(text)[1:-1])[1:-1],
    "in a URL": lambda text: quote(text, safe=""),
    "in a URL, in small letters": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "in Python, by bytes": lambda text: repr(text.encode())[2:-1],
    "in a page": lambda text: text.encode("ascii", "xmlcharrefreplace").decode(),
}


@pytest.mark.parametrize("form", WIDE_FORMS.values(), ids=WIDE_FORMS)
def test_characters_of_several_bytes_and_of_two_halves_hide_nothing(form: Callable[[str], str]) -> None:
    assert masked(f"a {form(WIDE)} b", (WIDE,)) == f"a {MASK} b"


def test_several_secrets_are_masked_also_where_one_holds_another() -> None:
    assert masked("a key-of-b-and-c, key-of-b", ("key-of-b", "key-of-b-and-c")) == f"a {MASK}, {MASK}"
    assert masked("a key-of-b", ()) == "a key-of-b"
    assert masked("a key-of-b", ("",)) == "a key-of-b"


def test_json_is_masked_in_names_strings_and_numbers() -> None:
    value = {"a-key-of-some": [1, "a-key-of-some", None, True, 12345678, {"b": 1.5}]}
    clean = {MASK: [1, MASK, None, True, MASK, {"b": 1.5}]}
    assert masked_json(value, ("a-key-of-some", "12345678")) == clean


NESTED = [form for name, form in FORMS.items() if name not in ("in JSON in JSON", "a URL in a page in JSON")]


@given(
    secret=st.text('skab-_/+=%&;#u041x\\d"', min_size=8, max_size=30),
    forms=st.lists(st.sampled_from(NESTED), max_size=4),
    before=st.text("sk-\\%&u0;# x", max_size=6),
    size=st.integers(4, 300),
)
def test_the_quick_test_misses_nothing_that_is_masked(
    secret: str, forms: list[Callable[[str], str]], before: str, size: int
) -> None:
    text = secret
    for form in forms:
        text = form(text)
    hidden = Secrets((secret,))
    for sent_text in (before + text, before + text[:size], f"a {text} b"):
        body = json.dumps(sent_text)
        if masked(body, (secret,)) != body or masked_json(sent_text, (secret,)) != sent_text:
            assert hidden.may_be_in(body), sent_text


def test_the_quick_test_rules_out_texts_without_a_secret() -> None:
    hidden = Secrets((SECRET,))
    assert not hidden.may_be_in(
        json.dumps({"error": {"message": 'no "such" model: 100\\% &amp; \u00e9 sk-', "n": 1e9}})
    )
    assert not Secrets(()).may_be_in("sk-proj")
    assert Secrets(("12345678",)).may_be_in("[1.2345678e7]")  # decodes to a number with the secret in it
