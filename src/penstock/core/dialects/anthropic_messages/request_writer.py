"""Writes requests in the Anthropic Messages dialect: `Request` → the fields of a body, and the losses.

It is for requests that arrived in another dialect. (`upstream.py` forwards those of this dialect.) The API demands:

1. `max_tokens` is required. If the client sent none, it is the provider's setting `default_max_tokens`.
2. Roles alternate: messages of one role that follow each other are joined. The results of tools come first in the
   user's message after the calls.
3. A thinking block is accepted only with a signature of the same issuer. Unsigned reasoning of other providers is left
   out, unless the provider wants it back (`unsigned_thinking`).
4. At most four cache breakpoints.
5. Models that take `system` messages (`mid_system`) take them between a user's message and an assistant's, or at the
   end. Others become text of the user.
6. Thinking with a budget excludes a forced tool call and most sampling settings, and the last turn with tool calls must
   have its thinking. Many clients do not send reasoning back: then thinking is not requested.
"""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from penstock.core.dialects.anthropic_messages.content_blocks import SEAL_SCHEME
from penstock.core.dialects.cache_breakpoints import PromptSections
from penstock.core.dialects.parameters import ParameterSettings
from penstock.core.dialects.request_writer import (
    MISSING_THINKING,
    Destination,
    Json,
    RequestWriter,
    lacks_thinking,
    note_lifetime,
    trim_prefill,
)
from penstock.core.dialects.schema_subset import SchemaSubset
from penstock.core.hub.content import (
    MediaPart,
    OpaquePart,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
    ToolChange,
    ToolResult,
)
from penstock.core.hub.losses import Loss
from penstock.core.hub.media import is_text, media_loss
from penstock.core.hub.request import (
    Message,
    ReasoningSettings,
    Request,
    ResponseFormat,
    Sampling,
    Tool,
    ToolChoice,
    available_tools,
    without_system_turns,
)
from penstock.core.hub.seals import opened
from penstock.core.hub.tool_ids import portable
from penstock.core.hub.tool_map import ToolMap
from penstock.core.json.getters import objects_of

DEFAULT_MAX_TOKENS = 8_192
"""The output that every Claude model since 3.5 can generate: the limit if neither client nor provider sets one."""
_MAX_BREAKPOINTS = 4
_LIFETIMES = {"5m": "", "1h": "1h"}
_MAX_ID = 128
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_EFFORT_WORDS = {"minimal": "low", "none": "low"}
# The budget in tokens for each effort, for models that take only a budget.
_BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 32_768, "max": 32_768}
_LEAST_BUDGET = 1_024
# The least top_p that the API accepts together with thinking.
_LEAST_TOP_P = 0.95


# The least tokens from which Anthropic compacts a conversation.
_LEAST_COMPACTED = 50_000


class MessagesSettings(ParameterSettings, frozen=True, kw_only=True):
    """What a provider of this dialect accepts; capabilities that bytes cannot show."""

    default_max_tokens: int = DEFAULT_MAX_TOKENS
    """The `max_tokens` of requests whose client sets no limit. The API requires one."""
    thinking: Literal["adaptive", "enabled", "none"] = "enabled"
    """How it wants thinking to be requested, for clients of other APIs: `"enabled"` with a budget of tokens,
    `"adaptive"`, or `"none"`."""
    unsigned_thinking: bool = False
    """Whether it takes earlier thinking without a signature. DeepSeek and Kimi require it, Anthropic refuses it."""
    sampling: bool = True
    """Whether it accepts `temperature`, `top_p` and `top_k`. If not, they are left out for clients of other APIs."""
    sampling_pair: bool = True
    """Whether it accepts `temperature` and `top_p` together. If not, only `temperature` is sent for clients of other
    APIs. A value of 1, which is the default, is left out first."""
    mid_system: bool = True
    """Whether it accepts `system` messages between other messages, also from clients of this API. Those of other
    clients stay only between a user message and an assistant message, or at the end, as Claude demands."""
    compaction: bool = False
    """Whether it compacts long conversations by `context_management` (a beta), for clients of
    [Responses](responses.md#compaction)."""
    cache_scope: bool = True
    """Whether cache breakpoints may have a `scope`, for clients of this API. If not, it is left out, with the beta that
    announces it."""
    cache_minimum: int = 0
    """The least tokens of a prompt that its [prompt cache](caching.md) takes: from there, requests of clients of other
    APIs get breakpoints. 0: they get none."""
    prefill: Literal["", "last"] = ""
    """Whether it goes on with [an answer that broke off](routing.md#answers-that-break-off), as the last message:
    `"last"`. Claude does so up to 4.5, without thinking."""
    url_media: bool = True
    """Whether it fetches images and documents by their URLs. If not, see [media by URL](providers.md#media-by-url)."""
    attribution: bool = False
    """Whether it gets the block of the system prompt that Claude Code addresses to Anthropic
    (`x-anthropic-billing-header: …`). It is `true` for the built-in provider `anthropic`."""
    body_version: str = ""
    """The version that it wants in the body instead of the header: `"vertex-2023-10-16"` for Claude on Vertex AI. Then
    the model is in the path only, and every answer is requested as a stream."""
    stream_field: bool = True
    """With `body_version`: whether the body has `stream` too. It is `false` for the built-in provider `bedrock`."""
    body_betas: tuple[str, ...] | None = None
    """The values of `anthropic-beta` that it accepts, as patterns, if it wants them in the body (`anthropic_beta`).
    Other values are removed. If this is not set, the header is sent."""
    beta_names: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """With `body_betas`: the names that it has for such a value, if it has others: `{ "advanced-tool-use-2025-11-20" =
    ["tool-search-tool-2025-10-19"] }` for Bedrock."""


