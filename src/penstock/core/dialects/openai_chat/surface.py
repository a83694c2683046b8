"""The OpenAI chat dialect, as an API to offer: `POST /v1/chat/completions`.

The checks of a request cover the fields that the gateway acts on (`model`, `stream`, `stream_options`, `n`), and what
could harm or mislead: a body that is not a JSON object, repeated keys, absurd numbers. Every other field goes to a
provider of the same dialect as the client wrote it.
"""

from collections.abc import Mapping
from functools import cache, partial
from itertools import islice

from penstock.core.completion import Completion
from penstock.core.dialects.bodies import decode_fields, refused
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.openai_chat.body import write_body
from penstock.core.dialects.openai_chat.estimate import estimate_input
from penstock.core.dialects.openai_chat.failures import write_error
from penstock.core.dialects.openai_chat.request import NAME, read_request
from penstock.core.dialects.openai_chat.writer import OpenAIChatWriter
from penstock.core.failure import Failure
from penstock.core.losses import Loss
from penstock.core.request import MAX_TAGS, ClientRequest

_ONCE = ("model", "stream", "messages", "n")
_MAX_CHOICES = 128
# The largest signed 64-bit integer, which some clients send for "no limit".
_MAX_TOKENS = 2**63 - 1
_MAX_MODEL = 256
_NO_MODEL = f"`model` must name a model, in at most {_MAX_MODEL} characters"
_ACTED_ON = ("model", "stream", "messages", "stream_options")
_MAX_ITEMS = {"tools": 1_024, "stop": 1_024, "functions": 1_024}
_CAPS = ("max_completion_tokens", "max_tokens")
_FIGURES = frozenset(("n", *_CAPS, *_MAX_ITEMS))
# The fields, other than the messages, that the accounting uses.
_ACCOUNTED = frozenset(("metadata", "user", "service_tier"))


class OpenAIChatSurface:
    """Offers chat completions."""

    name = "chat"
    path = "/chat/completions"
    request_id_header = ""

    def read_request(self, body: bytes, headers: Mapping[str, str], path: str) -> ClientRequest:  # noqa: ARG002
        """Read a request; raises `RequestError`."""
        members, fields = decode_fields(body, _ONCE)
        model, stream, messages, options = map(fields.get, _ACTED_ON)
        if not isinstance(model, str) or not 0 < len(model) <= _MAX_MODEL:
            raise refused(_NO_MODEL, param="model")
        if stream is not None and not isinstance(stream, bool):
            raise refused("`stream` must be true or false", param="stream")
        if not isinstance(messages, list):
            raise refused("`messages` must be a list of messages", param="messages")
        if options is not None and not isinstance(options, dict):
            raise refused("`stream_options` must be an object", param="stream_options")
        if not _FIGURES.isdisjoint(fields):
            _check_figures(fields)
        request = ClientRequest(
            dialect=NAME,
            model=model,
            stream=bool(stream),
            members=members,
            include_usage=bool(options and options.get("include_usage")),
            fields=fields,
            estimate=partial(estimate_input, fields),
            read=cache(partial(read_request, fields)),
        )
        if not _ACCOUNTED.isdisjoint(fields):
            _account(request, fields)
        return request

    def writer(self, facts: AnswerFacts) -> OpenAIChatWriter:
        """Make the writer of a streamed answer."""
        return OpenAIChatWriter(facts)

    def write_body(self, completion: Completion, facts: AnswerFacts, losses: list[Loss]) -> bytes:
        """The body of a `chat.completion`."""
        return write_body(completion, losses, facts)

    def status_of(self, failure: Failure) -> int:
        """The usual status of the failure."""
        return failure.status

    def write_error(self, failure: Failure, request_id: str) -> bytes:
        """The body of an error, in OpenAI's envelope."""
        return write_error(failure, request_id)


def _account(request: ClientRequest, fields: dict[str, object]) -> None:
    """Set the fields of the request that tags and prices depend on."""
    user, tier, metadata = fields.get("user"), fields.get("service_tier"), fields.get("metadata")
    request.user = user if isinstance(user, str) else ""
    request.tier = tier if isinstance(tier, str) else ""
    if isinstance(metadata, dict):
        texts = ((name, value) for name, value in metadata.items() if isinstance(value, str))
        request.metadata = dict(islice(texts, MAX_TAGS))


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
    for name, most in _MAX_ITEMS.items():
        items = fields.get(name)
        if isinstance(items, list) and len(items) > most:
            raise refused(f"`{name}` has more than {most} items", param=name)
