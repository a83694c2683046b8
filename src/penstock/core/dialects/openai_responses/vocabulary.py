"""Names that the reader and the writer of the OpenAI Responses dialect share."""

from typing import TypeAlias

Json: TypeAlias = dict[str, object]
NAME = "openai_responses"
SEAL_SCHEME = "openai"
"""The scheme of `encrypted_content` in reasoning items."""
