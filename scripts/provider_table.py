"""The tables of docs/providers.md: what works with each built-in provider, and the rules of providers.

A cell comes from a request that is written for the provider with its data, and from answers of the provider that
others have recorded. `recordings.json` has their counts. `python -m scripts.provider_table` counts anew; it needs the
corpus.
"""

import json
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock import Accumulator, StreamReader
from penstock.providers.catalog import catalog, rules
from penstock.providers.provider import Provider
from tests.corpus import CORPUS
from tests.streams import read
from tests.translation.support import CHAT, MESSAGES, Json, asked

RECORDINGS = Path(__file__).parent / "recordings.json"
# The dialect of each API in the index of the corpus.
_APIS = {
    "chat": CHAT,
    "anthropic": MESSAGES,
    "responses": "openai_responses",
    "gemini": "gemini",
    "bedrock": "bedrock_converse",
    "ollama": "ollama",
    "cohere": "cohere",
}
_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_SCHEMA: Json = {
    "type": "object",
    "properties": {"port": {"type": "string"}},
    "required": ["port"],
    "additionalProperties": False,
}
_TURN = {"role": "user", "content": "When is high water?"}
_HINT = {"cache_control": {"type": "ephemeral"}}
# Models of providers whose data lists none.
_MODELS = {
    "vertex": "gemini-3-flash",
    "vertex-anthropic": "claude-sonnet-4-6",
    "bedrock": "us.anthropic.claude-sonnet-4-6-v1:0",
    "azure": "gpt-5",
    "azure-anthropic": "claude-sonnet-4-6",
}
# Models that reason, of providers whose first model does not.
_REASONERS = {
    "cerebras": "gpt-oss-120b",
    "cohere": "command-a-reasoning-08-2025",
    "fireworks": "accounts/fireworks/models/gpt-oss-120b",
    "groq": "openai/gpt-oss-120b",
    "mistral": "mistral-small-latest",
    "ollama": "gpt-oss:20b",
    "perplexity": "sonar-deep-research",
    "together": "openai/gpt-oss-120b",
    "xai": "grok-4.3",
}


def _image(part: Json) -> Json:
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": "Where is this?"}, part]}]}


# What is asked of a provider, by a client of another API than its own.
_ASKED: dict[str, dict[str, Json]] = {
    CHAT: {
        "tools": {
            "messages": [_TURN],
            "tools": [{"type": "function", "function": {"name": "get_tide", "parameters": _SCHEMA}}],
        },
        "images": _image({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PIXEL}"}}),
        "reasoning": {"messages": [_TURN], "reasoning_effort": "high"},
        "structured output": {
            "messages": [_TURN],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "tide", "schema": _SCHEMA, "strict": True},
            },
        },
    },
    MESSAGES: {
        "tools": {"messages": [_TURN], "tools": [{"name": "get_tide", "input_schema": _SCHEMA}]},
        "images": _image({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _PIXEL}}),
        "reasoning": {"messages": [_TURN], "thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
        "structured output": {
            "messages": [_TURN],
            "output_config": {"format": {"type": "json_schema", "schema": _SCHEMA}},
        },
        "cache hints": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"} | _HINT]}]},
    },
}
_COLUMNS = ("stream", "tools", "images", "reasoning", "structured output", "cache hints", "usage", "embeddings")
# What recorded answers can show of a column.
_SHOWN = {
    "stream": "streams",
    "tools": "calls",
    "images": "images",
    "reasoning": "reasoning",
    "structured output": "schemas",
    "cache hints": "cached",
    "usage": "usage",
}
# How recorded requests have an image, or a schema for the answer, in the words of all dialects.
_IMAGE = re.compile(
    rb'"(?:image_url|input_image)"|"type":\s*"image"|"mime_?[tT]ype":\s*"image/|"image":\s*\{|"images":\s*\[\s*"'
)
_ANSWER_SCHEMA = re.compile(
    rb'"json_schema"|"response_?(?:[jJ]son)?_?[sS]chema"|"textFormat"|"format":\s*\{\s*"(?:type":\s*"obj|prop)'
)


