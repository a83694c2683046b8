"""The Gemini dialect, token counting: `POST /v1beta/models/{model}:countTokens`.

The input is `contents`, or a whole request as `generateContentRequest`, with the system prompt and the tools.
"""

from collections.abc import Mapping

import msgspec

from penstock.core.dialects.gemini.members import member
from penstock.core.dialects.gemini.request import read_request
from penstock.core.dialects.gemini.surface import read_client_request
from penstock.core.hub.request import ClientRequest, ReadOnce
from penstock.core.json.getters import integer_of, object_of


class GeminiTokenCounting:
    """Counts the tokens of a request."""

    path = "/models/{model}:countTokens"

    def read_request(self, body: bytes, headers: Mapping[str, str], path: str) -> ClientRequest:
        """Parse a request body; raises `RequestError`."""
        request = read_client_request(body, headers, path)
        whole = member(request.fields, "generateContentRequest")
        if isinstance(whole, dict):
            request.read = ReadOnce(read_request, whole)
        return request

    def read_count(self, body: bytes) -> int | None:
        """The count in a provider's response; None if there is none."""
        try:
            return integer_of(member(object_of(msgspec.json.decode(body)), "totalTokens"))
        except (msgspec.DecodeError, RecursionError):
            return None

    def write_count(self, tokens: int) -> bytes:
        """The body of the response to a client."""
        return msgspec.json.encode({"totalTokens": tokens})
