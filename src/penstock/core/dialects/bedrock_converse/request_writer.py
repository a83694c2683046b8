"""Writes requests in the dialect of Bedrock's Converse API: `Request` → the fields of a body, and the losses.

1. Roles alternate, so turns of one role are joined. Calls end a message, and results begin the next one: Claude refuses
   anything between them. No text may be white space only.
2. Media are sent as data, or as an object in S3. The API fetches no other URLs.
3. `toolConfig` is required as soon as the conversation has calls or results, even if the client offers no tools any
   more. There is no choice `none`: then the tools are left out, if they can be.
4. Names of documents have only some characters, and each is unique.
5. What only the model's vendor knows is in `additionalModelRequestFields`: thinking and `top_k` of Claude.
"""

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from penstock.core.dialects.bedrock_converse.reader import SEAL_SCHEME
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
from penstock.core.hub.content import MediaPart, Part, ReasoningPart, ToolCall, ToolResult
from penstock.core.hub.losses import Loss
from penstock.core.hub.media import format_of, is_text
from penstock.core.hub.request import Message, Request, Tool, ToolChoice, available_tools, without_system_turns
from penstock.core.hub.seals import opened
from penstock.core.hub.tool_ids import portable
from penstock.core.hub.tool_map import ToolMap
from penstock.core.json.getters import object_of

_MAX_ID = 64
_MAX_TEMPERATURE = 1.0
_DEFAULT_SAMPLING = 1.0
_LEAST_BUDGET = 1_024
_BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 24_576, "xhigh": 32_768, "max": 32_768}
_TIERS = ("priority", "default", "flex")
# The formats of the API's enums ImageFormat, VideoFormat and DocumentFormat (botocore 1.44).
_FORMATS = {
    "image": ("png", "jpeg", "gif", "webp"),
    "video": ("mkv", "mov", "mp4", "webm", "flv", "mpeg", "wmv"),
    "file": ("pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"),
}
_LIFETIMES = {"5m": "", "1h": "1h"}
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9\s()\[\]-]")
_SPACES = re.compile(r"\s+")
_MAX_NAME = 200
_NOTHING: dict[str, object] = {"type": "object", "properties": {}}


class ConverseSettings(ParameterSettings, frozen=True, kw_only=True):
    """What a model of this dialect accepts; capabilities that bytes cannot show."""

    reasoning: Literal["budget", "adaptive", "none"] = "none"
    """How the model wants reasoning to be requested: `"budget"` as a number of tokens, `"adaptive"`, or `"none"` if it
    cannot reason."""
    cache_points: bool = False
    """Whether the model takes hints for its prompt cache. If not, they are left out."""
    cache_minimum: int = 0
    """The least tokens of a prompt that the model's [prompt cache](caching.md) takes: from there, requests of clients
    of other APIs get cache points. 0: they get none."""
    takes_top_k: bool = False
    """Whether the model takes `top_k` as an additional field, as Claude does."""
    sampling: bool = True
    """Whether the model takes `temperature`, `top_p` and `top_k`. If not, they are left out."""
    sampling_pair: bool = True
    """Whether the model takes `temperature` and `top_p` together. If not, only `temperature` is sent."""
    strict_tools: bool = False
    """Whether the model can be made to follow the schema of a tool (`strict`)."""
    blank_stops: bool = True
    """Whether a stop sequence may be white space only. If not, it is left out."""
    combined_tools: bool = True
    """Whether the schema of a tool may have `anyOf`, `oneOf` or `allOf` at the top. If not, the alternatives are merged
    into one object."""


