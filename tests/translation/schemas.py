"""Generated JSON Schemas."""

from hypothesis import strategies as st

from tests.streams import Json

NAMES = st.sampled_from(["a", "b", "c"])
SIMPLE = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), NAMES)
DESCRIBED = st.fixed_dictionaries({}, optional={"description": NAMES, "title": NAMES, "default": SIMPLE})
TEXTS = st.fixed_dictionaries(
    {"type": st.just("string")},
    optional={
        "minLength": st.integers(0, 3),
        "pattern": st.just("^a"),
        "format": st.sampled_from(["date", "uuid", "regex", "iri"]),
    },
)
NUMBERS = st.fixed_dictionaries(
    {"type": st.sampled_from(["integer", "number"])},
    optional={"minimum": st.integers(0, 3), "exclusiveMaximum": st.integers(3, 9), "multipleOf": st.just(2)},
)
LEAVES: st.SearchStrategy[Json] = st.one_of(
    TEXTS,
    NUMBERS,
    st.fixed_dictionaries({"type": st.sampled_from(["boolean", "null"])}),
    st.fixed_dictionaries({"enum": st.lists(SIMPLE, min_size=1, max_size=3)}, optional={"type": st.just("string")}),
    st.fixed_dictionaries({"const": SIMPLE}),
    st.just({"$ref": "#/$defs/d"}),
)


def _larger(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    """Schemas with other schemas in them."""
    objects = st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(NAMES, inner, max_size=3)},
        optional={
            "required": st.lists(NAMES, unique=True, max_size=2),
            "additionalProperties": st.booleans(),
            "maxProperties": st.just(3),
        },
    )
    arrays = st.fixed_dictionaries(
        {"type": st.just("array")},
        optional={"items": inner, "minItems": st.integers(0, 2), "uniqueItems": st.booleans()},
    )
    several = st.lists(inner, min_size=1, max_size=3)
    combined = st.one_of(*(st.fixed_dictionaries({name: several}) for name in ("anyOf", "oneOf")))
    return st.one_of(
        objects, arrays, combined, st.fixed_dictionaries({"allOf": st.lists(LEAVES, min_size=1, max_size=2)})
    )


SCHEMAS = st.builds(
    lambda schema, described, defined: {**described, **schema, "$defs": {"d": defined}},
    st.recursive(LEAVES, _larger, max_leaves=8).filter(lambda schema: "$ref" not in schema),
    DESCRIBED,
    TEXTS,
)
