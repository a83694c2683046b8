"""The dialect of Bedrock's Converse API, as an API to call.

Every answer is requested as a stream, because unstreamed ones have another path. The model is in the path only.
"""

import re

import msgspec

from penstock.core.dialects.bedrock_converse.reader import BedrockConverseReader
from penstock.core.dialects.bedrock_converse.request_writer import ConverseSettings, write_request
from penstock.core.dialects.dialect import Destination, OutgoingRequest, ProviderError, RequestLimits
from penstock.core.error_shapes import read_error
from penstock.core.json_getters import object_of, text_of
from penstock.core.losses import Loss
from penstock.core.request import ClientRequest
from penstock.core.sink import Sink
from penstock.core.tool_map import ToolMap


class BedrockConverseUpstream:
    """Calls Amazon Bedrock."""

    path = "/model/{model}/converse-stream"
    large_events: re.Pattern[bytes] | None = None

    def frame_reader(self, sink: Sink) -> BedrockConverseReader:
        """Make the reader of one answer."""
        return BedrockConverseReader(sink)

    def write_request(self, request: ClientRequest, destination: Destination) -> OutgoingRequest:
        """The request for a provider. No client speaks this dialect, so it is always a new body."""
        losses: list[Loss] = []
        neutral = request.read()
        names = ToolMap(neutral.tools)
        settings = msgspec.convert(dict(destination.settings), ConverseSettings)
        fields = write_request(neutral, settings, destination.issuer, losses, names)
        fields |= destination.overrides
        return OutgoingRequest(msgspec.json.encode(fields), losses=tuple(losses), tools=names.changed())

    def limits(self, request: ClientRequest, destination: Destination) -> RequestLimits:
        """The limit of the output, and the tier."""
        neutral, overrides = request.read(), destination.overrides
        given = object_of(overrides.get("inferenceConfig")).get("maxTokens", neutral.max_output)
        tier = object_of(overrides.get("serviceTier")).get("type", neutral.tier)
        return RequestLimits(given if isinstance(given, int) else None, text_of(tier).lower())

    def read_error(self, body: bytes) -> ProviderError:
        """Read an error: `{"message": "…"}`, with a lower or an upper M."""
        parsed = msgspec.json.decode(body)
        found = read_error(parsed, "error") if isinstance(parsed, dict) else None
        return ProviderError(found[0] if found else "")
