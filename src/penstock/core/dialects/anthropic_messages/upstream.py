"""The Anthropic Messages dialect, as an API to call."""

import msgspec
from msgspec import Raw

from penstock.core.dialects.anthropic_messages.forwarding import (
    accepted_betas,
    betas_without,
    edit_messages,
    edit_system,
    inline_media,
    without_cache_scope,
    without_tool_fields,
)
from penstock.core.dialects.anthropic_messages.reader import NAME, AnthropicMessagesReader
from penstock.core.dialects.anthropic_messages.request_writer import MessagesSettings, write_request
from penstock.core.dialects.dialect import Destination, OutgoingRequest, ProviderError, RequestLimits, UpstreamDialect
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import ClientRequest
from penstock.core.hub.tool_map import ToolMap
from penstock.core.provider_errors.error_shapes import read_error

VERSION = "2023-06-01"
_HEADERS = {"anthropic-version": VERSION}


class AnthropicMessagesUpstream(UpstreamDialect):
    """Calls providers that speak Messages."""

    path = "/messages"
    reader = AnthropicMessagesReader

    def write_request(self, request: ClientRequest, destination: Destination) -> OutgoingRequest:
        """The request for a provider: the client's own bytes with edits, or a new body."""
        if request.dialect == NAME:
            return self._forwarded(request, destination)
        settings = destination.settings_as(MessagesSettings)
        losses: list[Loss] = []
        neutral = request.read()
        names = ToolMap(neutral.tools)
        fields = write_request(neutral, settings, destination.issuer, losses, names)
        if not settings.url_media:
            inline_media(fields["messages"], request.fetched)
        fields |= {"model": destination.model, **destination.overrides}
        if destination.stream is not None:
            fields["stream"] = destination.stream
        if settings.body_version:
            del fields["model"]
            fields |= {"anthropic_version": settings.body_version, "stream": True}
            if not settings.stream_field:
                del fields["stream"]
        return OutgoingRequest(msgspec.json.encode(fields), _HEADERS, tuple(losses), names.changed())

    def _forwarded(self, request: ClientRequest, destination: Destination) -> OutgoingRequest:
        """The client's own bytes, with the edits that routing, the route and the provider's data demand.

        A field that the provider is known to refuse is left out, together with the beta that announces it.
        """
        settings = destination.settings_as(MessagesSettings)
        changes: dict[str, Raw | None] = {**destination.members}
        values = request.members.values
        refused = [name for name in settings.refused_fields if name in values]
        changes |= dict.fromkeys(refused)
        losses = [Loss("option-refused-by-provider", name) for name in refused]
        if destination.stream is not None and destination.stream != request.stream:
            changes["stream"] = Raw(b"true" if destination.stream else b"false")
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
        if "tools" in values and (tools := without_tool_fields(values["tools"], settings.refused_fields, losses)):
            changes["tools"] = tools
        refused_betas = settings.refused_fields
        if not settings.cache_scope:
            refused_betas += ("prompt_caching_scope",) if settings.body_betas is None else ()
            for name in ("system", "messages", "tools"):
                given = changes.get(name, values.get(name))  # None where it is removed
                if given is not None and (unscoped := without_cache_scope(given, losses)) is not None:
                    changes[name] = unscoped
        headers = {**_HEADERS, **request.headers}
        if refused_betas and "anthropic-beta" in headers:
            betas = betas_without(headers.pop("anthropic-beta"), refused_betas)
            headers |= {"anthropic-beta": betas} if betas else {}
        if settings.body_betas is not None and "anthropic-beta" in headers:
            accepted = accepted_betas(headers.pop("anthropic-beta"), settings, losses)
            if accepted:
                changes["anthropic_beta"] = Raw(msgspec.json.encode(accepted))
        return OutgoingRequest(request.members.edited(changes), headers, tuple(losses))

    def limits(self, request: ClientRequest, destination: Destination) -> RequestLimits:
        """`max_tokens` is required, so there is always a limit."""
        neutral = request.read() if request.dialect != NAME else None
        most = destination.overrides.get(
            "max_tokens", neutral.max_output if neutral else request.fields.get("max_tokens")
        )
        if most is None:
            most = destination.settings_as(MessagesSettings).default_max_tokens
        tier = destination.overrides.get(
            "service_tier", neutral.tier if neutral else request.fields.get("service_tier")
        )
        return RequestLimits(most if isinstance(most, int) else None, tier.lower() if isinstance(tier, str) else "")

    def read_error(self, body: bytes) -> ProviderError:
        """Read an error: Anthropic's envelope, or one of the many shapes of compatible servers."""
        parsed = msgspec.json.decode(body)
        if not isinstance(parsed, dict):
            return ProviderError()
        error = read_error(parsed, "error")
        own = parsed.get("type") == "error" and isinstance(parsed.get("error"), dict)
        return ProviderError(error[0] if error else "", body if own else b"")
