"""The official `openai` package for Python, asked in this process."""

import asyncio
from collections.abc import Callable
from typing import Any

from openai import (
    APIStatusError,
    AsyncOpenAI,
    ContentFilterFinishReasonError,
    DefaultAsyncHttpxClient,
    DefaultHttpxClient,
    LengthFinishReasonError,
    OpenAI,
)
from openai.types.chat import ChatCompletionChunk

from tests.judges.cases import Seen
from tests.judges.gateway.asks import Ask, Failure, Report
from tests.judges.openai_seen import seen_in_chunks, seen_in_completion

# What `get_final_completion()` raises, by design, for an answer that is not all the model had to say.
_CUT_SHORT = (LengthFinishReasonError, ContentFilterFinishReasonError)


class OpenAIPython:
    """The package, sync and async."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._answers: list[Any] = []
        self._chunks: list[ChatCompletionChunk] = []

        async def note(response: object) -> None:
            self._answers.append(response)

        self._client = OpenAI(
            api_key="none",
            http_client=DefaultHttpxClient(trust_env=False, event_hooks={"response": [self._answers.append]}),
        )
        self._async_client = AsyncOpenAI(
            api_key="none",
            http_client=DefaultAsyncHttpxClient(trust_env=False, event_hooks={"response": [note]}),
        )

    def close(self) -> None:
        """Let go of its connections."""
        self._client.close()
        self._runner.run(self._async_client.close())
        self._runner.close()

    def ask(self, ask: Ask) -> Report:
        """Put it to the gateway."""
        self._answers.clear()
        self._chunks.clear()
        seen: Seen | None = None
        failure: Failure | None = None
        try:
            seen = _WAYS[ask.way](self, ask)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what the application gets
            status = error.status_code if isinstance(error, APIStatusError) else None
            code = getattr(error, "code", None)
            failure = Failure(type(error).__name__, str(error), status, None if code is None else str(code))
        return Report(
            seen=seen,
            sent_text="".join(chunk.choices[0].delta.content or "" for chunk in self._chunks if chunk.choices),
            error=failure,
            statuses=[answer.status_code for answer in self._answers],
            headers=dict(self._answers[-1].headers) if self._answers else {},
        )

    def _create(self, ask: Ask) -> Seen:
        client = self._client.with_options(**_options(ask))
        with client.chat.completions.create(stream=True, **_body(ask, stream=True)) as stream:
            for chunk in stream:
                self._chunks.append(chunk)
        return seen_in_chunks(self._chunks)

    def _create_async(self, ask: Ask) -> Seen:
        async def read() -> Seen:
            client = self._async_client.with_options(**_options(ask))
            async with await client.chat.completions.create(stream=True, **_body(ask, stream=True)) as stream:
                async for chunk in stream:
                    self._chunks.append(chunk)
            return seen_in_chunks(self._chunks)

        return self._runner.run(read())

    def _stream(self, ask: Ask) -> Seen:
        client = self._client.with_options(**_options(ask))
        with client.chat.completions.stream(**_body(ask, stream=True)) as stream:
            for event in stream:
                if event.type == "chunk":
                    self._chunks.append(event.chunk)
            try:
                return seen_in_completion(stream.get_final_completion())
            except _CUT_SHORT:
                return seen_in_completion(stream.current_completion_snapshot)

    def _stream_async(self, ask: Ask) -> Seen:
        async def read() -> Seen:
            client = self._async_client.with_options(**_options(ask))
            async with client.chat.completions.stream(**_body(ask, stream=True)) as stream:
                async for event in stream:
                    if event.type == "chunk":
                        self._chunks.append(event.chunk)
                try:
                    return seen_in_completion(await stream.get_final_completion())
                except _CUT_SHORT:
                    return seen_in_completion(stream.current_completion_snapshot)

        return self._runner.run(read())

    def _plain(self, ask: Ask) -> Seen:
        client = self._client.with_options(**_options(ask))
        return seen_in_completion(client.chat.completions.create(**_body(ask, stream=False)))

    def _plain_async(self, ask: Ask) -> Seen:
        client = self._async_client.with_options(**_options(ask))

        async def read() -> Seen:
            return seen_in_completion(await client.chat.completions.create(**_body(ask, stream=False)))

        return self._runner.run(read())


_WAYS: dict[str, Callable[[OpenAIPython, Ask], Seen]] = {
    "create": OpenAIPython._create,
    "create async": OpenAIPython._create_async,
    "stream": OpenAIPython._stream,
    "stream async": OpenAIPython._stream_async,
    "plain": OpenAIPython._plain,
    "plain async": OpenAIPython._plain_async,
}


def _options(ask: Ask) -> dict[str, Any]:
    return {
        "api_key": ask.key,
        "base_url": ask.base_url,
        "max_retries": ask.max_retries,
        "timeout": ask.timeout_s,
    }


def _body(ask: Ask, *, stream: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"model": ask.model, "messages": ask.messages}
    if ask.tools:
        body["tools"] = ask.tools
    if stream and ask.include_usage:
        body["stream_options"] = {"include_usage": True}
    return body
