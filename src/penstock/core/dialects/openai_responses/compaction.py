"""The OpenAI Responses dialect, compaction: `POST /v1/responses/compact`.

A provider that has the endpoint (`compaction` in its settings) gets the client's request. Any other is asked for a
summary of the conversation: the same conversation, with `_INSTRUCTION` as its last message, and no tool may be called.
Codex asks for the same in a request for a response, whose last item is a `compaction_trigger`: then the answer is a
response with the compaction item alone. The item's `encrypted_content` is

- a provider's, wrapped with the issuer that made it (`core/hub/seals.py`): no other account can read it;
- or a summary, sealed for the client's key. It becomes a message again before a request is read (`open`), so that every
  provider can go on with it.
"""

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw

from penstock.core.dialects.bodies import FIELDS, decode_members, refused
from penstock.core.dialects.openai_responses.stored import StoredResponses
from penstock.core.dialects.openai_responses.surface import failures_in_stream, read_client_request
from penstock.core.dialects.openai_responses.vocabulary import COMPACTIONS, SUMMARISED, Json
from penstock.core.hub.failure import Failure, RequestError
from penstock.core.hub.request import ClientRequest
from penstock.core.json.getters import list_of, object_of, objects_of, text_of

_INSTRUCTION = (
    "The conversation above is about to be replaced by your summary of it, because it has become long. Write a summary "
    "with which another model can go on as if it had read everything. Do not answer the conversation, and call no "
    "tool. Keep: what the user wants, with all requirements and preferences, in the user's own words where they "
    "matter; what was decided, and why; what was done and found, with the exact names of files, functions, commands, "
    "ids, values and error messages; what is not finished, and the next steps. Write plain text without an "
    "introduction."
)
# Members of a request that an answer depends on, and its summary does not.
_DROPPED = (
    *("context_management", "include", "max_output_tokens", "max_tool_calls", "parallel_tool_calls"),
    *("stream", "stream_options", "text", "top_logprobs", "truncation"),
)
_TRIGGER = "compaction_trigger"
# Members of a request for a response that one to compact its conversation has too.
_OF_COMPACTION = frozenset(
    (
        *("model", "input", "instructions", "previous_response_id", "prompt_cache_key", "service_tier", "stream"),
        *("tools", "parallel_tool_calls", "reasoning", "text", "metadata", "user", "safety_identifier"),
    )
)
_ITEMS = msgspec.json.Decoder(list[Raw])
_NO_USAGE = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}


