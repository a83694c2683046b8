"""Requests that no local model can process, whichever it is."""

from typing import Any

HI = [{"role": "user", "content": "Hi"}]


def message(**fields: object) -> dict[str, object]:
    """A request of one message, after one that is right."""
    return {"messages": [*HI, {"role": "user", "content": "Hi", **fields}]}


def part(**fields: object) -> dict[str, object]:
    """A request of one message with one part."""
    return {"messages": [{"role": "user", "content": [fields]}]}


def schema(schema: object) -> dict[str, object]:
    """A request for an answer by a schema."""
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


# What the gateway refuses itself, by name: the fields, which of them is named as `param`, and words of the message.
MALFORMED: dict[str, tuple[dict[str, Any], str | None, str]] = {
    "temperature": ({"temperature": "hot"}, "temperature", '`temperature` must be a number, not "hot"'),
    "temperature true": ({"temperature": True}, "temperature", "`temperature` must be a number, not true or false"),
    "top_p": ({"top_p": {}}, "top_p", "`top_p` must be a number, not an object"),
    "seed": ({"seed": [1]}, "seed", "`seed` must be a number, not a list"),
    "frequency_penalty": ({"frequency_penalty": "x y"}, "frequency_penalty", "must be a number, not a string"),
    "presence_penalty": ({"presence_penalty": "x"}, "presence_penalty", "must be a number"),
    "stop": ({"stop": 5}, "stop", "`stop` must be a string or a list of strings, not 5"),
    "stop of numbers": ({"stop": [1]}, "stop", "`stop` must be a string or a list of strings"),
    "logit_bias": ({"logit_bias": "x"}, "logit_bias", "`logit_bias` must be an object"),
    "logprobs": ({"logprobs": "yes"}, "logprobs", "`logprobs` must be true or false"),
    "top_logprobs": ({"logprobs": True, "top_logprobs": "x"}, "top_logprobs", "must be an integer from 0 to 20"),
    "many top_logprobs": ({"logprobs": True, "top_logprobs": 10**6}, "top_logprobs", "from 0 to 20, not 1000000"),
    "response_format": ({"response_format": "json"}, "response_format", "`response_format` must be an object"),
    "response_format type": ({"response_format": {"type": "odd"}}, "response_format", '`type` is "text"'),
    "a schema that is no object": (schema("x"), "response_format", "an object as its schema"),
    "a message that is none": ({"messages": ["hi"]}, "messages", "`messages[0]` must be an object"),
    "a role that is a number": (message(role=5), "messages", "`messages[1].role` must be a string, not 5"),
    "no role": ({"messages": [{"content": "x"}]}, "messages", "`messages[0]` has no role"),
    "no content": ({"messages": [{"role": "user"}]}, "messages", "`messages[0]` has no content"),
    "content that is a number": (message(content=5), "messages", "`messages[1].content` must be a string or a list"),
    "content of strings": (message(content=["x"]), "messages", "`messages[1].content[0]` must be an object"),
    "a text that is a number": (
        part(type="text", text=5),
        "messages",
        "`messages[0].content[0].text` must be a string",
    ),
    "tool_calls": (
        {"messages": [{"role": "assistant", "tool_calls": "x"}, *HI]},
        "messages",
        "`messages[0].tool_calls` must be a list of calls",
    ),
    "tools": ({"tools": "x"}, "tools", "`tools` must be a list of functions"),
    "a tool without a name": ({"tools": [{"type": "function", "function": {}}]}, "tools", "each with a name"),
    "tool_choice": ({"tool_choice": "odd"}, "tool_choice", "`tool_choice` must be"),
    "functions": ({"functions": [{"name": "f"}]}, "functions", "send `tools` instead"),
}
