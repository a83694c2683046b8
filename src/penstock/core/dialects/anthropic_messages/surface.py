"""The Anthropic Messages dialect, as an API to offer: `POST /v1/messages`.

A request is checked as far as the gateway acts on it (`model`, `messages`, `max_tokens`, `stream`). Every other field
goes to a provider of the same dialect as the client wrote it, and so do the headers of the API's open lists.
"""

import json
from collections.abc import Mapping

from penstock.core.dialects.anthropic_messages.body import write_body
from penstock.core.dialects.anthropic_messages.failures import write_error
from penstock.core.dialects.anthropic_messages.reader import NAME
from penstock.core.dialects.anthropic_messages.request import read_request
from penstock.core.dialects.anthropic_messages.writer import AnthropicMessagesWriter
from penstock.core.dialects.bodies import check_integer, check_lengths, read_client, refused
from penstock.core.dialects.dialect import SurfaceDialect, TokenCounting
from penstock.core.hub.failure import Failure
from penstock.core.hub.request import ClientRequest, ReasoningShown
from penstock.core.json.getters import object_of

_ONCE = ("max_tokens", "service_tier", "fallbacks")
_LISTS = ("tools", "stop_sequences")
_OVERLOADED = 529
# Open lists of headers, which clients and providers extend without notice.
_FORWARDED = ("anthropic-", "x-claude-code-", "x-stainless-")
_CREDENTIALS = ("api-key", "auth", "secret", "token")
# Headers of Claude Code with the ids of a session and a sub-agent, and the tags that they become.
_TAGS = {"x-claude-code-session-id": "session", "x-claude-code-agent-id": "agent"}


def read_call(body: bytes, headers: Mapping[str, str], path: str) -> ClientRequest:  # noqa: ARG001
    """Read a request; raises `RequestError`."""
    request = read_client_request(body, headers)
    check_integer(request.fields, "max_tokens", required=True)
    return request


def status_of(failure: Failure) -> int:
    """The usual status of the failure; 529 for an overloaded provider, as in Anthropic's API."""
    return _OVERLOADED if failure.upstream_status == _OVERLOADED else failure.status


def read_client_request(body: bytes, headers: Mapping[str, str]) -> ClientRequest:
    """Read a request without the checks that only a call needs (a token count does not); raises `RequestError`."""
    request = read_client(NAME, body, read_request, _ONCE, messages="messages")
    fields = request.fields
    check_lengths(fields, _LISTS)
    if "fallbacks" in fields:
        _check_fallbacks(bytes(request.members.values["fallbacks"]))
    metadata, tier = fields.get("metadata"), fields.get("service_tier")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    request.headers = {name: value for name, value in headers.items() if _is_forwarded(name)}
    request.tier = tier if isinstance(tier, str) else ""
    request.user = user if isinstance(user, str) else ""
    request.metadata = {tag: headers[name] for name, tag in _TAGS.items() if name in headers}
    request.reasoning = _reasoning(fields)
    return request


def _check_fallbacks(given: bytes) -> None:
    """Refuse an entry with two models: the key may allow one of them only, and the provider may read the other one."""

    def check(members: list[tuple[str, object]]) -> None:
        names = [name for name, _ in members]
        if len(names) > len(set(names)):
            raise refused("a member of an entry of `fallbacks` is there twice", param="fallbacks", code="duplicate_key")

    json.loads(given, object_pairs_hook=check)


def _reasoning(fields: Mapping[str, object]) -> ReasoningShown:
    """What the client expects of a provider that reasons: without `thinking`, Anthropic sends none, and clients may not
    be prepared for it. With tools, a seal of the provider has to come back with the tool's result."""
    if object_of(fields.get("thinking")).get("type", "disabled") != "disabled":
        return "all"
    return "seals" if fields.get("tools") else "none"


def _is_forwarded(header: str) -> bool:
    return header.startswith(_FORWARDED) and not any(word in header for word in _CREDENTIALS)


MESSAGES_SURFACE = SurfaceDialect(
    name="messages",
    path="/messages",
    event_ids=True,
    read_request=read_call,
    writer=AnthropicMessagesWriter,
    write_body=write_body,
    write_error=write_error,
    status_of=status_of,
    request_id_header="request-id",
)
MESSAGES_TOKEN_COUNTING = TokenCounting(
    path="/messages/count_tokens", read_request=lambda body, headers, _: read_client_request(body, headers)
)
