"""Streams broken at random: the source of unforeseen bytes for the fuzzer and the property tests.

Every function takes the `random.Random` to draw from, so that a case is reproducible by its seed.
"""

import json
from random import Random

from tests.event_streams import framed

# Byte sequences that tend to be special to a reader of streams, inserted anywhere.
TOKENS: tuple[bytes, ...] = (
    b"data: ", b"data:", b"data", b"event: error\n", b"event: ping\n", b"id: 1\n", b"retry: 1\n", b": comment\n",
    b"error: ", b"\n", b"\n\n", b"\r", b"\r\n", b"\r\r", b" ", b"\t", b"\0",
    b"\xef\xbb\xbf", b"\x1f\x8b", b"\xff", b"\xc3", b"\xe2\x80\xa8",
    b"[DONE]", b"data: [DONE]\n\n", b'"[DONE]"', b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"<html>",
    b"null", b"true", b"0", b"-1", b"1e999", b"NaN", b'""', b"{}", b"[]", b"[{", b"\\ud83c", b"\\udf0d", b"\\u0000",
    b'{"error":{"message":"boom"}}', b'data: {"error":null}\n\n', b'data: {"choices":null}\n\n',
    b'data: {"choices":[{"index":1,"delta":{"role":"assistant"}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f"}}]}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"arguments":"}"}}]}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
    b'data: {"choices":[{"index":0,"message":{"content":"whole"},"finish_reason":"stop"}]}\n\n',
    b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}\n\n',
    b"event: content_block_delta\n", b"event: message_stop\n", b'data: {"type":"message_stop"}\n\n',
    b'data: {"type":"message_start","message":{"id":"msg_w1","usage":{"input_tokens":9}}}\n\n',
    b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"The"}}\n\n',
    b'data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"a","name":"f"}}\n\n',
    b'data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"}"}}\n\n',
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}\n\n',
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2VhbA=="}}\n\n',
    b'data: {"type":"content_block_stop","index":0}\n\n',
    b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}\n\n',
    b"event: response.output_text.delta\n", b"event: response.completed\n", b'"sequence_number":3,',
    b'data: {"type":"response.created","response":{"id":"resp_w2","model":"weir-3"}}\n\n',
    b'data: {"type":"response.output_item.added","output_index":0,"item":{"id":"m","type":"message"}}\n\n',
    b'data: {"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","name":"f"}}\n\n',
    b'data: {"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"delta":"The"}\n\n',
    b'data: {"type":"response.function_call_arguments.delta","output_index":1,"delta":"}"}\n\n',
    b'data: {"type":"response.reasoning_summary_text.delta","item_id":"rs_1","summary_index":1,"delta":"hm"}\n\n',
    b'data: {"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","summary":[]}}\n\n',
    b'data: {"type":"response.completed","response":{"status":"completed","output":[]}}\n\n',
    b'data: {"type":"response.incomplete","response":{"incomplete_details":{"reason":"content_filter"}}}\n\n',
    b'data: {"type":"response.failed","response":{"error":{"message":"boom"}}}\n\n',
    b'data: {"candidates":[{"content":{"parts":[{"text":"The"}]},"index":0}]}\n\n',
    b'data: {"candidates":[{"content":{"parts":[{"text":"hm","thought":true,"thoughtSignature":"c2VhbA=="}]}}]}\n\n',
    b'data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":1}}}]}}]}\n\n',
    b'data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","willContinue":true}}]}}]}\n\n',
    b'{"functionCall":{"partialArgs":[{"jsonPath":"$.a[0].b","stringValue":"x","willContinue":true}]}},',
    b'data: {"candidates":[{"content":{"parts":[{"functionCall":{}}]}}]}\n\n', b'{"text":"x"},', b'{"thought":true},',
    b'data: {"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"image/png","data":"AA=="}}]}}]}\n\n',
    b'data: {"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":3}}\n\n',
    b'data: {"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL","index":1}]}\n\n',
    b'data: {"promptFeedback":{"blockReason":"SAFETY"}}\n\n',
    b'{"error":"boom"}\n', b'{"model":"weir-3","message":{"role":"assistant","content":"The"},"done":false}\n',
    b'{"model":"weir-3","message":{"content":"","thinking":"hm"},"done":false}\n', b'{"model":"w","done":true}\n',
    b'{"model":"weir-3","message":{"tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]},"done":false}\n',
    b'{"model":"weir-3","response":"The","done":true,"done_reason":"length","eval_count":3}\n',
    b'data: {"type":"message-start","id":"co_2"}\n\n', b"event: content-delta\n", b"event: message-end\n",
    b'data: {"type":"content-start","index":1,"delta":{"message":{"content":{"type":"text","text":"The"}}}}\n\n',
    b'data: {"type":"content-delta","index":0,"delta":{"message":{"content":{"thinking":"hm"}}}}\n\n',
    b'data: {"type":"tool-plan-delta","delta":{"message":{"tool_plan":"hm"}}}\n\n',
    b'data: {"type":"tool-call-start","delta":{"message":{"tool_calls":{"id":"a","function":{"name":"f"}}}}}\n\n',
    b'data: {"type":"tool-call-delta","index":0,"delta":{"message":{"tool_calls":{"function":{"arguments":"}"}}}}}\n\n',
    b'data: {"type":"citation-start","index":0,"delta":{"message":{"citations":{"start":1,"text":"x"}}}}\n\n',
    b'data: {"type":"content-end","index":0}\n\n',
    b'data: {"type":"message-end","delta":{"finish_reason":"COMPLETE","usage":{"tokens":{"output_tokens":5}}}}\n\n',
    b'data: {"type":"message-end","delta":{"finish_reason":"ERROR","error":"boom"}}\n\n',
)  # fmt: skip

