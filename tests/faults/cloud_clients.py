"""Clients of Cohere and of Bedrock, with a provider of every API: they play a share of the rows of faults."""

import json
import re
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote

from botocore.eventstream import EventStreamBuffer

from tests import bedrock, cohere
from tests.faults.client import Response, post
from tests.faults.dialects import CHAT, PROVIDERS, Client, Pair

_FINISHES = {"COMPLETE": "stop", "end_turn": "stop"}
_NEVER = re.compile(rb"(?!)")


@dataclass
class CohereResponse(Response):
    """An answer to a client of Cohere, in the terms of `Response`. Its stream has no codes of errors."""

    codes_in_streams: ClassVar[bool] = False

    @property
    def events(self) -> list[Any]:
        """The data of each event; each has its name, and the framing is flawless. Comments are ignored."""
        assert self.body.endswith(b"\n\n"), f"the last event has no end: {self.body[-80:]!r}"
        found = []
        for block in self.body.decode().removesuffix("data: [DONE]\n\n").split("\n\n")[:-1]:
            if block.startswith(":"):
                continue
            name, data = block.split("\n")
            found.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {found[-1]['type']}"
        assert [event["type"] for event in found].index("message-end") == len(found) - 1
        return found

    @property
    def done(self) -> bool:
        return self._end["finish_reason"] != "ERROR" and self.body.endswith(b"data: [DONE]\n\n")

    @property
    def error(self) -> Any:
        if self.streamed:
            return {"code": None, "message": self._end["error"]} if "error" in self._end else None
        return self.json | {"request_id": self.json["id"]} if "finish_reason" not in self.json else None

    @property
    def text(self) -> str:
        if not self.streamed:
            return "".join(part["text"] for part in self.json["message"].get("content", ()))
        deltas = [event["delta"]["message"] for event in self.events if event["type"] == "content-delta"]
        return "".join(delta["content"]["text"] for delta in deltas)

    @property
    def finish(self) -> str | None:
        reason = self._end["finish_reason"]
        return None if reason == "ERROR" else _FINISHES[reason]

    @property
    def usage(self) -> tuple[int, int] | None:
        found = self._end.get("usage")
        return (found["tokens"]["input_tokens"], found["tokens"]["output_tokens"]) if found else None

    @property
    def _end(self) -> Any:
        return self.events[-1]["delta"] if self.streamed else self.json


@dataclass
class BedrockResponse(Response):
    """An answer to a client of Converse, in the terms of `Response`, by botocore. Its stream has no codes of errors."""

    codes_in_streams: ClassVar[bool] = False

    @property
    def streamed(self) -> bool:
        return self.headers.get("content-type", "") == "application/vnd.amazon.eventstream"

    @property
    def events(self) -> list[tuple[str, Any]]:
        """The name and the data of each message. An exception is the last one, and nothing is behind the messages."""
        buffer = EventStreamBuffer()
        buffer.add_data(self.body)
        found, size = [], 0
        for message in buffer:
            size += message.prelude.total_length
            name = message.headers.get(":event-type") or message.headers[":exception-type"]
            found.append((name, json.loads(message.payload)))
        assert size == len(self.body)
        assert not any(name.endswith("Exception") for name, _ in found[:-1])
        return found

    @property
    def done(self) -> bool:
        return self.events[-1][0] == "metadata"

    @property
    def error(self) -> Any:
        if self.streamed:
            name, value = self.events[-1]
            return {"code": None, "message": value["message"]} if name.endswith("Exception") else None
        if "__type" not in self.json:
            return None
        message, code = re.fullmatch(r"(.*) \((\w+)\)", self.json["message"], re.DOTALL).groups()  # type: ignore[union-attr]
        return {"message": message, "code": code, "request_id": self.request_id}

    @property
    def text(self) -> str:
        if not self.streamed:
            return "".join(part["text"] for part in self.json["output"]["message"]["content"])
        return "".join(value["delta"]["text"] for name, value in self.events if name == "contentBlockDelta")

    @property
    def finish(self) -> str | None:
        if not self.streamed:
            return _FINISHES[self.json["stopReason"]]
        reasons = [value["stopReason"] for name, value in self.events if name == "messageStop"]
        assert len(reasons) <= 1
        return _FINISHES[reasons[0]] if reasons else None

    @property
    def usage(self) -> tuple[int, int] | None:
        found = (self.events[-1][1] if self.streamed else self.json).get("usage")
        return (found["inputTokens"], found["outputTokens"]) if found and found["outputTokens"] else None


class BedrockClient(Client):
    """A client whose path has the model, and whether the answer is streamed."""

    def content(self, model: str, *, stream: bool, **fields: object) -> bytes:  # noqa: ARG002
        return json.dumps({"messages": [{"role": "user", "content": [{"text": "Hi"}]}]} | fields).encode()

    def request(self, model: str, *, stream: bool, **fields: object) -> bytes:
        path = f"/model/{quote(model, safe='')}/converse{'-stream' if stream else ''}"
        return post(self.content(model, stream=stream, **fields), path=path)


COHERE_CLIENT = Client(cohere.DIALECT, "/v2/chat", re.compile(rb": penstock\n\n"), CohereResponse)
BEDROCK_CLIENT = BedrockClient(bedrock.DIALECT, "", _NEVER, BedrockResponse)
CLOUD_PAIRS = [Pair(client, provider) for client in (COHERE_CLIENT, BEDROCK_CLIENT) for provider in PROVIDERS.values()]
"""A share of the rows whose outcome depends on the APIs is played for these."""
WITH_CHAT_PROVIDERS = [pair for pair in CLOUD_PAIRS if pair.provider == CHAT]
