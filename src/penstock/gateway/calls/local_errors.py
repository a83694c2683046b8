"""Errors of the local model, with readable messages and the name of the field at fault.

`check` validates the fields of OpenAI's API before the request is sent. llama.cpp would answer some mistakes in them
with the text of a C++ exception, some with status 500, as if it had failed itself, and would ignore others.
`rewrite_error` rewrites the errors that llama.cpp still returns: about its own fields, JSON schemas, its context size.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct, structs

from penstock.core.dialects.dialect import RequestError
from penstock.core.hub.failure import Failure
from penstock.error_codes import ErrorCode

_MAX_LOGPROBS = 20  # OpenAI's limit; each event then lists this many tokens
_WITH_SCHEMAS = ("response_format", "tools")
_FORMATS = ("text", "json_object", "json_schema")
_MAX_SHOWN = 16  # characters of a value in a message: fewer than any provider's key has
# The names of JSON types in messages.
_TYPE_NAMES: dict[type, str] = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
    type(None): "null",
}
_LLAMA_TYPE_NAMES = {
    "number": "a number",
    "string": "a string",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
# In llama.cpp's messages: the field at fault, the prefix of its JSON library, and that library's usual error.
_FIELD = re.compile(r"Field '([^']+)': ")
_EXCEPTION = re.compile(r"\[json\.exception\.[^\]]*\] ?")
_TYPE = re.compile(r"type must be (\w+), but is (\w+)")
_SCHEMA = re.compile(r".*(?=JSON schema error)", re.DOTALL)
# llama.cpp answers these with 500 too, although the request is at fault.
_REQUEST_TO_BLAME = re.compile(
    r"json\.exception|failed to parse|not supported|unsupported|unknown|invalid|missing|expected|must be", re.IGNORECASE
)


def check(fields: dict[str, Any], model: str) -> None:
    """Raise `RequestError` if a field has a value that the local model does not support."""
    for name, (is_right, wanted) in _CHECKS.items():
        value = fields.get(name)
        if value is not None and not is_right(value):
            shown = _shown(value)
            words = f"`{name}` must be {wanted}" + ("" if shown in wanted else f", not {shown}")
            raise RequestError(_refusal(words, name))
    for place, message in enumerate(fields["messages"]):
        _check_message(message, place, model)


def rewrite_error(failure: Failure, model: str, fields: Mapping[str, object]) -> Failure:
    """Rewrite llama.cpp's error response to a request with these fields."""
    status, words = failure.upstream_status, failure.message
    if not status:
        return failure  # there was no response
    error = _read(failure.body)
    if error.n_ctx:
        message = (
            f"the request ({error.n_prompt_tokens} tokens) exceeds the available context size of {model} "
            f"({error.n_ctx} tokens); shorten it, or raise `context` of its provider"
        )
        return _refusal(message, "messages", "context_length_exceeded")
    if status < 500 or _REQUEST_TO_BLAME.search(words):
        message, param = _translated(words, fields)
        return _refusal(f"{model} cannot take this request: {message}", param)
    return Failure(
        code="local_failed",
        message=f"{model}, the model on the gateway's machine, failed: {_EXCEPTION.sub('', words)}",
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_stop(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(each, str) for each in value))


def _is_count_of_logprobs(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_LOGPROBS


def _is_format(value: object) -> bool:
    if not isinstance(value, dict) or value.get("type") not in _FORMATS:
        return False
    schema = value.get("json_schema", {})
    return isinstance(schema, dict) and isinstance(schema.get("schema", {}), dict)


def _is_tools(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_function, value))


def _is_function(tool: object) -> bool:
    match tool:
        case {"type": "function", "function": {"name": str()}}:
            return True
        case _:
            return False


def _is_tool_choice(value: object) -> bool:
    return value in ("none", "auto", "required") or isinstance(value, dict)