KEYS = (
    "id", "object", "created", "model", "choices", "usage", "error", "index", "delta", "message", "text", "role",
    "finish_reason", "native_finish_reason", "logprobs", "content", "refusal", "tool_calls", "function_call",
    "function", "custom", "name", "arguments", "input", "type", "reasoning", "reasoning_content",
    "reasoning_details", "thinking", "x_groq", "base_resp", "detail", "prompt_tokens",
    "completion_tokens", "total_tokens", "audio", "annotations",
    "content_block", "partial_json", "signature", "citation", "citations", "stop_reason", "stop_sequence",
    "input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation", "iterations", "data",
    "sequence_number", "response", "output", "output_index", "content_index", "summary_index", "item", "item_id",
    "part", "status", "summary", "encrypted_content", "call_id", "namespace", "phase", "annotation",
    "incomplete_details", "candidates", "parts", "thought", "thoughtSignature", "functionCall", "args", "partialArgs",
    "jsonPath", "stringValue", "numberValue", "willContinue", "inlineData", "mimeType", "executableCode",
    "finishReason", "finishMessage", "promptFeedback", "blockReason", "usageMetadata", "promptTokenCount",
    "candidatesTokenCount", "thoughtsTokenCount", "groundingMetadata", "modelVersion", "responseId",
    "done", "done_reason", "prompt_eval_count", "eval_count", "created_at", "tool_plan", "tokens", "billed_units",
    "cached_tokens", "sources", "document", "url", "start", "end", "contentBlockIndex", "toolUse", "toolUseId",
    "toolResult", "reasoningContent", "reasoningText", "redactedContent", "image", "source", "bytes", "format",
    "citationsContent", "location", "web", "stopReason", "inputTokens", "outputTokens", "totalTokens",
    "cacheReadInputTokens", "cacheDetails", "ttl", "metrics", "serviceTier", "additionalModelResponseFields",
)  # fmt: skip


def any_json(random: Random, depth: int = 0) -> object:
    """A JSON value of any kind, with keys that mean something to a reader."""
    kind = random.randrange(12 if depth < 3 else 9)
    if kind >= 10:
        return {random.choice(KEYS): any_json(random, depth + 1) for _ in range(random.randrange(4))}
    if kind == 9:
        return [any_json(random, depth + 1) for _ in range(random.randrange(3))]
    simple: tuple[object, ...] = (None, True, 0, -1, 1.5, "", "stop", "text \u2028 \U0001f30d", 10**20)
    return simple[kind]


