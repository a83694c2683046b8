"""The OpenAI Responses dialect, requests written: `Request` → the fields of a body, and what is lost on the way.

For requests that came in another dialect. (One that came as Responses is forwarded: see `forwarding.py`.) The API
demands, or differs from chat completions in that:

1. The input is a list of items. A message, a call, a result and a piece of reasoning are items of their own, in order.
2. `store` is true unless the request says otherwise. Tenants share the account of a provider, so it is always false
   here. Then reasoning comes back only if `include` asks for it, encrypted.
3. Reasoning is accepted only with the encrypted content that the same account got. It is sent without an id: ids of
   what was not stored are a 404. Reasoning of other providers is left out, unless the provider wants it as text
   (`open_reasoning`).
4. A function is strict unless it says otherwise.
5. There are no stop sequences, seeds, penalties, or several choices.
"""

from collections.abc import Sequence
from typing import Literal

from penstock.core.dialects.cache_breakpoints import PromptSections
from penstock.core.dialects.openai_options import MAX_ID, MAX_USER, Effort, describe_schema, with_mark, write_effort
from penstock.core.dialects.openai_responses.vocabulary import SEAL_SCHEME
from penstock.core.dialects.parameters import ParameterSettings
from penstock.core.dialects.request_writer import Destination, Json, RequestWriter
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
from penstock.core.hub.media import format_of, media_loss, url_of
from penstock.core.hub.request import (
    Message,
    ReasoningSettings,
    Request,
    Sampling,
    Tool,
    ToolChoice,
    available_tools,
    without_system_turns,
)
from penstock.core.hub.seals import opened
from penstock.core.hub.tool_ids import portable
from penstock.core.hub.tool_map import ClientTool, ToolMap
from penstock.core.json.getters import objects_of

_MAX_NAME = 64
_TIERS = ("auto", "default", "flex", "priority", "scale")
_SUMMARIES = ("auto", "concise", "detailed")
_ENCRYPTED = "reasoning.encrypted_content"
_LOGPROBS = "message.output_text.logprobs"


class ResponsesSettings(ParameterSettings, frozen=True, kw_only=True):
    """What a provider of this dialect accepts; capabilities that bytes cannot show."""

    system_role: Literal["developer", "system"] = "developer"
    """The role of system messages: `"developer"` or `"system"`."""
    mid_system: bool = True
    """Whether it accepts system messages between other messages, from clients of other APIs."""
    efforts: tuple[Effort, ...] = ("low", "medium", "high")
    """The values of `reasoning.effort` that it accepts, for clients of other APIs; the nearest one is sent. Empty if
    its models do not reason."""
    summaries: bool = True
    """Whether it summarises its reasoning on request."""
    encrypted_reasoning: bool = True
    """Whether it sends its reasoning encrypted, and takes it back."""
    compaction: bool = False
    """Whether it has `POST /responses/compact`. Elsewhere the model is asked for [a
    summary](responses.md#compaction)."""
    open_reasoning: bool = False
    """Whether it takes earlier reasoning as text. Models with open weights do; OpenAI refuses it, so it is left out."""
    sampling: bool = True
    """Whether it accepts `temperature` and `top_p`. If not, they are left out for clients of other APIs."""
    least_output: int = 16
    """The least `max_output_tokens` that it accepts. A lower limit of a client of another API is raised."""
    result_parts: bool = True
    """Whether the result of a tool may be a list of parts. If not (llama.cpp), it is sent as text, and images follow in
    a message."""
    cache_breakpoints: bool = False
    """Whether it accepts marks for its prompt cache in parts of the input, from clients of other APIs
    (`prompt_cache_breakpoint`)."""
    cache_key: bool = False
    """Whether its prompt cache finds a conversation by a `prompt_cache_key`. Then requests of clients of other APIs get
    one: a digest of the [beginning of the conversation](caching.md#breakpoints)."""
    cache_minimum: int = 0
    """With `cache_breakpoints`: the least tokens of a system prompt that gets one by itself, for clients of other APIs
    that set none. See [prompt caches](caching.md). 0: none gets one."""


