"""The official packages `ollama`, `cohere` and `boto3`, which a test asks by lines. Runs in an environment of its own.

An ask comes in on stdin, its report goes out on stdout; `tests/judges/providers/asks.py` describes both.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

import boto3  # type: ignore[import-not-found]  # the tests do without
import cohere  # type: ignore[import-not-found]
import ollama  # type: ignore[import-not-found]
from botocore.config import Config

Json = dict[str, Any]
QUESTION = "How is the weather?"
TIMEOUT_S = 10.0
TOOL = "get_tide"
SCHEMA: Json = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}
RESULT: Json = {"tide": "low"}


def by_ollama(ask: Json, report: Json) -> None:
    """Ask with `ollama.Client`."""
    client = ollama.Client(host=ask["url"], timeout=TIMEOUT_S, trust_env=False)
    messages = [{"role": "user", "content": QUESTION}]
    answer = client.chat(model=ask["model"], messages=messages, stream=ask["stream"])
    for piece in answer if ask["stream"] else [answer]:
        report["model"] = piece.model
        report["text"] += piece.message.content or ""
        report["thinking"] += piece.message.thinking or ""
        for call in piece.message.tool_calls or ():
            report["calls"].append({"id": "", "name": call.function.name, "arguments": dict(call.function.arguments)})
        if piece.done:
            report["stop"], report["complete"] = piece.done_reason, True
            report["usage"] = [piece.prompt_eval_count, piece.eval_count]


def by_cohere(ask: Json, report: Json) -> None:
    """Ask with `cohere.ClientV2`."""
    client = cohere.ClientV2(ask["key"], base_url=ask["url"], timeout=TIMEOUT_S)
    if ask["lists"]:
        report["models"] = [model.name for model in client.models.list().models]
        return
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    tools = [{"type": "function", "function": {"name": TOOL, "description": "Tides", "parameters": SCHEMA}}]
    arguments = {"model": ask["model"]} | ({"tools": tools} if ask["tools"] else {})
    if not ask["tools"]:
        _ask_cohere(client, ask, report, arguments | {"messages": messages})
        return
    _ask_cohere(client, {"stream": False}, report, arguments | {"messages": messages})
    made = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": _json(call["arguments"])},
        }
        for call in report["calls"]
    ]
    messages.append({"role": "assistant", "tool_calls": made, "tool_plan": report["thinking"] or report["text"]})
    for call in report["calls"]:
        content = [{"type": "document", "document": {"data": RESULT}}]
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
    report |= {"text": "", "thinking": ""}
    _ask_cohere(client, ask, report, arguments | {"messages": messages})


def _ask_cohere(client: Any, ask: Json, report: Json, arguments: Json) -> None:
    once = {"max_retries": 0}
    if ask["stream"]:
        for event in client.chat_stream(**arguments, request_options=once):
            _take_event(event, report)
        return
    answer = client.chat(**arguments, request_options=once)
    report["id"] = answer.id
    for content in answer.message.content or ():
        report["text"] += getattr(content, "text", None) or ""
        report["thinking"] += getattr(content, "thinking", None) or ""
    report["thinking"] += answer.message.tool_plan or ""
    for call in answer.message.tool_calls or ():
        report["calls"].append(_cohere_call(call.id, call.function.name, call.function.arguments))
    _finish_cohere(answer, report)


def _take_event(event: Any, report: Json) -> None:
    match event.type:
        case "message-start":
            report["id"] = event.id
        case "content-delta":
            content = event.delta.message.content
            report["text"] += getattr(content, "text", None) or ""
            report["thinking"] += getattr(content, "thinking", None) or ""
        case "tool-plan-delta":
            report["thinking"] += event.delta.message.tool_plan
        case "tool-call-start":
            call = event.delta.message.tool_calls
            report["calls"].append({"id": call.id, "name": call.function.name, "arguments": call.function.arguments})
        case "tool-call-delta":
            report["calls"][event.index]["arguments"] += event.delta.message.tool_calls.function.arguments
        case "tool-call-end":
            call = report["calls"][event.index]
            report["calls"][event.index] = _cohere_call(call["id"], call["name"], call["arguments"])
        case "citation-start":
            report["citations"].append(event.delta.message.citations.text)
        case "message-end":
            _finish_cohere(event.delta, report)
            error = getattr(event.delta, "error", None)
            if error:
                report["error"] = {"name": "", "message": error, "status": None}
        case _:
            pass


def _cohere_call(id: str, name: str, arguments: str | None) -> Json:
    return {"id": id, "name": name, "arguments": json.loads(arguments or "{}")}


def _finish_cohere(end: Any, report: Json) -> None:
    report["stop"], report["complete"] = end.finish_reason, end.finish_reason != "ERROR"
    if end.usage is not None:
        report["usage"] = [int(end.usage.tokens.input_tokens), int(end.usage.tokens.output_tokens)]


def by_boto3(ask: Json, report: Json) -> None:
    """Ask with the client of `bedrock-runtime`: with a key of Bedrock, or signed with an access key."""
    if ask["lists"]:
        listed = _aws("bedrock", ask).list_foundation_models()["modelSummaries"]
        report["models"] = [model["modelId"] for model in listed]
        return
    client = _aws("bedrock-runtime", ask)
    messages: list[Json] = [{"role": "user", "content": [{"text": QUESTION}]}]
    arguments: Json = {"modelId": ask["model"], "messages": messages}
    if ask["tools"]:
        spec = {"name": TOOL, "description": "Tides", "inputSchema": {"json": SCHEMA}}
        arguments["toolConfig"] = {"tools": [{"toolSpec": spec}]}
        message = client.converse(**arguments)["output"]["message"]
        calls = [block["toolUse"] for block in message["content"] if "toolUse" in block]
        report["calls"] = [{"id": use["toolUseId"], "name": use["name"], "arguments": use["input"]} for use in calls]
        results = [{"toolResult": {"toolUseId": use["toolUseId"], "content": [{"json": RESULT}]}} for use in calls]
        messages += [message, {"role": "user", "content": results}]
    if ask["stream"]:
        for event in client.converse_stream(**arguments)["stream"]:
            _take_message(event, report)
        return
    answer = client.converse(**arguments)
    for content in answer["output"]["message"]["content"]:
        report["text"] += content.get("text", "")
        reasoning = content.get("reasoningContent", {}).get("reasoningText", {})
        report["thinking"] += reasoning.get("text", "")
        report["signature"] += reasoning.get("signature", "")
        if use := content.get("toolUse"):
            report["calls"].append({"id": use["toolUseId"], "name": use["name"], "arguments": use["input"]})
    _finish_bedrock(answer, report)


def _aws(service: str, ask: Json) -> Any:
    os.environ.pop("AWS_BEARER_TOKEN_BEDROCK", None)
    if ask["secret"] or ask["key"] == "none":
        credentials = {"aws_access_key_id": ask["key"], "aws_secret_access_key": ask["secret"] or "none"}
    else:
        credentials = {}
        os.environ["AWS_BEARER_TOKEN_BEDROCK"] = ask["key"]
    config = Config(retries={"total_max_attempts": 1}, read_timeout=TIMEOUT_S)
    return boto3.client(service, region_name="us-east-1", endpoint_url=ask["url"], config=config, **credentials)


def _take_message(event: Json, report: Json) -> None:
    ((name, value),) = event.items()
    match name:
        case "contentBlockStart" if "toolUse" in value["start"]:
            use = value["start"]["toolUse"]
            report["calls"].append({"id": use["toolUseId"], "name": use["name"], "arguments": ""})
        case "contentBlockDelta":
            delta = value["delta"]
            report["text"] += delta.get("text", "")
            report["thinking"] += delta.get("reasoningContent", {}).get("text", "")
            report["signature"] += delta.get("reasoningContent", {}).get("signature", "")
            if "toolUse" in delta:
                report["calls"][-1]["arguments"] += delta["toolUse"]["input"]
        case "messageStop" | "metadata":
            _finish_bedrock(value, report)
        case _:
            pass


def _finish_bedrock(value: Json, report: Json) -> None:
    if "stopReason" in value:
        report["stop"], report["complete"] = value["stopReason"], True
    if usage := value.get("usage"):
        report["usage"] = [usage["inputTokens"], usage["outputTokens"]]


CLIENTS: dict[str, Callable[[Json, Json], None]] = {"ollama": by_ollama, "cohere": by_cohere, "boto3": by_boto3}


def reported(ask: Json) -> Json:
    """What an application has of an answer when its client ends or raises."""
    report: Json = {"id": "", "model": "", "text": "", "thinking": "", "signature": "", "calls": [], "citations": []}
    report |= {"stop": None, "usage": None, "complete": False, "error": None}
    try:
        CLIENTS[ask["client"]](ask, report)
    except Exception as error:  # noqa: BLE001 - whatever it is, the application gets it
        response = getattr(error, "response", None)
        metadata = response.get("ResponseMetadata", {}) if isinstance(response, dict) else {}
        status = getattr(error, "status_code", None) or metadata.get("HTTPStatusCode")
        name = type(error).__name__
        if name == "ClientError" and isinstance(response, dict):  # of a code that has no class
            name = response["Error"]["Code"]
        report["error"] = {"name": name, "message": str(error), "status": status}
    for call in report["calls"]:
        if isinstance(call["arguments"], str):
            call["arguments"] = _parsed(call["arguments"])
    return report


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


def main(lines: Iterable[str]) -> None:
    """Answer every ask."""
    for line in lines:
        print(json.dumps(reported(json.loads(line))), flush=True)  # noqa: T201 - the report


if __name__ == "__main__":
    main(sys.stdin)
