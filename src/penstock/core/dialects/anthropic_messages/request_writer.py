"""The Anthropic Messages dialect, requests written: `Request` → the fields of a body, and what is lost on the way.

For requests that came in another dialect. (One that came as Messages is forwarded: see `upstream.py`.) The API demands:

1. `max_tokens` is required. Where the client sent none, it is `default_max_tokens` of the provider's data.
2. Roles alternate: messages of one role that follow each other are joined. The results of tools come first in the
   user's message after the calls.
3. A thinking block is accepted only with a signature of the same issuer. Unsigned reasoning of other providers is left
   out, unless the provider wants it back (`unsigned_thinking`).
4. At most four cache breakpoints.
"""

from base64 import b64decode
from typing import Literal

import msgspec
from msgspec import Struct

from penstock.core.content import (
    MediaPart,
    OpaquePart,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
    ToolResult,
)
from penstock.core.dialects.anthropic_messages.reader import NAME, SEAL_SCHEME
from penstock.core.dialects.anthropic_messages.request import Json
from penstock.core.losses import Loss
from penstock.core.request import Message, ReasoningSettings, Request, ResponseFormat, Tool, ToolChoice
from penstock.core.seals import unwrap

DEFAULT_MAX_TOKENS = 8_192
"""What every Claude model since 3.5 can write; used where neither client nor provider data says more."""
_MAX_BREAKPOINTS = 4
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_EFFORT_WORDS = {"minimal": "low", "none": "low"}
# How many tokens an effort stands for, where a model takes a budget only.
_BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 32_768, "max": 32_768}
_LEAST_BUDGET = 1_024


class MessagesSettings(Struct, frozen=True, kw_only=True):
    """What a provider of this dialect accepts; capabilities that bytes cannot show."""

    default_max_tokens: int = DEFAULT_MAX_TOKENS
    thinking: Literal["adaptive", "enabled", "none"] = "enabled"
    """How the provider wants thinking to be requested."""
    unsigned_thinking: bool = False
    """Whether earlier thinking comes back without a signature (DeepSeek, Kimi demand it)."""
    mid_system: bool = True
    """Whether `system` messages may be in the middle of the conversation."""
    refused_fields: tuple[str, ...] = ()
    """Fields that the provider rejects."""


def write_request(request: Request, settings: MessagesSettings, issuer: str, losses: list[Loss]) -> Json:
    """The fields of a body that asks the same."""
    writer = _ContentWriter(settings, issuer, losses)
    fields: Json = {"model": request.model, "messages": writer.messages(request.turns)}
    if request.system:
        fields["system"] = writer.content(request.system)
    fields["max_tokens"] = request.max_output or settings.default_max_tokens
    if request.max_output is None:
        losses.append(Loss("max-tokens-assumed", str(settings.default_max_tokens)))
    if request.stream:
        fields["stream"] = True
    tools = [body for tool in request.tools if (body := writer.tool(tool)) is not None]
    if tools:
        fields["tools"] = tools
        choice = _write_choice(request.tool_choice, losses)
        if request.parallel_calls is False:
            choice = (choice or {"type": "auto"}) | {"disable_parallel_tool_use": True}
        if choice is not None:
            fields["tool_choice"] = choice
    if request.stop:
        fields["stop_sequences"] = list(request.stop)
    if request.choices > 1:
        losses.append(Loss("choices-dropped", f"n = {request.choices}"))
    _write_sampling(request, fields, losses)
    _write_reasoning(request.reasoning, settings, fields, losses)
    _write_format(request.format, fields, losses)
    if request.user:
        fields["metadata"] = {"user_id": request.user}
    tiers = {"auto": "auto", "default": "standard_only", "standard_only": "standard_only"}
    if request.tier in tiers:
        fields["service_tier"] = tiers[request.tier]
    elif request.tier:
        losses.append(Loss("field-dropped", "service_tier"))
    losses.extend(Loss("field-dropped", name) for name in request.extras)
    if request.cache_key:
        losses.append(Loss("cache-hint-dropped", "prompt_cache_key"))
    return fields


