"""What the search of `tests/cpu.py` sends: shells, which surround the repeated units, and the atoms of units.

`%b` in a shell is the place of the units. Events and requests have shells for each dialect. The shells of FRAMING have
no dialect: their bytes are for every reader.
"""

CHAT, MESSAGES, RESPONSES = "openai_chat", "anthropic_messages", "openai_responses"
_CHUNK = (
    b'{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"sluice-1","choices":[%b]%b}'
)
_CHOICE = b'{"index":0,"delta":{%b},"finish_reason":null%b}'
_CALL = b'"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":%b}}]'
_MESSAGE = (
    b'{"type":"message","id":"msg_1","role":"assistant","model":"sluice-1","content":[%b],"stop_reason":"end_turn",'
    b'"usage":{"input_tokens":1,"output_tokens":1}}'
)
_RESPONSE = (
    b'{"id":"resp_1","object":"response","created_at":1700000000,"status":"completed","model":"sluice-1",'
    b'"output":[%b],"usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}%b}'
)
_TEXT_ITEM = b'{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[%b]}'
_TEXT_PART = b'{"type":"output_text","text":"a","annotations":[%b]}'


def _in_delta(inner: bytes) -> bytes:
    return b"data: %b\n\n" % (_CHUNK % (_CHOICE % (inner, b""), b""))


def _in_block(inner: bytes) -> bytes:
    return b'data: {"type":"content_block_start","index":0,"content_block":{%b}}\n\n' % inner


def _in_block_delta(inner: bytes) -> bytes:
    start = _in_block(b'"type":"text","text":""')
    return start + b'data: {"type":"content_block_delta","index":0,"delta":{%b}}\n\n' % inner


def _in_event(type: bytes, inner: bytes) -> bytes:
    return b'data: {"type":"response.%b","sequence_number":1,"output_index":0,%b}\n\n' % (type, inner)


def _item(inner: bytes) -> bytes:
    return _in_event(b"output_item.done", b'"item":%b' % inner)


def _in_part(type: bytes, inner: bytes) -> bytes:
    start = _in_event(b"output_item.added", b'"item":{"type":"message","id":"msg_1","content":[]}')
    return start + _in_event(type, b'"content_index":0,"item_id":"msg_1",%b' % inner)


