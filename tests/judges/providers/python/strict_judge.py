"""Validates answers in the dialect of Cohere by the types of its package, strictly. Prints what is wrong, as JSON.

Each line of stdin is one event of a stream, or the body of an answer.
"""

import json
import sys
import typing

import cohere  # type: ignore[import-not-found]
from pydantic import TypeAdapter, ValidationError

(_UNION, *_) = typing.get_args(cohere.V2ChatStreamResponse)
_TYPES = {each.model_fields["type"].default: TypeAdapter(each) for each in typing.get_args(_UNION)}
_TYPES[""] = TypeAdapter(cohere.V2ChatResponse)

found = []
for line in sys.stdin:
    try:
        _TYPES[json.loads(line).get("type", "")].validate_json(line, strict=True)
    except ValidationError as error:
        found += [f"{line}: {each['loc']}: {each['msg']}" for each in error.errors()]
json.dump(found, sys.stdout)
