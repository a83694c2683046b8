"""The OpenAI Responses dialect, as an API to call."""

import re

from msgspec import Raw
from msgspec.structs import replace

from penstock.core.dialects.dialect import (
    Destination,
    Json,
    OutgoingRequest,
    RequestLimits,
    UpstreamDialect,
)
from penstock.core.dialects.openai_responses.compaction import ResponsesCompaction
from penstock.core.dialects.openai_responses.forwarding import edit_input
from penstock.core.dialects.openai_responses.reader import OpenAIResponsesReader
from penstock.core.dialects.openai_responses.request_writer import (
    ResponsesRequestWriter,
    ResponsesSettings,
    renamed_tools,
)
from penstock.core.dialects.openai_responses.vocabulary import NAME
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import ClientRequest
from penstock.core.json.members import JsonMembers

_NOT_STORED = Raw(b"false")
_PREVIOUS, _CONVERSATION = "previous_response_id", "conversation"


class OpenAIResponsesUpstream(UpstreamDialect):
    """Calls providers that offer Responses."""

    path = "/responses"
    reader = OpenAIResponsesReader
    request_writer = ResponsesRequestWriter
    # All but deltas. No text contains this: the quotes in it would be escaped.
    large_events = re.compile(rb'"type"\s*:\s*"response\.(?:[a-z_]+|[a-z_.]+\.(?:done|partial_image))"')

    output_member = "max_output_tokens"
    tier_member = "service_tier"

    def write_request(self, request: ClientRequest, destination: Destination) -> OutgoingRequest:
        """The request for a provider. The API has all kinds of the client's tools; only some names differ."""
        written = super().write_request(request, destination)
        return written if request.dialect == NAME else replace(written, tools=renamed_tools(request.read().tools))

    def complete(self, fields: Json, request: ClientRequest, destination: Destination) -> None:  # noqa: ARG002
        """Nothing is stored at the provider."""
        fields["store"] = False

    def forward(self, request: ClientRequest, destination: Destination) -> OutgoingRequest:
        """The client's own bytes, with the edits that routing, the route and the provider's data demand.

        Nothing is stored at the provider, and nothing that is stored there is used, unless `shared_state` allows it:
        tenants share its account. The gateway itself keeps the responses that `previous_response_id` names.
        """
        settings = destination.settings_as(ResponsesSettings)
        if request.compacts is not None and settings.compaction:
            return self._compact(request.compacts, request, destination, settings)
        values, shared = request.members.values, destination.shared_state
        losses: list[Loss] = []
        changes = self.changes(request, destination, losses)
        if not shared:
            changes["store"] = _NOT_STORED
        state = (_PREVIOUS,) if shared else (_PREVIOUS, _CONVERSATION)
        changes |= dict.fromkeys(name for name in state if name in values)
        if "input" in values:
            edited = edit_input(values["input"], settings, destination, losses)
            changes |= {"input": edited} if edited is not None else {}
        return OutgoingRequest(request.members.edited(changes), dict(request.headers), tuple(losses))

    def _compact(
        self, members: JsonMembers, request: ClientRequest, destination: Destination, settings: ResponsesSettings
    ) -> OutgoingRequest:
        """The client's own request to compact a conversation."""
        losses: list[Loss] = []
        changes: dict[str, Raw | None] = {"model": destination.members["model"]}
        changes |= {name: None for name in (_PREVIOUS, "store", "stream") if name in members.values}
        if "input" in members.values:
            edited = edit_input(members.values["input"], settings, destination, losses)
            changes |= {"input": edited} if edited is not None else {}
        body = members.edited(changes)
        return OutgoingRequest(body, dict(request.headers), tuple(losses), path=ResponsesCompaction.path)

    def limits(self, request: ClientRequest, destination: Destination) -> RequestLimits:
        """`max_output_tokens`, as it is written for the provider."""
        limits = super().limits(request, destination)
        if limits.output is None or request.dialect == NAME or self.output_member in destination.overrides:
            return limits
        least = destination.settings_as(ResponsesSettings).least_output
        return RequestLimits(max(limits.output, least), limits.tier)
