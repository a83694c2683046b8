"""The OpenAI Responses dialect, as an API to call."""

import re

import msgspec
from msgspec import Raw

from penstock.core.dialects.dialect import Destination, OutgoingRequest, ProviderError, RequestLimits, UpstreamDialect
from penstock.core.dialects.openai_responses.forwarding import edit_input
from penstock.core.dialects.openai_responses.reader import OpenAIResponsesReader
from penstock.core.dialects.openai_responses.request_writer import ResponsesSettings, renamed_tools, write_request
from penstock.core.dialects.openai_responses.vocabulary import NAME
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import ClientRequest
from penstock.core.provider_errors.error_shapes import read_error

_NOT_STORED = Raw(b"false")
_PREVIOUS, _CONVERSATION = "previous_response_id", "conversation"


class OpenAIResponsesUpstream(UpstreamDialect):
    """Calls providers that offer Responses."""

    path = "/responses"
    reader = OpenAIResponsesReader
    # All but deltas. No text contains this: the quotes in it would be escaped.
    large_events = re.compile(rb'"type"\s*:\s*"response\.(?:[a-z_]+|[a-z_.]+\.(?:done|partial_image))"')

    def write_request(self, request: ClientRequest, destination: Destination) -> OutgoingRequest:
        """The request for a provider: the client's own bytes with edits, or a new body."""
        if request.dialect == NAME:
            return self._forwarded(request, destination)
        losses: list[Loss] = []
        neutral = request.read()
        fields = write_request(neutral, destination.settings_as(ResponsesSettings), destination.issuer, losses)
        fields |= {"model": destination.model, **destination.overrides, "store": False}
        if destination.stream is not None:
            fields["stream"] = destination.stream
        names = renamed_tools(neutral.tools)
        return OutgoingRequest(msgspec.json.encode(fields), losses=tuple(losses), tools=names)

    def _forwarded(self, request: ClientRequest, destination: Destination) -> OutgoingRequest:
        """The client's own bytes, with the edits that routing, the route and the provider's data demand.

        Nothing is stored at the provider, and nothing that is stored there is used, unless `shared_state` allows it:
        tenants share its account. The gateway itself keeps the responses that `previous_response_id` names.
        """
        settings = destination.settings_as(ResponsesSettings)
        values, shared = request.members.values, destination.shared_state
        changes: dict[str, Raw | None] = {**destination.members}
        if not shared:
            changes["store"] = _NOT_STORED
        refused = [name for name in settings.refused_fields if name in values]
        state = (_PREVIOUS,) if shared else (_PREVIOUS, _CONVERSATION)
        changes |= dict.fromkeys([*refused, *(name for name in state if name in values)])
        losses = [Loss("option-refused-by-provider", name) for name in refused]
        if destination.stream is not None and destination.stream != request.stream:
            changes["stream"] = Raw(b"true" if destination.stream else b"false")
        if "input" in values:
            edited = edit_input(values["input"], settings, destination, losses)
            changes |= {"input": edited} if edited is not None else {}
        return OutgoingRequest(request.members.edited(changes), dict(request.headers), tuple(losses))

    def limits(self, request: ClientRequest, destination: Destination) -> RequestLimits:
        """`max_output_tokens`, as it is written for the provider."""
        asked = request.read() if request.dialect != NAME else None
        most = asked.max_output if asked is not None else request.fields.get("max_output_tokens")
        if asked is not None and most is not None:
            most = max(asked.max_output or 0, destination.settings_as(ResponsesSettings).least_output)
        most = destination.overrides.get("max_output_tokens", most)
        tier = destination.overrides.get("service_tier", asked.tier if asked else request.fields.get("service_tier"))
        return RequestLimits(most if isinstance(most, int) else None, tier.lower() if isinstance(tier, str) else "")

    def read_error(self, body: bytes) -> ProviderError:
        """What an error says: OpenAI's envelope, or one of the many shapes that compatible servers have."""
        parsed = msgspec.json.decode(body)
        if not isinstance(parsed, dict):
            return ProviderError()
        error = read_error(parsed, "error")
        return ProviderError(error[0] if error else "", body if isinstance(parsed.get("error"), dict) else b"")
