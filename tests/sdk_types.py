"""Values of the types that official SDKs declare: every member, every literal, every option of a union.

`shape_of` reads a type: a `TypedDict` (requests of openai and anthropic) or a pydantic model (their answers, and all of
google-genai). `sample` makes a value of it at random, in which each text and number occurs once, so that a test can
follow it. google-genai is not in this environment: `google_shapes` reads them from a file, which
`tests/judges/gemini/python/types_outline.py` writes.
"""

import enum
import functools
import json
import types
import typing
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import typing_extensions

_TESTS = Path(__file__).parent
_LEAVES: dict[object, str] = {
    str: "text",
    bytes: "base64",
    int: "int",
    float: "float",
    bool: "bool",
    type(None): "null",
}
_WRAPPERS = (typing_extensions.Required, typing_extensions.NotRequired, typing.ClassVar)
_DEEP = 6
_UNIONS = (typing.Union, types.UnionType)


@dataclass(frozen=True)
class Leaf:
    """A text, base64, a number, a flag, or `any` JSON. Null is no shape: it says that a member is missing."""

    kind: str


@dataclass(frozen=True)
class Words:
    """One of these literals."""

    values: tuple[object, ...]


@dataclass(frozen=True)
class Items:
    """A list."""

    item: "Shape"


@dataclass(frozen=True)
class Entries:
    """An object with any names."""

    value: "Shape"


@dataclass(frozen=True)
class Options:
    """One of these shapes."""

    options: tuple["Shape", ...]


@dataclass(frozen=True, eq=False)
class Members:
    """An object of known members. A type may contain itself, so they are read on demand."""

    name: str
    read: Callable[[], dict[str, "Shape"]]
    required: frozenset[str] = frozenset()

    @functools.cached_property
    def members(self) -> dict[str, "Shape"]:
        """The shapes of the members, by name."""
        return self.read()


Shape: TypeAlias = Leaf | Words | Items | Entries | Options | Members
_ANY = Leaf("any")