class ResponsesRequestWriter(RequestWriter):
    """Writes requests for Responses."""

    sealed = False
    """Whether earlier reasoning comes back to the provider that encrypted it."""

    def __init__(self, destination: Destination, names: ToolMap) -> None:
        super().__init__(destination, names)
        self._settings = destination.settings_as(ResponsesSettings)
        self._custom: set[str] = set()  # the ids of calls of custom tools

    def write(self, request: Request) -> Json:
        """The members of the body."""
        fields: Json = {"input": self.conversation(request, self.input(request)), "store": False}
        tools = self.tools(available_tools(request, self.losses))
        user = request.user if len(request.user) <= MAX_USER else ""
        optional: Json = {
            "tools": tools or None,
            "tool_choice": _write_choice(request.tool_choice, request.tools) if tools else None,
            "parallel_tool_calls": request.parallel_calls if tools else None,
            "max_output_tokens": self._write_limit(request.max_output),
            "text": _write_text(request),
            "reasoning": self._write_reasoning(request.reasoning),
            "service_tier": request.tier if request.tier in _TIERS else None,
            "user": user or None,
            "metadata": dict(request.metadata) or None,
            "prompt_cache_key": request.cache_key or None,
            **self._write_sampling(request.sampling),
        }
        fields |= {name: value for name, value in optional.items() if value is not None}
        include = [_ENCRYPTED] if self._settings.encrypted_reasoning and (self.sealed or "reasoning" in fields) else []
        include += [_LOGPROBS] if request.sampling.logprobs else []
        if include:
            fields["include"] = include
        self._note_dropped(request, fields)
        return fields

    def sections(self, fields: Json) -> PromptSections | None:
        """The system prompt. The API sets a breakpoint after the last message itself."""
        first = objects_of(fields["input"])[0]
        own = self._settings.cache_breakpoints and first.get("role") == self._settings.system_role
        return PromptSections(system=objects_of(first["content"]), mark=_mark) if own else None

    def input(self, request: Request) -> list[Json]:
        turns: Sequence[Message] = request.turns
        if not self._settings.mid_system:
            turns = without_system_turns(turns, self.losses)
        written = self._message(self._settings.system_role, request.system)
        for turn in turns:
            role = self._settings.system_role if turn.role == "system" else turn.role
            written += self._turn(role, turn.parts)
        return written

    def _turn(self, role: str, parts: Sequence[Part]) -> list[Json]:
        """The items of a turn: what is not part of a message stands between messages."""
        written: list[Json] = []
        content: list[Part] = []
        for part in parts:
            items = self._item(part)
            if items is None:
                content.append(part)
            else:
                written += [*self._message(role, content), *items]
                content = []
        return written + self._message(role, content)

    def _item(self, part: Part) -> list[Json] | None:
        """The items that a part is by itself; None if it belongs into a message."""
        match part:
            case ToolCall():
                return self._call(part)
            case ToolResult():
                return self._result(part)
            case ReasoningPart():
                return self._reasoning(part)
            case _:
                return None

    def _message(self, role: str, parts: Sequence[Part]) -> list[Json]:
        content = [body for part in parts if (body := self._content(role, part)) is not None]
        return [{"type": "message", "role": role, "content": content}] if content else []

    def _content(self, role: str, part: Part) -> Json | None:
        match part:
            case TextPart(text):
                kind = "output_text" if role == "assistant" else "input_text"
                return self._marked({"type": kind, "text": text}, part.cache) if text else None
            case RefusalPart(text):
                return {"type": "refusal", "refusal": text} if text else None
            case MediaPart():
                if role == "assistant":
                    self.losses.append(Loss("content-dropped", part.kind))
                    return None
                media = self._media(part)
                return self._marked(media, part.cache) if media is not None else None
            case ToolChange():
                return {"type": "input_text", "text": str(part)}
            case OpaquePart(_, type, loss=loss):
                self.losses.append(Loss(loss, type))
            case ToolCall() | ToolResult() | ReasoningPart():
                self.losses.append(Loss("content-dropped", "part of a result"))
        return None

    def _marked(self, part: Json, cache: str) -> Json:
        accepted = self._settings.cache_breakpoints and part["type"] not in ("output_text", "input_audio")
        return with_mark(part, cache, self.losses, accepted=accepted)

    def _media(self, part: MediaPart) -> Json | None:
        url = url_of(part)
        if part.file_id or part.kind == "video" or (part.kind == "audio" and not part.data):
            self.losses.append(media_loss(part))
            return None
        if part.kind == "image":
            return {"type": "input_image", "image_url": url, "detail": part.extras.get("detail", "auto")}
        if part.kind == "audio":
            return {"type": "input_audio", "input_audio": {"data": part.data, "format": format_of(part.mime)}}
        if part.url:
            self.losses.extend([Loss("field-dropped", "content.name")] if part.name else [])
            return {"type": "input_file", "file_url": url}
        return {"type": "input_file", "filename": part.name or "file", "file_data": url}

    def _call(self, call: ToolCall) -> list[Json]:
        self.note_cache(call.cache)
        if call.server:
            self.losses.append(Loss("content-dropped", call.name))
            return []
        id = call.id or call.name
        body: Json = {"type": "function_call", "call_id": portable(id, MAX_ID), "name": portable(call.name, _MAX_NAME)}
        if call.namespace:
            body["namespace"] = call.namespace
        if call.kind == "custom":
            self._custom.add(id)
            return [body | {"type": "custom_tool_call", "input": call.arguments}]
        return [body | {"arguments": call.arguments or "{}"}]

    def _result(self, result: ToolResult) -> list[Json]:
        self.note_cache(result.cache)
        id = result.call_id or result.name
        parts, moved = list(result.parts), list[Part]()
        if not self._settings.result_parts and any(isinstance(part, MediaPart) for part in parts):
            self.losses.append(Loss("result-media-moved", result.call_id))
            media = [part for part in parts if isinstance(part, MediaPart)]
            moved = [TextPart(f"The result of {result.name or id} is attached."), *media]
            parts = [part for part in parts if not isinstance(part, MediaPart)]
        if result.is_error:
            self.losses.append(Loss("error-flag-as-text", result.call_id))
            first = parts[0] if parts else None
            text = first.text if isinstance(first, TextPart) else ""
            parts[: isinstance(first, TextPart)] = [TextPart(f"Error: {text}")]
        content = [body for part in parts if (body := self._content("user", part)) is not None]
        texts = [str(body["text"]) for body in content if body["type"] == "input_text"]
        marked = [body for body in content if "prompt_cache_breakpoint" in body]
        flat = len(texts) == len(content) and ((len(texts) < 2 and not marked) or not self._settings.result_parts)
        self.losses.extend(Loss("cache-hint-dropped", "of a result") for _ in marked if flat)
        kind = "custom_tool_call_output" if id in self._custom else "function_call_output"
        output: Json = {"type": kind, "call_id": portable(id, MAX_ID), "output": "\n".join(texts) if flat else content}
        return [output, *self._message("user", moved)]

    def _reasoning(self, part: ReasoningPart) -> list[Json]:
        """An item of reasoning, if the provider can decrypt it, or wants it as text (rule 3)."""
        seal = opened(part.seals, SEAL_SCHEME, self.issuer)
        if seal is not None and self._settings.encrypted_reasoning:
            self.sealed = True
            summary = part.summary or ((part.text,) if part.text else ())
            return [{"type": "reasoning", "summary": _texts("summary_text", summary), "encrypted_content": seal.value}]
        text = part.thought
        if text and self._settings.open_reasoning:
            self.losses.extend(Loss("seal-dropped", seal.scheme) for seal in part.seals)
            return [{"type": "reasoning", "summary": [], "content": _texts("reasoning_text", (text,))}]
        self.losses.append(Loss("reasoning-dropped"))
        return []

    def tools(self, tools: Sequence[Tool]) -> list[Json]:
        """The tools; those of a namespace are listed in it."""
        written: list[Json] = []
        spaces: dict[str, list[Json]] = {}
        for tool in tools:
            body = self._tool(tool)
            if body is None:
                continue
            if not tool.namespace:
                written.append(body)
                continue
            if tool.namespace not in spaces:
                inner = spaces[tool.namespace] = []
                written.append({"type": "namespace", "name": tool.namespace, "description": "", "tools": inner})
            spaces[tool.namespace].append(body)
        return written

    def _tool(self, tool: Tool) -> Json | None:
        self.note_cache(tool.cache)
        if tool.kind == "server":
            self.losses.append(Loss("server-tool-dropped", tool.type or tool.name))
            return None
        body: Json = {"type": "function", "name": portable(tool.name, _MAX_NAME)}
        if tool.description:
            body["description"] = tool.description
        if tool.kind == "custom":
            return body | {"type": "custom"} | ({"format": tool.format} if tool.format else {})
        body["parameters"] = tool.schema or {"type": "object", "properties": {}}
        return body | {"strict": tool.strict is True}

    def _note_dropped(self, request: Request, fields: Json) -> None:
        if request.stop:
            self.losses.append(Loss("stop-dropped", f"{len(request.stop)} of {len(request.stop)}"))
        dropped = [name for name, given in (("service_tier", request.tier), ("user", request.user)) if given]
        self.losses.extend(Loss("field-dropped", name) for name in dropped if name not in fields)
        self.note_unknown(request, ("content.detail", "response_format.description", "reasoning.summary"))
        self.note_prefill(request)

    def _write_limit(self, most: int | None) -> int | None:
        if most is None or most >= self._settings.least_output:
            return most
        self.losses.append(Loss("max-tokens-raised", f"{most} as {self._settings.least_output}"))
        return self._settings.least_output

    def _write_reasoning(self, reasoning: ReasoningSettings | None) -> Json | None:
        """How much to reason, in the words that the provider accepts, and whether to summarise it."""
        if reasoning is None:
            return None
        written: Json = {}
        effort = write_effort(reasoning, self._settings.efforts, self.losses)
        if effort is not None:
            written["effort"] = effort
        shown = reasoning.enabled is True or reasoning.summary is not None
        sent = self._settings.summaries and self._settings.efforts
        if sent and shown and reasoning.summary != "none" and effort != "none":
            written["summary"] = reasoning.summary if reasoning.summary in _SUMMARIES else "auto"
        return written or None

    def _write_sampling(self, sampling: Sampling) -> Json:
        accepted = ("temperature", "top_p", "top_logprobs") if self._settings.sampling else ("top_logprobs",)
        self.note_sampling(sampling, (*accepted, "logprobs"))
        return {name: getattr(sampling, name) for name in accepted}