class MessagesRequestWriter(RequestWriter):
    """Writes requests for Messages."""

    def __init__(self, destination: Destination, names: ToolMap) -> None:
        super().__init__(destination, names)
        self._settings = destination.settings_as(MessagesSettings)
        self._schemas = SchemaSubset(self.losses)
        self._breakpoints = 0

    def write(self, request: Request) -> Json:
        """The members of the body."""
        fields: Json = {"messages": self.conversation(request, self.messages(request.turns))}
        if system := self.content(request.system):
            fields["system"] = system
        fields["max_tokens"] = request.max_output or self._settings.default_max_tokens
        if request.max_output is None:
            self.losses.append(Loss("max-tokens-assumed", str(self._settings.default_max_tokens)))
        tools = [body for tool in available_tools(request, self.losses) if (body := self.tool(tool)) is not None]
        if tools:
            fields["tools"] = tools
            choice = self._write_choice(request.tool_choice)
            if request.parallel_calls is False:
                choice = (choice or {"type": "auto"}) | {"disable_parallel_tool_use": True}
            if choice is not None:
                fields["tool_choice"] = choice
        if stops := self.stops(request.stop, blank=False):
            fields["stop_sequences"] = stops
        self._write_reasoning(request.reasoning, fields)
        self._write_sampling(request.sampling, fields)
        self._write_format(request.format, fields)
        if request.user:
            fields["metadata"] = {"user_id": request.user}
        tiers = {"auto": "auto", "default": "standard_only", "standard_only": "standard_only"}
        if request.tier in tiers:
            fields["service_tier"] = tiers[request.tier]
        tier = ("service_tier",) if request.tier in tiers else ()
        compacted: tuple[str, ...] = ()
        if request.compact_at is not None and self._settings.compaction:
            fields["context_management"] = self._compaction(request.compact_at)
            compacted = ("context_management",)
        self.note_fields(request, known=("user", "parallel_tool_calls", "stop_sequence", *tier, *compacted))
        return fields

    def sections(self, fields: Json) -> PromptSections:
        """The sections of a body that may get breakpoints."""
        tools, system, messages = (objects_of(fields.get(name)) for name in ("tools", "system", "messages"))
        return PromptSections(tools=tools, system=system, messages=messages, mark=_mark)

    def _compaction(self, threshold: int) -> Json:
        """When the provider compacts the conversation."""
        if threshold < _LEAST_COMPACTED:
            self.losses.append(Loss("field-dropped", f"context_management.compact_threshold {threshold}"))
        trigger: Json = {"type": "input_tokens", "value": max(threshold, _LEAST_COMPACTED)}
        return {"edits": [{"type": "compact_20260112", "trigger": trigger}]}

    def messages(self, turns: Sequence[Message]) -> list[Json]:
        written: list[Json] = []
        for turn in without_system_turns(turns, self.losses, placed=self._settings.mid_system):
            blocks = self.content(turn.parts)
            if not blocks:
                continue
            last = written[-1] if written else None
            if last is not None and last["role"] == turn.role:
                content = last["content"]
                assert isinstance(content, list)
                content += blocks
            else:
                written.append({"role": turn.role, "content": blocks})
        for message in written:
            content = message["content"]
            if message["role"] == "user" and isinstance(content, list):
                content.sort(key=lambda block: block["type"] != "tool_result")
        trim_prefill(written)
        return written

    def content(self, parts: tuple[Part, ...]) -> list[Json]:
        return [block for part in parts if (block := self._block(part)) is not None]

    def _block(self, part: Part) -> Json | None:
        match part:
            case TextPart(text):
                return self._cached({"type": "text", "text": text}, part.cache) if text.strip() else None
            case RefusalPart(text):
                return {"type": "text", "text": text} if text.strip() else None
            case MediaPart():
                return self._cached(self._media(part), part.cache)
            case ToolCall():
                return self._call(part)
            case ToolResult():
                return self._result(part)
            case ReasoningPart():
                return self._reasoning(part)
            case OpaquePart(_, type, loss=loss):
                self.losses.append(Loss(loss, type))
                return None
            case ToolChange():
                return {"type": "text", "text": str(part)}

    def _cached(self, block: Json | None, cache: str) -> Json | None:
        if block is not None and cache:
            self._breakpoints += 1
            if self._breakpoints > _MAX_BREAKPOINTS:
                self.losses.append(Loss("cache-hint-dropped", cache))
            else:
                lifetime = note_lifetime(cache, _LIFETIMES, self.losses)
                block["cache_control"] = {"type": "ephemeral"} | ({"ttl": lifetime} if lifetime else {})
        return block

    def _media(self, part: MediaPart) -> Json | None:
        source = None if part.file_id else source_of(part)
        if source is None:
            self.losses.append(media_loss(part))
            return None
        if part.kind == "image":
            return {"type": "image", "source": source}
        if source["type"] == "text" and "\ufffd" in str(source["data"]):
            self.losses.append(Loss("content-dropped", "characters of a file that are not UTF-8"))
        document: Json = {"type": "document", "source": source}
        return document | ({"title": part.name} if part.name else {})

    def _call(self, call: ToolCall) -> Json | None:
        if call.server:
            self.losses.append(Loss("content-dropped", call.name))
            return None
        given = self._inputs.read(call)
        name = self.names.name(call.name, call.namespace)
        block: Json = {"type": "tool_use", "id": portable(call.id or call.name, _MAX_ID), "name": name, "input": given}
        return self._cached(block, call.cache)

    def _result(self, result: ToolResult) -> Json | None:
        block: Json = {"type": "tool_result", "tool_use_id": portable(result.call_id, _MAX_ID)}
        content = self.content(result.parts)
        if content:
            block["content"] = content
        if result.is_error:
            block["is_error"] = True
        return self._cached(block, result.cache)

    def _reasoning(self, part: ReasoningPart) -> Json | None:
        """A thinking block, if the provider can check its seal, or wants it without one."""
        seal = opened(part.seals, SEAL_SCHEME, self.issuer)
        if seal is not None and seal.redacted:
            return {"type": "redacted_thinking", "data": seal.value}
        text = part.thought
        if seal is not None:
            return {"type": "thinking", "thinking": text, "signature": seal.value}
        if text and self._settings.unsigned_thinking:
            self.losses.extend(Loss("seal-dropped", seal.scheme) for seal in part.seals)
            return {"type": "thinking", "thinking": text, "signature": ""}
        self.losses.append(Loss("reasoning-dropped"))
        return None

    def tool(self, tool: Tool) -> Json | None:
        function = self.function(tool)
        if function is None:
            return None
        body: Json = {"name": self.names.name(function.name, function.namespace)}
        if function.description:
            body["description"] = function.description
        body["input_schema"] = self._schemas.tool(function.schema or {}, strict=function.strict is True)
        if function.strict:  # false is the default, and older models refuse the field
            body["strict"] = True
        return self._cached(body, tool.cache)

    def _write_choice(self, choice: ToolChoice | None) -> Json | None:
        if choice is None:
            return None
        match choice.mode:
            case "auto" | "none":
                return {"type": choice.mode}
            case "required":
                return {"type": "any"}
            case "tool":
                return {"type": "tool", "name": self.names.chosen(choice.names[0])} if choice.names else {"type": "any"}
            case "allowed":
                self.losses.append(Loss("tool-choice-widened", ", ".join(choice.names)))
                return {"type": "any" if choice.required else "auto"}

    def _write_reasoning(self, reasoning: ReasoningSettings | None, fields: Json) -> None:
        """Request thinking if the rest of the request allows it (rule 6)."""
        if reasoning is None or self._settings.thinking == "none":
            if reasoning is not None:
                self.losses.append(Loss("field-dropped", "reasoning_effort"))
            return
        if reasoning.enabled is False or reasoning.effort == "none":
            fields["thinking"] = {"type": "disabled"}
            return
        if self._settings.thinking == "adaptive":
            fields["thinking"] = {"type": "adaptive"}
            effort = _EFFORT_WORDS.get(reasoning.effort or "", reasoning.effort)
            if effort in _EFFORTS:
                fields["output_config"] = {"effort": effort}
            if reasoning.budget is not None or (reasoning.effort and effort != reasoning.effort):
                self.losses.append(Loss("effort-approximated", str(reasoning.budget or reasoning.effort)))
            return
        most = fields["max_tokens"]
        assert isinstance(most, int)
        budget = reasoning.budget or _BUDGETS.get(reasoning.effort or "medium", _BUDGETS["medium"])
        if budget >= most:
            budget = most // 2
        obstacle = _obstacle(fields) or ("max_tokens leaves no room for thinking" if budget < _LEAST_BUDGET else "")
        if obstacle:
            self.losses.append(Loss("effort-approximated", f"no thinking: {obstacle}"))
            return
        fields["thinking"] = {"type": "enabled", "budget_tokens": budget}
        if budget != reasoning.budget:
            self.losses.append(
                Loss("effort-approximated", f"{reasoning.budget or reasoning.effort or 'medium'} as {budget}")
            )

    def _write_sampling(self, sampling: Sampling, fields: Json) -> None:
        """Write the sampling settings. With thinking, the API accepts neither `temperature` nor `top_k`."""
        thinking = fields.get("thinking", {"type": "disabled"}) != {"type": "disabled"}
        paired = not self._settings.sampling_pair and None not in (sampling.temperature, sampling.top_p)
        for name, most in (("temperature", 1.0), ("top_p", 1.0), ("top_k", None)):
            value = getattr(sampling, name)
            if value is None or (value == most and (thinking or paired or not self._settings.sampling)):
                continue
            second = paired and name == "top_p" and "temperature" in fields
            if second or not self._settings.sampling or (thinking and (name != "top_p" or value < _LEAST_TOP_P)):
                self.losses.append(Loss("sampling-dropped", name))
                continue
            fields[name] = value if most is None else min(value, most)
            if fields[name] != value:
                self.losses.append(Loss("temperature-clamped", str(value)))
        self.note_sampling(sampling, ("temperature", "top_p", "top_k"))

    def _write_format(self, form: ResponseFormat | None, fields: Json) -> None:
        if form is None:
            return
        if form.kind == "schema" and form.schema is not None:
            output = fields.setdefault("output_config", {})
            assert isinstance(output, dict)
            output["format"] = {"type": "json_schema", "schema": SchemaSubset(self.losses).output(form.schema)}
        else:
            self.losses.append(Loss("schema-loosened", "json_object"))


def _mark(blocks: list[Json]) -> None:
    blocks[-1]["cache_control"] = {"type": "ephemeral"}


def source_of(part: MediaPart) -> Json | None:
    """The source of an image or a document; None if the API has none. Documents are PDFs, or texts."""
    if part.kind == "file" and part.data and is_text(part.mime):
        data = "".join(part.data.split()).replace("-", "+").replace("_", "/")
        try:
            text = b64decode(data, validate=True).decode("utf-8-sig", errors="replace")
        except ValueError:
            return None
        return {"type": "text", "media_type": "text/plain", "data": text}
    if part.kind != "image" and (part.kind != "file" or part.mime not in ("application/pdf", "")):
        return None
    if part.url:
        return {"type": "url", "url": part.url}
    return {"type": "base64", "media_type": part.mime, "data": part.data} if part.mime else None


def _obstacle(fields: Json) -> str:
    """Why the API would refuse thinking with a budget; empty if it would not."""
    choice, messages = fields.get("tool_choice"), fields["messages"]
    if isinstance(choice, dict) and choice["type"] in ("any", "tool"):
        return "tool_choice forces a call"
    assert isinstance(messages, list)
    return MISSING_THINKING if lacks_thinking(messages, lambda block: str(block["type"])) else ""