# By field: the check of a value that is not null, and the description of a valid value.
_CHECKS: dict[str, tuple[Callable[[object], bool], str]] = {
    "temperature": (_is_number, "a number"),
    "top_p": (_is_number, "a number"),
    "frequency_penalty": (_is_number, "a number"),
    "presence_penalty": (_is_number, "a number"),
    "seed": (_is_number, "a number"),
    "stop": (_is_stop, "a string or a list of strings"),
    "logit_bias": (lambda value: isinstance(value, dict | list), "an object"),
    "logprobs": (lambda value: isinstance(value, bool), "true or false"),
    "top_logprobs": (_is_count_of_logprobs, f"an integer from 0 to {_MAX_LOGPROBS}"),
    "response_format": (
        _is_format,
        'an object whose `type` is "text", "json_object" or "json_schema", the last with an object as its schema',
    ),
    "tools": (_is_tools, "a list of functions, each with a name"),
    "tool_choice": (_is_tool_choice, "none, auto, required or the name of a function"),
    "functions": (lambda value: value == [], "empty: send `tools` instead"),
}


def _check_message(message: object, place: int, model: str) -> None:
    if not isinstance(message, dict):
        raise _bad_message(f"`messages[{place}]` must be an object, not {_shown(message)}")
    role, content, calls = message.get("role"), message.get("content"), message.get("tool_calls")
    if not isinstance(role, str):
        wrong = f".role` must be a string, not {_shown(role)}" if "role" in message else "` has no role"
        raise _bad_message(f"`messages[{place}]{wrong}")
    if isinstance(content, list):
        for number, part in enumerate(content):
            if not (isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)):
                raise _wrong_part(part, f"messages[{place}].content[{number}]", model)
    elif content is None:
        if role != "assistant" and "content" not in message:
            raise _bad_message(f"`messages[{place}]` has no content")
    elif not isinstance(content, str):
        raise _bad_message(f"`messages[{place}].content` must be a string or a list of parts, not {_shown(content)}")
    if calls is not None and not (isinstance(calls, list) and all(map(_is_call, calls))):
        raise _bad_message(f"`messages[{place}].tool_calls` must be a list of calls, each with a `function`")


def _wrong_part(part: object, place: str, model: str) -> RequestError:
    """The error for a content part that is not a valid text part."""
    if not isinstance(part, dict):
        return _bad_message(f"`{place}` must be an object, not {_shown(part)}")
    kind = part.get("type")
    if kind == "text":
        return _bad_message(f"`{place}.text` must be a string, not {_shown(part.get('text'))}")
    message = f"{model} takes text only, and the type of `{place}` is {_shown(kind)}"
    refusal = _refusal(message, "messages", "local_text_only")
    return RequestError(structs.replace(refusal, retryable=True, client_may_retry=False))  # another target may take it


def _is_call(call: object) -> bool:
    return isinstance(call, dict) and isinstance(call.get("function"), dict)


def _shown(value: object) -> str:
    """A value for a message: short words and numbers as they are, else the type."""
    if isinstance(value, str) and value.isidentifier() and len(value) <= _MAX_SHOWN:
        return msgspec.json.encode(value).decode()
    return str(value) if _is_number(value) and len(str(value)) <= _MAX_SHOWN else _TYPE_NAMES.get(type(value), "that")


class _LocalError(Struct, frozen=True):
    """The fields of llama.cpp's error if the request is longer than the context."""

    n_prompt_tokens: int = 0
    n_ctx: int = 0


class _LocalErrorEnvelope(Struct, frozen=True):
    error: _LocalError = _LocalError()


def _read(body: bytes) -> _LocalError:
    try:
        return msgspec.json.decode(body, type=_LocalErrorEnvelope).error
    except (ValueError, RecursionError):
        return _LocalError()


def _translated(words: str, fields: Mapping[str, object]) -> tuple[str, str | None]:
    """llama.cpp's message without its exception prefix, and the field at fault, if it is known."""
    match = _FIELD.match(words)
    schemas = [name for name in _WITH_SCHEMAS if fields.get(name)] if "JSON schema" in words else []
    param = match[1] if match else schemas[0] if len(schemas) == 1 else None
    plain = _SCHEMA.sub("", _EXCEPTION.sub("", words[match.end() :] if match else words))
    plain = _TYPE.sub(lambda kinds: f"must be {_type_name(kinds[1])}, not {_type_name(kinds[2])}", plain)
    return f"`{param}`: {plain}" if match else plain, param


def _type_name(word: str) -> str:
    return _LLAMA_TYPE_NAMES.get(word, word)


def _bad_message(message: str) -> RequestError:
    return RequestError(_refusal(message, "messages"))


def _refusal(message: str, param: str | None, code: ErrorCode = "invalid_request") -> Failure:
    return Failure(code=code, message=message, param=param, retryable=False)
