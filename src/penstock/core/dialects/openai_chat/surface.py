"""The OpenAI chat dialect, as an API to offer: `POST /v1/chat/completions`.

The checks of a request cover the fields that the gateway acts on (`model`, `stream`, `stream_options`, `n`), and what
could harm or mislead: a body that is not a JSON object, repeated keys, absurd numbers. Every other field goes to a
provider of the same dialect as the client wrote it.
"""

from collections.abc import Mapping

from penstock.core.dialects.bodies import (
    check_lengths,
    copy_accounting_fields,
    decode_fields,
    model_of,
    refused,
    stream_of,
)
from penstock.core.dialects.dialect import AnswerFacts, SurfaceDialect
from penstock.core.dialects.openai_chat.body import write_body
from penstock.core.dialects.openai_chat.request import NAME, read_request
from penstock.core.dialects.openai_chat.writer import OpenAIChatWriter
from penstock.core.dialects.openai_errors import write_error
from penstock.core.hub.completion import Completion
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import ClientRequest, ReadOnce

_MAX_CHOICES = 128
# The largest signed 64-bit integer, which some clients send for "no limit".
_MAX_TOKENS = 2**63 - 1
_LISTS = ("tools", "stop", "functions")
_CAPS = ("max_completion_tokens", "max_tokens")
_ONCE = ("model", "stream", "messages", "n", "stream_options", "store", "service_tier", *_CAPS)
_FIGURES = frozenset(("n", *_CAPS, *_LISTS))
# The fields, other than the messages, that the accounting uses.
_ACCOUNTED = frozenset(("metadata", "user", "service_tier", "store"))


class OpenAIChatSurface(SurfaceDialect):
    """Offers chat completions."""

    name = "chat"
    path = "/chat/completions"

    def read_request(self, body: bytes, headers: Mapping[str, str], path: str) -> ClientRequest:  # noqa: ARG002
        """Read a request; raises `RequestError`."""
        members, fields = decode_fields(body, _ONCE)
        model, stream = model_of(fields), stream_of(fields)
        messages, options = fields.get("messages"), fields.get("stream_options")
        if not isinstance(messages, list) or not messages:
            raise refused("`messages` must be a list of at least one message", param="messages")
        if options is not None and not isinstance(options, dict):
            raise refused("`stream_options` must be an object", param="stream_options")
        if not _FIGURES.isdisjoint(fields):
            _check_figures(fields)
        request = ClientRequest(
            dialect=NAME,
            model=model,
            stream=stream,
            members=members,
            include_usage=bool(options and options.get("include_usage")),
            fields=fields,
            read=ReadOnce(read_request, fields),
        )
        if not _ACCOUNTED.isdisjoint(fields):
            copy_accounting_fields(request, fields)
        return request

    def writer(self, facts: AnswerFacts) -> OpenAIChatWriter:
        """Make the writer of a streamed answer."""
        return OpenAIChatWriter(facts)

    def write_body(self, completion: Completion, facts: AnswerFacts, losses: list[Loss]) -> bytes:
        """The body of a `chat.completion`."""
        return write_body(completion, losses, facts)

    def write_error(self, failure: Failure, request_id: str) -> bytes:
        """The body of an error, in OpenAI's envelope."""
        return write_error(failure, request_id)


def _check_figures(fields: dict[str, object]) -> None:
    n = fields.get("n")
    if n is not None and (not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= _MAX_CHOICES):
        raise refused(f"`n` must be an integer from 1 to {_MAX_CHOICES}", param="n")
    for name in _CAPS:
        count = fields.get(name)
        if count is not None and (
            not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= _MAX_TOKENS
        ):
            raise refused(f"`{name}` must be a positive integer below 2^63", param=name)
    check_lengths(fields, _LISTS)
