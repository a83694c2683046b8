"""Writes requests in the dialect of Ollama: `Request` → the fields of a body, and the losses.

1. A message has one text, and images in base64 beside it. Ollama fetches no URLs.
2. Arguments of calls are objects. A result names the call and the tool.
3. The API cannot demand a call. If the client allows only some tools, only these are written.
4. The server cuts a prompt that is longer than its context without saying so: `num_ctx` sets the context.
"""

from collections.abc import Sequence
from typing import Literal

from penstock.core.dialects.parameters import ParameterSettings
from penstock.core.dialects.request_writer import (
    Destination,
    Json,
    RoleMessagesWriter,
)
from penstock.core.hub.content import MediaPart, Part, ReasoningPart, ToolCall, ToolResult
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import Message, ReasoningSettings, Request, available_tools
from penstock.core.hub.tool_map import ToolMap

_OPTIONS = {name: name for name in ("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty")}
_BESIDE = {name: name for name in ("logprobs", "top_logprobs")}
_LEVELS = ("low", "medium", "high")


class OllamaSettings(ParameterSettings, frozen=True, kw_only=True):
    """What a provider of this dialect accepts; capabilities that bytes cannot show."""

    think: Literal["switch", "level", "none"] = "switch"
    """How the model wants thinking to be requested: `"switch"` on or off, `"level"` (gpt-oss), or `"none"` if it cannot
    think."""
    num_ctx: int = 0
    """The context in tokens; 0 for the server's own. Ollama cuts a prompt that is longer than its context without
    saying so."""
    keep_alive: str = ""
    """How long the model stays in memory after an answer, such as `"10m"`."""


class OllamaRequestWriter(RoleMessagesWriter):
    """Writes requests for Ollama."""

    def __init__(self, destination: Destination, names: ToolMap) -> None:
        super().__init__(destination, names)
        self._settings = destination.settings_as(OllamaSettings)
        self._called: dict[str, str] = {}  # the names of tools, by the ids of their calls

    def write(self, request: Request) -> Json:
        """The members of the body."""
        fields: Json = {"messages": self.conversation(request, self.messages(request))}
        tools = self.tools(request)
        if tools:
            fields["tools"] = tools
        options = self.sampling(request.sampling, _OPTIONS | _BESIDE)
        fields |= {name: options.pop(name) for name in _BESIDE if name in options}
        if request.max_output is not None:
            options["num_predict"] = request.max_output
        if request.stop:
            options["stop"] = list(request.stop)
        if self._settings.num_ctx:
            options["num_ctx"] = self._settings.num_ctx
        if options:
            fields["options"] = options
        if request.format is not None:
            fields["format"] = "json" if request.format.schema is None else request.format.schema
        think = self._think(request.reasoning)
        if think is not None:
            fields["think"] = think
        if self._settings.keep_alive:
            fields["keep_alive"] = self._settings.keep_alive
        self.note_fields(request)
        self.note_prefill(request)
        return fields

    def answer(self, turn: Message) -> Json:
        reasoning = [part for part in turn.parts if isinstance(part, ReasoningPart)]
        rest = [part for part in turn.parts if not isinstance(part, ReasoningPart | ToolCall)]
        message: Json = {"role": "assistant", "content": self.texts(rest)}
        thinking = "".join(part.thought for part in reasoning)
        if thinking:
            message["thinking"] = thinking
            self.losses.extend(Loss("seal-dropped", seal.scheme) for part in reasoning for seal in part.seals)
        elif reasoning:
            self.losses.extend(Loss("reasoning-dropped") for _ in reasoning)
        calls = [self._call(call) for call in self.calls(turn.parts)]
        return message | ({"tool_calls": calls} if calls else {})

    def _call(self, call: ToolCall) -> Json:
        name = self.names.name(call.name, call.namespace)
        function = {"name": name, "arguments": self.arguments(call)}
        if call.id:
            self._called[call.id] = name
        return ({"id": call.id} if call.id else {}) | {"function": function}

    def user(self, parts: Sequence[Part]) -> list[Json]:
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

    def _result(self, result: ToolResult, text: str) -> Json:
        message: Json = {"role": "tool", "content": text}
        if result.call_id:
            message["tool_call_id"] = result.call_id
        name = self._called.get(result.call_id) or (self.names.name(result.name) if result.name else "")
        return message | ({"tool_name": name} if name else {})

    def tools(self, request: Request) -> list[Json]:
        choice = request.tool_choice
        functions = self.functions(available_tools(request, self.losses))
        allowed = self.allowed(functions, choice)
        if choice is not None and allowed and (choice.mode in ("required", "tool") or choice.required):
            self.losses.append(Loss("tool-choice-widened", choice.mode))
        self.losses.extend(Loss("tool-option-dropped", "strict") for tool in allowed if tool.strict)
        return [self.declared(tool) for tool in allowed]

    def _think(self, reasoning: ReasoningSettings | None) -> bool | str | None:
        """Whether, or how much, the model should think; None if the model decides."""
        if reasoning is None:
            return None
        if self._settings.think == "none":
            self.losses.append(Loss("field-dropped", "reasoning_effort"))
            return None
        effort = reasoning.effort or ""
        if reasoning.enabled is False or effort == "none":
            if self._settings.think == "level":
                self.losses.append(Loss("effort-approximated", "none as low"))
                return "low"
            return False
        if self._settings.think == "level" and effort in _LEVELS:
            return effort
        if effort or reasoning.budget is not None:
            nearest = "high" if effort in ("xhigh", "max") else "low" if effort == "minimal" else "medium"
            level = nearest if self._settings.think == "level" else True
            self.losses.append(Loss("effort-approximated", f"{effort or reasoning.budget} as {str(level).lower()}"))
            return level
        return True if reasoning.enabled else None
