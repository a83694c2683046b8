"""openai-agents, which a test asks by lines: an agent with two tools, and another to which it hands off.

The first agent has the tools of the ask. Every ask gets a second agent, `harbour_master`, which has none. A turn of the
report is what the run says in the end; the calls are those of all turns, in order.
"""

import json
from typing import Any

from agents import (  # type: ignore[import-not-found]  # the tests do without
    Agent,
    FunctionTool,
    ModelSettings,
    OpenAIProvider,
    RunConfig,
    Runner,
)
from lines import Json, answer_lines  # type: ignore[import-not-found]  # beside this script
from openai import AsyncOpenAI
from openai.types.shared import Reasoning
from pydantic import BaseModel


class Weather(BaseModel):
    """The fields of `SCHEMA` in asks.py."""

    city: str
    degrees: int


def agent(ask: Json) -> Any:
    """The agent that is asked first."""

    def tool(name: str) -> Any:
        async def run(_context: Any, _arguments: str) -> str:
            return str(ask["results"][name])

        schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        return FunctionTool(name, name, schema | {"additionalProperties": False}, run)

    settings: Json = {"max_tokens": ask["max_tokens"]}
    if ask["reasoning"]:
        settings |= {"reasoning": Reasoning(effort="low", summary="auto"), "store": False}
        settings["response_include"] = ["reasoning.encrypted_content"]
    master = Agent(name="harbour_master", instructions="You know the harbour.", model=ask["model"])
    return Agent(
        name="pilot",
        instructions=ask["system"] or None,
        model=ask["model"],
        model_settings=ModelSettings(**settings),
        tools=[tool(name) for name in ask["tools"]],
        handoffs=[master],
        output_type=Weather if ask["schema"] else None,
    )


def prompt(ask: Json) -> list[Json]:
    """The user's message."""
    parts = [
        {"type": "input_image", "image_url": f"data:image/png;base64,{part['image']}", "detail": "auto"}
        if "image" in part
        else {"type": "input_text", "text": part["text"]}
        for part in ask["parts"]
    ]
    return [{"role": "user", "content": parts}]


def config(client: AsyncOpenAI) -> Any:
    """Names of models stand as they are, and nothing is traced."""
    return RunConfig(model_provider=OpenAIProvider(openai_client=client), tracing_disabled=True)


async def run(ask: Json, client: AsyncOpenAI, report: Json) -> None:
    """Without a stream."""
    result = await Runner.run(agent(ask), prompt(ask), run_config=config(client))
    report["turns"] = [seen(ask, result)]


async def run_streamed(ask: Json, client: AsyncOpenAI, report: Json) -> None:
    """With every event of every turn."""
    result = Runner.run_streamed(agent(ask), prompt(ask), run_config=config(client))
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            report["sent_text"] += event.data.delta
    report["turns"] = [seen(ask, result)]


def seen(ask: Json, result: Any) -> Json:
    """The run: the last text, all calls, all reasoning, and the usage of all turns."""
    items = [item for response in result.raw_responses for item in response.output]
    usage = result.context_wrapper.usage
    thoughts = [item for item in items if item.type == "reasoning"]
    output = result.final_output
    return {
        "id": result.raw_responses[-1].response_id,
        "model": None,
        "text": output.model_dump_json() if ask["schema"] else output,
        "reasoning": "".join(part.text for item in thoughts for part in [*item.summary, *(item.content or [])]),
        "refusal": None,
        "calls": [
            {"id": item.call_id, "name": item.name, "arguments": json.loads(item.arguments)}
            for item in items
            if item.type == "function_call"
        ],
        "status": None,
        "reason": result.last_agent.name,
        "usage": {
            "input": usage.input_tokens,
            "cached": usage.input_tokens_details.cached_tokens,
            "output": usage.output_tokens,
            "reasoning": usage.output_tokens_details.reasoning_tokens,
        },
        "items": [item.type for item in items],
        "parsed": output.model_dump() if ask["schema"] else None,
    }


answer_lines({"run": run, "run_streamed": run_streamed})
