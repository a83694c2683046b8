"""ModelJson: JSON that a model wrote wrong is read if exactly one reading satisfies the schema."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.json.model_json import ModelJson
from penstock.core.json.schema_check import SchemaCheck
from tests.cpu import calls_of

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "port": {"type": "string"},
        "days": {"type": "array", "items": {"type": "integer"}},
        "high": {"type": ["boolean", "null"]},
        "unit": {"enum": ["m", "ft"]},
        "span": {"type": "object", "properties": {"from": {"type": "integer"}, "to": {"type": "integer"}}},
    },
    "required": ["port"],
    "additionalProperties": False,
}
TOKENS, FENCED, ESCAPED, PYTHON, COMMAS, UNCLOSED = (
    f"model-json-{name}" for name in ("tokens", "fenced", "escaped", "python", "commas", "unclosed")
)
WHOLE = '{"port":"Brest"}'


def read(text: str, schema: dict[str, Any] = SCHEMA) -> tuple[str, tuple[str, ...]] | None:
    check = SchemaCheck()
    reading = ModelJson().read(text, lambda value: isinstance(value, dict) and check.accepts(schema, value))
    return None if reading is None else (reading.text, reading.codes)


REPAIRED = {
    f"{WHOLE}<|im_end|>": (WHOLE, (TOKENS,)),
    f"{WHOLE}\n</tool_call>": (WHOLE, (TOKENS,)),
    f"{WHOLE}</s> <|eot_id|>\n": (WHOLE, (TOKENS,)),
    f"{WHOLE}<\uff5ctool\u2581call\u2581end\uff5c>": (WHOLE, (TOKENS,)),
    f"```json\n{WHOLE}\n```": (WHOLE, (FENCED,)),
    f"```\n{WHOLE}```": (WHOLE, (FENCED,)),
    f"```json\n{WHOLE}": (WHOLE, (FENCED,)),
    f"```json\n{WHOLE}\n```<|im_end|>": (WHOLE, (TOKENS, FENCED)),
    json.dumps(WHOLE): (WHOLE, (ESCAPED,)),
    json.dumps(json.dumps(WHOLE)): (WHOLE, (ESCAPED, ESCAPED)),
    '{\\"port\\":\\"Brest\\"}': (WHOLE, (ESCAPED,)),
    "{'port':'Brest'}": (WHOLE, (PYTHON,)),
    "{'port':'L\\'Aber \"Wrac\\'h\"'}": ('{"port":"L\'Aber \\"Wrac\'h\\""}', (PYTHON,)),
    '{"port":"True","high":True}': ('{"port":"True","high":true}', (PYTHON,)),
    "{'port':'None','high':None}": ('{"port":"None","high":null}', (PYTHON,)),
    '{"port":"Brest",}': (WHOLE, (COMMAS,)),
    '{"port":",}","days":[1,2 , ]}': ('{"port":",}","days":[1,2  ]}', (COMMAS,)),
    '{"port":"Brest"': (WHOLE, (UNCLOSED,)),
    '{"port":"Brest': (WHOLE, (UNCLOSED,)),
    '{"port":"Brest","days":[1,2': ('{"port":"Brest","days":[1,2]}', (UNCLOSED,)),
    '{"port":"Brest","days":[1,2}': ('{"port":"Brest","days":[1,2]}', (UNCLOSED,)),
    '{"span":{"from":1,"port":"Brest"}': ('{"span":{"from":1},"port":"Brest"}', (UNCLOSED,)),
    '{"port":"Brest","unit":"m}': ('{"port":"Brest","unit":"m"}', (UNCLOSED,)),
    "{'port':'Brest','days':[1,]<|im_end|>": ('{"port":"Brest","days":[1]}', (TOKENS, PYTHON, COMMAS, UNCLOSED)),
}
NOT_REPAIRED = [
    "",
    "null",
    "port=Brest",
    "[1]",
    '"Brest"',
    "{}",
    '{"harbour":"Brest"',  # not by the schema
    '{"port":"Brest"} and so on',
    '{"port":"Brest"}}',
    '{"port":"Brest"}{"port":"Cork"}',
    '{"port":',
    '{"port":"Brest",',  # a member may be missing
    '{"port":"Brest","high":tr',
    '{"port":"Brest}',  # ambiguous: the bracket may be in the string
    '{"port":"Brest<|im_end|>',  # likewise the token
    "{'port': 'L'Aber'}",
    "{'port':'\\x41'}",  # an escape that JSON lacks
    '{"port":"Brest"' + "}" * 40,
]


@pytest.mark.parametrize("text", REPAIRED)
def test_one_reading_is_taken(text: str) -> None:
    assert read(text) == REPAIRED[text]


@pytest.mark.parametrize("text", NOT_REPAIRED)
def test_no_reading_or_several_are_left(text: str) -> None:
    assert read(text) is None


def test_two_readings_are_none() -> None:
    open: dict[str, Any] = {"type": "object", "properties": {"span": {"type": "object"}}}
    assert read('{"span":{"from":1,"to":2}', open) is None
    closed = open | {"additionalProperties": False}
    assert read('{"span":{"from":1,"to":2}', closed) == ('{"span":{"from":1,"to":2}}', (UNCLOSED,))


def test_an_undecided_reading_is_none() -> None:
    assert read('{"port":"Brest"', {"properties": {"port": {"pattern": "^B"}}}) is None


OBJECTS = st.fixed_dictionaries(
    {"port": st.text(max_size=8)},
    optional={
        "days": st.lists(st.integers(-9, 9), max_size=3),
        "high": st.none() | st.booleans(),
        "unit": st.sampled_from(["m", "ft"]),
        "span": st.fixed_dictionaries({}, optional={"from": st.integers(0, 9), "to": st.integers(0, 9)}),
    },
)
EDITS: dict[str, Callable[[str], str]] = {
    TOKENS: lambda text: f"{text}<|im_end|>",
    FENCED: lambda text: f"```json\n{text}\n```",
    ESCAPED: json.dumps,
    PYTHON: lambda text: repr(json.loads(text)),
    COMMAS: lambda text: text[:-1] + ",}",
    UNCLOSED: lambda text: text.rstrip("}]"),
}


@given(OBJECTS)
def test_healthy_json_is_never_changed(value: dict[str, Any]) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=2)):
        assert read(text) == (text, ())


@given(OBJECTS, st.sampled_from(list(EDITS)))
def test_an_edit_is_undone_or_the_text_is_left(value: dict[str, Any], code: str) -> None:
    text = EDITS[code](json.dumps(value))
    reading = read(text)
    if reading is None:
        assert code in (UNCLOSED, PYTHON)  # which can be ambiguous, or have escapes that JSON lacks
    elif reading[1]:
        assert code in reading[1]
        assert json.loads(reading[0]) == value


@given(st.data())
def test_whatever_is_read_satisfies_the_schema(data: st.DataObject) -> None:
    text = json.dumps(data.draw(OBJECTS))
    for _ in range(data.draw(st.integers(1, 3))):
        text = (
            data.draw(st.sampled_from(list(EDITS.values())) | st.just(_identity), label="edit")(text)
            if _is_json(text)
            else text
        )
        place = data.draw(st.integers(0, len(text)))
        text = (
            text[:place]
            + data.draw(st.sampled_from(["", "", '"', "'", "}", "{", ",", "\\", "```", "</s>"]))
            + text[place + 1 :]
        )
    reading = read(text)
    if reading is not None:
        assert SchemaCheck().accepts(SCHEMA, json.loads(reading[0]))
        assert reading[1] or reading[0] == text


def _identity(text: str) -> str:
    return text


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


GROWING: dict[str, Callable[[int], str]] = {
    "nested objects": lambda n: '{"port":"x",' + '"a":{"b":1,' * (n // 12),
    "items": lambda n: '{"port":"x","days":[' + "1," * (n // 2),
    "strings": lambda n: '{"port":"x","days":[' + '"a",' * (n // 4),
    "brackets": lambda n: "[" * n,
    "quotes": lambda n: '"' * n,
    "escapes": lambda n: '\\"' * (n // 2),
    "single quotes": lambda n: '{"a":' + "'" * n,
    "spaces": lambda n: "{" + " " * n + "}",
    "brackets in a string": lambda n: '{"port":"x' + "}" * n,
    "tokens": lambda n: "{" + "<|a|>" * (n // 5),
    "fences": lambda n: "```" * (n // 3),
    "escaped quotes": lambda n: '{\\"' * (n // 3),
    "strings in strings": lambda n: json.dumps(json.dumps(json.dumps("x" * (n // 8)))),
}


@pytest.mark.parametrize("name", GROWING)
def test_a_text_takes_bounded_work(name: str) -> None:
    costs = [calls_of(partial(read, GROWING[name](size))) for size in (500, 65_000)]
    assert costs[1] < max(260 * costs[0], 150_000), costs
