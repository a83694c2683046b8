"""The dialect of Bedrock's Converse API, as an API to call.

Every answer is requested as a stream, because unstreamed ones have another path. The model is in the path only.
"""

from penstock.core.dialects.bedrock_converse.reader import BedrockConverseReader
from penstock.core.dialects.bedrock_converse.request_writer import ConverseSettings, write_request
from penstock.core.dialects.dialect import Destination, RequestLimits
from penstock.core.dialects.translating_upstream import TranslatingUpstream
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import ClientRequest, Request
from penstock.core.hub.tool_map import ToolMap
from penstock.core.json.getters import object_of, text_of


class BedrockConverseUpstream(TranslatingUpstream):
    """Calls Amazon Bedrock."""

    path = "/model/{model}/converse-stream"
    reader = BedrockConverseReader
    in_path = True

    def write_fields(
        self, request: Request, destination: Destination, losses: list[Loss], names: ToolMap
    ) -> dict[str, object]:
        """The members of the body."""
        return write_request(request, destination.settings_as(ConverseSettings), destination.issuer, losses, names)

    def limits(self, request: ClientRequest, destination: Destination) -> RequestLimits:
        """The limit of the output, and the tier."""
        neutral, overrides = request.read(), destination.overrides
        given = object_of(overrides.get("inferenceConfig")).get("maxTokens", neutral.max_output)
        tier = object_of(overrides.get("serviceTier")).get("type", neutral.tier)
        return RequestLimits(given if isinstance(given, int) else None, text_of(tier).lower())
