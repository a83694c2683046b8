"""Writes requests in the OpenAI chat dialect: `Request` → the fields of a body, and the losses.

It is for requests that arrived in another dialect. A request in this dialect is forwarded (`core/json/members.py`).
Providers of this dialect differ in what they accept beyond the messages. A field that many of them refuse is written
only where the provider's data says so (`ChatSettings`).
"""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Raw

from penstock.core.dialects.cache_breakpoints import PromptSections
from penstock.core.dialects.openai_options import (
    MAX_ID,
    MAX_USER,
    Effort,
    describe_schema,
    with_mark,
    write_effort,
)
from penstock.core.dialects.parameters import ParameterSettings
from penstock.core.dialects.prefill import Prefill
from penstock.core.dialects.request_writer import Destination, Json, RequestWriter, is_written
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
    Request,
    ResponseFormat,
    Sampling,
    Tool,
    ToolChoice,
    available_tools,
    without_system_turns,
)
from penstock.core.hub.seals import GOOGLE, PLACEHOLDER, call_signature, opened
from penstock.core.hub.tool_ids import portable
from penstock.core.hub.tool_map import ToolMap, arguments_of
from penstock.core.json.getters import object_of, objects_of, text_of

_STOP_LIMIT = 4
# What Responses knows and chat completions do not, and the nearest detail of an image.
_DETAILS = {"original": "high"}


class ChatSettings(ParameterSettings, frozen=True, kw_only=True):
    """What a provider of this dialect accepts; capabilities that bytes cannot show."""

    reasoning_field: str = ""
    """The field of assistant messages in which it expects earlier reasoning, such as `reasoning_content`. If it is
    empty, earlier reasoning is left out."""
    efforts: tuple[Effort, ...] = ()
    """The values of `reasoning_effort` that it accepts; the nearest one is sent, but `none` only if the client turns
    reasoning off. If there is none, the field is left out: models that do not reason refuse it."""
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    """The field for the limit on the output: `"max_completion_tokens"` or `"max_tokens"`."""
    mid_system: bool = True
    """Whether it accepts `system` messages between other messages. If not, their text is sent in the user message
    before or after."""
    verbosity: bool = False
    """Whether it accepts `verbosity`. If not, it is left out."""
    cache_breakpoints: bool = False
    """Whether it accepts marks for its prompt cache in parts (`prompt_cache_breakpoint`). If not, those of clients are
    left out."""
    cache_key: bool = False
    """Whether its prompt cache finds a conversation by a `prompt_cache_key`. Then requests of clients of other APIs get
    one: a digest of the [beginning of the conversation](caching.md#breakpoints)."""
    cache_minimum: int = 0
    """With `cache_breakpoints`: the least tokens of a system prompt that gets one by itself, for clients of other APIs
    that set none. See [prompt caches](caching.md). 0: none gets one."""
    cache_salt: bool = False
    """Whether it accepts a salt for its prompt cache (`cache_salt`). Each [tenant](routing.md#prompt-cache-affinity)
    gets one of its own, so that none can find out what another one has sent."""
    call_signatures: bool = False
    """Whether its tool calls carry Google's thought signatures (`extra_content`). Clients of other APIs get them as
    reasoning without text, and each returns on its call."""
    signature_placeholder: bool = False
    """With `call_signatures`: whether the first call of a turn that has no signature gets the one that Google documents
    for this. Also for clients of chat completions."""
    prefill: Prefill = ""
    """How it goes on with [an answer that broke off](routing.md#answers-that-break-off): `"last"`, `"prefix"`,
    `"partial"` or `"continue_final_message"`. If it is empty, it is not asked to."""


