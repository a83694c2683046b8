"""ChatRequest: what a client asks, checked as far as the gateway is answerable for it, with every field kept.

Fields that the gateway does not know go to the provider as they came. What it does check is what it acts on (`model`,
`stream`, `stream_options`, `n`), and what could hurt it or mislead whoever stands behind it: a body that is no JSON
object, keys that are there twice, figures beyond reason.
"""

import json
from collections.abc import Mapping
from math import isinf
from typing import ClassVar

import msgspec
from msgspec import Struct

from penstock.core.wire.complexity import may_be_costly, outline_of
from penstock.gateway.failure import Failure


def _float(text: str) -> float:
    """A float by Python's own reading, which takes the same time for all; msgspec's is slow near the largest ones."""
    value = float(text)
    if isinf(value):
        raise msgspec.DecodeError("Number out of range")
    return value


_FIELDS = msgspec.json.Decoder(float_hook=_float)
# The fields of a body, each as it is written there.
_WRITTEN = msgspec.json.Decoder(dict[str, msgspec.Raw])
# Keys that must not be there twice.
_ONCE = ("model", "stream", "messages", "n")
# Bytes of a body that is read without being counted; and what a larger one may take to decode.
_UNCOUNTED = 65_536
_NANOSECONDS_PER_MB = 8_000_000
_TOO_COMPLEX = "the body holds more values than a request of its size may have; send less structure, or longer texts"
_MAX_CHOICES = 128
# What a 64-bit number holds: some say so for "as many as there are".
_MAX_TOKENS = 2**63 - 1
_MAX_MODEL = 256
_NO_MODEL = f"`model` must name a model, in at most {_MAX_MODEL} characters"
_READ = ("model", "metadata", "user")  # of a request for embeddings
_ACTED_ON = ("model", "stream", "messages", "stream_options")
_MAX_ITEMS = {"tools": 1_024, "stop": 1_024, "functions": 1_024}
_FIGURES = frozenset(("n", "max_tokens", "max_completion_tokens", *_MAX_ITEMS))


