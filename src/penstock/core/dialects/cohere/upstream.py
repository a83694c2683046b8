"""The dialect of Cohere, as an API to call."""

from penstock.core.dialects.cohere.reader import CohereReader
from penstock.core.dialects.cohere.request_writer import CohereSettings, write_request
from penstock.core.dialects.dialect import Destination, RequestLimits
from penstock.core.dialects.translating_upstream import TranslatingUpstream
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import ClientRequest, Request
from penstock.core.hub.tool_map import ToolMap


class CohereUpstream(TranslatingUpstream):
    """Calls Cohere."""

    path = "/chat"
    reader = CohereReader

    def write_fields(
        self, request: Request, destination: Destination, losses: list[Loss], names: ToolMap
    ) -> dict[str, object]:
        """The members of the body."""
        return write_request(request, destination.settings_as(CohereSettings), losses, names)

    def limits(self, request: ClientRequest, destination: Destination) -> RequestLimits:
        """The limit of the output."""
        given = destination.overrides.get("max_tokens", request.read().max_output)
        return RequestLimits(given if isinstance(given, int) else None)
