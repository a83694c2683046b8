"""The official `google-genai` package for Python reads streams that a test gives it. Runs in an environment of its own.

The streams come in on stdin, as a list of texts. A report of each goes out on stdout: the text, the names of the
functions that are called, and the tokens of input and output.
"""

import json
import sys
from typing import Any

import httpx  # type: ignore[import-not-found]  # the tests do without
from google.genai import Client, types


def report(wire: str) -> list[Any]:
    """What the package sees in a stream."""
    answer = httpx.MockTransport(
        lambda _: httpx.Response(200, headers={"content-type": "text/event-stream"}, text=wire)
    )
    options = types.HttpOptions(httpx_client=httpx.Client(transport=answer))
    client = Client(api_key="none", vertexai=False, http_options=options)
    pieces = list(client.models.generate_content_stream(model="weir-3", contents="hi"))
    contents = [each.content for piece in pieces for each in piece.candidates or () if each.content]
    parts = [part for content in contents for part in content.parts or ()]
    usage = next(piece.usage_metadata for piece in reversed(pieces) if piece.usage_metadata)
    text = "".join(part.text or "" for part in parts)
    calls = [part.function_call.name for part in parts if part.function_call]
    return [
        text,
        calls,
        usage.prompt_token_count,
        (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0),
    ]


json.dump([report(wire) for wire in json.load(sys.stdin)], sys.stdout)