def mutated(data: bytes, other: bytes, random: Random) -> bytes:
    """The stream with one to six random changes; `other` is another stream to splice from.

    Of an AWS event stream, messages are changed, and most of them get the right checksums: so the changes are read.
    """
    messages = messages_of(data)
    if messages and random.random() < 0.9:
        return mutated_messages(messages, messages_of(other), random)
    for _ in range(random.randrange(1, 7)):
        data = random.choice(_MUTATIONS)(data, other, random)
    return data


def split(data: bytes, random: Random, bytewise: float = 0.02) -> list[bytes]:
    """The bytes in pieces. The share `bytewise` of the cases is split into single bytes; in the others, stretches of
    single bytes, of short and of long pieces follow one another, some of them empty: that takes a tenth of the time.
    """
    if random.random() < bytewise:
        return [data[place : place + 1] for place in range(len(data))]
    pieces: list[bytes] = []
    start = 0
    while start < len(data):
        longest = random.choice((1, 3, 40, 400))
        for size in random.choices(range(longest + 1), k=12):
            if (size or pieces) and start < len(data):
                pieces.append(data[start : start + size])
            start += size
    return pieces


def _cut(data: bytes, _: bytes, random: Random) -> bytes:
    return data[: random.randint(0, len(data))]


def _drop(data: bytes, _: bytes, random: Random) -> bytes:
    start = random.randint(0, len(data))
    return data[:start] + data[start + random.choice((1, 2, 5, 30, 300)) :]


def _insert(data: bytes, _: bytes, random: Random) -> bytes:
    start = random.randint(0, len(data))
    return data[:start] + random.choice(TOKENS) + data[start:]


def _insert_at_line(data: bytes, _: bytes, random: Random) -> bytes:
    lines = data.split(b"\n")
    lines.insert(random.randint(0, len(lines)), random.choice(TOKENS))
    return b"\n".join(lines)


def _flip(data: bytes, _: bytes, random: Random) -> bytes:
    if not data:
        return data
    start = random.randrange(len(data))
    return data[:start] + bytes((random.randrange(256),)) + data[start + 1 :]


def _repeat(data: bytes, _: bytes, random: Random) -> bytes:
    lines = data.split(b"\n")
    start = random.randrange(len(lines))
    piece = lines[start : start + random.randint(1, 4)]
    return b"\n".join(lines[:start] + piece + lines[start:])


def _swap_lines(data: bytes, _: bytes, random: Random) -> bytes:
    lines = data.split(b"\n")
    a, b = random.randrange(len(lines)), random.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return b"\n".join(lines)


def _splice(data: bytes, other: bytes, random: Random) -> bytes:
    return data[: random.randint(0, len(data))] + other[random.randint(0, len(other)) :]


def _line_ends(data: bytes, _: bytes, random: Random) -> bytes:
    return data.replace(random.choice((b"\n\n", b"\n")), random.choice((b"\n", b"\r\n", b"\r", b"\n\n", b" \n")))


def _unprefix(data: bytes, _: bytes, random: Random) -> bytes:
    return data.replace(b"data: ", random.choice((b"", b"data:", b"data:\n", b" data: ")), random.choice((1, -1)))


def _change_json(data: bytes, _: bytes, random: Random) -> bytes:
    """Another value, of any kind, for one key of one chunk; or a new key."""
    lines = data.split(b"\n")
    number = random.randrange(len(lines))
    prefix = b"data: " if lines[number].startswith(b"data: ") else b""
    try:
        chunk = json.loads(lines[number].removeprefix(prefix))
    except (ValueError, RecursionError):
        return data
    places: list[dict[str, object]] = []
    _objects(chunk, places)
    if places:
        place = random.choice(places)
        key = random.choice([*place, random.choice(KEYS)])
        if key in place and random.random() < 0.3:
            del place[key]
        else:
            place[key] = any_json(random)
    lines[number] = prefix + json.dumps(chunk, ensure_ascii=random.random() < 0.5).encode(errors="replace")
    return b"\n".join(lines)


