"""The OpenAI Responses dialect, as the rest of Penstock knows it."""

from penstock.core.dialects.dialect import Dialect
from penstock.core.dialects.openai_responses.surface import OpenAIResponsesSurface
from penstock.core.dialects.openai_responses.token_counting import ResponsesTokenCounting
from penstock.core.dialects.openai_responses.vocabulary import NAME

OPENAI_RESPONSES = Dialect(
    name=NAME,
    title="OpenAI Responses",
    surface=OpenAIResponsesSurface(),
    token_counting=ResponsesTokenCounting(),
)
