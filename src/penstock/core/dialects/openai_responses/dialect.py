"""The OpenAI Responses dialect, as the rest of Penstock knows it."""

from penstock.core.dialects.dialect import PROOF, Detector, Dialect
from penstock.core.dialects.openai_responses.background import BackgroundResponses
from penstock.core.dialects.openai_responses.compaction import ResponsesCompaction
from penstock.core.dialects.openai_responses.request_writer import ResponsesSettings
from penstock.core.dialects.openai_responses.socket import ResponsesSocket
from penstock.core.dialects.openai_responses.stored import StoredResponses
from penstock.core.dialects.openai_responses.surface import RESPONSES_SURFACE, RESPONSES_TOKEN_COUNTING
from penstock.core.dialects.openai_responses.text_format import ResponsesTextFormat
from penstock.core.dialects.openai_responses.upstream import OpenAIResponsesUpstream
from penstock.core.dialects.openai_responses.vocabulary import NAME
from penstock.core.json.getters import text_of


def rate_frame(value: dict[str, object], event: str) -> int:  # noqa: ARG001
    """The types of its events, or an unstreamed response. An error proves nothing."""
    if text_of(value.get("type")).startswith("response."):
        return PROOF
    return PROOF if value.get("object") == "response" and "output" in value else 0


OPENAI_RESPONSES = Dialect(
    name=NAME,
    title="OpenAI Responses",
    upstream=OpenAIResponsesUpstream(),
    surface=RESPONSES_SURFACE,
    detector=Detector(in_frame=rate_frame),
    carried=frozenset(("logprobs.content", "usage.cache_write", "usage.reasoning")),
    settings=ResponsesSettings,
    token_counting=RESPONSES_TOKEN_COUNTING,
    stored=StoredResponses(),
    compaction=ResponsesCompaction(),
    background=BackgroundResponses(),
    socket=ResponsesSocket(),
    text_format=ResponsesTextFormat(),
)
