"""Editing the members of a JSON object in place: every other byte stays as it was."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from penstock.core.json.members import JsonMembers

CASES: dict[str, tuple[bytes, dict[str, bytes | None], bytes]] = {
    "replace": (b'{"a":1,"b":2}', {"a": b"9"}, b'{"a":9,"b":2}'),
    "replace by the same": (b'{"a":1,"b":2}', {"a": b"1"}, b'{"a":1,"b":2}'),
    "add": (b'{"a":1}', {"b": b"[]"}, b'{"a":1,"b":[]}'),
    "add to nothing": (b"{}", {"a": b"1"}, b'{"a":1}'),
    "add to nothing with spaces": (b" { } ", {"a": b"1"}, b' {"a":1 } '),
    "remove the first": (b'{"a":1,"b":2}', {"a": None}, b'{"b":2}'),
    "remove the last": (b'{"a":1,"b":2}', {"b": None}, b'{"a":1}'),
    "remove the only one": (b'{"a":1}', {"a": None}, b"{}"),
    "remove what is not there": (b'{"a":1}', {"x": None}, b'{"a":1}'),
    "spaces stay": (
        b'{\n  "a" : 1 ,\n  "b" : { "c" : 1.0 }\n}\n',
        {"a": b"9"},
        b'{\n  "a" : 9 ,\n  "b" : { "c" : 1.0 }\n}\n',
    ),
    "spaces stay around a removed one": (b'{ "a": 1, "b": 2, "c": 3 }', {"b": None}, b'{ "a": 1, "c": 3 }'),
    "spaces, the first removed, one added": (b'{ "a": 1, "b": 2 }', {"a": None, "c": b"3"}, b'{ "b": 2,"c":3 }'),
    "spaces of an encoder": (
        b'{"a": 1, "b": [1, {"c" :2}], "d": "x"}',
        {"a": b"9", "d": None, "e": b"{}"},
        b'{"a": 9, "b": [1, {"c" :2}], "e": {}}',
    ),
    "no spaces behind the names": (b'{"a":1, "b":2}', {"b": b"3"}, b'{"a":1, "b":3}'),
    "a space before a colon": (b'{"a" :1, "b": 2}', {"b": b"3"}, b'{"a" :1, "b": 3}'),
    "spaces, and a name twice": (b'{"a": 1, "b": 0, "a": 2}', {"a": b"9"}, b'{"a": 9, "b": 0, "a": 9}'),
    "a name that is escaped": (b'{"\\u0061":1}', {"a": b"2"}, b'{"\\u0061":2}'),
    "a name that stands twice": (b'{"a":1,"x":0,"a":2}', {"a": b"9"}, b'{"a":9,"x":0,"a":9}'),
    "a name that stands twice, one of them the same": (b'{"a":1,"a":2}', {"a": b"2"}, b'{"a":2,"a":2}'),
    "escapes and numbers of any length": (
        b'{"a":"\\ud83d\\ude00\\/","n":1e400,"i":123456789012345678901234567890, "b":1}',
        {"b": None},
        b'{"a":"\\ud83d\\ude00\\/","n":1e400,"i":123456789012345678901234567890}',
    ),
    "characters of several bytes": (
        '{"é": "ü", "é": 1, "model":"x"}'.encode(),
        {"model": b'"y"'},
        '{"é": "ü", "é": 1, "model":"y"}'.encode(),
    ),
}


@pytest.mark.parametrize(("body", "changes", "expected"), CASES.values(), ids=CASES)
def test_edits(body: bytes, changes: dict[str, bytes | None], expected: bytes) -> None:
    raw = {name: Raw(value) if value is not None else None for name, value in changes.items()}
    assert JsonMembers(body).edited(raw) == expected


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":LONG,"b":1}',
        b'{"a": LONG,"b":1}',
        b'{"a":LONG,"b":1} ',
        b'{"a":LONG,"a":1}',
        b'{"\\u0061":LONG}',
        b'{"\\u001F":LONG}',
        b'{"\\u001f":LONG}',
        b'{"\\u001f": LONG}',
        b'{"\\/":LONG}',
    ],
)
def test_a_large_body_is_regular_exactly_if_encoding_its_members_gives_it(body: bytes) -> None:
    """Large bodies are not encoded to find out."""
    large = JsonMembers(body.replace(b"LONG", b'"%b"' % (b"x" * 100_000)))
    assert (large.encode is not None) == (msgspec.json.encode(large.values) == large.body)


def test_names_that_stand_twice_are_known() -> None:
    assert JsonMembers(b'{"a":1, "b":2, "a":3}').repeated() == {"a"}
    assert JsonMembers(b'{"a":1, "\\u0061":3}').repeated() == {"a"}
    assert JsonMembers(b'{"a":{"b":1,"b":2}}').repeated() == set()


@pytest.mark.parametrize("body", [b"", b"[]", b'"a"', b"{", b'{"a":1}x', b'{"a" 1}', b"\xff{}"])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        JsonMembers(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
STYLES: list[dict[str, object]] = [
    {"separators": (",", ":")},
    {"separators": (", ", ": ")},
    {"indent": 2},
    {"ensure_ascii": False, "separators": (" ,\t", "\n: ")},
]


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=5), st.data())
def test_an_edit_changes_what_it_says_and_nothing_else(fields: dict[str, object], data: st.DataObject) -> None:
    body = json.dumps(fields, **data.draw(st.sampled_from(STYLES))).encode(errors="surrogatepass")  # type: ignore[arg-type]
    names = st.sampled_from(sorted(fields)) | st.text(max_size=3) if fields else st.text(max_size=3)
    changes = data.draw(st.dictionaries(names, st.none() | st.just(Raw(b'"new"')), max_size=3))
    try:
        members = JsonMembers(body)
    except ValueError:
        return  # half a surrogate pair is no text
    assert members.edited({}) == body
    expected = {name: value for name, value in fields.items() if name not in changes}
    expected |= {name: "new" for name, value in changes.items() if value is not None}
    edited = members.edited(changes)
    assert json.loads(edited) == expected
    for name in fields.keys() - changes.keys():
        assert bytes(members.values[name]) in edited


@pytest.mark.parametrize("body", [b'{"a":1, "b":[1, 2]}', b' {"a" : "x" }'])
def test_a_body_with_spaces_is_not_read_twice(body: bytes) -> None:
    assert JsonMembers(body).is_located
    assert not JsonMembers(b'{"a":1, "a":2}').is_located
