"""The manners: each file says what the interpreter understands, and who asks for another is told the nearest."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import UnknownStyleError
from penstock.replay.styles.catalog import manner, names
from penstock.replay.styles.made_up import mint
from penstock.replay.styles.style import TAGS, ProviderStyle, StyleField

PROMISED = {"openai", "openai-2025", "azure", "groq", "xai", "openrouter", "reseller", "deepseek", "mistral"}

every_manner = pytest.mark.parametrize("name", names())


def rows(fields: tuple[StyleField, ...]) -> Iterator[StyleField]:
    for row in fields:
        yield row
        yield from rows(row.fields)


def all_rows(manner: ProviderStyle) -> Iterator[StyleField]:
    for fields in (
        manner.chunk,
        manner.choice,
        manner.delta,
        manner.call,
        manner.function,
        manner.preamble,
        manner.usage.fields,
        manner.error.fields,
    ):
        yield from rows(fields)


def test_all_that_were_promised_are_there() -> None:
    assert set(names()) >= PROMISED


@every_manner
def test_every_tag_is_one_that_a_chunk_can_have(name: str) -> None:
    combinations = [tags for row in all_rows(manner(name)) for tags in row.where]
    combinations += [*manner(name).cuts.join, *manner(name).usage.figures, *manner(name).usage.zeros]
    assert {tag.removeprefix("!") for tags in combinations for tag in tags.split("+")} <= TAGS


@every_manner
def test_ids_that_are_made_up_look_like_the_real_ones(name: str) -> None:
    ids = manner(name).ids
    for seed in ("a", "b", ""):
        assert re.fullmatch(ids.fits, mint(ids.form, seed, created=1_760_532_474))
    assert mint(ids.form, "a") != mint(ids.form, "b")
    assert "{" not in mint(ids.call, "a")


@every_manner
def test_a_usage_has_the_figures_that_every_client_reads(name: str) -> None:
    fields = {row.name for row in manner(name).usage.fields}
    assert fields >= {"prompt_tokens", "completion_tokens", "total_tokens"}


@every_manner
def test_says_whose_manner_it_is(name: str) -> None:
    assert manner(name).name == name
    assert 10 < len(manner(name).about) < 90


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("gorq", "there is no manner 'gorq'; did you mean 'groq'?"),
        ("OpenAI", "there is no manner 'OpenAI'; did you mean 'openai'?"),
        ("openai_2025", "there is no manner 'openai_2025'; did you mean 'openai-2025'?"),
        ("", f"there is no manner ''; choose one of {', '.join(names())}"),
        ("../groq", "there is no manner '../groq'; did you mean 'groq'?"),
    ],
)
def test_an_unknown_manner_is_told_with_the_nearest(asked: str, message: str) -> None:
    with pytest.raises(UnknownStyleError) as raised:
        manner(asked)
    assert str(raised.value) == message


@every_manner
def test_the_docs_say_whose_manner_it_is(name: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "mimicry.md").read_text(encoding="utf-8")
    assert f"| `{name}` | {manner(name).about} |\n" in page