class ChatRequestWriter(RequestWriter):
    """Writes requests for chat completions."""

    one_choice = False

    def __init__(self, destination: Destination, names: ToolMap) -> None:
        super().__init__(destination, names)
        self._settings = destination.settings_as(ChatSettings)

    def write(self, request: Request) -> Json:
        """The members of the body."""
        fields: Json = {"messages": self.conversation(request, self.messages(request))}
        tools = [body for tool in available_tools(request, self.losses) if (body := self.tool(tool)) is not None]
        sampling = {name: getattr(request.sampling, name) for name in Sampling.__struct_fields__}
        if sampling.pop("top_k") is not None:
            self.losses.append(Loss("sampling-dropped", "top_k"))
        if len(request.stop) > _STOP_LIMIT:
            self.losses.append(Loss("stop-dropped", f"{len(request.stop) - _STOP_LIMIT} of {len(request.stop)}"))
        optional: Json = {
            "tools": tools or None,
            "tool_choice": self._write_choice(request.tool_choice) if tools else None,
            "parallel_tool_calls": request.parallel_calls if tools else None,
            self._settings.max_tokens_field: request.max_output,
            "n": request.choices if request.choices > 1 else None,
            "stop": list(request.stop[:_STOP_LIMIT]) or None,
            **sampling,
            "response_format": _write_format(request.format),
            "reasoning_effort": write_effort(request.reasoning, self._settings.efforts, self.losses),
            "verbosity": request.verbosity if request.verbosity and self._settings.verbosity else None,
            "service_tier": request.tier or None,
            "user": request.user or None,
            "metadata": dict(request.metadata) or None,
            "prompt_cache_key": request.cache_key or None,
        }
        fields |= {name: value for name, value in optional.items() if value is not None}
        self._drop_unusual(fields, request)
        dropped = ["verbosity"] if request.verbosity and not self._settings.verbosity else []
        self.losses.extend(Loss("field-dropped", name) for name in dropped)
        self.note_unknown(request, ("messages.name", "content.detail", "response_format.description"))
        self.note_prefill(request)
        if request.stop:
            self.losses.append(Loss("stop-sequence-unreported"))
        return fields

    def sections(self, fields: Json) -> PromptSections | None:
        """The system prompt. The API sets a breakpoint after the last message itself."""
        first = objects_of(fields["messages"])[:1]
        own = self._settings.cache_breakpoints and bool(first) and first[0]["role"] == "system"
        return PromptSections(system=first, mark=_mark) if own else None

    def messages(self, request: Request) -> list[Json]:
        written: list[Json] = []
        system = self._content(request.system)
        if system:
            written.append({"role": "system", "content": system})
        turns: Sequence[Message] = request.turns
        if not self._settings.mid_system:
            turns = without_system_turns(turns, self.losses)
        for turn in turns:
            written += self._turn(turn)
        return written

    def _turn(self, turn: Message) -> list[Json]:
        if turn.role == "system":
            return [{"role": "system", "content": self._content(turn.parts)}]
        if turn.role == "assistant":
            answer = self._answer(turn)
            return [answer] if is_written(answer, turn) else []
        moved: list[Part] = []
        written = [self._result(part, moved) for part in turn.parts if isinstance(part, ToolResult)]
        rest = [*moved, *(part for part in turn.parts if not isinstance(part, ToolResult))]
        if rest or not written:
            message: Json = {"role": "user", "content": self._content(rest)}
            if turn.name:
                message["name"] = turn.name
            written.append(message)
        return written

    def _answer(self, turn: Message) -> Json:
        content = [part for part in turn.parts if not isinstance(part, ToolCall | ReasoningPart)]
        calls = [part for part in turn.parts if isinstance(part, ToolCall)]
        message: Json = {"role": "assistant", "content": self._content(content) if content or not calls else None}
        written, reasoning = self._calls(turn.parts)
        text = "".join(part.thought for part in reasoning)
        wanted = text or written  # providers that want it refuse calls without it, even empty
        if wanted and self._settings.reasoning_field:
            message[self._settings.reasoning_field] = text
            self.losses.extend(Loss("seal-dropped", seal.scheme) for part in reasoning for seal in part.seals)
        elif reasoning:
            self.losses.extend(Loss("reasoning-dropped") for _ in reasoning)
        if turn.name:
            message["name"] = turn.name
        if written:
            message["tool_calls"] = written
        return message

    def _calls(self, parts: Sequence[Part]) -> tuple[list[Json], list[ReasoningPart]]:
        """The calls that the client executes, each with its signature; and the reasoning that is no such signature.

        A signature is a part without text before its call; in APIs without an order of parts, before the first call.
        """
        written: list[Json] = []
        reasoning: list[ReasoningPart] = []
        waiting: ReasoningPart | None = None
        for part in parts:
            if isinstance(part, ReasoningPart) and self._signature(part):
                reasoning += [waiting] if waiting else []
                waiting = part
            elif isinstance(part, ReasoningPart):
                reasoning.append(part)
            elif isinstance(part, ToolCall) and part.server:
                self.losses.append(Loss("content-dropped", part.name))
            elif isinstance(part, ToolCall):
                written.append(self._call(part) | (_signed(self._signature(waiting)) if waiting else {}))
                waiting = None
        if written and self._settings.signature_placeholder:
            written[0] = _signed(PLACEHOLDER) | written[0]
        return written, [*reasoning, waiting] if waiting else reasoning

    def _signature(self, part: ReasoningPart) -> str:
        """The signature of the call after a part of reasoning; empty if it has none that the provider takes."""
        if not self._settings.call_signatures or part.text:
            return ""
        seal = opened(part.seals, GOOGLE, self.issuer)
        own = next((each for each in part.seals if each.scheme == GOOGLE), None)  # a client of Gemini's API sent it
        return seal.value if seal else own.value if own else ""

    def _call(self, call: ToolCall) -> Json:
        name, id = self.names.name(call.name, call.namespace), self._id(call.id or "")
        self.note_cache(call.cache)
        return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments_of(call)}}

    def _id(self, id: str) -> str:
        """The id of a call. OpenAI refuses longer ones than it makes itself."""
        return id if len(id) <= MAX_ID else portable(id, MAX_ID)

    def _result(self, result: ToolResult, moved: list[Part]) -> Json:
        """A message with the text of a result. Its media go into `moved`: a tool message cannot have any."""
        text = "\n".join(_result_text(part) for part in result.parts if isinstance(part, TextPart | ToolChange))
        media = [part for part in result.parts if isinstance(part, MediaPart)]
        if media:
            self.losses.append(Loss("result-media-moved", result.call_id))
            moved += [TextPart(f"The result of {result.name or result.call_id} is attached."), *media]
        self.losses.extend(
            Loss("content-dropped", getattr(part, "type", ""))
            for part in result.parts
            if not isinstance(part, TextPart | MediaPart | ToolChange)
        )
        if result.is_error:
            self.losses.append(Loss("error-flag-as-text", result.call_id))
            text = f"Error: {text}"
        self.note_cache(result.cache)
        for part in result.parts:
            self.note_cache(part.cache if isinstance(part, TextPart) else "")
        return {"role": "tool", "tool_call_id": self._id(result.call_id), "content": text}

    def _content(self, parts: Sequence[Part]) -> object:
        """A text where there is nothing else, else a list of parts. Many providers refuse a list of texts."""
        written = [body for part in parts if (body := self._part(part)) is not None]
        if all(body.keys() == {"type", "text"} for body in written):
            return "\n\n".join(str(body["text"]) for body in written)
        return written

    def _part(self, part: Part) -> Json | None:
        match part:
            case TextPart(text):
                return self._marked({"type": "text", "text": text}, part.cache)
            case RefusalPart(text):
                return {"type": "refusal", "refusal": text}
            case MediaPart():
                media = self._media(part)
                return self._marked(media, part.cache) if media is not None else None
            case OpaquePart(_, type, loss=loss):
                self.losses.append(Loss(loss, type))
            case ToolChange():
                return {"type": "text", "text": str(part)}
            case ReasoningPart():
                self.losses.append(Loss("reasoning-dropped"))
            case ToolCall() | ToolResult():
                self.losses.append(
                    Loss("content-dropped", "tool call" if isinstance(part, ToolCall) else "tool result")
                )
        return None

    def _marked(self, part: Json, cache: str) -> Json:
        return with_mark(part, cache, self.losses, accepted=self._settings.cache_breakpoints)

    def _media(self, part: MediaPart) -> Json | None:
        url = url_of(part)
        if part.kind == "image" and not part.file_id:
            return {"type": "image_url", "image_url": {"url": url} | self._detail(part)}
        if part.kind == "audio" and part.data:
            return {"type": "input_audio", "input_audio": {"data": part.data, "format": format_of(part.mime)}}
        if part.kind == "file" and part.data:
            return {"type": "file", "file": {"filename": part.name or "file", "file_data": url}}
        self.losses.append(media_loss(part))
        return None

    def _detail(self, part: MediaPart) -> Json:
        detail = part.extras.get("detail")
        if str(detail) in _DETAILS:
            self.losses.append(Loss("field-dropped", "content.detail"))
        return {"detail": _DETAILS.get(str(detail), detail)} if detail is not None else {}

    def tool(self, tool: Tool) -> Json | None:
        self.note_cache(tool.cache)
        function = self.function(tool)
        if function is None:
            return None
        body: Json = {"name": self.names.name(function.name, function.namespace)}
        if function.description:
            body["description"] = function.description
        if function.schema is not None:
            body["parameters"] = function.schema
        if function.strict:  # false is the default
            body["strict"] = True
        return {"type": "function", "function": body}

    def _drop_unusual(self, fields: Json, request: Request) -> None:
        """Leave out what many providers refuse: tiers, which every provider names otherwise, and a long `user`."""
        tier = text_of(fields.pop("service_tier", None))
        if tier not in ("", "auto"):
            self.losses.append(Loss("field-dropped", "service_tier"))
        if len(request.user) > MAX_USER:
            del fields["user"]
            self.losses.append(Loss("field-dropped", "user"))

    def _write_choice(self, choice: ToolChoice | None) -> object:
        if choice is None:
            return None
        named = [{"type": "function", "function": {"name": self.names.chosen(name)}} for name in choice.names]
        match choice.mode:
            case "auto" | "none" | "required":
                return choice.mode
            case "tool":
                return named[0] if named else "required"
            case "allowed":
                return {
                    "type": "allowed_tools",
                    "allowed_tools": {"mode": "required" if choice.required else "auto", "tools": named},
                }


