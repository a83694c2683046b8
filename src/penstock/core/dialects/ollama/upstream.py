"""The dialect of Ollama, as an API to call."""

from penstock.core.dialects.dialect import Destination, RequestLimits
from penstock.core.dialects.ollama.reader import OllamaReader
from penstock.core.dialects.ollama.request_writer import OllamaSettings, write_request
from penstock.core.dialects.translating_upstream import TranslatingUpstream
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import ClientRequest, Request
from penstock.core.hub.tool_map import ToolMap
from penstock.core.json.getters import object_of


class OllamaUpstream(TranslatingUpstream):
    """Calls servers of Ollama."""

    path = "/api/chat"
    reader = OllamaReader

    def write_fields(
        self, request: Request, destination: Destination, losses: list[Loss], names: ToolMap
    ) -> dict[str, object]:
        """The members of the body."""
        return write_request(request, destination.settings_as(OllamaSettings), losses, names)

    def limits(self, request: ClientRequest, destination: Destination) -> RequestLimits:
        """The limit of the output; a negative one is none."""
        given = object_of(destination.overrides.get("options")).get("num_predict", request.read().max_output)
        return RequestLimits(given if isinstance(given, int) and given >= 0 else None)
