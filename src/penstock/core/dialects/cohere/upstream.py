"""The dialect of Cohere, as an API to call."""

import re

import msgspec

from penstock.core.dialects.cohere.reader import CohereReader
from penstock.core.dialects.cohere.request_writer import CohereSettings, write_request
from penstock.core.dialects.dialect import Destination, OutgoingRequest, ProviderError, RequestLimits
from penstock.core.error_shapes import read_error
from penstock.core.losses import Loss
from penstock.core.request import ClientRequest
from penstock.core.sink import Sink
from penstock.core.tool_map import ToolMap


class CohereUpstream:
    """Calls Cohere."""

    path = "/chat"
    large_events: re.Pattern[bytes] | None = None

    def frame_reader(self, sink: Sink) -> CohereReader:
        """Make the reader of one answer."""
        return CohereReader(sink)

    def write_request(self, request: ClientRequest, destination: Destination) -> OutgoingRequest:
        """The request for a provider. No client speaks this dialect, so it is always a new body."""
        losses: list[Loss] = []
        neutral = request.read()
        names = ToolMap(neutral.tools)
        settings = msgspec.convert(dict(destination.settings), CohereSettings)
        fields = write_request(neutral, settings, losses, names)
        fields |= {"model": destination.model, **destination.overrides}
        if destination.stream is not None:
            fields["stream"] = destination.stream
        return OutgoingRequest(msgspec.json.encode(fields), losses=tuple(losses), tools=names.changed())

    def limits(self, request: ClientRequest, destination: Destination) -> RequestLimits:
        """The limit of the output."""
        given = destination.overrides.get("max_tokens", request.read().max_output)
        return RequestLimits(given if isinstance(given, int) else None)

    def read_error(self, body: bytes) -> ProviderError:
        """Read an error: `{"id": "…", "message": "…"}`."""
        parsed = msgspec.json.decode(body)
        found = read_error(parsed, "error") if isinstance(parsed, dict) else None
        return ProviderError(found[0] if found else "")