@functools.cache
def shape_of(hint: Any) -> Shape:
    """The shape of a type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in _LEAVES:
        return Leaf(_LEAVES[hint])
    if hint is Any:
        return _ANY
    if origin is typing_extensions.Annotated or origin in _WRAPPERS:
        return shape_of(arguments[0])
    if origin in (typing.Literal, typing_extensions.Literal):
        return Words(arguments)
    if origin in _UNIONS:
        given = [each for each in arguments if each is not type(None) and _is_json(each)]
        options = [shape_of(each) for each in given]
        return Options(tuple(options)) if len(options) > 1 else options[0]
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return Words(tuple(each.value for each in hint))
    if isinstance(hint, type) and (typing_extensions.is_typeddict(hint) or hasattr(hint, "model_fields")):
        return _members_of(hint)
    if arguments and isinstance(origin, type):
        return Entries(shape_of(arguments[1])) if issubclass(origin, Mapping) else Items(shape_of(arguments[0]))
    return _ANY


def _is_json(hint: object) -> bool:
    """Whether a type is one of JSON, and not a file that an SDK encodes."""
    return hint is Any or not isinstance(hint, type) or not hint.__module__.startswith(("io", "os", "typing"))


def _members_of(cls: type) -> Members:
    fields = getattr(cls, "model_fields", None)
    if fields is not None:
        names = {name: each.alias or name for name, each in fields.items()}
        required = frozenset(names[name] for name, each in fields.items() if each.is_required())
        return Members(
            cls.__name__,
            lambda: {names[name]: shape_of(each.annotation) for name, each in fields.items()},
            required,
        )
    hints = typing_extensions.get_type_hints(cls, include_extras=True)
    total = getattr(cls, "__total__", True)
    required = frozenset(name for name, hint in hints.items() if _is_required(hint, total=total))
    return Members(cls.__name__, lambda: {name: shape_of(hint) for name, hint in hints.items()}, required)


def _is_required(hint: object, *, total: bool) -> bool:
    origin = typing.get_origin(hint)
    return origin is typing_extensions.Required or (total and origin is not typing_extensions.NotRequired)


# Values.

Special: TypeAlias = Mapping[str, Callable[["Samples"], object]]
"""How to make the values of some members, by `Type.member` or `member`."""


@dataclass
class Samples:
    """Makes values. `special` has the members whose text has a form, such as a URL, or whose value must be in range."""

    random: Random
    special: Special = field(default_factory=dict)
    share: float = 0.5
    """How many of the optional members there are, at the outermost level; fewer at each level below."""
    unknown: float = 0.0
    """How many objects have a member that no type knows."""
    zeros: float = 0.0
    """How many numbers are 0."""
    count: int = 0

    def mark(self) -> int:
        """A number that no other value has."""
        self.count += 1
        return self.count

    def text(self) -> str:
        """A text that no other value has."""
        return f"t{self.mark()}"

    def sample(self, shape: Shape, depth: int = 0) -> object:
        """A value of this shape."""
        match shape:
            case Leaf(kind):
                return self._leaf(kind)
            case Words(values):
                return self.random.choice(values)
            case Items(item):
                return [self.sample(item, depth + 1) for _ in range(self.random.choice((1, 1, 1, 2)))]
            case Entries(value):
                return {self.text(): self.sample(value, depth + 1)}
            case Options(options):
                return self.sample(self.random.choice(self._shallow(options, depth)), depth)
            case Members():
                return self.members(shape, depth)

    def members(self, shape: Members, depth: int = 0) -> dict[str, object]:
        """An object: its required members, and some of the others."""
        share = self.share * 0.8**depth
        made: dict[str, object] = {}
        for name, member in shape.members.items():
            if name in shape.required or self.random.random() < share:
                made[name] = self.member(shape, name, member, depth)
        if self.random.random() < self.unknown:
            made[f"unknown_{self.mark()}"] = self.random.choice((self.text(), {self.text(): self.text()}))
        return made

    def member(self, holder: Members, name: str, shape: Shape, depth: int) -> object:
        """The value of one member of an object."""
        make = self.special.get(f"{holder.name}.{name}") or self.special.get(name)
        if make is not None and not isinstance(shape, Words):
            return make(self)
        return self.sample(shape, depth + 1)

    def _shallow(self, options: tuple[Shape, ...], depth: int) -> tuple[Shape, ...]:
        """The options; deep in a value only those that end it, if there are any."""
        ends = tuple(option for option in options if isinstance(option, Leaf | Words))
        return ends or options if depth > _DEEP else options

    def _leaf(self, kind: str) -> object:
        match kind:
            case "int" | "float" if self.random.random() < self.zeros:
                return 0
            case "int":
                return 1000 + self.mark()
            case "float":
                return self.mark() / 1024
            case "bool":
                return self.random.random() < 0.5
            case "null":
                return None
            case "base64":
                return b64encode(self.text().encode()).decode()
            case "any":
                return {self.text(): self.text()}
            case _:
                return self.text()


# Shapes as JSON.


def outline(roots: Mapping[str, Shape]) -> dict[str, object]:
    """The shapes, and all that they contain, as JSON that `shapes_in` reads."""
    types: dict[str, dict[str, object]] = {}

    def write(shape: Shape) -> object:
        match shape:
            case Leaf(kind):
                return kind
            case Words(values):
                return {"words": list(values)}
            case Items(item):
                return {"items": write(item)}
            case Entries(value):
                return {"entries": write(value)}
            case Options(options):
                return {"options": [write(option) for option in options]}
            case Members(name):
                if name not in types:
                    types[name] = {}
                    types[name] |= {member: write(each) for member, each in sorted(shape.members.items())}
                return {"type": name}

    return {"roots": {name: write(shape) for name, shape in roots.items()}, "types": types}


def shapes_in(written: Mapping[str, Any]) -> dict[str, Shape]:
    """The shapes in an outline, by the names of its roots."""

    def read(shape: Any) -> Shape:
        match shape:
            case str():
                return Leaf(shape)
            case {"words": values}:
                return Words(tuple(values))
            case {"items": item}:
                return Items(read(item))
            case {"entries": value}:
                return Entries(read(value))
            case {"options": options}:
                return Options(tuple(map(read, options)))
            case _:
                return known[shape["type"]]

    def members(name: str) -> dict[str, Shape]:
        return {member: read(shape) for member, shape in written["types"][name].items()}

    known = {name: Members(name, functools.partial(members, name)) for name in written["types"]}
    return {name: read(shape) for name, shape in written["roots"].items()}


@functools.cache
def google_shapes() -> dict[str, Shape]:
    """The shapes of google-genai: what a request and an answer of Gemini's API consist of."""
    return shapes_in(json.loads((_TESTS / "gemini_api" / "sdk_types.json").read_text()))


@functools.cache
def provider_shapes() -> dict[str, Shape]:
    """The shapes of the answers in Cohere's and Ollama's SDKs."""
    return shapes_in(json.loads((_TESTS / "provider_apis" / "sdk_types.json").read_text()))
