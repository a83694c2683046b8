"""Tags and users of clients are stored without secrets, and shortened."""

import pytest

from penstock.gateway.billing.tags import clean_tags, clean_text

SECRET = "lamp-oil"
TEXTS = {
    "": "",
    "team red": "team red",
    f"by {SECRET}, of course": "by …, of course",
    SECRET * 2: "……",
    "oil-lamp": "oil-lamp",
    "x" * 201: "x" * 200,
    "x" * 199 + SECRET: "x" * 199 + "…",
    "Authorization: Bearer abcdefghijkl": "Authorization: …",
    "Bearer abcdefghijk": "Bearer abcdefghijk",
    "sk-1234567890abcdef": "…",
    "sk-1234567890abcde": "sk-1234567890abcde",
    "AIza" + "b" * 30: "…",
}


@pytest.mark.parametrize(("text", "clean"), TEXTS.items())
def test_secrets_are_masked_and_texts_are_shortened(text: str, clean: str) -> None:
    assert clean_text(text, [SECRET, "red"]) == clean


def test_a_secret_of_eight_characters_is_one_and_a_shorter_one_is_a_word() -> None:
    assert clean_text("lamp-oil lamp-oi", ["lamp-oil", "lamp-oi"]) == "… lamp-oi"


def test_a_part_of_a_secret_at_the_end_of_what_is_searched_is_not_kept() -> None:
    secret = "lamp-oil-" * 11 + "!"
    assert clean_text(secret * 200, [secret]) == "…" * 147, "of 16,384 characters, without the last hundred"
    assert clean_text(secret * 163, [secret]) == "…" * 163


def test_a_client_cannot_replace_the_tags_of_its_key() -> None:
    assert clean_tags({}, {"team": "red"}, []) == {"team": "red"}
    assert clean_tags({"team": "blue", "task": "x"}, {"team": "red", "floor": "2"}, []) == {
        "team": "red",
        "task": "x",
        "floor": "2",
    }


@pytest.mark.parametrize("name", ["api-key", "API_KEY", "Authorization", "my-token", "password2", "client_secret"])
def test_a_tag_that_is_named_like_a_key_is_masked(name: str) -> None:
    assert clean_tags({name: "anything"}, {}, []) == {name: "…"}


@pytest.mark.parametrize("name", ["tokens", "keyboard", "broken", "tokenizer"])
def test_other_names_are_not(name: str) -> None:
    assert clean_tags({name: "anything"}, {}, []) == {name: "anything"}


def test_the_number_of_tags_is_bounded() -> None:
    assert len(clean_tags({str(number): "x" for number in range(17)}, {}, [])) == 16