def provider_table() -> str:
    """The table, and the sentence that dates it."""
    recorded: Json = json.loads(RECORDINGS.read_text(encoding="utf-8"))
    lines = [f"| provider | {' | '.join(_COLUMNS)} |", "|---" * (len(_COLUMNS) + 1) + "|"]
    for provider in _providers():
        seen = recorded["providers"].get(provider.name, {})
        cells = [_cell(provider, column, seen.get(_SHOWN.get(column, ""), 0)) for column in _COLUMNS]
        lines.append(f"| `{provider.name}` | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"The recordings were counted on {recorded['date']}.", "", ""])


def rule_table() -> str:
    """The rules of providers with their evidence."""
    lines = ["| rule | providers | evidence |", "|---|---|---|"]
    for name, rule in rules().items():
        names = ", ".join(f"`{provider}`" for provider in rule.providers)
        sources = ", ".join(f"[{number}]({source})" for number, source in enumerate(rule.sources, 1))
        lines.append(f"| `{name}`: {rule.says} | {names} | {sources}, {rule.date} |")
    return "\n".join([*lines, "", ""])


def _providers() -> list[Provider]:
    """Every built-in provider that is called over the network."""
    needed = ("base_url", "dialect", "embeddings", "models", "settings")
    providers = []
    for name, table in catalog().items():
        fields: dict[str, Any] = {key: table[key] for key in needed if key in table}
        if "model" not in table:
            providers.append(Provider(name=name, **fields))
    return providers


def _cell(provider: Provider, column: str, seen: int) -> str:
    """What works: `yes`, `sent` without a recorded answer that shows it, or the losses; empty without evidence."""
    if column == "embeddings":
        return "yes" if provider.embeddings else ""
    losses = _losses(provider, column)
    return f"{losses or 'yes'} ({seen})" if seen else losses or ("sent" if column in _ASKED[MESSAGES] else "")


def _losses(provider: Provider, column: str) -> str:
    """What is lost when a client of another API asks for it. Hints for the cache are forwarded in their own API."""
    client = MESSAGES if provider.dialect != MESSAGES else CHAT
    if column not in _ASKED[client]:
        return ""
    model = provider.models[0] if provider.models else _MODELS.get(provider.name, "any")
    if column == "reasoning":
        model = _REASONERS.get(provider.name, model)
    _, lost = asked(client, provider.dialect, _ASKED[client][column], **provider.settings_for(model))
    return ", ".join(sorted({f"`{code}`" for code, _ in lost if code != "max-tokens-assumed"}))


def count() -> Json:
    """What the recorded streams of each built-in provider show, by the reader of their dialect."""
    found: dict[str, Counter[str]] = {}
    for line in (CORPUS / "INDEX.jsonl").read_text(encoding="utf-8").splitlines():
        row: dict[str, Any] = json.loads(line)
        if row["kind"] != "stream" or row["handwritten"] or row["vendor"] not in catalog() or row["api"] not in _APIS:
            continue
        answer = Accumulator(_APIS[row["api"]])
        answer.extend(read((CORPUS / row["file"]).read_bytes(), reader=StreamReader(_APIS[row["api"]])))
        completion = answer.completion
        if completion.ending != "completed":
            continue
        usage = completion.usage
        request = (CORPUS / row["request"]).read_bytes() if row["request"] else b""
        found.setdefault(row["vendor"], Counter()).update(
            {
                "streams": 1,
                "calls": int(any(choice.tool_calls for choice in completion.choices)),
                "reasoning": int(any(choice.reasoning for choice in completion.choices)),
                "images": int(_IMAGE.search(request) is not None),
                "schemas": int(_ANSWER_SCHEMA.search(request) is not None),
                "usage": int(usage is not None and usage.output is not None),
                "cached": int(usage is not None and bool(usage.cached)),
            }
        )
    return {"date": f"{datetime.now(UTC):%Y-%m-%d}", "providers": {name: found[name] for name in sorted(found)}}


if __name__ == "__main__":
    RECORDINGS.write_text(json.dumps(count(), indent=1) + "\n", encoding="utf-8")