class ConverseRequestWriter(RequestWriter):
    """Writes requests for the Converse API."""

    def __init__(self, destination: Destination, names: ToolMap) -> None:
        super().__init__(destination, names)
        self._settings = destination.settings_as(ConverseSettings)
        self._schemas = SchemaSubset(self.losses)
        self._documents = 0
        self._called: dict[str, None] = {}  # the names of tools in the conversation

    def write(self, request: Request) -> Json:
        """The members of the body."""
        messages = self.messages(without_system_turns(request.turns, self.losses))
        fields: Json = {"messages": self.conversation(request, messages)}
        system = self.system(request.system)
        if system:
            fields["system"] = system
        tools = self.tools(request)
        if tools:
            fields["toolConfig"] = tools
        forced = "toolChoice" in tools and _is_forced(request.tool_choice)
        obstacle = "tool_choice forces a call" if forced else ""
        if self._settings.reasoning == "budget" and lacks_thinking(messages, lambda block: next(iter(block))):
            obstacle = MISSING_THINKING
        more = self._write_reasoning(request, obstacle)
        top_k = {"top_k": "top_k"} if self._settings.takes_top_k else {}
        config = self.sampling(request.sampling, {"temperature": "temperature", "top_p": "topP", **top_k})
        if "top_k" in config:
            more["top_k"] = config.pop("top_k")
        temperature = config.get("temperature")
        if isinstance(temperature, int | float) and temperature > _MAX_TEMPERATURE:
            config["temperature"] = _MAX_TEMPERATURE
            self.losses.append(Loss("temperature-clamped", str(temperature)))
        # These models refuse all of them together with thinking.
        none = "thinking" in more or not self._settings.sampling
        if none or (not self._settings.sampling_pair and config.keys() >= {"temperature", "topP"}):
            config = {name: value for name, value in config.items() if value != _DEFAULT_SAMPLING}
            refused = ("temperature", "topP", "top_k") if none else ("topP",) if "temperature" in config else ()
            for fields_with, name in ((each, name) for name in refused for each in (config, more) if name in each):
                del fields_with[name]
                self.losses.append(Loss("sampling-dropped", name))
        if request.max_output is not None:
            config["maxTokens"] = request.max_output
        if stops := self.stops(request.stop, blank=self._settings.blank_stops):
            config["stopSequences"] = stops
        if config:
            fields["inferenceConfig"] = config
        if more:
            fields["additionalModelRequestFields"] = more
        self._write_format(request, fields)
        if request.tier in _TIERS:
            fields["serviceTier"] = {"type": request.tier}
        tier = ("service_tier",) if request.tier in _TIERS else ()
        self.note_fields(request, known=("response_format.description", *tier))
        return fields

    def sections(self, fields: Json) -> PromptSections | None:
        """The sections of a body that may get cache points."""
        if not self._settings.cache_points:
            return None
        tools = object_of(fields.get("toolConfig")).get("tools", [])
        system, messages = fields.get("system", []), fields["messages"]
        assert isinstance(tools, list)
        assert isinstance(system, list)
        assert isinstance(messages, list)
        return PromptSections(tools=tools, system=system, messages=messages, mark=_mark)

    def messages(self, turns: Sequence[Message]) -> list[Json]:
        written: list[tuple[str, list[list[Json]]]] = []  # the blocks of each part
        for turn in turns:
            role = "assistant" if turn.role == "assistant" else "user"
            parts = [blocks for part in turn.parts if (blocks := self._blocks(part))]
            if parts and written and written[-1][0] == role:
                written[-1][1].extend(parts)
            elif parts:
                written.append((role, parts))
        for _, parts in written:
            parts.sort(key=lambda blocks: ("toolUse" in blocks[0]) - ("toolResult" in blocks[0]))
        messages: list[Json] = [
            {"role": role, "content": [block for blocks in parts for block in blocks]} for role, parts in written
        ]
        trim_prefill(messages)
        return messages

    def system(self, parts: Sequence[Part]) -> list[Json]:
        blocks: list[Json] = []
        for part in parts:
            text = self._plain(part)
            if text is None:
                self.note_dropped(part)
            elif text.strip():
                blocks += [{"text": text}, *self._cache(getattr(part, "cache", ""))]
        return blocks

    def _plain(self, part: Part) -> str | None:
        """The text of a part. Hints for the cache are written, and are no losses here."""
        before = len(self.losses)
        text = self.text(part)
        self.losses[before:] = [loss for loss in self.losses[before:] if loss.code != "cache-hint-dropped"]
        return text

    def _cache(self, cache: str) -> list[Json]:
        """The point up to which the prompt should be cached; none without a hint."""
        if not cache:
            return []
        if not self._settings.cache_points:
            self.note_cache(cache)
            return []
        lifetime = note_lifetime(cache, _LIFETIMES, self.losses)
        return [{"cachePoint": {"type": "default"} | ({"ttl": lifetime} if lifetime else {})}]

    def _blocks(self, part: Part) -> list[Json]:
        text = self._plain(part)
        if text is not None:
            return [{"text": text}, *self._cache(getattr(part, "cache", ""))] if text.strip() else []
        match part:
            case MediaPart():
                media = self._media(part)
                return [media, *self._cache(part.cache)] if media is not None else []
            case ToolCall(server=False):
                return [self._call(part)]
            case ToolResult():
                return [self._result(part), *self._cache(part.cache)]
            case ReasoningPart():
                return self._reasoning(part)
            case _:
                self.note_dropped(part)
                return []

    def _call(self, call: ToolCall) -> Json:
        name = self.names.name(call.name, call.namespace)
        self._called[name] = None
        return {
            "toolUse": {
                "toolUseId": portable(call.id or call.name, _MAX_ID),
                "name": name,
                "input": self.arguments(call),
            }
        }

    def _result(self, result: ToolResult) -> Json:
        content: list[Json] = []
        for part in result.parts:
            text = self.text(part)
            if text and text.strip():
                content.append({"text": text})
            elif isinstance(part, MediaPart) and (media := self._media(part)) is not None:
                content.append(media)
                self.note_cache(part.cache)
            elif text is None and not isinstance(part, MediaPart):
                self.note_dropped(part)
        body: Json = {
            "toolUseId": portable(result.call_id, _MAX_ID),
            "content": content or [{"json": {}}],  # the API refuses a result without content
        }
        return {"toolResult": body | ({"status": "error"} if result.is_error else {})}

    def _reasoning(self, part: ReasoningPart) -> list[Json]:
        """Earlier reasoning, if the provider can check its seal."""
        seal = opened(part.seals, SEAL_SCHEME, self.issuer)
        if seal is None:
            self.losses.append(Loss("reasoning-dropped"))
            return []
        if seal.redacted:
            return [{"reasoningContent": {"redactedContent": seal.value}}]
        text = part.thought
        return [{"reasoningContent": {"reasoningText": {"text": text, "signature": seal.value}}}]

    def _media(self, part: MediaPart) -> Json | None:
        own = part.url.startswith("s3://")
        format = format_of(part.mime)
        if part.kind == "file" and format not in _FORMATS["file"] and is_text(part.mime):
            format = "txt"
        if format not in _FORMATS.get(part.kind, ()) or not (part.data or own):
            self.note_dropped(part)
            return None
        source: Json = {"s3Location": {"uri": part.url}} if own else {"bytes": part.data}
        body: Json = {"format": format, "source": source}
        if part.kind == "file":
            return {"document": body | {"name": self._document_name(part.name)}}
        return {part.kind: body}

    def _document_name(self, name: str) -> str:
        self._documents += 1
        plain = _SPACES.sub(" ", _NOT_IN_NAMES.sub(" ", name)).strip()[:_MAX_NAME]
        return f"{plain or 'document'} {self._documents}" if self._documents > 1 else plain or "document"

    def tools(self, request: Request) -> Json:
        choice = request.tool_choice
        functions = self.functions(available_tools(request, self.losses))
        none = choice is not None and choice.mode == "none"
        allowed = functions if none else self.allowed(functions, choice)
        if none and not self._called:
            return {}
        specs = [spec for tool in allowed for spec in self._tool(tool)]
        if not specs and self._called:
            specs = [{"toolSpec": {"name": name, "inputSchema": {"json": _NOTHING}}} for name in self._called]
        if none and specs:
            self.losses.append(Loss("tool-choice-widened", "none"))
        if not specs:
            return {}
        fields: Json = {"tools": specs}
        if allowed and choice is not None and not none:
            written = self._choice(choice)
            fields |= {"toolChoice": written} if written else {}
        return fields

    def _choice(self, choice: ToolChoice) -> Json:
        if choice.mode == "tool" and len(choice.names) == 1:
            return {"tool": {"name": self.names.chosen(choice.names[0])}}
        return {"any": {}} if _is_forced(choice) else {"auto": {}}

    def _tool(self, tool: Tool) -> list[Json]:
        spec: Json = {"name": self.names.name(tool.name, tool.namespace)}
        if tool.description:
            spec["description"] = tool.description
        strict = tool.strict is True and self._settings.strict_tools
        schema = self._schemas.tool(tool.schema or _NOTHING, strict=strict, combined=self._settings.combined_tools)
        spec["inputSchema"] = {"json": schema}
        if strict:
            spec["strict"] = True
        elif tool.strict:
            self.losses.append(Loss("tool-option-dropped", "strict"))
        return [{"toolSpec": spec}, *self._cache(tool.cache)]

    def _write_reasoning(self, request: Request, obstacle: str) -> Json:
        """The additional fields for reasoning; none if there is an obstacle to it."""
        reasoning = request.reasoning
        if reasoning is None or reasoning.enabled is False or reasoning.effort == "none":
            return {}
        effort, budget = reasoning.effort or "", reasoning.budget
        if not (effort or budget is not None or reasoning.enabled):
            return {}
        if self._settings.reasoning == "none":
            self.losses.append(Loss("field-dropped", "reasoning_effort"))
            return {}
        if obstacle:
            self.losses.append(Loss("effort-approximated", f"no thinking: {obstacle}"))
            return {}
        if self._settings.reasoning == "adaptive":
            if budget is not None:
                self.losses.append(Loss("effort-approximated", f"{budget} as adaptive"))
            fields: Json = {"thinking": {"type": "adaptive"}}
            return fields | ({"output_config": {"effort": effort}} if effort else {})
        given = _BUDGETS.get(effort, _BUDGETS["medium"]) if budget is None else budget
        most = request.max_output - 1 if request.max_output is not None else given
        written = min(max(given, _LEAST_BUDGET), most)
        if written < _LEAST_BUDGET:
            self.losses.append(Loss("effort-approximated", f"{effort or budget} as none"))
            return {}
        if written != budget:
            self.losses.append(Loss("effort-approximated", f"{effort or budget} as {written}"))
        return {"thinking": {"type": "enabled", "budget_tokens": written}}

    def _write_format(self, request: Request, fields: Json) -> None:
        form = request.format
        if form is None:
            return
        if form.schema is None:
            self.losses.append(Loss("schema-loosened"))
            return
        schema: Json = {"schema": msgspec.json.encode(SchemaSubset(self.losses).output(form.schema)).decode()}
        optional = {"name": form.name, "description": form.description}
        schema |= {name: value for name, value in optional.items() if value}
        fields["outputConfig"] = {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}


def _mark(blocks: list[Json]) -> None:
    blocks.append({"cachePoint": {"type": "default"}})


def _is_forced(choice: ToolChoice | None) -> bool:
    return choice is not None and (choice.mode in ("required", "tool") or choice.required)
