"""The OpenAI chat dialect, as an API to offer: `POST /v1/chat/completions`.

The checks of a request cover the fields that the gateway acts on (`model`, `stream`, `stream_options`, `n`), and what
could harm or mislead: a body that is not a JSON object, repeated keys, absurd numbers. Every other field goes to a
provider of the same dialect as the client wrote it.
"""

from collections.abc import Mapping

from penstock.core.dialects.bodies import check_integer, check_lengths, copy_accounting_fields, read_client, refused
from penstock.core.dialects.dialect import SurfaceDialect
from penstock.core.dialects.openai_chat.body import write_body
from penstock.core.dialects.openai_chat.request import NAME, read_request
from penstock.core.dialects.openai_chat.writer import OpenAIChatWriter
from penstock.core.hub.request import ClientRequest

_MAX_CHOICES = 128
_LISTS = ("tools", "stop", "functions")
_CAPS = ("max_completion_tokens", "max_tokens")
_ONCE = ("n", "stream_options", "store", "service_tier", *_CAPS)
_FIGURES = frozenset(("n", *_CAPS, *_LISTS))
# The fields, other than the messages, that the accounting uses.
_ACCOUNTED = frozenset(("metadata", "user", "service_tier", "store"))


def read_call(body: bytes, headers: Mapping[str, str], path: str) -> ClientRequest:  # noqa: ARG001
    """Read a request; raises `RequestError`."""
    request = read_client(NAME, body, read_request, _ONCE, messages="messages")
    fields = request.fields
    options = fields.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise refused("`stream_options` must be an object", param="stream_options")
    if not _FIGURES.isdisjoint(fields):
        check_integer(fields, "n", _MAX_CHOICES)
        for name in _CAPS:
            check_integer(fields, name)
        check_lengths(fields, _LISTS)
    request.include_usage = bool(options and options.get("include_usage"))
    if not _ACCOUNTED.isdisjoint(fields):
        copy_accounting_fields(request, fields)
    return request


CHAT_SURFACE = SurfaceDialect(
    name="chat",
    path="/chat/completions",
    event_ids=True,
    read_request=read_call,
    writer=OpenAIChatWriter,
    write_body=write_body,
)
