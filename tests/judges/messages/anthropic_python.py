"""The official `anthropic` package for Python, asked in this process."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from anthropic import Anthropic, APIStatusError, AsyncAnthropic, DefaultAsyncHttpxClient, DefaultHttpxClient
from anthropic.types import Message

from tests.judges.messages.asks import Ask, Failure, Report, Seen, SeenCall
from tests.messages import Json

NO_RESULT = "no such city"


class AnthropicPython:
    """The package, sync and async."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._responses: list[Any] = []
        self._sent_text = ""

        async def note(response: object) -> None:
            self._responses.append(response)

        hooks = {"response": [self._responses.append]}
        self._client = Anthropic(api_key="none", http_client=DefaultHttpxClient(trust_env=False, event_hooks=hooks))
        self._async_client = AsyncAnthropic(
            api_key="none", http_client=DefaultAsyncHttpxClient(trust_env=False, event_hooks={"response": [note]})
        )

    def close(self) -> None:
        """Close its connections."""
        self._client.close()
        self._runner.run(self._async_client.close())
        self._runner.close()

    def ask(self, ask: Ask) -> Report:
        """Put it to the gateway."""
        self._responses.clear()
        self._sent_text = ""
        turns: list[Seen] = []
        failure: Failure | None = None
        body = _body(ask)
        try:
            while True:
                message = _WAYS[ask.way](self, ask, body)
                turns.append(_seen(message))
                if message.stop_reason != "tool_use" or not ask.results:
                    break
                results = [_result(block, ask) for block in message.content if block.type == "tool_use"]
                body["messages"] += [
                    {"role": "assistant", "content": message.content},
                    {"role": "user", "content": results},
                ]
        except Exception as error:  # noqa: BLE001 - whatever it is, the application gets it
            status = error.status_code if isinstance(error, APIStatusError) else None
            failure = Failure(type(error).__name__, str(error), status, getattr(error, "type", None))
        return Report(
            turns=turns,
            sent_text=self._sent_text,
            error=failure,
            statuses=[response.status_code for response in self._responses],
            headers=dict(self._responses[-1].headers) if self._responses else {},
        )

    def _create(self, ask: Ask, body: Json) -> Message:
        """The raw events, added up by hand."""
        whole = _Sum()
        with self._client.with_options(**_options(ask)).messages.create(stream=True, **body) as stream:
            for event in stream:
                self._sent_text += whole.add(event)
        return whole.message()

    def _create_async(self, ask: Ask, body: Json) -> Message:
        async def read() -> Message:
            whole = _Sum()
            client = self._async_client.with_options(**_options(ask))
            async with await client.messages.create(stream=True, **body) as stream:
                async for event in stream:
                    self._sent_text += whole.add(event)
            return whole.message()

        return self._runner.run(read())

    def _stream(self, ask: Ask, body: Json) -> Message:
        with self._client.with_options(**_options(ask)).messages.stream(**body) as stream:
            for text in stream.text_stream:
                self._sent_text += text
            return stream.get_final_message()

    def _stream_async(self, ask: Ask, body: Json) -> Message:
        async def read() -> Message:
            async with self._async_client.with_options(**_options(ask)).messages.stream(**body) as stream:
                async for text in stream.text_stream:
                    self._sent_text += text
                return await stream.get_final_message()

        return self._runner.run(read())

    def _plain(self, ask: Ask, body: Json) -> Message:
        return self._client.with_options(**_options(ask)).messages.create(**body)

    def _plain_async(self, ask: Ask, body: Json) -> Message:
        async def read() -> Message:
            return await self._async_client.with_options(**_options(ask)).messages.create(**body)

        return self._runner.run(read())


_WAYS: dict[str, Callable[[AnthropicPython, Ask, Json], Message]] = {
    "create": AnthropicPython._create,
    "create async": AnthropicPython._create_async,
    "stream": AnthropicPython._stream,
    "stream async": AnthropicPython._stream_async,
    "plain": AnthropicPython._plain,
    "plain async": AnthropicPython._plain_async,
}


_DELTAS = ("text_delta", "thinking_delta", "signature_delta", "input_json_delta")


