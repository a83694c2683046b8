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


def _in_delta(inner: bytes) -> bytes:
    return b"data: %b\n\n" % (_CHUNK % (_CHOICE % (inner, b""), b""))


def _in_block(inner: bytes) -> bytes:
    return b'data: {"type":"content_block_start","index":0,"content_block":{%b}}\n\n' % inner


def _in_block_delta(inner: bytes) -> bytes:
    start = _in_block(b'"type":"text","text":""')
    return start + b'data: {"type":"content_block_delta","index":0,"delta":{%b}}\n\n' % inner


FRAMING: dict[str, bytes] = {
    "an event": b"data: %b\n\n",
    "an event that breaks off": b"data: %bx\n\n",
    "an event that is cut": b"data: %b",
    "an event in several lines": b"data: {\ndata: %b\ndata: }\n\n",
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
}
BEGINNINGS: dict[str, bytes] = {
    CHAT: b"data: " + _CHUNK % (_CHOICE % (b'"role":"assistant","content":""', b""), b"") + b"\n\n",
    MESSAGES: b"event: message_start\n"
    b'data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"sluice-1",'
    b'"content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}}\n\n',
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
)
"""The smallest parts of units."""
NUMBER = b"\0"
"""In a unit: a number that differs each time."""
