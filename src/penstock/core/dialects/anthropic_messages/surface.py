"""The Anthropic Messages dialect, as an API to offer: `POST /v1/messages`.

A request is checked as far as the gateway acts on it (`model`, `messages`, `max_tokens`, `stream`). Every other field
goes to a provider of the same dialect as the client wrote it, and so do the headers of the API's open lists.
"""

from collections.abc import Mapping

from penstock.core.dialects.anthropic_messages.body import write_body
from penstock.core.dialects.anthropic_messages.failures import write_error
from penstock.core.dialects.anthropic_messages.reader import NAME
from penstock.core.dialects.anthropic_messages.request import read_request
from penstock.core.dialects.anthropic_messages.writer import AnthropicMessagesWriter
from penstock.core.dialects.bodies import check_lengths, decode_fields, refused
from penstock.core.dialects.dialect import AnswerFacts, SurfaceDialect
from penstock.core.hub.completion import Completion
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import ClientRequest, ReadOnce, ReasoningShown
from penstock.core.json.getters import object_of

_ONCE = ("model", "stream", "messages", "max_tokens", "service_tier")
_LISTS = ("tools", "stop_sequences")
_MAX_TOKENS = 2**63 - 1
_MAX_MODEL = 256
_OVERLOADED = 529
# Open lists of headers, which clients and providers extend without notice.
_FORWARDED = ("anthropic-", "x-claude-code-", "x-stainless-")
_CREDENTIALS = ("api-key", "auth", "secret", "token")
# Headers of Claude Code with the ids of a session and a sub-agent, and the tags that they become.
_TAGS = {"x-claude-code-session-id": "session", "x-claude-code-agent-id": "agent"}


class AnthropicMessagesSurface(SurfaceDialect):
    """Offers Messages."""

    name = "messages"
    path = "/messages"
    request_id_header = "request-id"

    def read_request(self, body: bytes, headers: Mapping[str, str], path: str) -> ClientRequest:  # noqa: ARG002
        """Read a request; raises `RequestError`."""
        request = read_client_request(body, headers)
        most = request.fields.get("max_tokens")
        if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= _MAX_TOKENS:
            raise refused("max_tokens: must be a positive integer", param="max_tokens")
        return request

    def writer(self, facts: AnswerFacts) -> AnthropicMessagesWriter:
        """Make the writer of a streamed answer."""
        return AnthropicMessagesWriter(facts)

    def write_body(self, completion: Completion, facts: AnswerFacts, losses: list[Loss]) -> bytes:
        """The body of a message."""
        return write_body(completion, losses, facts)

    def status_of(self, failure: Failure) -> int:
        """The usual status of the failure; 529 for an overloaded provider, as in Anthropic's API."""
        return _OVERLOADED if failure.upstream_status == _OVERLOADED else failure.status

    def write_error(self, failure: Failure, request_id: str) -> bytes:
        """The body of an error, in Anthropic's envelope."""
        return write_error(failure, request_id)


def read_client_request(body: bytes, headers: Mapping[str, str]) -> ClientRequest:
    """Read a request without the checks that only a call needs (a token count does not); raises `RequestError`."""
    members, fields = decode_fields(body, _ONCE)
    model, stream, messages = map(fields.get, ("model", "stream", "messages"))
    if not isinstance(model, str) or not 0 < len(model) <= _MAX_MODEL:
        raise refused(f"model: must name a model, in at most {_MAX_MODEL} characters", param="model")
    if stream is not None and not isinstance(stream, bool):
        raise refused("stream: must be true or false", param="stream")
    if not isinstance(messages, list) or not messages:
        raise refused("messages: must be a list of at least one message", param="messages")
    check_lengths(fields, _LISTS)
    metadata, tier = fields.get("metadata"), fields.get("service_tier")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    read = ReadOnce(read_request, fields)  # limits and each target need it
    return ClientRequest(
        dialect=NAME,
        model=model,
        stream=bool(stream),
        members=members,
        headers={name: value for name, value in headers.items() if _is_forwarded(name)},
        include_usage=True,
        fields=fields,
        tier=tier if isinstance(tier, str) else "",
        user=user if isinstance(user, str) else "",
        metadata={tag: headers[name] for name, tag in _TAGS.items() if name in headers},
        read=read,
        reasoning=_reasoning(fields),
    )


def _reasoning(fields: Mapping[str, object]) -> ReasoningShown:
    """What the client expects of a provider that reasons: without `thinking`, Anthropic sends none, and clients may not
    be prepared for it. With tools, a seal of the provider has to come back with the tool's result."""
    if object_of(fields.get("thinking")).get("type", "disabled") != "disabled":
        return "all"
    return "seals" if fields.get("tools") else "none"


def _is_forwarded(header: str) -> bool:
    return header.startswith(_FORWARDED) and not any(word in header for word in _CREDENTIALS)
