"""The APIs of the benchmarks: how a client asks, what a provider streams, and how a client knows the end.

Another API is one more row of `APIS`.
"""

import json
import re
from collections.abc import Callable
from typing import NamedTuple

TEXT = "@0000000000000 "
"""The text of each delta. A provider writes the time there, of the clock that all processes of a machine share."""
_MESSAGES = [{"role": "user", "content": "hi"}]


class Api(NamedTuple):
    """One API, as bytes: the parts of a stream, of which deltas are sent as often as is asked for."""

    name: str
    """The name of its provider in the configuration."""
    dialect: str
    path: str
    """Where clients and the gateway ask; in some APIs it names the model."""
    fields: dict[str, object]
    opening: bytes
    """What precedes the first delta; may be nothing."""
    delta: Callable[[int], bytes]
    """The delta with this number, from zero on."""
    closing: Callable[[int], bytes]
    """The end of an answer with this many deltas."""
    mark: bytes
    """The member of each delta that is its text."""
    end: bytes
    """What the body of every whole answer ends with, as the gateway writes it."""
    ends_with_text: bool = False
    """Whether the closing has a text too, which counts as the last delta."""

    def request(self, model: str) -> bytes:
        """A whole request for a stream."""
        return request(self.path.format(model=model), {"model": model, "stream": True, **self.fields})

    def text_pattern(self) -> re.Pattern[bytes]:
        """Finds the text of each delta, in the JSON of any writer."""
        return re.compile(rb'"%b": ?"@(\d{13}) ' % self.mark)


def request(path: str, body: dict[str, object]) -> bytes:
    """A whole request."""
    data = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "host: localhost", "content-type: application/json"]
    return "\r\n".join([*lines, f"content-length: {len(data)}", "", ""]).encode() + data


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
_DELTA = _named("content_block_delta", index=0, delta={"type": "text_delta", "text": TEXT})
# Anthropic adds spaces before the last bracket, of which there are sometimes more and sometimes less.
_DELTAS = [_DELTA[:-3] + b" " * (7 * number % 15) + b"}\n\n" for number in range(15)]


# OpenAI Responses, with the members of each event in OpenAI's order.
_ITEM: dict[str, object] = {"id": "msg_bench", "type": "message", "status": "in_progress", "content": []}
_PLACE: dict[str, object] = {"content_index": 0, "item_id": "msg_bench", "output_index": 0}
_RESPONSE: dict[str, object] = {
    "id": "resp_bench",
    "object": "response",
    "created_at": 1_700_000_000,
    "status": "in_progress",
    "model": "bench",
    "output": [],
    "usage": None,
}


def _numbered(first: int, *events: dict[str, object]) -> bytes:
    numbered = (event | {"sequence_number": number} for number, event in enumerate(events, first))
    return b"".join(_event(event, named=True) for event in numbered)


def _responses_part(text: str) -> dict[str, object]:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


_RESPONSES_OPENING: tuple[dict[str, object], ...] = (
    {"type": "response.created", "response": _RESPONSE},
    {"type": "response.in_progress", "response": _RESPONSE},
    {"type": "response.output_item.added", "output_index": 0, "item": _ITEM | {"role": "assistant"}},
    {"type": "response.content_part.added", **_PLACE, "part": _responses_part("")},
)


def _responses_delta(number: int) -> bytes:
    """OpenAI pads a delta with letters, and sends its number last."""
    fields: dict[str, object] = {"type": "response.output_text.delta", "content_index": 0, "delta": TEXT}
    fields |= {"item_id": "msg_bench", "logprobs": [], "obfuscation": "QwErTyUiOpAsDfG"[number % 15 :]}
    return _numbered(len(_RESPONSES_OPENING) + number, fields | {"output_index": 0})


def _responses_closing(deltas: int) -> bytes:
    text = TEXT * deltas
    part = _responses_part(text)
    item = _ITEM | {"status": "completed", "content": [part], "role": "assistant"}
    usage = {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 100,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 109,
    }
    return _numbered(
        len(_RESPONSES_OPENING) + deltas,
        {"type": "response.output_text.done", **_PLACE, "logprobs": [], "text": text},
        {"type": "response.content_part.done", **_PLACE, "part": part},
        {"type": "response.output_item.done", "item": item, "output_index": 0},
        {
            "type": "response.completed",
            "response": _RESPONSE | {"status": "completed", "output": [item], "usage": usage},
        },
    )


def _gemini_message(text: str, candidates: int, **fields: object) -> bytes:
    """A message of Gemini: its usage is that of the answer so far, and its lines end with CRLF."""
    content = {"parts": [{"text": text}], "role": "model"}
    usage = {
        "promptTokenCount": 9,
        "candidatesTokenCount": candidates,
        "totalTokenCount": 9 + candidates,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 9}],
    }
    message: dict[str, object] = {"candidates": [{"content": content, **fields, "index": 0}], "usageMetadata": usage}
    return _event(message | {"modelVersion": "bench", "responseId": "bench"}).replace(b"\n", b"\r\n")


APIS = (
    Api(
        name="chat",
        dialect="openai_chat",
        path="/v1/chat/completions",
        fields={"messages": _MESSAGES},
        opening=_chunk({"role": "assistant", "content": ""}),
        delta=lambda _: _chunk({"content": TEXT}),
        closing=lambda _: _chunk({}, "stop", usage=_USAGE) + b"data: [DONE]\n\n",
        mark=b"content",
        end=b"data: [DONE]\n\n",
    ),
    Api(
        name="messages",
        dialect="anthropic_messages",
        path="/v1/messages",
        fields={"max_tokens": 1_000, "messages": _MESSAGES},
        opening=_named("message_start", message=_MESSAGE)
        + _named("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        delta=lambda number: _DELTAS[number % 15],
        closing=lambda _: (
            _named("content_block_stop", index=0)
            + _named(
                "message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 100}
            )
            + _named("message_stop")
        ),
        mark=b"text",
        end=b'data: {"type":"message_stop"}\n\n',
    ),
    Api(
        name="responses",
        dialect="openai_responses",
        path="/v1/responses",
        fields={"input": _MESSAGES},
        opening=_numbered(0, *_RESPONSES_OPENING),
        delta=_responses_delta,
        closing=_responses_closing,
        mark=b"delta",
        end=b"}\n\n",
    ),
    Api(
        name="gemini",
        dialect="gemini",
        path="/v1/models/{model}:streamGenerateContent?alt=sse",
        fields={"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
        opening=b"",
        delta=lambda number: _gemini_message(TEXT, 3 * (number + 1)),
        closing=lambda deltas: _gemini_message(TEXT, 3 * deltas, finishReason="STOP"),
        mark=b"text",
        end=b"}\r\n\r\n",
        ends_with_text=True,
    ),
)
