"""Recognises what an error is about where its status does not say so: the operator's account, or the content.

Two problems are of the account: it has no credit, or it has no such model (a deployment that was deleted, a model
without access). Another target may succeed with the same request. The third is of the client: the provider's moderation
refuses the content of the request, with a status that otherwise means the gateway's credentials, or inside a 200.

Providers have neither a common status nor a common code for them, so each row of the table has the words of one
provider and where they were seen. A code is compared as a whole with the `code`, `type` or `status` of the error, and
with the names of the members of its `metadata`; a pattern has to match the beginning of the message, so that a message
which quotes the request is not mistaken for one of these.
"""

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

Problem: TypeAlias = Literal["no-credit", "no-model", "content"]

_ANTHROPIC = "docs.anthropic.com/en/api/errors"
_OPENAI = "platform.openai.com/docs/guides/error-codes"
_OPENROUTER = "openrouter.ai/docs/api-reference/errors"
_RESPONSES = "openai-python 3.46, types/responses/response_error.py (2026-11); cyber_policy: Codex"


class _Sign(NamedTuple):
    problem: Problem
    statuses: tuple[int, ...]
    provider: str
    source: str
    code: str = ""
    words: str = ""
    """A regular expression for the beginning of the message, in any case."""


# Every 402 is about credit, in whatever words: RFC 9110 has no other use for it, and these providers document it so:
# Anthropic (`billing_error`), Cohere, DeepSeek, Mistral, OpenRouter, Together.
_PAYMENT_REQUIRED = 402
_SIGNS = (
    _Sign("no-credit", (400,), "Anthropic", "github.com/anthropics/claude-code/issues/66314",
          words=r"your credit balance is too low"),
    _Sign("no-credit", (400, 403, 429), "Anthropic", _ANTHROPIC, code="billing_error"),
    _Sign("no-credit", (403, 429), "OpenAI", _OPENAI, code="insufficient_quota"),
    _Sign("no-credit", (400, 429), "OpenAI", _OPENAI, code="billing_hard_limit_reached"),
    _Sign("no-credit", (403, 429), "OpenAI", _OPENAI, code="billing_not_active"),
    _Sign("no-credit", (403, 429), "Moonshot", "github.com/MoonshotAI/Kimi-K2/issues/5",
          code="exceeded_current_quota_error"),
    _Sign("no-credit", (400, 403), "Alibaba DashScope", "github.com/tencentmusic/supersonic/issues/1572",
          code="Arrearage"),
    _Sign("no-credit", (403, 429), "xAI", "github.com/continuedev/continue/issues/10373",
          words=r"your team \S+ has either used all available credits"),
    _Sign("no-credit", (403,), "xAI", "github.com/continuedev/continue/issues/12670",
          words=r"your newly created teams? doesn't have any credits"),
    _Sign("no-model", (404,), "Azure", "github.com/Azure-Samples/azure-search-openai-demo-csharp/issues/379",
          code="DeploymentNotFound"),
    _Sign("no-model", (400, 403, 404), "OpenAI, Groq, xAI", _OPENAI, code="model_not_found"),
    _Sign("no-model", (404,), "Anthropic", _ANTHROPIC, words=r"model: \S+$"),
    _Sign("no-model", (404,), "Gemini", "github.com/BerriAI/litellm/issues/8824",
          words=r"models/\S+ is not found for api version"),
    _Sign("no-model", (404,), "Vertex AI", "github.com/google-gemini/gemini-cli/issues/14262",
          words=r"publisher model \S+ was not found or your project does not have access"),
    _Sign("no-model", (400,), "Bedrock", "github.com/GoogleCloudPlatform/kubectl-ai/issues/515",
          words=r"the provided model identifier is invalid"),
    _Sign("no-model", (400,), "OpenRouter", "github.com/maxnowack/anthropic-proxy/issues/4",
          words=r"\S+ is not a valid model id"),
    _Sign("no-model", (404,), "OpenRouter", _OPENROUTER, words=r"no endpoints found for"),
    _Sign("no-model", (404,), "vLLM, OpenAI", "docs.vllm.ai/en/latest/serving/openai_compatible_server",
          words=r"the model [`'\"]?\S+ does not exist"),
    _Sign("no-model", (404,), "Ollama, Cohere", "github.com/ollama/ollama/blob/main/docs/api.md",
          words=r"model [`'\"]\S+[`'\"] not found"),
    _Sign("content", (403,), "OpenRouter", f"{_OPENROUTER} (moderation errors)", words=r"\S+ requires moderation on "),
    _Sign("content", (403,), "OpenRouter", f"{_OPENROUTER} (moderation errors)", code="flagged_input"),
    _Sign("content", (403,), "xAI", "github.com/UKGovernmentBEIS/inspect_ai/pull/2267",
          words=r"content violates usage guidelines"),
    *(_Sign("content", (400, 403), "OpenAI", _RESPONSES, code=code) for code in (
        "invalid_prompt", "bio_policy", "cyber_policy", "misalignment_policy_violation",
        "image_content_policy_violation",
    )),
)  # fmt: skip
_PATTERNS = tuple((sign, re.compile(sign.words, re.IGNORECASE)) for sign in _SIGNS if sign.words)
# In characters: all of these words are at the beginning of a message.
_MAX_READ = 500


def read_problem(status: int, message: str, codes: Iterable[str]) -> Problem | None:
    """What an error with this status, message and codes is about; None if its status says that.

    A status of 0 stands for any: errors inside a 200 often have none.
    """
    if status == _PAYMENT_REQUIRED:
        return "no-credit"
    known = frozenset(codes)
    for sign in _SIGNS:
        if sign.code in known and status in (0, *sign.statuses):
            return sign.problem
    for sign, pattern in _PATTERNS:
        if status in (0, *sign.statuses) and pattern.match(message[:_MAX_READ].lstrip()):
            return sign.problem
    return None
