"""Recognises errors that say that a request is longer than the context of the model.

Providers have no common code for it, and clients look for the words of their own API: they then shorten the
conversation, instead of giving up. `figures` are the tokens of the request and the maximum, where the message has both.
"""

import re

from msgspec import Struct

CODE = "context_length_exceeded"
"""OpenAI's code for it, which many compatible servers send too."""
_NUMBER = r"(\d[\d,_]*)"
# The words of providers: the tokens of the request (`n`) and the maximum (`m`) are found by name.
_WORDS = [
    re.compile(pattern.replace("N#", "(?P<n>" + _NUMBER + ")").replace("M#", "(?P<m>" + _NUMBER + ")"), re.IGNORECASE)
    for pattern in (
        r"prompt is too long(?:: N# tokens > M# maximum)?",  # Anthropic
        r"exceed context limit: N# \+",  # Anthropic, with `max_tokens`
        # OpenAI, xAI, vLLM
        r"maximum (?:context|prompt) length is M#.{0,80}?(?:resulted in|requested(?: about)?|contains?|has) N#",
        r"exceed the configured limit of M# tokens.{0,80}?resulted in N#",  # OpenAI
        r"current length is N# while limit is M#",  # Cerebras
        r"maximum context length is M#",
        r"input token count \(?N#\)? exceeds the maximum number of tokens allowed \(?M#",  # Gemini
        r"prompt contains N# tokens.{0,80}?M# maximum context length",  # Mistral
        r"request \(N# tokens\) exceeds the available context size.{0,80}?\(M# tokens\)",  # llama.cpp
        r"exceeds the available context size",
        r"input is too long for requested model",  # Bedrock
        r"reduce the length of the (?:messages|prompt|input)",  # Groq
    )
]
# Enough of a message to recognise it by. A longer one quotes the request.
_MAX_READ = 2_000


class ContextOverflow(Struct, frozen=True):
    """A request that is too long: its tokens and the maximum, if known."""

    tokens: int | None = None
    maximum: int | None = None


def read_overflow(message: str, code: object = None) -> ContextOverflow | None:
    """What an error with this message and code says of a request that is too long; None if it says something else."""
    for pattern in _WORDS:
        found = pattern.search(message[:_MAX_READ])
        if found is not None:
            figures = {name: _integer(found[name]) for name in pattern.groupindex}
            return ContextOverflow(figures.get("n"), figures.get("m"))
    return ContextOverflow() if code == CODE else None


def _integer(text: str | None) -> int | None:
    return int(re.sub(r"[,_]", "", text)[:18]) if text else None
