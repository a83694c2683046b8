"""`POST /v1/chat/completions`: the client's side of a call, in the OpenAI chat dialect."""

import time
from collections.abc import Callable, Mapping
from typing import ClassVar

from penstock.core.completion import Completion
from penstock.core.dialects.openai_chat.body import write_body
from penstock.gateway.pipeline import Gateway
from penstock.gateway.request import ChatRequest, parse
from penstock.serve.responses import JSON, STREAM_LINES, call_headers, call_lines
from penstock.serve.surfaces.client import SurfaceClient
from penstock.serve.surfaces.surface import Surface


class ChatCompletions(Surface[ChatRequest]):
    """The surface for chats."""

    def __init__(self, calls: dict[SurfaceClient, None], over: Callable[[SurfaceClient], None]) -> None:
        super().__init__(calls, over, parse, ChatClient, Gateway.answer)


class Playground(ChatCompletions):
    """The same, for whoever tries the gateway by its page: such calls are told from others by a tag."""

    tags: ClassVar[Mapping[str, str]] = {"via": "playground"}


class ChatClient(SurfaceClient):
    """The client of one chat."""

    def begin(self) -> None:
        """Send the head of a streamed answer, if it was not sent yet."""
        exchange = self._exchange
        if not exchange.begun:
            self.call.status = 200
            exchange.begin(STREAM_LINES + call_lines(self.call))

    def end(self, data: bytes) -> None:
        """Send the last bytes of the stream, and end the body."""
        self._settle()  # first: what the client has seen the end of is accounted for
        self._exchange.end(data)

    def answer(self, completion: Completion) -> None:
        """Send a whole, unstreamed answer."""
        self.call.status = 200
        body = write_body(
            completion, id=f"chatcmpl-{self.call.id}", model=self.call.attempts[-1].model, created=int(time.time())
        )
        self._settle()
        self._exchange.respond(200, {"content-type": JSON} | call_headers(self.call), body)
