"""The Gemini dialect, as an API to offer: `POST /v1beta/models/{model}:streamGenerateContent` and `:generateContent`.

The model, and whether the answer is streamed, are in the path. A request is checked as far as the gateway acts on it.
Every other field goes to a provider of the same dialect as the client wrote it, and so does the version of its SDK.
"""

import re
from collections.abc import Mapping
from urllib.parse import parse_qs, unquote

from penstock.core.dialects.bodies import check_lengths, decode_fields, decode_members, refused
from penstock.core.dialects.dialect import SurfaceDialect, TokenCounting
from penstock.core.dialects.gemini.body import write_body
from penstock.core.dialects.gemini.failures import write_error
from penstock.core.dialects.gemini.members import member, snake_case
from penstock.core.dialects.gemini.reader import NAME
from penstock.core.dialects.gemini.request import read_request
from penstock.core.dialects.gemini.writer import GeminiWriter
from penstock.core.hub.request import MAX_TAGS, ClientRequest, ReadOnce
from penstock.core.json.getters import integer_of, object_of, text_of

STREAMED = "streamGenerateContent"
UNSTREAMED = "generateContent"
_ONCE = ("contents", "generationConfig", "generation_config", "model")
_LISTS = ("tools", "safetySettings")
_MAX_MODEL = 256
# What multiplies the cost of a call, and the highest value of each.
_LIMITS = {"maxOutputTokens": 2**31 - 1, "candidateCount": 128}
_VERSION = re.compile(r"^/(?:gemini/)?(?:v1(?:beta|alpha)?/)?")
_MODELS = "/models/"
_ARRAY = "application/json; charset=utf-8"
# Headers that a provider gets as the client sent them. Others are about the client's own account.
_FORWARDED = ("x-goog-api-client",)


def read_call(body: bytes, headers: Mapping[str, str], path: str) -> ClientRequest:
    """Read a request; raises `RequestError`."""
    request = read_client_request(body, headers, path)
    contents = member(request.fields, "contents")
    if not isinstance(contents, list | dict | str) or not contents:
        raise refused("contents: must be a list of at least one content", param="contents")
    return request


def read_client_request(body: bytes, headers: Mapping[str, str], path: str) -> ClientRequest:
    """Read a request without the checks that only a call needs (a token count does not); raises `RequestError`."""
    members, fields = decode_fields(body, _ONCE)
    place, _, query = path.partition("?")
    named, method = model_in(place)
    model = named or text_of(fields.get("model")).removeprefix(_MODELS[1:])
    if not 0 < len(model) <= _MAX_MODEL:
        raise refused(f"the path must name a model, in at most {_MAX_MODEL} characters", param="model")
    stream = method == STREAMED if named else fields.get("stream") is True
    config = member(fields, "generationConfig")
    if config is not None and not isinstance(config, dict):
        raise refused("generationConfig: must be an object", param="generationConfig")
    _check_twice(fields, "generationConfig")
    if config:
        raw = members.values.get("generationConfig") or members.values["generation_config"]
        decode_members(bytes(raw), [*_LIMITS, *map(snake_case, _LIMITS)])
    for name, most in _LIMITS.items():
        _check_limit(object_of(config), name, most)
    check_lengths(fields, _LISTS)
    labels = object_of(fields.get("labels"))
    tags = {name: value for name, value in labels.items() if isinstance(value, str)}
    read = ReadOnce(read_request, fields)  # limits and each target need it
    events = not named or parse_qs(query).get("alt") == ["sse"]
    return ClientRequest(
        dialect=NAME,
        model=model,
        stream=stream,
        stream_type=_ARRAY if stream and not events else "",
        members=members,
        headers={name: value for name, value in headers.items() if name in _FORWARDED},
        include_usage=True,
        fields=fields,
        tier=text_of(member(fields, "serviceTier")).lower(),
        metadata=dict(list(tags.items())[:MAX_TAGS]),
        read=read,
    )


def read_count_request(body: bytes, headers: Mapping[str, str], path: str) -> ClientRequest:
    """Read a request to count tokens; raises `RequestError`.

    The input is `contents`, or a whole request as `generateContentRequest`, with the system prompt and the tools.
    """
    request = read_client_request(body, headers, path)
    whole = member(request.fields, "generateContentRequest")
    if isinstance(whole, dict):
        request.read = ReadOnce(read_request, whole)
    return request


def _check_twice(holder: Mapping[str, object], name: str) -> None:
    """Refuse a member that is there by both of its names: which one counts is up to the provider."""
    if holder.get(name) is not None and holder.get(snake_case(name)) is not None:
        raise refused(f"`{name}` is there twice, also as `{snake_case(name)}`", param=name, code="duplicate_key")


def _check_limit(config: Mapping[str, object], name: str, most: int) -> None:
    """Check a number on which the cost of the call depends."""
    _check_twice(config, name)
    value = member(config, name)
    number = None if isinstance(value, bool) else integer_of(value)
    if value is not None and (number is None or not 1 <= number <= most):
        path = f"generationConfig.{name}"
        raise refused(f"{path}: must be an integer from 1 to {most}", param=path)


def model_in(path: str) -> tuple[str, str]:
    """The model and the method that a path names; both empty if it names none. Model names may have slashes.

    The AI SDK leaves `models/` out if the name has a slash.
    """
    before, colon, method = path.rpartition(":")
    _, models, model = before.partition(_MODELS)
    if not models:
        model = _VERSION.sub("", before)
    if not colon or not model or not method.isalpha():
        return "", ""
    return unquote(model), method


def write_report(data: bytes, report: bytes) -> bytes:
    """The last bytes of a stream, with the report as a member of the last message: clients accept no comments."""
    last = data.rstrip(b"\r\n]")  # no message has a line end in it
    place = last.find(b"{", last.rfind(b"\n") + 1) + 1
    return b'%b"penstock":%b,%b' % (data[:place], report, data[place:]) if place else data


GEMINI_SURFACE = SurfaceDialect(
    path=f"{_MODELS}{{model}}:{STREAMED}",
    read_request=read_call,
    writer=GeminiWriter,
    write_body=write_body,
    write_error=write_error,
    write_report=write_report,
)
GEMINI_TOKEN_COUNTING = TokenCounting(
    path=f"{_MODELS}{{model}}:countTokens",
    read_request=read_count_request,
    names=("totalTokens", snake_case("totalTokens")),
)
