"""The OpenAI chat dialect, as an API to call."""

import msgspec
from msgspec import Raw, structs

from penstock.core.dialects.dialect import (
    Destination,
    Json,
    OutgoingRequest,
    ProviderError,
    RequestLimits,
    UpstreamDialect,
)
from penstock.core.dialects.openai_chat.reader import OpenAIChatReader
from penstock.core.dialects.openai_chat.request import NAME
from penstock.core.dialects.openai_chat.request_writer import ChatRequestWriter, ChatSettings, with_placeholders
from penstock.core.dialects.prefill import continued_body
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import ClientRequest
from penstock.core.provider_errors.error_shapes import read_error

_CAPS = ("max_completion_tokens", "max_tokens")
_LIMITS = frozenset((*_CAPS, "n", "service_tier"))
_NO_LIMITS = RequestLimits()
_WITH_USAGE = Raw(b'{"include_usage":true}')


class OpenAIChatUpstream(UpstreamDialect):
    """Calls providers that offer chat completions."""

    path = "/chat/completions"
    reader = OpenAIChatReader
    request_writer = ChatRequestWriter

    def complete(self, fields: Json, request: ClientRequest, destination: Destination) -> None:  # noqa: ARG002
        """Request usage if the provider accepts that, because the gateway has to know the cost of the answer.

        Otherwise `stream_options` is omitted: providers that do not know the field answer 422, and OpenAI answers 400
        to a request that has it and is not streamed.
        """
        if fields.get("stream") and destination.include_usage:
            fields["stream_options"] = {"include_usage": True}

    def forward(self, request: ClientRequest, destination: Destination) -> OutgoingRequest:
        """The client's bytes, with the model and overrides of the destination, and the usage option."""
        losses: list[Loss] = []
        changes = self.changes(request, destination, losses)
        stream = request.stream if destination.stream is None else destination.stream
        if destination.settings.get("signature_placeholder") and "messages" in request.members.values:
            signed = with_placeholders(request.members.values["messages"])
            changes |= {"messages": signed} if signed is not None else {}
        if stream and destination.include_usage:
            changes["stream_options"] = _with_usage(request)
        elif "stream_options" in request.members.values:
            changes["stream_options"] = None
            losses.append(Loss("option-refused-by-provider", "stream_options"))
        return OutgoingRequest(request.members.edited(changes), losses=tuple(losses))

    def continued(
        self, written: OutgoingRequest, prefix: str, spent: int, destination: Destination
    ) -> OutgoingRequest | None:
        """The request with the beginning of the answer as its last message."""
        form = destination.settings_as(ChatSettings).prefill
        body = continued_body(written.body, prefix, form, _CAPS, spent)
        return structs.replace(written, body=body) if body is not None else None

    def limits(self, request: ClientRequest, destination: Destination) -> RequestLimits:
        """The maximum output of one choice, times the choices. Of two maxima the larger counts: providers differ."""
        overrides, fields = destination.overrides, request.fields
        if request.dialect != NAME:
            neutral = request.read()
            fields = {"max_completion_tokens": neutral.max_output, "n": neutral.choices, "service_tier": neutral.tier}
        elif not overrides and _LIMITS.isdisjoint(fields):
            return _NO_LIMITS
        caps = [_count(overrides.get(name, fields.get(name))) for name in _CAPS]
        choices = _count(overrides.get("n", fields.get("n"))) or 1
        tier = overrides.get("service_tier", fields.get("service_tier"))
        return RequestLimits(
            max((cap * choices for cap in caps if cap is not None), default=None),
            tier.lower() if isinstance(tier, str) else "",
        )

    def read_error(self, body: bytes) -> ProviderError:
        """Read an error: OpenAI's envelope, or one of the many shapes of compatible servers.

        A list of one error, as Gemini answers, becomes that error in OpenAI's envelope.
        """
        parsed = msgspec.json.decode(body)
        if isinstance(parsed, list):
            first = parsed[0] if parsed else None
            if not isinstance(first, dict) or not isinstance(first.get("error"), dict) or not first["error"]:
                return ProviderError()
            message = _message(first)
            error = {"type": "invalid_request_error", "param": None, "code": None} | first["error"]
            return ProviderError(message, msgspec.json.encode({"error": error | {"message": message}}))
        if not isinstance(parsed, dict):
            return ProviderError()
        return ProviderError(_message(parsed), body if isinstance(parsed.get("error"), dict) else b"")


def _with_usage(request: ClientRequest) -> Raw:
    """The client's `stream_options`, with `include_usage`."""
    written = request.members.values.get("stream_options")
    if written is None or written == _WITH_USAGE:
        return _WITH_USAGE
    options = msgspec.json.decode(written)
    return Raw(msgspec.json.encode((options if isinstance(options, dict) else {}) | {"include_usage": True}))


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _message(error: dict[str, object]) -> str:
    result = read_error(error, "error")
    return result[0] if result else ""
