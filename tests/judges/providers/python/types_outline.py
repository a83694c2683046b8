"""Prints the shapes of answers in Cohere's and Ollama's SDKs, and of requests in Cohere's, for
`tests/provider_apis/sdk_types.json`.

The interpreter that has them runs it, with the root of the repository as working directory.
"""

import json
import sys
from typing import Any

import cohere  # type: ignore[import-not-found]
import ollama  # type: ignore[import-not-found]

sys.path.insert(0, ".")

from tests.sdk_types import outline, shape_of

_ROOTS = {
    "cohere": cohere.V2ChatResponse,
    "cohere_event": cohere.V2ChatStreamResponse,
    "ollama": ollama.ChatResponse,
    # Of requests.
    "cohere_messages": cohere.ChatMessages,
    "cohere_tool": cohere.ToolV2,
    "cohere_document": cohere.Document,
    "cohere_citation_options": cohere.CitationOptions,
    "cohere_response_format": cohere.ResponseFormatV2,
    "cohere_thinking": cohere.Thinking,
}

written: dict[str, Any] = outline({name: shape_of(each) for name, each in _ROOTS.items()})
lines = [f"{json.dumps(name)}: {json.dumps(members)}" for name, members in sorted(written["types"].items())]
sys.stdout.write(f'{{"roots": {json.dumps(written["roots"])},\n"types": {{\n' + ",\n".join(lines) + "\n}}\n")
