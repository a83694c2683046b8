"""Answers of providers, generated from the types of the official SDKs: what reaches a client of each API of them.

`unaccounted` is the property: of an answer with a member and the same answer without it, a client gets another answer,
or other losses are declared, or the answer fails. A member whose presence changes nothing has vanished. A member within
something that is a loss as a whole is accounted for by that loss. `EXCEPTIONS` has the members that may vanish.
"""

import copy
import functools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, NamedTuple, TypeAlias

import botocore.loaders
from anthropic.types import Message, RawContentBlockDeltaEvent, RawMessageDeltaEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response

from penstock import Accumulator, StreamReader, StreamWriter
from penstock.core.dialects.answer_extras import ECHOES, INCIDENTAL
from penstock.core.hub.events import Fault
from tests.event_streams import event
from tests.sdk_types import (
    Entries,
    Items,
    Leaf,
    Members,
    Options,
    Samples,
    Shape,
    Special,
    Words,
    google_shapes,
    provider_shapes,
    shape_of,
)
from tests.streams import sse
from tests.translation.support import BEDROCK, CHAT, COHERE, GEMINI, MESSAGES, OLLAMA, RESPONSES, facts

Json: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str | int, ...]
CLIENTS = (CHAT, RESPONSES, MESSAGES, GEMINI, COHERE, BEDROCK)


class GeneratedAnswer(NamedTuple):
    """An answer of a provider: the JSON of its events, or of its body alone, and how they are written."""

    provider: str
    streamed: bool
    values: list[Json]

    def wire(self, values: list[Json]) -> bytes:
        """These values as the provider sends them."""
        if not self.streamed:
            return json.dumps(values[0]).encode()
        return _FRAMED[self.provider](values)


def _in_event_stream(values: list[Json]) -> bytes:
    return b"".join(event(name, body) for value in values for name, body in value.items())


def _named(values: list[Json]) -> bytes:
    return b"".join(f"event: {value.get('type')}\n".encode() + sse(value) for value in values)


_FRAMED: Mapping[str, Callable[[list[Json]], bytes]] = {
    CHAT: lambda values: sse(*values, "[DONE]"),
    RESPONSES: _named,
    MESSAGES: _named,
    GEMINI: lambda values: sse(*values),
    BEDROCK: _in_event_stream,
    COHERE: lambda values: _named(values) + sse("[DONE]"),
    OLLAMA: lambda values: b"".join(json.dumps(value).encode() + b"\n" for value in values),
}


# What clients get.


class Got(NamedTuple):
    """What a client gets of an answer: the bytes, and the losses. Both are empty if the answer fails."""

    data: bytes
    losses: tuple[tuple[str, str], ...]
    failed: bool


def got(provider: str, client: str, wire: bytes, *, stream: bool) -> Got:
    """What a client gets, streamed or not."""
    reader = StreamReader(provider, whole=not stream)
    writer = StreamWriter.for_call(client, facts(provider, client))
    events = [*reader.feed(wire), *reader.close()]
    if any(isinstance(each, Fault) for each in events):
        return Got(b"", (), failed=True)
    if stream:
        data = writer.write(events)
    else:
        answer = Accumulator(provider)
        answer.extend(writer.passed_on(events))
        data = writer.write_body(answer.completion)
    return Got(data, tuple((loss.code, loss.detail) for loss in writer.losses), failed=False)


def unaccounted(answer: GeneratedAnswer, client: str, random: Random, *, stream: bool, most: int = 10) -> list[str]:
    """The members, of `most` at random, that vanish on the way to a client."""
    whole = got(answer.provider, client, answer.wire(answer.values), stream=stream)
    if whole.failed:
        return []
    paths = [path for path, value in _paths(answer.values) if value and not _is_exception(answer, path, client)]
    chosen = random.sample(paths, min(most, len(paths)))
    vanished = [path for path in chosen if not _is_accounted_for(answer, client, path, whole, stream=stream)]
    return [".".join(map(str, path)) for path in vanished]


def _is_accounted_for(answer: GeneratedAnswer, client: str, path: Path, whole: Got, *, stream: bool) -> bool:
    if _is_in_lost_block(answer.values, path, whole):
        return True
    if not {detail.rpartition(".")[2] for _, detail in whole.losses}.isdisjoint(path):
        return True
    for size in range(len(path), 0 if answer.streamed else 1, -1):
        without = got(answer.provider, client, answer.wire(_without(answer.values, path[:size])), stream=stream)
        if size == len(path) and without != whole:
            return True
        if not without.failed and Counter(whole.losses) - Counter(without.losses):
            return True  # it is lost as a whole
    return False


