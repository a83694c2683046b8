"""The Gemini dialect, as an API to call.

Every answer is requested as a stream: unstreamed ones have another path, and say nothing before they are complete, so
that neither a silent provider nor what a broken answer cost would be known. The model is in the path only.
"""

import re

import msgspec

from penstock.core.dialects.dialect import (
    Destination,
    OutgoingRequest,
    ProviderError,
    RequestLimits,
    UpstreamDialect,
)
from penstock.core.dialects.gemini.forwarding import edit_contents, with_model
from penstock.core.dialects.gemini.members import member, snake_case
from penstock.core.dialects.gemini.reader import NAME, GeminiReader
from penstock.core.dialects.gemini.request_writer import GeminiRequestWriter
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import ClientRequest
from penstock.core.json.getters import integer_of, object_of, objects_of, text_of
from penstock.core.provider_errors.error_shapes import read_error

# The member of a request to count tokens that has a whole request, which names the model.
_COUNTED = ("generateContentRequest", snake_case("generateContentRequest"))
# A delay as protocol buffers write it, such as `34s` or `1.5s`.
_DELAY = re.compile(r"(\d{1,9})(?:\.\d+)?s")


class GeminiUpstream(UpstreamDialect):
    """Calls providers that speak Gemini's API."""

    path = "/models/{model}:streamGenerateContent?alt=sse"
    reader = GeminiReader
    request_writer = GeminiRequestWriter
    large_events = re.compile(rb'"inline(?:D|_d)ata"')

    in_path = True

    def forward(self, request: ClientRequest, destination: Destination) -> OutgoingRequest:
        """The client's own bytes, with the edits that the route demands."""
        losses: list[Loss] = []
        values = request.members.values
        changes = self.changes(request, destination, losses)
        del changes["model"]
        if "model" in values:
            changes["model"] = None
        if "contents" in values:
            edited = edit_contents(values["contents"], losses)
            changes |= {"contents": edited} if edited is not None else {}
        for name in _COUNTED:
            if name in values:
                changes[name] = with_model(values[name], destination.model)
        return OutgoingRequest(request.members.edited(changes), request.headers, tuple(losses))

    def limits(self, request: ClientRequest, destination: Destination) -> RequestLimits:
        """The limit of each candidate, times their number; none if the request has none."""
        if request.dialect == NAME:
            config = object_of(member(request.fields, "generationConfig"))
            most, choices = member(config, "maxOutputTokens"), member(config, "candidateCount")
            tier = member(request.fields, "serviceTier")
        else:
            neutral = request.read()
            most, choices, tier = neutral.max_output, neutral.choices, neutral.tier
        overrides = destination.overrides
        changed = object_of(overrides.get("generationConfig", overrides.get(snake_case("generationConfig"))))
        most = most if member(changed, "maxOutputTokens") is None else member(changed, "maxOutputTokens")
        tier = overrides.get("serviceTier", tier)
        limit, count = integer_of(most), max(integer_of(choices) or 1, 1)
        return RequestLimits(None if limit is None else limit * count, text_of(tier).lower())

    def read_error(self, body: bytes) -> ProviderError:
        """Read an error: an object, or a list of one where the request did not ask for server-sent events.

        A wrong key is status 400 here, and the time to wait is in the error's details.
        """
        parsed = msgspec.json.decode(body)
        whole = parsed[0] if isinstance(parsed, list) and parsed else parsed
        if not isinstance(whole, dict):
            return ProviderError()
        error, found = object_of(whole.get("error")), read_error(whole, "error")
        details = objects_of(error.get("details"))
        delay = next(filter(None, (_DELAY.fullmatch(text_of(each.get("retryDelay"))) for each in details)), None)
        return ProviderError(
            found[0] if found else "",
            (msgspec.json.encode(whole) if whole is not parsed else body) if error else b"",
            status=401 if any(each.get("reason") == "API_KEY_INVALID" for each in details) else 0,
            retry_after=str(int(delay[1]) + 1) if delay is not None else "",
        )
