"""The Converse API of Amazon Bedrock, as an API to call.

Every answer is requested as a stream, because unstreamed ones have another path. The model is in the path only.
"""

import msgspec
from msgspec import Raw

from penstock.core.dialects.bedrock_converse.reader import BedrockConverseReader
from penstock.core.dialects.bedrock_converse.request import wrapped_blocks
from penstock.core.dialects.bedrock_converse.request_writer import ConverseRequestWriter
from penstock.core.dialects.bedrock_converse.surface import STREAMED_PATH
from penstock.core.dialects.dialect import Destination, OutgoingRequest, UpstreamDialect
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import ClientRequest
from penstock.core.json.getters import list_of

_IN_PATH = ("model", "stream")


class BedrockConverseUpstream(UpstreamDialect):
    """Calls Amazon Bedrock."""

    path = STREAMED_PATH
    reader = BedrockConverseReader
    request_writer = ConverseRequestWriter
    in_path = True
    output_member = "inferenceConfig.maxTokens"
    tier_member = "serviceTier.type"

    def forward(self, request: ClientRequest, destination: Destination) -> OutgoingRequest:
        """The client's own bytes, with the edits that the route demands.

        Bedrock refuses a seal that it has not made. So reasoning with the seal of another API, which clients get
        wrapped and send back, is removed.
        """
        values, losses = request.members.values, list[Loss]()
        changes = self.changes(request, destination, losses)
        del changes["model"]
        changes |= {name: None for name in _IN_PATH if name in values}
        if b'"reasoningContent"' in bytes(values["messages"]):
            found = len(losses)
            messages = list_of(msgspec.json.decode(values["messages"]))
            for blocks, block in wrapped_blocks(messages):
                blocks.remove(block)
                losses.append(Loss("reasoning-dropped"))
            if len(losses) > found:
                kept = [each for each in messages if not isinstance(each, dict) or each.get("content") != []]
                changes["messages"] = Raw(msgspec.json.encode(kept))
        return OutgoingRequest(request.members.edited(changes), request.headers, tuple(losses))
