"""Decodes the bodies of requests, with the checks that surfaces have in common.

A body must be one JSON object. It must not be nested too deep. No key that the gateway acts on may occur twice, because
two parsers could then read two different requests. And decoding must not block the event loop for other calls: a body
may have only so many values that it takes at most 15 ms per megabyte.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from math import isinf

import msgspec

from penstock.core.hub.content import MediaPart, ToolResult
from penstock.core.hub.failure import Failure, RequestError
from penstock.core.hub.request import MAX_TAGS, ClientRequest, ReadOnce, Request, available_tools
from penstock.core.json.members import JsonMembers
from penstock.core.wire.complexity import may_be_costly, outline_of
from penstock.core.wire.payload import MAX_DEPTH, is_too_deep
from penstock.error_codes import ErrorCode

# A body of at most this many bytes is decoded without an estimate of its cost; the limit for larger ones.
_UNCOUNTED = 65_536
_NANOSECONDS_PER_MB = 8_000_000
# Members of a body that is not regular: they are located one by one, a microsecond each, and copied when it is edited.
_MOST_MEMBERS = 1_000
_MAX_MODEL = 256
_NO_MODEL = f"`model` must name a model, in at most {_MAX_MODEL} characters"
_MOST_ITEMS = 1_024
# The largest signed 64-bit integer, which some clients send for "no limit".
MAX_INTEGER = 2**63 - 1
STREAM = "stream"
"""The member of most bodies that asks for a stream."""
_TOO_COMPLEX = "the body holds more values than a request of its size may have; send less structure, or longer texts"


def _float(text: str) -> float:
    """Parse a float with Python, which takes the same time for all; msgspec is slow for numbers near the largest."""
    value = float(text)
    if isinf(value):
        raise msgspec.DecodeError("Number out of range")
    return value


FIELDS = msgspec.json.Decoder(float_hook=_float)
"""The decoder for bodies of clients."""


def decode_members(body: bytes, once: Iterable[str]) -> JsonMembers:
    """The members of a body as bytes. Raises `RequestError`, also if one of the keys in `once` occurs twice."""
    counted = len(body) > _UNCOUNTED
    most = _NANOSECONDS_PER_MB * max(len(body), 1_000_000) // 1_000_000 if counted else 0
    if counted and may_be_costly(body, most) and outline_of(body, most).is_costly():
        raise refused(_TOO_COMPLEX, code="request_too_complex")
    if is_too_deep(body):
        raise refused(f"the body is nested deeper than {MAX_DEPTH} levels", code="invalid_json")
    try:
        members = JsonMembers(body)
        if members.encode is not None:
            return members
        if len(members.values) > _MOST_MEMBERS:
            raise refused(_TOO_COMPLEX, code="request_too_complex")
        if counted and not members.is_located and outline_of(body, most).is_costly(leniently=True):
            raise refused(_TOO_COMPLEX, code="request_too_complex")
        repeated = members.repeated()
    except msgspec.ValidationError:
        raise refused("the body must be a JSON object", code="invalid_json") from None
    except ValueError as error:
        raise refused(f"the body is not valid JSON: {error}", code="invalid_json") from None
    for key in once:
        if key in repeated:
            raise refused(f"`{key}` is there twice", param=key, code="duplicate_key")
    return members


def decode_fields(body: bytes, once: Iterable[str]) -> tuple[JsonMembers, dict[str, object]]:
    """The members of a body as bytes, and all fields decoded. Raises `RequestError`, as `decode_members` does."""
    members = decode_members(body, once)
    try:
        return members, FIELDS.decode(body)
    except ValueError as error:
        raise refused(f"the body is not valid JSON: {error}", code="invalid_json") from None


def require_one_choice(choices: int) -> None:
    """Reject a request for several choices, for a provider whose API answers with one."""
    if choices > 1:
        raise refused(
            f"`n` is {choices}, and the provider's API answers with one choice; send several requests instead",
            param="n",
        )


def check_lengths(fields: Mapping[str, object], names: Iterable[str]) -> None:
    """Check lists that would take long to translate; raises `RequestError`."""
    for name in names:
        items = fields.get(name)
        if isinstance(items, list) and len(items) > _MOST_ITEMS:
            raise refused(f"`{name}` has more than {_MOST_ITEMS} items", param=name)


def check_integer(fields: Mapping[str, object], name: str, most: int = MAX_INTEGER, *, required: bool = False) -> None:
    """Check a number on which the cost of a call depends; raises `RequestError`."""
    value = fields.get(name)
    if (value is not None or required) and (type(value) is not int or not 1 <= value <= most):
        wanted = f"an integer from 1 to {most}" if most < MAX_INTEGER else "a positive integer below 2^63"
        raise refused(f"`{name}` must be {wanted}", param=name)


def refused(message: str, *, param: str | None = None, code: ErrorCode = "invalid_request") -> RequestError:
    """The error for a request that is rejected because of the client."""
    return RequestError(Failure(code=code, message=message, param=param, retryable=False))


class MediaUrlsError(RequestError):
    """A request names media by URLs, which the provider does not fetch, and neither has the gateway (`fetched`)."""

    def __init__(self, urls: Iterable[str]) -> None:
        message = (
            "the provider of this model takes no images or documents by URL; send them as base64 data, or ask the "
            "gateway's operator to allow their hosts (media_hosts in [server])"
        )
        super().__init__(Failure(code="invalid_request", message=message, retryable=False))
        self.urls = tuple(dict.fromkeys(urls))


# Fields that OpenAI's APIs have in common.


def model_of(fields: Mapping[str, object]) -> str:
    """The model that a request names; raises `RequestError`."""
    model = fields.get("model")
    if not isinstance(model, str) or not 0 < len(model) <= _MAX_MODEL:
        raise refused(_NO_MODEL, param="model")
    return model


def stream_of(fields: Mapping[str, object], name: str = STREAM) -> bool:
    """Whether a request asks for a stream; raises `RequestError`."""
    stream = fields.get(name)
    if stream is not None and not isinstance(stream, bool):
        raise refused(f"`{name}` must be true or false", param=name)
    return bool(stream)


def read_client(
    dialect: str,
    body: bytes,
    read: Callable[[Mapping[str, object]], Request],
    once: Iterable[str] = (),
    *,
    stream: str = STREAM,
    messages: str = "",
) -> ClientRequest:
    """A client's request with `model` and `stream` in its body, which `read` reads when it is needed.

    `messages` is the member with the conversation, if that must be a list. These three may not occur twice, nor may
    those in `once`.
    """
    members, fields = decode_fields(body, ("model", stream, messages, *once))
    if messages and (not isinstance(given := fields.get(messages), list) or not given):
        raise refused(f"`{messages}` must be a list of at least one message", param=messages)
    return ClientRequest(
        dialect=dialect,
        model=model_of(fields),
        stream=stream_of(fields, stream),
        members=members,
        include_usage=True,
        fields=fields,
        read=ReadOnce(read, fields),  # limits and each target need it
    )


def copy_accounting_fields(request: ClientRequest, fields: Mapping[str, object]) -> None:
    """Set the fields of the request that tags, prices and kept content depend on; raises `RequestError`."""
    user, tier, metadata = fields.get("user"), fields.get("service_tier"), fields.get("metadata")
    request.user = user if isinstance(user, str) else ""
    request.tier = tier if isinstance(tier, str) else ""
    store = fields.get("store")
    if store is not None and not isinstance(store, bool):
        raise refused("`store` must be true or false", param="store")
    request.unkept = store is False
    if isinstance(metadata, dict):
        texts = ((name, value) for name, value in metadata.items() if isinstance(value, str))
        request.metadata = dict(islice(texts, MAX_TAGS))


def check_translatable(request: Request) -> None:
    """Raise `RequestError` if no provider of another dialect can be asked what a request asks."""
    if request.invalid is not None:
        param, message = request.invalid
        raise refused(message, param=param)
    for part in (part for turn in request.turns for part in turn.parts):
        for each in part.parts if isinstance(part, ToolResult) else (part,):
            if isinstance(each, MediaPart) and not (each.data or each.url or each.file_id):
                raise refused(
                    f"the conversation has a part ({each.kind}) with neither base64 data nor a URL nor a file id"
                )
    if any(not tool.name for tool in request.tools):
        raise refused("a tool has no name", param="tools")
    choice = request.tool_choice
    if choice is None or choice.mode in ("auto", "none"):
        return
    declared = {name for tool in request.tools for name in (tool.name, tool.type)}
    missing = [name for name in choice.names if name not in declared]
    if missing or not request.tools:
        what = (
            f"names a tool that is not in `tools`: {', '.join(missing)}"
            if missing
            else "demands a tool without `tools`"
        )
        raise refused(f"`tool_choice` {what}", param="tool_choice")
    if choice.mode == "allowed" and not choice.required:
        return
    named = [tool for tool in request.tools if not choice.names or {tool.name, tool.type} & set(choice.names)]
    offered = {tool.name for tool in available_tools(request, []) if tool.kind != "server"}
    if named and all(tool.name not in offered for tool in named):
        names = ", ".join(tool.type or tool.name for tool in named)
        lacking = "the provider of this model does not have" if any(tool.type for tool in named) else "is deferred"
        message = f"`tool_choice` demands a tool that {lacking}: {names}"
        raise refused(message, param="tool_choice")
