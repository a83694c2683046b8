"""The Anthropic Messages dialect, as an API to call."""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from penstock.core.dialects.anthropic_messages.forwarding import (
    accepted_betas,
    betas_without,
    edit_messages,
    edit_system,
    inline_media,
    without_cache_scope,
    without_tool_fields,
)
from penstock.core.dialects.anthropic_messages.reader import AnthropicMessagesReader
from penstock.core.dialects.anthropic_messages.request_writer import MessagesRequestWriter, MessagesSettings
from penstock.core.dialects.dialect import (
    Destination,
    Json,
    OutgoingRequest,
    ProviderError,
    RequestLimits,
    UpstreamDialect,
)
from penstock.core.dialects.prefill import continued_body
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import ClientRequest
from penstock.core.json.getters import object_of

VERSION = "2023-06-01"
_COMPACTION = "compact-2026-01-12"


class AnthropicMessagesUpstream(UpstreamDialect):
    """Calls providers that speak Messages."""

    path = "/messages"
    reader = AnthropicMessagesReader
    request_writer = MessagesRequestWriter

    headers: Mapping[str, str] = MappingProxyType({"anthropic-version": VERSION})
    tier_member = "service_tier"

    def write_request(self, request: ClientRequest, destination: Destination) -> OutgoingRequest:
        """The request for a provider. What is a beta of the API is announced in a header."""
        written = super().write_request(request, destination)
        if request.dialect == self.name or request.read().compact_at is None:
            return written
        announced = destination.settings_as(MessagesSettings).compaction
        return replace(written, headers={**written.headers, "anthropic-beta": _COMPACTION}) if announced else written

    def complete(self, fields: Json, request: ClientRequest, destination: Destination) -> None:
        """Put media into the body, and the version where the provider wants it there."""
        settings = destination.settings_as(MessagesSettings)
        if not settings.url_media:
            inline_media(fields["messages"], request.fetched)
        if settings.body_version:
            del fields["model"]
            fields |= {"anthropic_version": settings.body_version, "stream": True}
            if not settings.stream_field:
                del fields["stream"]

    def forward(self, request: ClientRequest, destination: Destination) -> OutgoingRequest:
        """The client's own bytes, with the edits that routing, the route and the provider's data demand.

        A field that the provider is known to refuse (`drop`) is left out, also of tools, together with the beta that
        announces it.
        """
        settings = destination.settings_as(MessagesSettings)
        losses: list[Loss] = []
        changes = self.changes(request, destination, losses)
        values = request.members.values
        if settings.body_version:
            version = Raw(msgspec.json.encode(settings.body_version))
            changes |= {"model": None, "anthropic_version": version}
            changes["stream"] = Raw(b"true") if settings.stream_field else None
        if "system" in values:
            changes |= edit_system(values["system"], settings, losses)
        if (messages := edit_messages(values["messages"], settings, losses)) is not None:
            changes["messages"] = messages
        if not settings.url_media and b'"url"' in bytes(values["messages"]):
            decoded = msgspec.json.decode(values["messages"] if messages is None else messages)
            if inline_media(decoded, request.fetched):
                changes["messages"] = Raw(msgspec.json.encode(decoded))
        if "tools" in values and (tools := without_tool_fields(values["tools"], settings.drop, losses)):
            changes["tools"] = tools
        refused_betas = settings.drop
        if not settings.cache_scope:
            refused_betas += ("prompt_caching_scope",) if settings.body_betas is None else ()
            for name in ("system", "messages", "tools"):
                given = changes.get(name, values.get(name))  # None where it is removed
                if given is not None and (unscoped := without_cache_scope(given, losses)) is not None:
                    changes[name] = unscoped
        headers = {**self.headers, **request.headers}
        if refused_betas and "anthropic-beta" in headers:
            betas = betas_without(headers.pop("anthropic-beta"), refused_betas)
            headers |= {"anthropic-beta": betas} if betas else {}
        if settings.body_betas is not None and "anthropic-beta" in headers:
            accepted = accepted_betas(headers.pop("anthropic-beta"), settings, losses)
            if accepted:
                changes["anthropic_beta"] = Raw(msgspec.json.encode(accepted))
        return OutgoingRequest(request.members.edited(changes), headers, tuple(losses))

    def continued(
        self, written: OutgoingRequest, prefix: str, spent: int, destination: Destination
    ) -> OutgoingRequest | None:
        """The request with the beginning of the answer as its last message, which no model takes that thinks."""
        form = destination.settings_as(MessagesSettings).prefill
        thinking = object_of(msgspec.json.decode(written.body)).get("thinking")
        if prefix and object_of(thinking).get("type") not in (None, "disabled"):
            return None
        body = continued_body(written.body, prefix, form, (self.output_member,), spent)
        return replace(written, body=body) if body is not None else None

    def limits(self, request: ClientRequest, destination: Destination) -> RequestLimits:
        """`max_tokens` is required, so there is always a limit."""
        limits = super().limits(request, destination)
        if limits.output is not None:
            return limits
        return RequestLimits(destination.settings_as(MessagesSettings).default_max_tokens, limits.tier)

    def read_error(self, body: bytes) -> ProviderError:
        """Read an error: Anthropic's envelope, or one of the many shapes of compatible servers."""
        error = super().read_error(body)
        own = bool(error.envelope) and msgspec.json.decode(body).get("type") == "error"
        return error if own else ProviderError(error.message)
