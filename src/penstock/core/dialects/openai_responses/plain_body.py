"""Typed decoders for the usual unstreamed response (`PlainBody`).

They accept a completed response with all members that Open Responses demands: texts, refusals, reasoning that is not
encrypted, and calls of functions, with sound usage. Any other member, or another value, and the slow path reads it.
"""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct

from penstock.core.fast.format import Name, PlainBody
from penstock.core.hub.usage import ABSURD_TOKENS, Tokens
from penstock.core.wire.payload import is_json, is_too_deep

# In bytes, of all settings with objects in them. Above, the limits of the slow path decide.
_MAX_SETTINGS = 16_384
_Few = Meta(max_length=100)
_Count: TypeAlias = Annotated[int, Meta(ge=0, lt=ABSURD_TOKENS)]
_Time: TypeAlias = Annotated[int, Meta(ge=1, le=2**53)]
_Object: TypeAlias = dict[str, object]


class _ResponseText(Struct, forbid_unknown_fields=True, gc=False, tag="output_text"):
    text: Name
    annotations: tuple[()]
    logprobs: tuple[()]


class _Refusal(Struct, forbid_unknown_fields=True, gc=False, tag="refusal"):
    refusal: Name


class _ResponseMessage(Struct, forbid_unknown_fields=True, gc=False, tag="message"):
    id: Name
    status: Literal["completed"]
    role: Literal["assistant"]
    content: Annotated[list[_ResponseText | _Refusal], Meta(min_length=1), _Few]
    phase: Name | None = None

    @property
    def chars(self) -> int:
        return sum(len(part.text if isinstance(part, _ResponseText) else part.refusal) for part in self.content)


class _ResponseSummary(Struct, forbid_unknown_fields=True, gc=False):
    type: Literal["summary_text"]
    text: Name


class _Reasoning(Struct, forbid_unknown_fields=True, gc=False, tag="reasoning"):
    id: Name
    summary: Annotated[list[_ResponseSummary], _Few]
    content: tuple[()] | None = None
    encrypted_content: None = None
    status: None = None

    @property
    def chars(self) -> int:
        return sum(len(part.text) for part in self.summary)


class _ResponseCall(Struct, forbid_unknown_fields=True, gc=False, tag="function_call"):
    id: Name
    call_id: Name
    name: Name
    arguments: Annotated[str, Meta(pattern=r"^\{")]
    status: Literal["completed"]

    @property
    def chars(self) -> int:
        return len(self.name) + len(self.arguments)


class _ResponseInputDetails(Struct, forbid_unknown_fields=True, gc=False):
    cached_tokens: _Count
    cache_write_tokens: _Count = 0


class _ResponseOutputDetails(Struct, forbid_unknown_fields=True, gc=False):
    reasoning_tokens: _Count


class _ResponseUsage(Struct, forbid_unknown_fields=True, gc=False):
    input_tokens: _Count
    input_tokens_details: _ResponseInputDetails
    output_tokens: Annotated[int, Meta(ge=1, lt=ABSURD_TOKENS)]
    output_tokens_details: _ResponseOutputDetails
    total_tokens: _Count

    def tokens(self) -> Tokens | None:
        """The tokens to book; None if the counts are inconsistent."""
        input, output, reasoning = self.input_tokens, self.output_tokens, self.output_tokens_details.reasoning_tokens
        cached, written = self.input_tokens_details.cached_tokens, self.input_tokens_details.cache_write_tokens
        if self.total_tokens != input + output or cached + written > input or reasoning > output:
            return None
        return Tokens(input=input, output=output, cached=cached, cache_write=written, reasoning=reasoning)


class _Effort(Struct, forbid_unknown_fields=True, gc=False):
    effort: str | None
    summary: str | None


class _Plain(Struct, forbid_unknown_fields=True, gc=False, tag="text"):
    pass


class _Schema(Struct, forbid_unknown_fields=True, gc=False, tag="json_schema"):
    name: Name
    description: str | None
    schema: _Object
    strict: bool


class _TextSettings(Struct, forbid_unknown_fields=True, gc=False):
    format: _Plain | _Schema
    verbosity: str | None = None


class _ResponseFunction(Struct, forbid_unknown_fields=True, gc=False):
    type: Literal["function"]
    name: Name
    description: str | None
    parameters: _Object | None
    strict: bool | None


class _ResponseSettings(Struct, gc=False):
    text: _TextSettings
    tool_choice: str | _Object
    tools: Annotated[list[_ResponseFunction], _Few]
    tool_usage: _Object = {}


class _ResponseBody(Struct, forbid_unknown_fields=True, gc=False, kw_only=True):
    id: Name
    object: Literal["response"]
    created_at: _Time
    completed_at: _Time
    status: Literal["completed"]
    model: Name
    output: Annotated[list[_ResponseMessage | _Reasoning | _ResponseCall], Meta(min_length=1), _Few]
    usage: _ResponseUsage
    error: None
    incomplete_details: None
    background: bool
    frequency_penalty: float
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: Annotated[dict[str, str], _Few]
    parallel_tool_calls: bool
    presence_penalty: float
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: _Effort
    safety_identifier: str | None
    service_tier: Name
    store: bool
    temperature: float
    text: Raw
    tool_choice: Raw
    tools: Raw
    top_logprobs: int
    top_p: float
    truncation: str
    user: str | None
    tool_usage: Raw = Raw(b"{}")
    moderation: None = None
    prompt_cache_retention: str | None = None


_BODY = msgspec.json.Decoder(_ResponseBody)
_SETTINGS = msgspec.json.Decoder(_ResponseSettings)


def read_plain_body(data: bytes) -> PlainBody | None:
    """What is booked of an unstreamed response; None if the slow path must read it."""
    try:
        body = _BODY.decode(data)
        settings = body.text, body.tool_choice, body.tools, body.tool_usage
        if sum(map(len, settings)) > _MAX_SETTINGS or any(is_too_deep(bytes(each)) for each in settings):
            return None
        _SETTINGS.decode(b'{"text":%b,"tool_choice":%b,"tools":%b,"tool_usage":%b}' % settings)
    except ValueError:
        return None
    output, tokens = body.output, body.usage.tokens()
    calls = [item for item in output if isinstance(item, _ResponseCall)]
    if tokens is None or not (calls or any(isinstance(item, _ResponseMessage) for item in output)):
        return None
    if len({item.id for item in output}) < len(output) or len({call.call_id for call in calls}) < len(calls):
        return None
    if not all(is_json(call.arguments.encode()) for call in calls):
        return None
    finishes, chars = ["tool_calls" if calls else "stop"], sum(item.chars for item in output)
    usage = Raw(msgspec.json.encode(body.usage))  # with all details: clients refuse a report without them
    return PlainBody(body.id, body.model, finishes, chars, tokens, (body.service_tier,), {"usage": usage})
