"""The Anthropic Messages dialect, token counting: `POST /v1/messages/count_tokens`."""

from collections.abc import Mapping

import msgspec

from penstock.core.dialects.anthropic_messages.surface import read_client_request
from penstock.core.dialects.input_counts import read_input_tokens
from penstock.core.hub.request import ClientRequest


class AnthropicTokenCounting:
    """Counts the tokens of a request."""

    path = "/messages/count_tokens"

    def read_request(self, body: bytes, headers: Mapping[str, str], path: str) -> ClientRequest:  # noqa: ARG002
        """Parse a request body; raises `RequestError`."""
        return read_client_request(body, headers)

    def read_count(self, body: bytes) -> int | None:
        """The count in a provider's response; None if there is none."""
        return read_input_tokens(body)

    def write_count(self, tokens: int) -> bytes:
        """The body of the response to a client."""
        return msgspec.json.encode({"input_tokens": tokens})
