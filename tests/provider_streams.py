"""Healthy streams of the dialects that only providers speak, for the fuzzer and the property tests."""

import json
from typing import Any

from tests.event_streams import event

Json = dict[str, Any]
THOUGHT, TEXT, ARGUMENTS = "Tides turn.", "High water at 6.", {"port": "Brest", "days": [1, 2.5]}


def _line(content: str = "", **fields: object) -> Json:
    message = {"role": "assistant", "content": content} | {
        name: fields.pop(name) for name in ("thinking", "tool_calls") if name in fields
    }
    return {"model": "weir-3", "created_at": "2026-11-17T08:00:00Z", "message": message, "done": False} | fields


def _lines(*lines: Json) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


_LAST = _line(done=True, done_reason="stop", total_duration=9, prompt_eval_count=7, eval_count=4)
_CALL = {"id": "call_1", "function": {"index": 0, "name": "get_tide", "arguments": ARGUMENTS}}
OLLAMA = {
    "text": _lines(_line("High water"), _line(" at 6."), _LAST),
    "thinking and a call": _lines(
        _line(thinking=THOUGHT), _line(TEXT), _line(tool_calls=[_CALL, _CALL | {"id": "call_2"}]), _LAST
    ),
    "unstreamed": json.dumps(_LAST | {"message": {"role": "assistant", "content": TEXT}}).encode(),
}


def _named(*events: Json) -> bytes:
    return b"".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events)


def _message(type: str, index: int, **message: object) -> Json:
    return {"type": type, "index": index, "delta": {"message": message}}


def _text(text: str) -> Json:
    return _message("content-delta", 0, content={"text": text})


_COHERE_USAGE = {
    "billed_units": {"input_tokens": 5, "output_tokens": 4},
    "tokens": {"input_tokens": 7, "output_tokens": 4},
    "cached_tokens": 2,
}
_COHERE_START = {"type": "message-start", "id": "co_1", "delta": {"message": {"role": "assistant", "content": []}}}
_COHERE_TEXT = (
    _message("content-start", 0, content={"type": "text", "text": ""}),
    _text("High water"),
    _text(" at 6."),
    {"type": "content-end", "index": 0},
)
_COHERE_CALL = {"id": "tide_1", "type": "function", "function": {"name": "get_tide", "arguments": ""}}
_CITATION = {
    "start": 11,
    "end": 15,
    "text": "at 6",
    "sources": [{"type": "document", "document": {"url": "https://tides.example/brest", "title": "Tides"}}],
}


def _cohere_end(reason: str) -> Json:
    return {"type": "message-end", "delta": {"finish_reason": reason, "usage": _COHERE_USAGE}}


_ARGUMENTS = json.dumps(ARGUMENTS)
COHERE = {
    "text": _named(_COHERE_START, *_COHERE_TEXT, _cohere_end("COMPLETE")) + b"data: [DONE]\n\n",
    "thinking and a call": _named(
        _COHERE_START,
        _message("content-start", 0, content={"type": "thinking", "thinking": ""}),
        _message("content-delta", 0, content={"thinking": "Tides"}),
        {"type": "content-end", "index": 0},
        *_COHERE_TEXT[:-1],
        _message("citation-start", 0, citations=_CITATION),
        {"type": "citation-end", "index": 0},
        _COHERE_TEXT[-1],
        {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": " turn."}}},
        _message("tool-call-start", 0, tool_calls=_COHERE_CALL),
        _message("tool-call-delta", 0, tool_calls={"function": {"arguments": _ARGUMENTS[:9]}}),
        _message("tool-call-delta", 0, tool_calls={"function": {"arguments": _ARGUMENTS[9:]}}),
        {"type": "tool-call-end", "index": 0},
        _cohere_end("TOOL_CALL"),
    ),
    "unstreamed": json.dumps(
        {
            "id": "co_1",
            "finish_reason": "TOOL_CALL",
            "message": {
                "role": "assistant",
                "tool_plan": THOUGHT,
                "content": [{"type": "text", "text": TEXT}],
                "tool_calls": [_COHERE_CALL | {"function": {"name": "get_tide", "arguments": _ARGUMENTS}}],
                "citations": [_CITATION],
            },
            "usage": _COHERE_USAGE,
        }
    ).encode(),
}


def _block(type: str, index: int, **fields: object) -> bytes:
    return event(f"contentBlock{type}", {"contentBlockIndex": index, "p": "abc", **fields})


_BEDROCK_START = event("messageStart", {"role": "assistant", "p": "abcdef"})
_BEDROCK_TEXT = tuple(_block("Delta", 1, delta={"text": text}) for text in ("High water", " at 6."))
_BEDROCK_USAGE: Json = {"inputTokens": 4, "outputTokens": 4, "totalTokens": 11, "cacheReadInputTokens": 2}
_BEDROCK_USAGE |= {"cacheWriteInputTokens": 1, "cacheDetails": [{"inputTokens": 1, "ttl": "1h"}]}
_METADATA = event("metadata", {"usage": _BEDROCK_USAGE, "metrics": {"latencyMs": 9}, "p": "ab"})


def _stop(reason: str) -> bytes:
    return event("messageStop", {"stopReason": reason, "p": "abcd"})


_TOOL_USE = {"toolUseId": "tooluse_1", "name": "get_tide"}
BEDROCK = {
    "text": b"".join((_BEDROCK_START, *_BEDROCK_TEXT, _block("Stop", 1), _stop("end_turn"), _METADATA)),
    "thinking and a call": b"".join(
        (
            _BEDROCK_START,
            _block("Delta", 0, delta={"reasoningContent": {"text": "Tides"}}),
            _block("Delta", 0, delta={"reasoningContent": {"text": " turn."}}),
            _block("Delta", 0, delta={"reasoningContent": {"signature": "c2ln"}}),
            _block("Stop", 0),
            *_BEDROCK_TEXT,
            _block("Stop", 1),
            _block("Start", 2, start={"toolUse": _TOOL_USE}),
            _block("Delta", 2, delta={"toolUse": {"input": _ARGUMENTS[:9]}}),
            _block("Delta", 2, delta={"toolUse": {"input": _ARGUMENTS[9:]}}),
            _block("Stop", 2),
            _stop("tool_use"),
            _METADATA,
        )
    ),
    "unstreamed": json.dumps(
        {
            "output": {
                "message": {
                    "role": "assistant",
                    "content": [
                        {"reasoningContent": {"reasoningText": {"text": THOUGHT, "signature": "c2ln"}}},
                        {"text": TEXT},
                        {"toolUse": _TOOL_USE | {"input": ARGUMENTS}},
                    ],
                }
            },
            "stopReason": "tool_use",
            "usage": _BEDROCK_USAGE,
            "metrics": {"latencyMs": 9},
        }
    ).encode(),
}
HEALTHY: dict[str, dict[str, bytes]] = {"ollama": OLLAMA, "cohere": COHERE, "bedrock_converse": BEDROCK}
"""By dialect."""
