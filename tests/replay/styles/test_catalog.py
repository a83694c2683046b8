"""The styles: the interpreter accepts each file, and an unknown name gets a suggestion."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.dialects.registry import DEFAULT_DIALECT, answer_dialect
from penstock.errors import UnknownStyleError
from penstock.replay.styles.catalog import load_style, style_names
from penstock.replay.styles.made_up import make_value
from penstock.replay.styles.style import ChatStyle, StyleField

OPENAI = {"openai", "openai-2025", "azure"}
PROMISED = {*OPENAI, "groq", "xai", "openrouter", "reseller", "deepseek", "mistral", "anthropic"}
# What `style.py` explains: the tags of a chunk.
TAGS = {"opening", "text", "reasoning", "refusal", "call", "arguments", "extra", "finish", "usage"} | {
    "thinking",
    "calling",
    "parallel",
    "requested",
}

every_style = pytest.mark.parametrize("name", style_names())
every_chat_style = pytest.mark.parametrize("name", style_names(DEFAULT_DIALECT))


def chat_style(name: str) -> ChatStyle:
    style = load_style(name)
    assert isinstance(style, ChatStyle)
    return style


def rows(fields: tuple[StyleField, ...]) -> Iterator[StyleField]:
    for row in fields:
        yield row
        yield from rows(row.fields)


def all_rows(style: ChatStyle) -> Iterator[StyleField]:
    for fields in (
        style.chunk,
        style.choice,
        style.delta,
        style.call,
        style.function,
        style.preamble,
        style.usage.fields,
        style.error.fields,
    ):
        yield from rows(fields)


def test_all_that_were_promised_are_there() -> None:
    assert set(style_names()) >= PROMISED


@every_chat_style
def test_every_tag_is_one_that_a_chunk_can_have(name: str) -> None:
    style = chat_style(name)
    combinations = [tags for row in all_rows(style) for tags in row.where]
    combinations += [*style.cuts.join, *style.usage.figures, *style.usage.zeros]
    assert {tag.removeprefix("!") for tags in combinations for tag in tags.split("+")} <= TAGS


@every_style
def test_ids_that_are_made_up_look_like_the_real_ones(name: str) -> None:
    ids = load_style(name).ids
    for seed in ("a", "b", ""):
        assert re.fullmatch(ids.fits, make_value(ids.form, seed, created=1_760_532_474))
    assert not ids.form or make_value(ids.form, "a") != make_value(ids.form, "b")  # some answers have no id
    assert "{" not in make_value(ids.call, "a")


@every_chat_style
def test_a_usage_has_the_figures_that_every_client_reads(name: str) -> None:
    fields = {row.name for row in chat_style(name).usage.fields}
    assert fields >= {"prompt_tokens", "completion_tokens", "total_tokens"}


@every_style
def test_says_whose_style_it_is(name: str) -> None:
    assert load_style(name).name == name
    assert 10 < len(load_style(name).about) < 90


@every_style
def test_clients_can_ask_for_its_dialect(name: str) -> None:
    assert answer_dialect(load_style(name).dialect).path


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("gorq", "there is no provider style 'gorq'; did you mean 'groq'?"),
        ("OpenAI", "there is no provider style 'OpenAI'; did you mean 'openai'?"),
        ("openai_2025", "there is no provider style 'openai_2025'; did you mean 'openai-2025'?"),
        ("", f"there is no provider style ''; choose one of {', '.join(style_names())}"),
        ("../groq", "there is no provider style '../groq'; did you mean 'groq'?"),
    ],
)
def test_an_unknown_style_is_reported_with_the_nearest(asked: str, message: str) -> None:
    with pytest.raises(UnknownStyleError) as raised:
        load_style(asked)
    assert str(raised.value) == message


@every_style
def test_the_docs_say_whose_style_it_is(name: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "provider-styles.md").read_text(encoding="utf-8")
    assert f"| `{name}` | {load_style(name).about} |\n" in page
