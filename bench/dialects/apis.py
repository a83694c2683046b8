"""The APIs whose relay is compared: how a client asks, what a provider streams, and how a client knows the end.

Another API is one more row of `APIS`.
"""

import json
from typing import NamedTuple

_TEXT = "the tide "


class Api(NamedTuple):
    """One API, as bytes: the parts of a stream, of which `deltas` are sent as often as is asked for."""

    name: str
    """The name of its provider in the configuration."""
    dialect: str
    path: str
    fields: dict[str, object]
    opening: bytes
    deltas: tuple[bytes, ...]
    """Sent in turns."""
    closing: bytes
    mark: bytes
    """What every delta has, and nothing else: clients count it."""
    end: bytes
    """What the body of every whole answer ends with, as the gateway writes it."""

    def request(self, model: str) -> bytes:
        """A whole request for a stream."""
        messages = [{"role": "user", "content": "hi"}]
        body = json.dumps({"model": model, "stream": True, "messages": messages, **self.fields}).encode()
        lines = [f"POST {self.path} HTTP/1.1", "host: localhost", "content-type: application/json"]
        return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


def _chunk(delta: dict[str, object], finish: str | None = None, **fields: object) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    chunk = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "bench"}
    return _event({**chunk, "system_fingerprint": "fp_bench", "choices": [choice], **fields})


def _event(data: dict[str, object], *, named: bool = False) -> bytes:
    name = f"event: {data['type']}\n" if named else ""
    return f"{name}data: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


def _named(type: str, **fields: object) -> bytes:
    return _event({"type": type, **fields}, named=True)


_USAGE = {"prompt_tokens": 9, "completion_tokens": 100, "total_tokens": 109}
_MESSAGE: dict[str, object] = {
    "id": "msg_bench",
    "type": "message",
    "role": "assistant",
    "model": "bench",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 9, "output_tokens": 1},
}
_DELTA = _named("content_block_delta", index=0, delta={"type": "text_delta", "text": _TEXT})
APIS = (
    Api(
        name="chat",
        dialect="openai_chat",
        path="/v1/chat/completions",
        fields={},
        opening=_chunk({"role": "assistant", "content": ""}),
        deltas=(_chunk({"content": _TEXT}),),
        closing=_chunk({}, "stop", usage=_USAGE) + b"data: [DONE]\n\n",
        mark=_TEXT.encode(),
        end=b"data: [DONE]\n\n",
    ),
    Api(
        name="messages",
        dialect="anthropic_messages",
        path="/v1/messages",
        fields={"max_tokens": 1_000},
        opening=_named("message_start", message=_MESSAGE)
        + _named("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        # Anthropic adds spaces before the last bracket, of which there are sometimes more and sometimes less.
        deltas=tuple(_DELTA[:-3] + b" " * (7 * number % 15) + b"}\n\n" for number in range(15)),
        closing=_named("content_block_stop", index=0)
        + _named(
            "message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 100}
        )
        + _named("message_stop"),
        mark=_TEXT.encode(),
        end=b'data: {"type":"message_stop"}\n\n',
    ),
)