def _objects(value: object, found: list[dict[str, object]]) -> None:
    if isinstance(value, dict):
        found.append(value)
        for item in value.values():
            _objects(item, found)
    elif isinstance(value, list):
        for item in value:
            _objects(item, found)


_MUTATIONS = (
    _cut, _drop, _insert, _insert, _insert_at_line, _flip, _repeat, _swap_lines, _splice, _line_ends, _unprefix,
    _change_json, _change_json, _change_json, _change_json,
)  # fmt: skip


# AWS event streams.

Headers = list[tuple[bytes, int, bytes]]
"""The name, the type and the value of each header."""
Messages = list[tuple[Headers, bytes]]
"""The headers and the payload of each message."""
_HEADER_VALUES = (
    b"messageStart", b"contentBlockStart", b"contentBlockDelta", b"contentBlockStop", b"messageStop", b"metadata",
    b"chunk", b"event", b"exception", b"error", b"throttlingException", b"application/json", b"", b"\xff", b"ping",
)  # fmt: skip
_HEADER_NAMES = (b":event-type", b":message-type", b":exception-type", b":error-code", b":error-message", b"x", b"")


def messages_of(data: bytes) -> Messages:
    """The messages of an event stream whose headers have text; none if the data is not one."""
    found: Messages = []
    while len(data) >= 16:
        total, size = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:8], "big")
        if not 16 + size <= total <= len(data):
            return []
        headers, place = [], 12
        while place < 12 + size:
            value = place + 1 + data[place] + 3
            end = value + int.from_bytes(data[value - 2 : value], "big")
            headers.append((data[place + 1 : value - 3], data[value - 3], data[value:end]))
            place = end
        found.append((headers, data[12 + size : total - 4]))
        data = data[total:]
    return found


def mutated_messages(messages: Messages, other: Messages, random: Random) -> bytes:
    """The messages with one to six random changes. One in twenty streams also gets a wrong byte."""
    for _ in range(random.randrange(1, 7)):
        if not messages:
            break
        number = random.randrange(len(messages))
        headers, payload = messages[number]
        kind = random.randrange(12)
        if kind < 4:
            messages[number] = headers, _change_json(payload, b"", random)
        elif kind < 6:
            donor = random.choice(other)[1] if other else b""
            messages[number] = headers, random.choice(_MUTATIONS)(payload, donor, random)
        elif kind < 8:
            messages[number] = _changed_headers(headers, random), payload
        elif kind == 8:
            del messages[number]
        elif kind == 9:
            messages.insert(random.randint(0, len(messages)), messages[number])
        elif kind == 10:
            messages = messages[:number] + other[random.randint(0, len(other)) :]
        else:
            swapped = random.randrange(len(messages))
            messages[number], messages[swapped] = messages[swapped], messages[number]
    data = b"".join(framed(written_headers(headers), payload) for headers, payload in messages)
    return random.choice((_flip, _cut, _drop, _insert))(data, b"", random) if random.random() < 0.05 else data


def written_headers(headers: Headers) -> bytes:
    """The headers as bytes."""
    return b"".join(
        bytes((len(name),)) + name + bytes((type,)) + (len(value).to_bytes(2, "big") if type in (6, 7) else b"") + value
        for name, type, value in headers
    )


def _changed_headers(headers: Headers, random: Random) -> Headers:
    changed = [*headers]
    place = random.randint(0, len(changed))
    name, value = random.choice(_HEADER_NAMES), random.choice(_HEADER_VALUES)
    if place == len(changed) or random.random() < 0.2:
        changed.insert(place, (name, 7, value))
    elif random.random() < 0.2:
        del changed[place]
    else:
        type = random.choice((7, 7, 7, 7, 6, random.randrange(12)))
        changed[place] = (changed[place][0] if random.random() < 0.8 else name), type, value
    return changed
