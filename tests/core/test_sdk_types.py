"""Requests and answers that tests generate are values of the SDKs' own types."""

from random import Random
from typing import Literal, Required

import pytest
from typing_extensions import TypedDict

from tests.sdk_types import Items, Members, Samples, google_shapes, outline, shape_of, shapes_in


class Leaf(TypedDict, total=False):
    kind: Required[Literal["leaf"]]
    size: int


class Tree(TypedDict):
    name: str
    branches: list["Tree | Leaf"]


def test_a_value_has_what_is_required_and_each_mark_once() -> None:
    samples = Samples(Random(1), unknown=1.0)
    value = samples.members(shape_of(Tree))  # type: ignore[arg-type]
    assert {"name", "branches"} <= value.keys()
    assert any(name.startswith("unknown_") for name in value)
    assert samples.text() not in str(value)


def test_an_outline_keeps_the_shapes() -> None:
    written = outline({"tree": shape_of(Tree)})
    assert outline(shapes_in(written)) == written


@pytest.mark.parametrize("name", ["content", "answer"])
def test_google_s_types_are_there(name: str) -> None:
    shape = google_shapes()[name]
    assert isinstance(shape, Members)
    assert any(isinstance(each, Items) for each in shape.members.values())
