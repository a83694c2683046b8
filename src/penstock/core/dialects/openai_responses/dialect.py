"""The OpenAI Responses dialect, as the rest of Penstock knows it."""

from penstock.core.dialects.dialect import Dialect
from penstock.core.dialects.openai_responses.detector import OpenAIResponsesDetector
from penstock.core.dialects.openai_responses.passthrough import RESPONSES_PASS_THROUGH
from penstock.core.dialects.openai_responses.places import PLACES
from penstock.core.dialects.openai_responses.request_writer import ResponsesSettings
from penstock.core.dialects.openai_responses.stored import StoredResponses
from penstock.core.dialects.openai_responses.surface import OpenAIResponsesSurface
from penstock.core.dialects.openai_responses.token_counting import ResponsesTokenCounting
from penstock.core.dialects.openai_responses.upstream import OpenAIResponsesUpstream
from penstock.core.dialects.openai_responses.vocabulary import NAME

OPENAI_RESPONSES = Dialect(
    name=NAME,
    title="OpenAI Responses",
    upstream=OpenAIResponsesUpstream(),
    surface=OpenAIResponsesSurface(),
    detector=OpenAIResponsesDetector(),
    places=PLACES,
    carried=frozenset(("logprobs.content", "usage.cache_write")),
    settings=ResponsesSettings,
    token_counting=ResponsesTokenCounting(),
    stored=StoredResponses(),
    passthrough=RESPONSES_PASS_THROUGH,
)