class _Sum:
    """Accumulates events as an application without the helper does; raises if an event is out of order."""

    def __init__(self) -> None:
        self._message: Json = {}
        self._open: dict[int, Json] = {}
        self._json: dict[int, str] = {}
        self._stopped = False

    def add(self, event: Any) -> str:
        """Add one event; returns its text."""
        assert not self._stopped, f"an event after message_stop: {event}"
        match event.type:
            case "message_start":
                assert not self._message
                self._message = event.message.to_dict()
            case "content_block_start":
                assert event.index == len(self._message["content"])
                self._open[event.index] = event.content_block.to_dict()
                self._message["content"].append(self._open[event.index])
            case "content_block_delta":
                late = event.delta.type == "signature_delta"  # some providers sign a block that has ended
                block = self._message["content"][event.index] if late else self._open[event.index]
                return self._add_delta(block, event.index, event.delta)
            case "content_block_stop":
                block = self._open.pop(event.index)
                if event.index in self._json:
                    block["input"] = _decoded(self._json[event.index])
            case "message_delta":
                assert not self._open
                self._message |= event.delta.to_dict()
                self._message["usage"] |= event.usage.to_dict()
            case "message_stop":
                self._stopped = True
            case _:
                pass  # only a provider of the same API can have sent it
        return ""

    def _add_delta(self, block: Json, index: int, delta: Any) -> str:
        match block["type"], delta.type:
            case "text", "text_delta":
                block["text"] += delta.text
                return str(delta.text)
            case "thinking", "thinking_delta":
                block["thinking"] += delta.thinking
            case "thinking", "signature_delta":
                block["signature"] += delta.signature
            case (("tool_use" | "server_tool_use" | "mcp_tool_use"), "input_json_delta"):
                self._json[index] = self._json.get(index, "") + delta.partial_json
            case pair if delta.type in _DELTAS:
                raise AssertionError(f"a delta in the wrong block: {pair}")
            case _:
                pass
        return ""

    def message(self) -> Message:
        """The whole message."""
        assert self._stopped, "no message_stop"
        return Message.construct(**self._message)


def _decoded(text: str) -> object:
    return msgspec.json.decode(text or "{}")


def _options(ask: Ask) -> Json:
    return {
        "api_key": ask.key,
        "base_url": ask.base_url,
        "max_retries": ask.max_retries,
        "timeout": ask.timeout_s,
    }


def _body(ask: Ask) -> Json:
    body: Json = {
        "model": ask.model,
        "max_tokens": ask.max_tokens,
        "messages": [{"role": "user", "content": [_block(part) for part in ask.parts]}],
    }
    if ask.system:
        body["system"] = ask.system
    if ask.tools:
        schema = {"type": "object", "properties": {"city": {"type": "string"}}}
        body["tools"] = [{"name": name, "description": name, "input_schema": schema} for name in ask.tools]
    if ask.thinking:
        body["thinking"] = {"type": "enabled", "budget_tokens": 1_024}
    if ask.stop:
        body["stop_sequences"] = ask.stop
    return body


def _block(part: Json) -> Json:
    if "image" not in part:
        return {"type": "text", "text": part["text"]}
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": part["image"]}}


def _result(call: Any, ask: Ask) -> Json:
    result: Json = {"type": "tool_result", "tool_use_id": call.id}
    if call.name not in ask.results:
        return result | {"content": NO_RESULT, "is_error": True}
    return result | {"content": [_block(part) for part in ask.results[call.name]]}


def _seen(message: Message) -> Seen:
    usage = message.usage
    assert (message.type, message.role) == ("message", "assistant")
    return Seen(
        id=message.id,
        model=message.model,
        text="".join(block.text for block in message.content if block.type == "text"),
        thinking="".join(block.thinking for block in message.content if block.type == "thinking"),
        signature="".join(block.signature for block in message.content if block.type == "thinking"),
        calls=[SeenCall(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"],
        stop=message.stop_reason,
        stop_sequence=message.stop_sequence,
        usage={
            "input": usage.input_tokens,
            "output": usage.output_tokens,
            "cache_read": usage.cache_read_input_tokens or 0,
        },
        blocks=[block.type for block in message.content],
    )
