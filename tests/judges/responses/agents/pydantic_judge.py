"""pydantic-ai with its model for the Responses API, which a test asks by lines."""

import base64
from typing import Any

from lines import Json, answer_lines  # type: ignore[import-not-found]  # beside this script
from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, NativeOutput, Tool  # type: ignore[import-not-found]  # the tests do without
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart  # type: ignore[import-not-found]
from pydantic_ai.models.openai import OpenAIResponsesModel  # type: ignore[import-not-found]
from pydantic_ai.providers.openai import OpenAIProvider  # type: ignore[import-not-found]


class Weather(BaseModel):
    """The fields of `SCHEMA` in asks.py."""

    city: str
    degrees: int


def agent(ask: Json, client: AsyncOpenAI) -> Any:
    """The agent that is asked."""

    def tool(name: str) -> Any:
        def run(city: str) -> str:  # noqa: ARG001
            return str(ask["results"][name])

        return Tool(run, name=name, description=name)

    settings: Json = {}
    # It knows by the names of OpenAI's models which of them reason; for another model, the settings have to say it.
    profile = {"openai_supports_encrypted_reasoning_content": True, "openai_supports_reasoning": True}
    if ask["reasoning"]:
        settings = {"openai_reasoning_effort": "low", "openai_reasoning_summary": "auto", "openai_store": False}
    if ask["max_tokens"] is not None:
        settings["max_tokens"] = ask["max_tokens"]
    return Agent(
        OpenAIResponsesModel(
            ask["model"],
            provider=OpenAIProvider(openai_client=client),
            profile=profile if ask["reasoning"] else None,
        ),
        instructions=ask["system"] or None,
        tools=[tool(name) for name in ask["tools"]],
        output_type=NativeOutput(Weather) if ask["schema"] else str,
        model_settings=settings,
        retries=0,
    )


def prompt(ask: Json) -> list[Any]:
    """The user's message."""
    return [
        BinaryContent(base64.b64decode(part["image"]), media_type="image/png") if "image" in part else part["text"]
        for part in ask["parts"]
    ]


async def run(ask: Json, client: AsyncOpenAI, report: Json) -> None:
    """Without a stream."""
    result = await agent(ask, client).run(prompt(ask))
    report["turns"] = turns(ask, result.all_messages(), result.output)


async def run_stream(ask: Json, client: AsyncOpenAI, report: Json) -> None:
    """With every event of every turn."""
    async with agent(ask, client).iter(prompt(ask)) as running:
        async for node in running:
            if Agent.is_model_request_node(node):
                async with node.stream(running.ctx) as stream:
                    async for event in stream:
                        part = getattr(event, "part", None)
                        delta: Any = getattr(event, "delta", None)
                        if event.event_kind == "part_start" and isinstance(part, TextPart):
                            report["sent_text"] += part.content
                        elif event.event_kind == "part_delta" and delta.part_delta_kind == "text":
                            report["sent_text"] += delta.content_delta
    report["turns"] = turns(ask, running.result.all_messages(), running.result.output)


def turns(ask: Json, messages: list[Any], output: Any) -> list[Json]:
    """Every answer; what the schema has decoded belongs to the last."""
    seen = [_seen(message) for message in messages if isinstance(message, ModelResponse)]
    if ask["schema"]:
        seen[-1]["parsed"] = output.model_dump()
    return seen


def _seen(message: Any) -> Json:
    details, usage = message.provider_details or {}, message.usage
    of: Any = lambda type: [part for part in message.parts if isinstance(part, type)]  # noqa: E731
    reason = details.get("finish_reason")
    return {
        "id": message.provider_response_id,
        "model": message.model_name,
        "text": "".join(part.content for part in of(TextPart)),
        "reasoning": "".join(part.content for part in of(ThinkingPart)),
        "refusal": details.get("refusal") or "",
        "calls": [
            {"id": part.tool_call_id.partition("|")[0], "name": part.tool_name, "arguments": part.args_as_dict()}
            for part in of(ToolCallPart)
        ],
        "status": None,
        "reason": None if reason == "completed" else reason,
        "usage": {
            "input": usage.input_tokens,
            "cached": usage.cache_read_tokens,
            "output": usage.output_tokens,
            "reasoning": usage.details.get("reasoning_tokens", 0),
        },
        "items": None,
        "parsed": None,
    }


answer_lines({"run": run, "run_stream": run_stream})