class _ContentWriter:
    """Writes messages and tools, and notes what is lost."""

    def __init__(self, settings: MessagesSettings, issuer: str, losses: list[Loss]) -> None:
        self._settings = settings
        self._issuer = issuer
        self._losses = losses
        self._breakpoints = 0

    def messages(self, turns: tuple[Message, ...]) -> list[Json]:
        written: list[Json] = []
        for turn in turns:
            role, blocks = self._turn(turn)
            if not blocks:
                continue
            last = written[-1] if written else None
            if last is not None and last["role"] == role and role != "system":
                content = last["content"]
                assert isinstance(content, list)
                content += blocks
                if role == "user":
                    content.sort(key=lambda block: block["type"] != "tool_result")
            else:
                written.append({"role": role, "content": blocks})
        return written

    def _turn(self, turn: Message) -> tuple[str, list[Json]]:
        blocks = self.content(turn.parts)
        if turn.role == "system" and not self._settings.mid_system:
            self._losses.append(Loss("system-moved"))
            for block in blocks:
                if block["type"] == "text":
                    block["text"] = f"<system-reminder>\n{block['text']}\n</system-reminder>"
            return "user", blocks
        if turn.role == "user":
            blocks.sort(key=lambda block: block["type"] != "tool_result")
        return turn.role, blocks

    def content(self, parts: tuple[Part, ...]) -> list[Json]:
        return [block for part in parts if (block := self._block(part)) is not None]

    def _block(self, part: Part) -> Json | None:
        match part:
            case TextPart(text):
                return self._cached({"type": "text", "text": text}, part.cache) if text else None
            case RefusalPart(text):
                return {"type": "text", "text": text} if text else None
            case MediaPart():
                return self._cached(self._media(part), part.cache)
            case ToolCall():
                return self._call(part)
            case ToolResult():
                return self._result(part)
            case ReasoningPart():
                return self._reasoning(part)
            case OpaquePart(dialect, _, data) if dialect == NAME:
                return data
            case OpaquePart(_, type):
                self._losses.append(Loss("content-dropped", type))
                return None

    def _cached(self, block: Json | None, cache: str) -> Json | None:
        if block is not None and cache:
            self._breakpoints += 1
            if self._breakpoints > _MAX_BREAKPOINTS:
                self._losses.append(Loss("cache-hint-dropped", cache))
            else:
                block["cache_control"] = {"type": "ephemeral"} | ({"ttl": cache} if cache != "5m" else {})
        return block

    def _media(self, part: MediaPart) -> Json | None:
        if part.kind not in ("image", "file") or part.file_id:
            self._losses.append(Loss("content-dropped", f"{part.kind} by file id" if part.file_id else part.kind))
            return None
        source: Json = (
            {"type": "url", "url": part.url}
            if part.url
            else {"type": "base64", "media_type": part.mime or "image/png", "data": part.data}
        )
        if part.kind == "image":
            return {"type": "image", "source": source}
        if not part.url and part.mime.startswith("text/"):
            return self._text_document(part)
        document: Json = {"type": "document", "source": source}
        return document | ({"title": part.name} if part.name else {})

    def _text_document(self, part: MediaPart) -> Json | None:
        text = b64decode(part.data).decode(errors="replace")
        document: Json = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}}
        return document | ({"title": part.name} if part.name else {})

    def _call(self, call: ToolCall) -> Json | None:
        if call.server:
            self._losses.append(Loss("content-dropped", call.name))
            return None
        try:
            given = msgspec.json.decode(call.arguments or "{}")
        except ValueError:
            given = None
        if call.kind == "custom" or not isinstance(given, dict):
            given = {"input": call.arguments}
        name = f"{call.namespace}__{call.name}" if call.namespace else call.name
        block: Json = {"type": "tool_use", "id": tool_id(call.id or call.name), "name": name, "input": given}
        return self._cached(block, call.cache)

    def _result(self, result: ToolResult) -> Json | None:
        block: Json = {"type": "tool_result", "tool_use_id": tool_id(result.call_id)}
        content = self.content(result.parts)
        if content:
            block["content"] = content
        if result.is_error:
            block["is_error"] = True
        return self._cached(block, result.cache)

    def _reasoning(self, part: ReasoningPart) -> Json | None:
        """A thinking block, if the provider can check its seal, or wants it without one."""
        for seal in part.seals:
            wrapped = unwrap(seal.value)
            own, issuer = wrapped if wrapped is not None else (seal, self._issuer)
            if own.scheme == SEAL_SCHEME and issuer == self._issuer and seal.scheme == SEAL_SCHEME:
                if seal.redacted:
                    return {"type": "redacted_thinking", "data": own.value}
                return {"type": "thinking", "thinking": part.text, "signature": own.value}
        text = part.text or "\n\n".join(part.summary)
        if text and self._settings.unsigned_thinking:
            return {"type": "thinking", "thinking": text, "signature": ""}
        self._losses.append(Loss("reasoning-dropped"))
        return None

    def tool(self, tool: Tool) -> Json | None:
        if tool.kind == "server":
            self._losses.append(Loss("server-tool-dropped", tool.type or tool.name))
            return None
        name = f"{tool.namespace}__{tool.name}" if tool.namespace else tool.name
        body: Json = {"name": name}
        if tool.description:
            body["description"] = tool.description
        if tool.kind == "custom":
            self._losses.append(Loss("grammar-dropped", tool.name))
            text = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
            body["input_schema"] = text
        else:
            schema = tool.schema or {}
            body["input_schema"] = schema if schema.get("type") == "object" else {"type": "object", **schema}
        if tool.strict is not None:
            body["strict"] = tool.strict
        self._losses.extend(Loss("tool-option-dropped", option) for option in tool.extras)
        return self._cached(body, tool.cache)