class RefusedError(Exception):
    """The request cannot be taken."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class ChatRequest(Struct, frozen=True):
    """What a client asks."""

    model: str
    stream: bool
    include_usage: bool
    fields: dict[str, object]

    def figures(self) -> dict[str, bool | int | float]:
        """How the client wants to be answered, in figures; nothing that anybody says is in it."""
        return {name: value for name, value in self.fields.items() if isinstance(value, bool | int | float)}

    def for_target(self, model: str, overrides: Mapping[str, object], *, ask_for_usage: bool) -> bytes:
        """The body for a provider: every field that the client sent, but for what the route overrides.

        Usage is asked for always where the provider accepts that, because somebody has to know what the answer cost.
        Elsewhere `stream_options` is left out: providers that do not know the field answer 422, and OpenAI answers 400
        to a call that has it and is not streamed.
        """
        fields = {**self.fields, **overrides, "model": model}
        if self.stream and ask_for_usage:
            fields["stream_options"] = _with_usage(fields.get("stream_options"))
        else:
            fields.pop("stream_options", None)
        return msgspec.json.encode(fields)

    def for_model_here(self, model: str, overrides: Mapping[str, object]) -> dict[str, object]:
        """The fields for a model on this machine. It always streams: only so does it notice at once who has left."""
        options = _with_usage(self.fields.get("stream_options"))
        return {**self.fields, **overrides, "model": model, "stream": True, "stream_options": options}


class EmbeddingsRequest(Struct, frozen=True):
    """A request for embeddings: only its model is looked at, everything else stays as it was written."""

    model: str
    fields: dict[str, msgspec.Raw]
    stream: ClassVar[bool] = False

    def for_target(self, model: str, overrides: Mapping[str, object]) -> bytes:
        """The body for a provider."""
        return msgspec.json.encode({**self.fields, **overrides, "model": model})


def parse_embeddings(body: bytes) -> EmbeddingsRequest:
    """The request in a body; raises `RefusedError`."""
    _check_complexity(body)
    try:
        body.decode()  # of what is kept as it is written, the parser does not ask whether it is UTF-8
        fields = _WRITTEN.decode(body)
        # What is read of them later must be readable: of what is kept as it is written, not all was looked at.
        read = {name: _FIELDS.decode(fields[name]) for name in _READ if name in fields}
    except RecursionError:
        raise _refused("the body is nested too deep", code="invalid_json") from None
    except msgspec.ValidationError:
        raise _refused("the body must be a JSON object", code="invalid_json") from None
    except ValueError as error:
        raise _refused(f"the body is not valid JSON: {error}", code="invalid_json") from None
    if msgspec.json.encode(fields) != body:
        _check_keys(body, fields)
    if "input" not in fields:
        raise _refused("`input` must be what to embed", param="input")
    model = read.get("model")
    if not isinstance(model, str) or not 0 < len(model) <= _MAX_MODEL:
        raise _refused(_NO_MODEL, param="model")
    return EmbeddingsRequest(model, fields)


def _with_usage(options: object) -> dict[str, object]:
    return (options if isinstance(options, dict) else {}) | {"include_usage": True}


def parse(body: bytes) -> ChatRequest:
    """The request in a body; raises `RefusedError`."""
    _check_complexity(body)
    try:
        fields = _FIELDS.decode(body)
        written = _WRITTEN.decode(body)
    except RecursionError:
        raise _refused("the body is nested too deep", code="invalid_json") from None
    except msgspec.ValidationError:
        raise _refused("the body must be a JSON object", code="invalid_json") from None
    except ValueError as error:
        raise _refused(f"the body is not valid JSON: {error}", code="invalid_json") from None
    if msgspec.json.encode(written) != body:
        _check_keys(body, written)
    model, stream, messages, options = map(fields.get, _ACTED_ON)
    if not isinstance(model, str) or not 0 < len(model) <= _MAX_MODEL:
        raise _refused(_NO_MODEL, param="model")
    if stream is not None and not isinstance(stream, bool):
        raise _refused("`stream` must be true or false", param="stream")
    if not isinstance(messages, list):
        raise _refused("`messages` must be a list of messages", param="messages")
    if options is not None and not isinstance(options, dict):
        raise _refused("`stream_options` must be an object", param="stream_options")
    if not _FIGURES.isdisjoint(fields):
        _check_figures(fields)
    return ChatRequest(model, bool(stream), bool(options and options.get("include_usage")), fields)


def _check_complexity(body: bytes) -> None:
    """Refuse a body that would take longer to read than other calls should wait: 15 ms for each megabyte."""
    most = _most(body)
    if len(body) > _UNCOUNTED and may_be_costly(body, most) and outline_of(body, most).is_costly():
        raise _refused(_TOO_COMPLEX, code="request_too_complex")


def _most(body: bytes) -> int:
    return _NANOSECONDS_PER_MB * max(len(body), 1_000_000) // 1_000_000


def _check_keys(body: bytes, written: dict[str, msgspec.Raw]) -> None:
    """Refuse a body in which a key that matters stands twice: two readers could take it for two different requests.

    Where all its fields, each written once, are the body again, there is no such key. So are nearly all, if not at
    once, then without the spaces. A key that hides behind escapes is written without them.
    """
    outermost: list[tuple[str, object]] = []

    def keep(pairs: list[tuple[str, object]]) -> None:
        outermost[:] = pairs  # objects are reported from the inside out: the last one is the body itself

    try:
        if _without_spaces(msgspec.json.encode(written)) == _without_spaces(body):
            return
        if len(body) > _UNCOUNTED and outline_of(body, _most(body)).is_costly(leniently=True):
            raise _refused(_TOO_COMPLEX, code="request_too_complex")
        json.loads(body, object_pairs_hook=keep, parse_int=str, parse_float=str)  # of any length
    except (ValueError, RecursionError):
        raise _refused("the body is not valid JSON", code="invalid_json") from None
    names = [name for name, _ in outermost]
    for key in _ONCE:
        if names.count(key) > 1:
            raise _refused(f"`{key}` is there twice", param=key, code="duplicate_key")


def _without_spaces(body: bytes) -> bytes:
    return msgspec.json.format(body, indent=-1)


def _check_figures(fields: dict[str, object]) -> None:
    n = fields.get("n")
    if n is not None and (not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= _MAX_CHOICES):
        raise _refused(f"`n` must be an integer from 1 to {_MAX_CHOICES}", param="n")
    for name in ("max_tokens", "max_completion_tokens"):
        count = fields.get(name)
        if count is not None and (
            not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= _MAX_TOKENS
        ):
            raise _refused(f"`{name}` must be a positive integer below 2^63", param=name)
    for name, most in _MAX_ITEMS.items():
        items = fields.get(name)
        if isinstance(items, list) and len(items) > most:
            raise _refused(f"`{name}` has more than {most} items", param=name)


def _refused(message: str, *, param: str | None = None, code: str = "invalid_request") -> RefusedError:
    return RefusedError(
        Failure(code=code, message=message, status=400, kind="invalid_request_error", param=param, retryable=False)
    )
