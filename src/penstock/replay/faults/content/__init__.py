"""Faults that depend on the events of a dialect: one module for each, with the form of every fault that it can have."""

from collections.abc import Mapping

from penstock.replay.faults.content import (
    anthropic_messages,
    bedrock_converse,
    cohere,
    gemini,
    ollama,
    openai_chat,
    openai_responses,
)
from penstock.replay.faults.form import FaultForm

FORMS: Mapping[str, Mapping[str, FaultForm]] = {
    "openai_chat": openai_chat.FORMS,
    "anthropic_messages": anthropic_messages.FORMS,
    "openai_responses": openai_responses.FORMS,
    "gemini": gemini.FORMS,
    "ollama": ollama.FORMS,
    "cohere": cohere.FORMS,
    "bedrock_converse": bedrock_converse.FORMS,
}
"""By dialect, the forms of faults by their names in `faults/table.py`."""