class ResponsesCompaction:
    """`Compaction` of the Responses API."""

    name = "compact"
    path = "/responses/compact"
    prefix = "penstock-summary1."
    mark = b'"compaction'

    def is_triggered(self, body: bytes) -> bool:
        """Whether a request for a response asks to compact the conversation instead. Few do."""
        if self.mark not in body:
            return False
        try:
            items = list_of(FIELDS.decode(decode_members(body, ("input",)).values.get("input", Raw(b"null"))))
        except (RequestError, ValueError):
            return False  # the request is refused when it is read
        return bool(items) and object_of(items[-1]).get("type") == _TRIGGER

    def read_request(self, body: bytes, headers: Mapping[str, str]) -> ClientRequest:
        """The request for a summary, which has the client's own as `compacts`. Raises `RequestError`."""
        triggered = self.is_triggered(body)
        given = read_client_request(_without_trigger(body) if triggered else body, headers)
        if given.stream and not triggered:
            raise refused("a compaction is not streamed; leave out `stream`", param="stream")
        items = StoredResponses().new_input(given.members)
        asked = msgspec.json.encode({"type": "message", "role": "user", "content": _INSTRUCTION})
        changes: dict[str, Raw | None] = {name: None for name in _DROPPED if name in given.members.values}
        changes["input"] = Raw(b"%b,%b]" % (items[:-1], asked) if items[1:-1].strip() else b"[%b]" % asked)
        changes["store"] = Raw(b"false")
        if given.members.values.keys() & {"tools", "tool_choice"}:
            callable_ = [tool for tool in objects_of(given.fields.get("tools")) if tool.get("type") in _CLIENT_TOOLS]
            changes["tools"] = Raw(msgspec.json.encode(callable_)) if callable_ else None
            changes["tool_choice"] = Raw(b'"none"') if callable_ else None
        request = read_client_request(given.members.edited(changes), headers)
        request.compacts, request.unkept = given.members, True
        if not triggered:
            request.echo = {}
        elif given.stream:
            request.failures_in_stream = failures_in_stream(headers)
        return request

    def write(self, asked: bytes, data: bytes, call_id: str, seal: Callable[[str], str]) -> tuple[bytes, bool]:
        """The response to a client that has asked so, made of the body of an answer, and whether it is a stream. Raises
        `RequestError` if the answer has no summary."""
        answer = object_of(FIELDS.decode(data))
        output = objects_of(answer.get("output"))
        if not any(item.get("type") in COMPACTIONS for item in output):
            if answer.get("status") != "completed" or not (text := _text(output)):
                raise RequestError(_NO_SUMMARY)
            output = [{"type": "compaction", "id": f"cmp_{call_id}", "encrypted_content": seal(text)}]
        if self.is_triggered(asked):
            items = [item for item in output if item.get("type") in COMPACTIONS]
            response = answer | {"object": "response", "status": "completed", "output": items}
            if object_of(FIELDS.decode(asked)).get("stream"):
                return _stream(response), True
        else:
            response = {
                "id": answer.get("id"),
                "object": "response.compaction",
                "created_at": answer.get("created_at"),
                "output": output,
                "usage": answer.get("usage") or _NO_USAGE,
            }
        return msgspec.json.encode(response), False

    def open(self, body: bytes, unseal: Callable[[str], str | None]) -> bytes:
        """A request with its summaries as messages. Raises `RequestError` if one was not sealed for this client."""
        members = decode_members(body, ("input",))
        given = members.values.get("input", Raw(b""))
        if self.prefix.encode() not in bytes(given) or not bytes(given).startswith(b"["):
            return body  # without items, or only with words about a summary
        items: list[Raw] = []
        for raw in _ITEMS.decode(given):
            item = object_of(FIELDS.decode(raw)) if self.prefix.encode() in bytes(raw) else {}
            sealed = text_of(item.get("encrypted_content")) if item.get("type") in COMPACTIONS else ""
            if sealed.startswith(self.prefix):
                if (text := unseal(sealed)) is None:
                    raise refused(_FOREIGN, param="input")
                raw = Raw(msgspec.json.encode({"type": "message", "role": "user", "content": SUMMARISED.format(text)}))
            items.append(raw)
        return members.edited({"input": Raw(msgspec.json.encode(items))})


# Tools that the client executes: calls of them are in the conversation, and some providers want their definitions then.
_CLIENT_TOOLS = ("function", "custom", "namespace")
_NO_SUMMARY = Failure(
    code="upstream_bad_response", message="the model did not write a summary of the conversation", retryable=True
)
_FOREIGN = (
    "`input` has a compacted conversation that this gateway did not make for this key, or that was changed; leave it "
    "out, and send the conversation itself"
)


def _without_trigger(body: bytes) -> bytes:
    """A request for a response as one to compact its conversation."""
    members = decode_members(body, ("input",))
    items = _ITEMS.decode(members.values["input"])[:-1]
    others: dict[str, Raw | None] = {name: None for name in members.values if name not in _OF_COMPACTION}
    return members.edited(others | {"input": Raw(msgspec.json.encode(items))})


def _stream(response: Json) -> bytes:
    """A response with whole items, as a stream."""
    begun = response | {"status": "in_progress", "output": [], "usage": None, "completed_at": None}
    events: list[Json] = [{"type": "response.created", "response": begun}]
    events += [
        {"type": f"response.output_item.{verb}", "output_index": index, "item": item}
        for index, item in enumerate(objects_of(response["output"]))
        for verb in ("added", "done")
    ]
    events.append({"type": "response.completed", "response": response})
    numbered = (event | {"sequence_number": number} for number, event in enumerate(events))
    written = (f"event: {event['type']}\ndata: ".encode() + msgspec.json.encode(event) + b"\n\n" for event in numbered)
    return b"".join((*written, b"data: [DONE]\n\n"))


def _text(output: list[Json]) -> str:
    """The text of the messages."""
    parts = (part for item in output if item.get("type") == "message" for part in list_of(item.get("content")))
    return "".join(text_of(object_of(part).get("text")) for part in parts).strip()