FRAMING: dict[str, bytes] = {
    "an event": b"data: %b\n\n",
    "an event that breaks off": b"data: %bx\n\n",
    "an event that is cut": b"data: %b",
    "an event in several lines": b"data: {\ndata: %b\ndata: }\n\n",
    "lines after an event": b'data: {"x":"' + b"x" * 200_000 + b'"}\n%b',
    "a stream": b"%b",
    "an array": b"[{},%b",
    "a list": b"data: [%b{}]\n\n",
    "a string": b'data: "%b"\n\n',
    "an object": b'data: {%b"":0}\n\n',
    "an error": b'data: {"error":[%b0]}\n\n',
    "an error's words": b'data: {"error":{"message":"%b"}}\n\n',
    "an error event": b"event: error\ndata: {%b}\n\n",
}
EVENTS: dict[str, dict[str, bytes]] = {
    CHAT: FRAMING
    | {
        "choices": b"data: " + _CHUNK % (b"%b{}", b"") + b"\n\n",
        "a field of the chunk": b"data: " + _CHUNK % (b"", b',"x":[%b0]') + b"\n\n",
        "fields of the chunk": b"data: " + _CHUNK % (b"", b',%b"x":0') + b"\n\n",
        "a choice's index": b"data: " + _CHUNK % (b'{"index":[%b0]}', b"") + b"\n\n",
        "usage": b"data: " + _CHUNK % (b"", b',"usage":{%b"x":0}') + b"\n\n",
        "log probabilities": b"data: "
        + _CHUNK % (_CHOICE % (b'"content":"a"', b',"logprobs":{"content":[%b0]}'), b"")
        + b"\n\n",
        "a message": b"data: "
        + _CHUNK % (b'{"index":0,"message":{"content":[%b""]},"finish_reason":"stop"}', b"")
        + b"\n\n",
        "text": _in_delta(b'"content":"%b"'),
        "text of a part": _in_delta(b'"content":[{"type":"text","text":"%b"}]'),
        "parts of content": _in_delta(b'"content":[%b""]'),
        "fields of a delta": _in_delta(b'%b"x":0'),
        "a field of a delta": _in_delta(b'"x":[%b0]'),
        "an object in a delta": _in_delta(b'"x":{%b"x":0}'),
        "text of reasoning": _in_delta(b'"reasoning_content":"%b"'),
        "reasoning": _in_delta(b'"reasoning_details":[%b0]'),
        "thoughts": _in_delta(b'"content":[{"type":"thinking","thinking":[%b0]}]'),
        "fields of a tool call": _in_delta(b'"tool_calls":[{"index":0,%b"id":"a"}]'),
        "tool calls": _in_delta(b'"tool_calls":[%b{}]'),
        "arguments": _in_delta(_CALL % b'"%b"'),
        "arguments as an object": _in_delta(_CALL % b'{"a":[%b0]}'),
        "input as an object": _in_delta(
            b'"tool_calls":[{"index":0,"id":"a","type":"custom","custom":{"name":"f","input":{"a":[%b0]}}}]'
        ),
    },
    MESSAGES: FRAMING
    | {
        "blocks of a body": _MESSAGE % b'%b{"type":"text","text":"a"}',
        "blocks of a start": b'data: {"type":"message_start","message":{"id":"m","content":[%b{}]}}\n\n',
        "citations of a body": _MESSAGE % b'{"type":"text","text":"a","citations":[%b{}]}',
        "citations of a block": _in_block(b'"type":"text","text":"a","citations":[%b{}]'),
        "a citation": _in_block_delta(b'"type":"citations_delta","citation":{%b"x":0}'),
        "text of a block": _in_block(b'"type":"text","text":"%b"'),
        "text": _in_block_delta(b'"type":"text_delta","text":"%b"'),
        "thoughts": _in_block_delta(b'"type":"thinking_delta","thinking":"%b"'),
        "fields of a block": _in_block(b'"type":"text",%b"text":""'),
        "a field of a block": _in_block(b'"type":"text","text":"","x":[%b0]'),
        "a block of an unknown type": _in_block(b'"type":"x","x":[%b0]'),
        "fields of an unknown block": _in_block(b'"type":"x",%b"x":0'),
        "a delta of an unknown type": _in_block_delta(b'"type":"x","x":[%b0]'),
        "input": _in_block(b'"type":"tool_use","id":"a","name":"f","input":{"a":[%b0]}'),
        "input in pieces": _in_block(b'"type":"tool_use","id":"a","name":"f","input":{}')
        + b'data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"%b"}}\n\n',
        "usage": b'data: {"type":"message_delta","delta":{},"usage":{%b"x":0}}\n\n',
        "iterations": b'data: {"type":"message_delta","delta":{},"usage":{"iterations":[%b{}]}}\n\n',
        "fields of a message": b'data: {"type":"message_delta","delta":{%b"x":0}}\n\n',
        "an unknown event": b'data: {"type":"x","x":[%b0]}\n\n',
    },
    RESPONSES: FRAMING
    | {
        "items of a body": _RESPONSE % (b"%b{}", b""),
        "parts of a body": _RESPONSE % (_TEXT_ITEM % b"%b{}", b""),
        "annotations of a body": _RESPONSE % (_TEXT_ITEM % (_TEXT_PART % b"%b{}"), b""),
        "summaries of a body": _RESPONSE % (b'{"type":"reasoning","summary":[%b{}]}', b""),
        "fields of a body": _RESPONSE % (b"", b',%b"x":0'),
        "text of a body": _RESPONSE % (_TEXT_ITEM % b'{"type":"output_text","text":"%b"}', b""),
        "items of the end": _in_event(b"completed", b'"response":' + _RESPONSE % (b"%b{}", b"")),
        "parts of the end": _in_event(b"completed", b'"response":' + _RESPONSE % (_TEXT_ITEM % b"%b{}", b"")),
        "tools": _in_event(b"created", b'"response":{"tools":[%b{}]}'),
        "tools of the end": _in_event(b"completed", b'"response":' + _RESPONSE % (b"", b',"tools":[%b{}]')),
        "fields of a start": _in_event(b"created", b'"response":{%b"x":0}'),
        "fields of the end": _in_event(b"completed", b'"response":' + _RESPONSE % (b"", b',%b"x":0')),
        "usage": _in_event(b"completed", b'"response":{"output":[],"usage":{%b"x":0}}'),
        "tool usage": _in_event(
            b"completed", b'"response":{"output":[],"usage":{"server_side_tool_usage_details":{%b"x":0}}}'
        ),
        "a failed response": _in_event(b"failed", b'"response":{"status":"failed","error":[%b0]}'),
        "why it is incomplete": _in_event(b"incomplete", b'"response":{"incomplete_details":{%b"reason":"x"}}'),
        "parts of an item": _item(_TEXT_ITEM % b"%b{}"),
        "annotations of an item": _item(_TEXT_ITEM % (_TEXT_PART % b"%b{}")),
        "summaries": _item(b'{"type":"reasoning","summary":[%b{}]}'),
        "parts of reasoning": _item(b'{"type":"reasoning","summary":[],"content":[%b{}]}'),
        "a seal": _item(b'{"type":"reasoning","summary":[],"encrypted_content":"%b"}'),
        "fields of an item": _item(b'{"type":"message",%b"id":"msg_1"}'),
        "an item that is announced": _in_event(b"output_item.added", b'"item":' + _TEXT_ITEM % b"%b{}"),
        "an item of an unknown type": _item(b'{"type":"x","x":[%b0]}'),
        "fields of an unknown item": _item(b'{"type":"x",%b"x":0}'),
        "an unknown item that is announced": _in_event(b"output_item.added", b'"item":{"type":"x","x":[%b0]}'),
        "a picture": _item(b'{"type":"image_generation_call","id":"ig_1","result":"%b"}'),
        "arguments as an object": _item(b'{"type":"function_call","name":"f","call_id":"a","arguments":{"a":[%b0]}}'),
        "arguments": _item(b'{"type":"function_call","name":"f","call_id":"a","arguments":"%b"}'),
        "input": _item(b'{"type":"custom_tool_call","name":"f","call_id":"a","input":"%b"}'),
        "arguments in pieces": _in_event(b"output_item.added", b'"item":{"type":"function_call","name":"f"}')
        + _in_event(b"function_call_arguments.delta", b'"delta":"%b"'),
        "text": _in_part(b"output_text.delta", b'"delta":"%b"'),
        "log probabilities": _in_part(b"output_text.delta", b'"delta":"a","logprobs":[%b0]'),
        "whole text": _in_part(b"output_text.done", b'"text":"%b"'),
        "log probabilities of a whole text": _in_part(b"output_text.done", b'"text":"a","logprobs":[%b0]'),
        "a refusal": _in_part(b"refusal.delta", b'"delta":"%b"'),
        "annotations of a part": _in_part(b"content_part.done", b'"part":' + _TEXT_PART % b"%b{}"),
        "a part that is announced": _in_part(b"content_part.added", b'"part":{"type":"output_text","text":"%b"}'),
        "fields of a part": _in_part(b"content_part.done", b'"part":{"type":"x",%b"x":0}'),
        "an annotation": _in_part(b"output_text.annotation.added", b'"annotation":{%b"x":0}'),
        "an event of an unknown item": _in_event(b"output_item.added", b'"item":{"type":"x"}')
        + _in_event(b"x.searching", b'"x":[%b0]'),
        "an unknown event": _in_event(b"x", b'"x":[%b0]'),
        "fields of an unknown event": _in_event(b"x", b'%b"x":0'),
    },
}
BEGINNINGS: dict[str, bytes] = {
    CHAT: b"data: " + _CHUNK % (_CHOICE % (b'"role":"assistant","content":""', b""), b"") + b"\n\n",
    MESSAGES: b"event: message_start\n"
    b'data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"sluice-1",'
    b'"content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}}\n\n',
    RESPONSES: b"event: response.created\n"
    b'data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response",'
    b'"created_at":1700000000,"status":"in_progress","model":"sluice-1","output":[]}}\n\n',
}
_ASKED = b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}],"stream":true,%b}'
_SENT = b'{"model":"m","max_tokens":9,"messages":[%b]}'
_MESSAGE_REQUESTS: dict[str, bytes] = {
    "a field": _ASKED % b'"x":[%b0]',
    "fields": _ASKED % b'%b"x":0',
    "a string": _ASKED % b'"x":"%b"',
    "metadata": _ASKED % b'"metadata":{%b"x":"y"}',
    "a user": _ASKED % b'"user":"%b"',
    "tools": _ASKED % b'"tools":[%b{}]',
    "a key that stands twice": _ASKED % b'"stream":true,"x":[%b0]',
    "messages": _SENT % b'%b{"role":"user","content":"Hi"}',
    "parts": _SENT % b'{"role":"user","content":[%b"Hi"]}',
    "parts of an assistant": _SENT % b'{"role":"assistant","content":[%b"Hi"]},{"role":"user","content":"Hi"}',
    "calls": _SENT % b'{"role":"assistant","content":null,"tool_calls":[%b{}]},{"role":"user","content":"Hi"}',
    "text": _SENT % b'{"role":"user","content":"%b"}',
    "system": b'{"model":"m","max_tokens":9,"system":[%b{}],"messages":[{"role":"user","content":"Hi"}]}',
    "a schema": _ASKED % b'"tools":[{"name":"f","type":"function","input_schema":{%b"x":0}}]',
    "parameters": _ASKED % b'"tools":[{"type":"function","function":{"name":"f","parameters":{%b"x":0}}}]',
    "a body": b"%b",
    "input": b'{"model":"m","input":[%b0]}',
}
REQUESTS: dict[str, dict[str, bytes]] = {
    CHAT: _MESSAGE_REQUESTS,
    MESSAGES: _MESSAGE_REQUESTS,
    RESPONSES: {
        "a field": b'{"model":"m","input":"Hi","x":[%b0]}',
        "fields": b'{"model":"m","input":"Hi",%b"x":0}',
        "tools": b'{"model":"m","input":"Hi","tools":[%b{}]}',
        "items": b'{"model":"m","input":[%b{"role":"user","content":"Hi"}]}',
        "parts": b'{"model":"m","input":[{"role":"user","content":[%b{}]}]}',
        "output of a tool": b'{"model":"m","input":[{"type":"function_call_output","call_id":"a","output":[%b{}]}]}',
        "summaries": b'{"model":"m","input":[{"type":"reasoning","summary":[%b{}]}]}',
        "text": b'{"model":"m","input":"%b"}',
        "instructions": b'{"model":"m","input":"Hi","instructions":"%b"}',
        "a body": b"%b",
    },
}
ERRORS: dict[str, bytes] = {
    "an error body": b'{"error":{"message":"no","x":[%b0]}}',
    "words of an error body": b'{"error":{"message":"%b"}}',
    "an error body in words": b"%b",
}
ATOMS: tuple[bytes, ...] = (
    b"{}",
    b"[]",
    b"{",
    b"[",
    b"}",
    b"]",
    b",",
    b":",
    b'"',
    b'""',
    b'"a"',
    b"0",
    b"1",
    b"-1",
    b"1.5",
    b"1e23",
    b"1e308",
    b"5e-324",
    b"9007199254740993.0",
    b"null",
    b"true",
    b"NaN",
    b"Infinity",
    b"\\",
    b"\\\\",
    b'\\"',
    b"\\n",
    b"\\u0041",
    b"\\ud83d",
    b"\\ud83d\\ude00",
    b"\xff",
    b"\xc3\xa9",
    b"\xe2\x80\xa8",
    b"\t",
    b"\x01",
    b" ",
    b"\n",
    b"\r",
    b"\r\n",
    b"data:",
    b"data: ",
    b"event: error\n",
    b"event:x\n",
    b":\n",
    b"id:1\n",
    b"[DONE]",
    b"data: [DONE]\n\n",
    b"%41",
    b"&amp;",
    b"%2541",
    b"sk-a-provider",
    b"data:{}\n\n",
    b"{}\n",
    b"1" * 400,
    b"1" * 4000,
    b"x",
    b"xxxxxxxx",
    b'{"a":0}',
    b'"a":0',
    b'"a":{}',
    b'{"index":0}',
    b'{"index":1,"delta":{}}',
    b'{"delta":{"content":"a"}}',
    b'{"type":"text","text":"a"}',
    b'{"text":"a"}',
    b'{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}',
    b'{"id":"b","function":{"name":"g"}}',
    b'{"index":0,"function":{"arguments":"{"}}',
    b'{"choices":[]}',
    b'{"choices":[{"delta":{"content":"a"}}]}',
    b'{"error":"a"}',
    b'{"message":"a"}',
    b'{"usage":{"prompt_tokens":1}}',
    b'"usage":null',
    b'{"role":"user","content":"Hi"}',
    b'{"token":"Hello","logprob":-0.31725305,"bytes":[72,101,108,108,111],"top_logprobs":[]}',
    b'{"finish_reason":"stop"}',
    b'{"type":"text"}',
    b'{"type":"x"}',
    b'{"type":"thinking","thinking":"a","signature":"a"}',
    b'{"type":"tool_use","id":"a","name":"f","input":{}}',
    b'{"type":"tool_result","tool_use_id":"a","content":"a"}',
    b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
    b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}',
    b'{"type":"content_block_stop"}',
    b'{"type":"message_delta","usage":{"output_tokens":1}}',
    b'{"type":"message","role":"user","content":"Hi"}',
    b'{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}',
    b'{"type":"function_call_output","call_id":"a","output":"a"}',
    b'{"type":"function","function":{"name":"f","parameters":{}}}',
    b'{"name":"f","input_schema":{}}',
    b'{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]}',
    b'{"role":"tool","tool_call_id":"a","content":"a"}',
    b'{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]}',
    b'{"role":"user","content":[{"type":"text","text":"a"}]}',
    b'{"type":"output_text","text":"a"}',
    b'{"type":"refusal","refusal":"a"}',
    b'{"type":"summary_text","text":"a"}',
    b'{"type":"url_citation","url":"a","title":"a","start_index":0,"end_index":1}',
    b'{"type":"message","content":[{"type":"output_text","text":"a"}]}',
    b'{"type":"reasoning","summary":[{"text":"a"}],"encrypted_content":"a"}',
    b'{"type":"custom_tool_call","call_id":"a","name":"f","input":"a"}',
    b'{"type":"image_generation_call","result":"a"}',
    b'{"type":"response.output_item.added","output_index":0,"item":{"type":"message"}}',
    b'{"type":"response.output_text.delta","output_index":0,"delta":"a"}',
    b'{"type":"response.output_item.done","output_index":0,"item":{"type":"x"}}',
)
"""The smallest parts of units."""
NUMBER = b"\0"
"""In a unit: a number that differs each time."""
