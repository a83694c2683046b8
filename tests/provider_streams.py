"""Healthy streams of the dialects that only providers speak, for the fuzzer and the property tests."""

import json
from typing import Any

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
    "thinking and a call": _lines(_line(thinking=THOUGHT), _line(TEXT), _line(tool_calls=[_CALL, _CALL]), _LAST),
    "unstreamed": json.dumps(_LAST | {"message": {"role": "assistant", "content": TEXT}}).encode(),
}
HEALTHY: dict[str, dict[str, bytes]] = {"ollama": OLLAMA}
"""By dialect."""
