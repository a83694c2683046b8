"""TranslatingUpstream: how to call an API that no client speaks, so that every request is translated."""

from abc import abstractmethod

import msgspec

from penstock.core.dialects.dialect import Destination, OutgoingRequest, ProviderError, UpstreamDialect
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import ClientRequest, Request
from penstock.core.hub.tool_map import ToolMap
from penstock.core.provider_errors.error_shapes import read_error


class TranslatingUpstream(UpstreamDialect):
    """The part of `UpstreamDialect` that is the same in all such APIs."""

    in_path = False
    """Whether the path has the model and says that the answer is streamed, so that the body does not."""

    @abstractmethod
    def write_fields(
        self, request: Request, destination: Destination, losses: list[Loss], names: ToolMap
    ) -> dict[str, object]:
        """The members of the body. What cannot be expressed is added to `losses`."""

    def write_request(self, request: ClientRequest, destination: Destination) -> OutgoingRequest:
        """The request for a provider, which is always a new body."""
        losses: list[Loss] = []
        neutral = request.read()
        names = ToolMap(neutral.tools)
        fields = self.write_fields(neutral, destination, losses, names)
        if not self.in_path:
            fields["model"] = destination.model
        fields |= destination.overrides
        if destination.stream is not None and not self.in_path:
            fields["stream"] = destination.stream
        return OutgoingRequest(msgspec.json.encode(fields), losses=tuple(losses), tools=names.changed())

    def read_error(self, body: bytes) -> ProviderError:
        """Read an error. Its body is of no use to clients, which speak other APIs."""
        parsed = msgspec.json.decode(body)
        found = read_error(parsed, "error") if isinstance(parsed, dict) else None
        return ProviderError(found[0] if found else "")