def tool_id(id: str) -> str:
    """The id of a call, of the characters that the API accepts."""
    return "".join(
        character if character.isascii() and (character.isalnum() or character in "_-") else "_" for character in id
    )


def _write_choice(choice: ToolChoice | None, losses: list[Loss]) -> Json | None:
    if choice is None:
        return None
    match choice.mode:
        case "auto" | "none":
            return {"type": choice.mode}
        case "required":
            return {"type": "any"}
        case "tool":
            return {"type": "tool", "name": choice.names[0]} if choice.names else {"type": "any"}
        case "allowed":
            losses.append(Loss("tool-choice-widened", ", ".join(choice.names)))
            return {"type": "auto"}


def _write_sampling(request: Request, fields: Json, losses: list[Loss]) -> None:
    sampling = request.sampling
    if sampling.temperature is not None:
        fields["temperature"] = min(sampling.temperature, 1.0)
        if sampling.temperature > 1:
            losses.append(Loss("temperature-clamped", str(sampling.temperature)))
    for name in ("top_p", "top_k"):
        value = getattr(sampling, name)
        if value is not None:
            fields[name] = value
    others = ("seed", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs")
    losses.extend(
        Loss("sampling-dropped", name) for name in others if getattr(sampling, name) not in (None, 0, False, {})
    )


def _write_reasoning(
    reasoning: ReasoningSettings | None, settings: MessagesSettings, fields: Json, losses: list[Loss]
) -> None:
    if reasoning is None or settings.thinking == "none":
        if reasoning is not None:
            losses.append(Loss("field-dropped", "reasoning"))
        return
    if reasoning.enabled is False or reasoning.effort == "none":
        fields["thinking"] = {"type": "disabled"}
        return
    if settings.thinking == "adaptive":
        fields["thinking"] = {"type": "adaptive"}
        effort = _EFFORT_WORDS.get(reasoning.effort or "", reasoning.effort)
        if effort in _EFFORTS:
            fields["output_config"] = {"effort": effort}
        if reasoning.budget is not None or (reasoning.effort and effort != reasoning.effort):
            losses.append(Loss("effort-approximated", str(reasoning.budget or reasoning.effort)))
        return
    most = fields["max_tokens"]
    assert isinstance(most, int)
    budget = reasoning.budget or _BUDGETS.get(reasoning.effort or "medium", _BUDGETS["medium"])
    if budget >= most:
        budget = most // 2
    if budget < _LEAST_BUDGET:
        losses.append(Loss("effort-approximated", "max_tokens leaves no room for thinking"))
        return
    fields["thinking"] = {"type": "enabled", "budget_tokens": budget}
    if reasoning.budget is None:
        losses.append(Loss("effort-approximated", f"{reasoning.effort or 'medium'} as {budget} tokens"))


def _write_format(form: ResponseFormat | None, fields: Json, losses: list[Loss]) -> None:
    if form is None:
        return
    if form.kind == "schema" and form.schema is not None:
        output = fields.setdefault("output_config", {})
        assert isinstance(output, dict)
        output["format"] = {"type": "json_schema", "schema": form.schema}
    else:
        losses.append(Loss("schema-loosened", "json_object"))