_CITATIONS = frozenset(("annotations", "citation", "citations", "citationMetadata", "groundingMetadata"))


def _is_in_lost_block(values: list[Json], path: Path, whole: Got) -> bool:
    """Whether a member is in a block that is lost as a whole, of which several events tell."""
    hidden = {detail for code, detail in whole.losses if code == "server-activity-hidden"}
    codes = {code for code, _ in whole.losses}
    if "citation-dropped" in codes and not _CITATIONS.isdisjoint(path):
        return True
    media = "media-dropped" in codes
    holder: Any = values
    for step in path[:-1]:
        holder = holder[step]
        if not isinstance(holder, dict):
            continue
        type = str(holder.get("type"))
        if type in hidden or holder.get("name") in hidden or (media and (step == "image" or type.startswith("image"))):
            return True
    return False


def _paths(value: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Every member, at any depth, that has no members itself."""
    if isinstance(value, dict):
        for name, each in value.items():
            if not isinstance(each, dict) and not (isinstance(each, list) and any(isinstance(it, dict) for it in each)):
                yield (*path, name), each
            yield from _paths(each, (*path, name))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _paths(each, (*path, number))


def _without(values: list[Json], path: Path) -> list[Json]:
    changed = copy.deepcopy(values)
    holder: Any = changed
    for step in path[:-1]:
        holder = holder[step]
    del holder[path[-1]]
    return changed


def _is_exception(answer: GeneratedAnswer, path: Path, client: str) -> bool:
    names = [step for step in path if isinstance(step, str)]
    if client == answer.provider and answer.values[int(path[0])].get("type") == "debug":
        return True  # an event of Cohere's that is no part of an unstreamed answer
    if client != answer.provider and not INCIDENTAL.keys().isdisjoint(names):
        return True
    if client != answer.provider and not ECHOES.isdisjoint(names[:2]):
        return True
    if names[-1] in _STRUCTURE:
        return True
    dotted = "." + ".".join(names)
    return any(each in dotted for each in EXCEPTIONS)


# What providers send.

_SPECIAL: Special = {
    "arguments": lambda made: json.dumps({made.text(): made.text()}),
    "url": lambda made: f"https://{made.text()}.example",
    "uri": lambda made: f"https://{made.text()}.example",
    "ToolUse.input": lambda made: {made.text(): made.text()},
    "Function.arguments": lambda made: {made.text(): made.text()},
    "FunctionCall.args": lambda made: {made.text(): made.text()},
    "partial_json": lambda made: json.dumps({made.text(): made.text()}),
    "created_at": lambda made: 1_700_000_000 + made.mark(),
    "ChatResponse.created_at": lambda made: f"2026-11-18T08:00:{made.mark() % 60:02}Z",
    "cached_tokens": lambda made: 1000 + made.mark(),
    # The SDK's own.
    **dict.fromkeys(("parsed", "sdkHttpResponse", "automaticFunctionCallingHistory"), lambda _: None),
    # Wholes, so that their parts are within them.
    **dict.fromkeys(
        (
            "prompt_tokens", "completion_tokens", "input_tokens", "output_tokens", "promptTokenCount",
            "candidatesTokenCount", "inputTokens", "outputTokens",
        ),
        lambda made: 1_000_000 + made.mark(),
    ),
}  # fmt: skip
# Totals follow from the counts, so they are left out.
_TOTALS = ("total_tokens", "totalTokenCount", "totalTokens")
# Of the members of a part of Gemini, one is there.
_PARTS = (
    "text", "functionCall", "inlineData", "fileData", "executableCode", "codeExecutionResult", "functionResponse",
    "toolCall", "toolResponse",
)  # fmt: skip


def random_answer(random: Random, provider: str, *, streamed: bool, unknown: float = 0.1) -> GeneratedAnswer:
    """An answer of a provider."""
    made = Samples(random, _SPECIAL, share=random.choice((0.2, 0.5, 0.8)), unknown=unknown)
    values = (_STREAMS if streamed else _BODIES)[provider](made)
    return GeneratedAnswer(provider, streamed, [_without_totals(value) for value in values])


def _without_totals(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_totals(each) for name, each in value.items() if name not in _TOTALS}
    return [_without_totals(each) for each in value] if isinstance(value, list) else value


def _sample(made: Samples, shape: Shape, **fields: object) -> Json:
    value = made.sample(shape)
    assert isinstance(value, dict)
    return value | fields


def _chat_body(made: Samples) -> list[Json]:
    body = _sample(made, shape_of(ChatCompletion))
    body["choices"] = [body["choices"][0] | {"index": 0, "finish_reason": "length"}]
    if body["choices"][0]["message"].get("tool_calls"):
        body["choices"][0]["message"].pop("function_call", None)  # which would repeat one of them
    return [body]


_OF_CHUNKS = ("id", "model", "created", "object", "choices", "usage")


def _chat_stream(made: Samples) -> list[Json]:
    values = [_sample(made, shape_of(ChatCompletionChunk)) for _ in range(2)]
    for number, chunk in enumerate(values):
        chunk |= {name: values[0][name] for name in ("id", "model", "created")}
        choice = chunk["choices"][0] | {"index": 0, "finish_reason": "length" if number else None}
        chunk["choices"] = [choice]
        choice["delta"]["tool_calls"] = (choice["delta"].get("tool_calls") or [])[:1]
        for call in choice["delta"].get("tool_calls") or ():
            call["index"] = 0
            function = call.setdefault("function", {})
            function.setdefault("name", "f")
            call.setdefault("id", "call_1")
            if number:
                function.pop("arguments", None)
        if number or choice["delta"]["tool_calls"]:
            choice["delta"].pop("function_call", None)
        if number:
            choice["delta"].pop("tool_calls", None)
            values[1] = {name: chunk[name] for name in chunk if name in _OF_CHUNKS}
        else:
            chunk.pop("usage", None)
    return values


def _messages_body(made: Samples) -> list[Json]:
    return [_sample(made, shape_of(Message), stop_reason="max_tokens")]


_DELTAS = {
    "text": ("text_delta", "citations_delta"),
    "thinking": ("thinking_delta", "signature_delta"),
    "tool_use": ("input_json_delta",),
}


def _messages_stream(made: Samples) -> list[Json]:
    message = _messages_body(made)[0]
    content, message = message["content"], message | {"content": [], "stop_reason": None}
    for name in ("stop_details", "stop_sequence", "container"):
        message.pop(name, None)
    values: list[Json] = [{"type": "message_start", "message": message}]
    for index, block in enumerate(content):
        block |= {name: "" for name in ("text", "thinking", "signature") if name in block}  # which the deltas have
        if block["type"] == "tool_use":
            block["input"] = {}
        values.append({"type": "content_block_start", "index": index, "content_block": block})
        for type in _DELTAS.get(block["type"], ()):
            delta = _sample(made, _delta_shapes()[type])
            values.append({"type": "content_block_delta", "index": index, "delta": delta})
        values.append({"type": "content_block_stop", "index": index})
    finish = _sample(made, shape_of(RawMessageDeltaEvent))
    finish["delta"]["stop_reason"] = "max_tokens"
    message["usage"] = {name: each for name, each in message["usage"].items() if name not in finish["usage"]}
    message["usage"].pop("output_tokens_details", None)  # preliminary
    return [*values, finish, {"type": "message_stop"}]


@functools.cache
def _delta_shapes() -> dict[str, Shape]:
    """The shapes of deltas, by their type."""
    shape = shape_of(RawContentBlockDeltaEvent)
    assert isinstance(shape, Members)
    return _by_type(shape.members["delta"])


def _by_type(shape: Shape) -> dict[str, Shape]:
    """The options of a union, by their type."""
    assert isinstance(shape, Options)
    known: dict[str, Shape] = {}
    for option in shape.options:
        if isinstance(option, Members) and isinstance(type := option.members["type"], Words):
            known |= dict.fromkeys(map(str, type.values), option)
    return known


def _responses_body(made: Samples) -> list[Json]:
    body = _sample(made, shape_of(Response), status="completed", error=None, incomplete_details=None)
    for item in body["output"]:
        item |= {"status": "completed"} if "status" in item else {}
    return [body]


def _responses_stream(made: Samples) -> list[Json]:
    (body,) = _responses_body(made)
    begun = body | {"status": "in_progress", "output": [], "usage": None}
    values: list[Json] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(body["output"]):
        place = {"output_index": index, "item": item}
        values.append(
            {"type": "response.output_item.added", **place, "item": {"type": item["type"], "id": f"i{index}"}}
        )
        values.append({"type": "response.output_item.done", **place, "item": item | {"id": f"i{index}"}})
        if item["type"] in ("function_call", "custom_tool_call"):
            values.pop(-2)
    values.append({"type": "response.completed", "response": {"id": body["id"], "status": "completed", "output": []}})
    values[-1]["response"] |= {name: body[name] for name in ("usage",) if name in body}
    return [value | {"sequence_number": number} for number, value in enumerate(values)]


def _gemini_body(made: Samples) -> list[Json]:
    body = _sample(made, google_shapes()["answer"])
    if body.get("usageMetadata"):  # a report without counts is none
        body["usageMetadata"].setdefault("promptTokenCount", 1_000_000)
    candidate = (body.get("candidates") or [{}])[0] | {"index": 0, "finishReason": "MAX_TOKENS"}
    content = candidate.get("content") or {}
    content["parts"] = [_one_of(made, part) for part in content.get("parts") or [{"text": made.text()}]]
    body |= {"candidates": [candidate | {"content": content}], "promptFeedback": None}
    return [body]


def _one_of(made: Samples, part: Json) -> Json:
    kinds = [name for name in _PARTS if name in part]
    kept = made.random.choice(kinds) if kinds else "text"
    part = {name: each for name, each in part.items() if name not in _PARTS or name == kept}
    if kept == "functionCall":
        part[kept] = {"name": "f"} | part[kept] | {"willContinue": False, "partialArgs": []}
    return part if kinds else part | {"text": made.text()}


def _gemini_stream(made: Samples) -> list[Json]:
    first, last = _gemini_body(made)[0], _gemini_body(made)[0]
    content = {"content": first["candidates"][0]["content"]}
    return [
        {name: last[name] for name in ("responseId", "modelVersion") if name in last} | {"candidates": [content]},
        last,
    ]


@functools.cache
def _aws_shape(name: str) -> Shape:
    """A shape of Bedrock's API, from botocore."""
    shapes = botocore.loaders.Loader().load_service_model("bedrock-runtime", "service-2")["shapes"]
    shape = shapes[name]
    match shape["type"]:
        case "structure" if shape.get("union"):
            options = {member: each["shape"] for member, each in shape["members"].items()}
            return Options(
                tuple(
                    Members(name, functools.partial(_aws_member, *each), frozenset(each[:1]))
                    for each in options.items()
                )
            )
        case "structure":
            members = {member: each["shape"] for member, each in shape["members"].items()}
            required = frozenset(shape.get("required", ()))
            return Members(name, lambda: {each: _aws_shape(of) for each, of in members.items()}, required)
        case "list":
            return Items(_aws_shape(shape["member"]["shape"]))
        case "map":
            return Entries(_aws_shape(shape["value"]["shape"]))
        case "string":
            return Words(tuple(shape["enum"])) if "enum" in shape else Leaf("text")
        case kind:
            return Leaf({"blob": "base64", "integer": "int", "long": "int", "boolean": "bool"}.get(kind, "any"))


def _aws_member(name: str, shape: str) -> dict[str, Shape]:
    return {name: _aws_shape(shape)}


def _bedrock_body(made: Samples) -> list[Json]:
    body = _sample(made, _aws_shape("ConverseResponse"), stopReason="max_tokens")
    body["output"] = {"message": {"role": "assistant"} | body["output"].get("message", {})}
    return [body]


def _bedrock_stream(made: Samples) -> list[Json]:
    values: list[Json] = [{"messageStart": {"role": "assistant"}}]
    for index in range(made.random.choice((1, 2))):
        place = {"contentBlockIndex": index}
        start = made.sample(_aws_shape("ContentBlockStart"))
        delta = made.sample(_aws_shape("ContentBlockDelta"))
        assert isinstance(start, dict)
        assert isinstance(delta, dict)
        kind = next(iter(delta))
        if kind in ("toolUse", "toolResult", "image"):
            start = start if kind in start else {kind: _sample(made, _aws_starts()[kind])}
            start |= {"image": {"format": "jpeg"}} if kind == "image" else {}
            values.append({"contentBlockStart": {"start": start, **place}})
        if kind == "image" and "error" not in delta[kind]:
            delta[kind]["source"] = {"bytes": "aW1hZ2U="}
        if kind == "toolUse":
            delta["toolUse"]["input"] = json.dumps({made.text(): made.text()})
        values += [{"contentBlockDelta": {"delta": delta, **place}}, {"contentBlockStop": place}]
    values.append({"messageStop": _sample(made, _aws_shape("MessageStopEvent"), stopReason="max_tokens")})
    return [*values, {"metadata": _sample(made, _aws_shape("ConverseStreamMetadataEvent"))}]


@functools.cache
def _aws_starts() -> dict[str, Shape]:
    shape = _aws_shape("ContentBlockStart")
    assert isinstance(shape, Options)
    return {
        name: each for option in shape.options if isinstance(option, Members) for name, each in option.members.items()
    }


def _cohere_body(made: Samples) -> list[Json]:
    body = _sample(made, provider_shapes()["cohere"], finish_reason="MAX_TOKENS", message=_cohere_message(made))
    if body.get("usage"):
        body["usage"]["tokens"] = {"input_tokens": 1_000_000} | (body["usage"].get("tokens") or {})
    return [body]


def _cohere_message(made: Samples) -> Json:
    shape = provider_shapes()["cohere"]
    assert isinstance(shape, Members)
    message = _sample(made, shape.members["message"], role="assistant")
    for content in message.get("content") or ():
        if "thinking" not in content:
            content.setdefault("thinking" if content.get("type") == "thinking" else "text", made.text())
    for call in message.get("tool_calls") or ():
        call["function"] = {"name": "f", "arguments": '{"a":1}'} | call.get("function", {})
    return message


def _cohere_stream(made: Samples) -> list[Json]:
    kinds = _by_type(provider_shapes()["cohere_event"])
    order = ["message-start", "tool-plan-delta", "content-start", "content-delta", "content-end", "citation-start",
             "citation-end", "tool-call-start", "tool-call-delta", "tool-call-end", "debug", "message-end"]  # fmt: skip
    values = [_filled(made, kinds[kind]) | {"type": kind} for kind in order]
    for value in values:
        value |= {"index": 0} if "index" in value else {}
    values[2]["delta"]["message"]["content"] = {"type": "text", "text": ""}
    values[3]["delta"]["message"]["content"].pop("thinking", None)
    values[8]["delta"]["message"]["tool_calls"]["function"]["arguments"] = ""
    values[-1]["delta"]["finish_reason"] = "MAX_TOKENS"
    return values


def _filled(made: Samples, shape: Shape) -> Json:
    """A value with all its members: no type of Cohere's says which are required."""
    return _sample(Samples(made.random, made.special, share=9, unknown=made.unknown, count=made.count + 1000), shape)


def _ollama_body(made: Samples) -> list[Json]:
    body = _sample(made, provider_shapes()["ollama"], done=True, done_reason="length")
    body["message"] = {"role": "assistant", "content": made.text()} | body.get("message", {})
    for call in body["message"].get("tool_calls") or ():
        call["function"] = {"name": "f"} | call.get("function", {})
    return [body]


def _ollama_stream(made: Samples) -> list[Json]:
    first, last = _ollama_body(made)[0], _ollama_body(made)[0]
    same: Json = {name: last[name] for name in ("model", "created_at") if name in last}
    return [{"message": first["message"], "done": False} | same, last]


_BODIES: Mapping[str, Callable[[Samples], list[Json]]] = {
    CHAT: _chat_body,
    RESPONSES: _responses_body,
    MESSAGES: _messages_body,
    GEMINI: _gemini_body,
    BEDROCK: _bedrock_body,
    COHERE: _cohere_body,
    OLLAMA: _ollama_body,
}
PROVIDERS = tuple(_BODIES)
_STREAMS: Mapping[str, Callable[[Samples], list[Json]]] = {
    CHAT: _chat_stream,
    RESPONSES: _responses_stream,
    MESSAGES: _messages_stream,
    GEMINI: _gemini_stream,
    BEDROCK: _bedrock_stream,
    COHERE: _cohere_stream,
    OLLAMA: _ollama_stream,
}
# Members that say what an event is and where it belongs, or that every event repeats.
_STRUCTURE = frozenset(
    (
        "id", "object", "created", "created_at", "model", "type", "index", "role", "sequence_number", "output_index",
        "item_id", "content_index", "contentBlockIndex", "status", "done", "obfuscation", "responseId", "modelVersion",
    )
)  # fmt: skip
EXCEPTIONS: Mapping[str, str] = {
    "usage.cacheDetails": "parts of the tokens that are written into the cache",
    "TokensDetails.": "parts of counts, by modality",
    "image.format": "png is the default value",
    "usage.billed_units.input_tokens": "what is charged; the counts of the model are carried",
    "usage.billed_units.output_tokens": "what is charged; the counts of the model are carried",
    **dict.fromkeys(
        ("start_index", "end_index", "citations.startIndex", "citations.endIndex", "segment."),
        "the position of a citation, which covers a whole text in Messages",
    ),
    "truncation": "the default value",
    "parallel_tool_calls": "the default value",
    "tool_choice": "the default value",
    "service_tier": "the default value",
}
