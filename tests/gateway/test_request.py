"""Reading a request body: in any layout, a key that matters may occur only once."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.dialects.dialect import RequestError
from penstock.core.dialects.registry import surface_dialect
from penstock.core.hub.request import ClientRequest
from penstock.gateway.record.embeddings_request import parse_embeddings

ONCE = ("model", "stream", "messages", "n")
SPACES = st.sampled_from(("", "", " ", "\n  ", "\t\r\n"))
TEXTS = st.one_of(st.text(max_size=10), st.sampled_from(('"model"', '"stream": true', "\\u006eo", "é", "\x7f", "{")))
NESTED = st.lists(st.tuples(st.sampled_from(ONCE), st.integers()), max_size=3)


def parse(body: bytes) -> ClientRequest:
    return surface_dialect("openai_chat").read_request(body, {}, "/chat/completions")


def escaped(key: str) -> str:
    return "".join(f"\\u{ord(character):04x}" for character in key)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, list[str]]:
    """A body with all that a request needs, and more; and the names of its fields, as often as they stand there."""
    more = st.lists(st.one_of(st.sampled_from(ONCE), st.sampled_from(("user", "input", "note")), TEXTS), max_size=3)
    names = draw(st.permutations(["model", "messages", "input", *draw(more)]))
    space = draw(SPACES)
    fields = []
    for name in names:
        text = json.dumps(draw(TEXTS), ensure_ascii=draw(st.booleans()))
        inner = ",".join(f'"{key}": {value}' for key, value in draw(NESTED))
        value = {
            "model": '"main/m"',
            "messages": f'[{{"role": "user","content":{text}{space}}},{{{inner}}}]',
            "stream": "true",
            "n": "1",
        }.get(name, text)
        key = f'"{escaped(name)}"' if name in ONCE and draw(st.booleans()) else json.dumps(name)
        fields.append(f"{space}{key}{space}:{space}{value}{space}")
    return f"{space}{{{','.join(fields)}}}{space}".encode("utf-8", "surrogatepass"), names


@pytest.mark.slow
@given(bodies())
def test_a_key_that_matters_stands_there_once(written: tuple[bytes, list[str]]) -> None:
    body, names = written
    twice = [key for key in ONCE if names.count(key) > 1]
    for read in (parse, parse_embeddings):
        assert refusal(read, body) == (("duplicate_key", twice[0]) if twice else None)


def refusal(read: Callable[[bytes], object], body: bytes) -> tuple[str, str | None] | None:
    try:
        read(body)
    except RequestError as refused:
        return refused.failure.code, refused.failure.param
    return None


@pytest.mark.parametrize("read", [parse, parse_embeddings])
@given(body=st.one_of(st.binary(max_size=40), st.text('{}[]":,1e9.-\\u0truefalsn ', max_size=40).map(str.encode)))
def test_what_is_no_request_is_refused(read: Callable[[bytes], object], body: bytes) -> None:
    with pytest.raises(RequestError):
        read(body)


@pytest.mark.parametrize("beside", ['"a\\/b": 1', '"x": 1, "x": 2'])
def test_numbers_may_have_any_length_where_no_one_reads_them(beside: str) -> None:
    body = f'{{"model": "m", "input": [{"9" * 5_000}, 1.{"3" * 5_000}], {beside}}}'
    assert refusal(parse_embeddings, body.encode()) is None