def _mark(parts: list[Json]) -> None:
    parts[-1].update(with_mark({}, "5m", [], accepted=True))


def renamed_tools(tools: Sequence[Tool]) -> dict[str, ClientTool]:
    """The client's tools that have another name in the request, by that name."""
    functions = {portable(tool.name, _MAX_NAME): tool for tool in tools if tool.kind == "function"}
    return {name: ClientTool(tool.name, tool.namespace) for name, tool in functions.items() if name != tool.name}


def _texts(type: str, texts: Sequence[str]) -> list[Json]:
    return [{"type": type, "text": text} for text in texts]


def _write_choice(choice: ToolChoice | None, tools: Sequence[Tool]) -> object:
    if choice is None:
        return None
    custom = {tool.name for tool in tools if tool.kind == "custom"}
    named: list[Json] = [
        {"type": "custom" if name in custom else "function", "name": portable(name, _MAX_NAME)} for name in choice.names
    ]
    match choice.mode:
        case "auto" | "none" | "required":
            return choice.mode
        case "tool":
            return named[0] if named else "required"
        case "allowed":
            return {"type": "allowed_tools", "mode": "required" if choice.required else "auto", "tools": named}


def _write_text(request: Request) -> Json | None:
    """How the text of the answer should be."""
    written: Json = {"verbosity": request.verbosity} if request.verbosity else {}
    form = request.format
    if form is not None:
        json = {"type": "json_object"}
        written["format"] = json if form.kind == "json" else {"type": "json_schema", **describe_schema(form)}
    return written or None