def _mark(messages: list[Json]) -> None:
    content = messages[-1]["content"]
    parts = objects_of(content) or [{"type": "text", "text": content}]
    messages[-1]["content"] = [*parts[:-1], with_mark(parts[-1], "5m", [], accepted=True)]


def with_placeholders(written: Raw) -> Raw | None:
    """A client's own messages with a placeholder on the first call of each turn that has no signature; None if all
    have one. Many clients of this dialect drop members that OpenAI does not have."""
    if b'"tool_calls"' not in bytes(written):
        return None
    messages = msgspec.json.decode(written)
    calls = [calls[0] for each in objects_of(messages) if (calls := objects_of(each.get("tool_calls")))]
    unsigned = [call for call in calls if not call_signature(call)]
    for call in unsigned:
        call["extra_content"] = object_of(call.get("extra_content")) | _signed(PLACEHOLDER)["extra_content"]
    return Raw(msgspec.json.encode(messages)) if unsigned else None


def _signed(signature: str) -> dict[str, dict[str, object]]:
    """The members of a tool call with a signature, in Google's OpenAI-compatible API."""
    return {"extra_content": {"google": {"thought_signature": signature}}}


def _result_text(part: TextPart | ToolChange) -> str:
    return part.text if isinstance(part, TextPart) else str(part)


def _write_format(form: ResponseFormat | None) -> object:
    if form is None:
        return None
    if form.kind == "json":
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": describe_schema(form)}
