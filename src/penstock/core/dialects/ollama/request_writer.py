"""Writes requests in the dialect of Ollama: `Request` → the fields of a body, and the losses.

1. A message has one text, and images in base64 beside it. Ollama fetches no URLs.
2. Arguments of calls are objects. A result names the call and the tool.
3. The API cannot demand a call. If the client allows only some tools, only these are written.
4. The server cuts a prompt that is longer than its context without saying so: `num_ctx` sets the context.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from penstock.core.dialects.bodies import check_translatable, require_conversation, require_one_choice
from penstock.core.dialects.translated_parts import (
    TranslatedParts,
    is_written,
    note_fields,
    note_prefill,
    write_sampling,
)
from penstock.core.hub.content import MediaPart, Part, ReasoningPart, ToolCall, ToolResult
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import Message, ReasoningSettings, Request, available_tools
from penstock.core.hub.tool_map import ToolMap

_OPTIONS = {name: name for name in ("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty")}
_BESIDE = {name: name for name in ("logprobs", "top_logprobs")}
_LEVELS = ("low", "medium", "high")
_Json = dict[str, object]


class OllamaSettings(Struct, frozen=True, kw_only=True):
    """What a provider of this dialect accepts; capabilities that bytes cannot show."""

    think: Literal["switch", "level", "none"] = "switch"
    """How the model wants thinking to be requested: on or off, by a level (gpt-oss), or not at all."""
    num_ctx: int = 0
    """The context in tokens; 0 for the server's own."""
    keep_alive: str = ""
    """How long the model stays in memory after the answer, such as `10m`."""


def write_request(request: Request, settings: OllamaSettings, losses: list[Loss], names: ToolMap) -> _Json:
    """The fields of an equivalent body. Raises `RequestError` if the client demands what the API lacks."""
    require_one_choice(request.choices)
    check_translatable(request)
    writer = _OllamaMessages(losses, names)
    fields: _Json = {
        "messages": require_conversation(request, writer.messages(request), losses),
        "stream": request.stream,
    }
    tools = writer.tools(request)
    if tools:
        fields["tools"] = tools
    options = write_sampling(request.sampling, _OPTIONS | _BESIDE, losses)
    fields |= {name: options.pop(name) for name in _BESIDE if name in options}
    if request.max_output is not None:
        options["num_predict"] = request.max_output
    if request.stop:
        options["stop"] = list(request.stop)
    if settings.num_ctx:
        options["num_ctx"] = settings.num_ctx
    if options:
        fields["options"] = options
    if request.format is not None:
        fields["format"] = "json" if request.format.schema is None else request.format.schema
    think = _think(request.reasoning, settings, losses)
    if think is not None:
        fields["think"] = think
    if settings.keep_alive:
        fields["keep_alive"] = settings.keep_alive
    note_fields(request, losses)
    note_prefill(request, losses)
    return fields


class _OllamaMessages(TranslatedParts):
    """Writes messages and tools."""

    def __init__(self, losses: list[Loss], names: ToolMap) -> None:
        super().__init__(losses, names)
        self._called: dict[str, str] = {}  # the names of tools, by the ids of their calls

    def messages(self, request: Request) -> list[_Json]:
        written: list[_Json] = []
        system = self.texts(request.system)
        if system:
            written.append({"role": "system", "content": system})
        for turn in request.turns:
            if turn.role == "system":
                written.append({"role": "system", "content": self.texts(turn.parts)})
            elif turn.role == "assistant":
                message = self._answer(turn)
                written += [message] if is_written(message, turn) else []
            else:
                written += self._user(turn.parts)
        return written

    def _answer(self, turn: Message) -> _Json:
        reasoning = [part for part in turn.parts if isinstance(part, ReasoningPart)]
        rest = [part for part in turn.parts if not isinstance(part, ReasoningPart | ToolCall)]
        message: _Json = {"role": "assistant", "content": self.texts(rest)}
        thinking = "".join(part.text or "\n\n".join(part.summary) for part in reasoning)
        if thinking:
            message["thinking"] = thinking
            self.losses.extend(Loss("seal-dropped", seal.scheme) for part in reasoning for seal in part.seals)
        elif reasoning:
            self.losses.extend(Loss("reasoning-dropped") for _ in reasoning)
        calls = [self._call(call) for call in self.calls(turn.parts)]
        return message | ({"tool_calls": calls} if calls else {})

    def _call(self, call: ToolCall) -> _Json:
        name = self.names.name(call.name, call.namespace)
        function = {"name": name, "arguments": self.arguments(call)}
        if call.id:
            self._called[call.id] = name
        return ({"id": call.id} if call.id else {}) | {"function": function}

    def _user(self, parts: Sequence[Part]) -> list[_Json]:
        """The results of tools, then everything else."""
        results, rest = self.results(parts)
        written = [self._result(result, text) for result, text in results]
        images: list[str] = []
        others: list[Part] = []
        for part in rest:
            if isinstance(part, MediaPart) and part.kind == "image" and part.data:
                self.note_cache(part.cache)
                images.append(part.data)
            else:
                others.append(part)
        if rest or not written:
            written.append({"role": "user", "content": self.texts(others)} | ({"images": images} if images else {}))
        return written

    def _result(self, result: ToolResult, text: str) -> _Json:
        message: _Json = {"role": "tool", "content": text}
        if result.call_id:
            message["tool_call_id"] = result.call_id
        name = self._called.get(result.call_id) or (self.names.name(result.name) if result.name else "")
        return message | ({"tool_name": name} if name else {})

    def tools(self, request: Request) -> list[_Json]:
        choice = request.tool_choice
        functions = self.functions(available_tools(request, self.losses))
        allowed = self.allowed(functions, choice)
        if choice is not None and allowed and (choice.mode in ("required", "tool") or choice.required):
            self.losses.append(Loss("tool-choice-widened", choice.mode))
        written: list[_Json] = []
        for tool in allowed:
            function: _Json = {"name": self.names.name(tool.name, tool.namespace), "description": tool.description}
            function["parameters"] = tool.schema or {"type": "object", "properties": {}}
            if tool.strict:
                self.losses.append(Loss("tool-option-dropped", "strict"))
            self.note_cache(tool.cache)
            written.append({"type": "function", "function": function})
        return written


def _think(reasoning: ReasoningSettings | None, settings: OllamaSettings, losses: list[Loss]) -> bool | str | None:
    """Whether, or how much, the model should think; None if the model decides."""
    if reasoning is None:
        return None
    if settings.think == "none":
        losses.append(Loss("field-dropped", "reasoning_effort"))
        return None
    effort = reasoning.effort or ""
    if reasoning.enabled is False or effort == "none":
        if settings.think == "level":
            losses.append(Loss("effort-approximated", "none as low"))
            return "low"
        return False
    if settings.think == "level" and effort in _LEVELS:
        return effort
    if effort or reasoning.budget is not None:
        nearest = "high" if effort in ("xhigh", "max") else "low" if effort == "minimal" else "medium"
        level = nearest if settings.think == "level" else True
        losses.append(Loss("effort-approximated", f"{effort or reasoning.budget} as {str(level).lower()}"))
        return level
    return True if reasoning.enabled else None
