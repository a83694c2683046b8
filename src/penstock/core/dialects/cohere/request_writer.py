"""Writes requests in the dialect of Cohere: `Request` → the fields of a body, and the losses.

1. `tool_choice` is `REQUIRED` or `NONE`. If the client allows only some tools, only these are written.
2. Earlier reasoning before tool calls is `tool_plan`. Models that think take it as thinking.
3. All tools are strict, or none.
"""

from collections.abc import Sequence

from msgspec import Struct

from penstock.core.dialects.bodies import check_translatable, require_conversation, require_one_choice
from penstock.core.dialects.translated_parts import (
    TranslatedParts,
    is_written,
    note_fields,
    note_prefill,
    write_sampling,
    write_stops,
)
from penstock.core.hub.content import MediaPart, Part, ReasoningPart, ToolCall
from penstock.core.hub.losses import Loss
from penstock.core.hub.media import url_of
from penstock.core.hub.request import Message, ReasoningSettings, Request, Tool, available_tools
from penstock.core.hub.tool_ids import portable
from penstock.core.hub.tool_map import ToolMap, arguments_of

_SAMPLING = {
    "temperature": "temperature",
    "top_p": "p",
    "top_k": "k",
    "seed": "seed",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}
_MAX_STOPS = 5
_MAX_ID = 64
_BUDGETS = {"minimal": 512, "low": 1_024, "medium": 8_192, "high": 24_576}
_Json = dict[str, object]


class CohereSettings(Struct, frozen=True, kw_only=True):
    """What a provider of this dialect accepts; capabilities that bytes cannot show."""

    reasons: bool = False
    """Whether the model can think before it answers, and takes earlier thinking."""


def write_request(request: Request, settings: CohereSettings, losses: list[Loss], names: ToolMap) -> _Json:
    """The fields of an equivalent body. Raises `RequestError` if the client demands what the API lacks."""
    require_one_choice(request.choices)
    check_translatable(request)
    writer = _CohereMessages(settings, losses, names)
    fields: _Json = {
        "messages": require_conversation(request, writer.messages(request), losses),
        "stream": request.stream,
    }
    fields |= writer.tools(request)
    fields |= write_sampling(request.sampling, _SAMPLING, losses)
    if request.max_output is not None:
        fields["max_tokens"] = request.max_output
    if request.stop:
        fields["stop_sequences"] = write_stops(request.stop, losses, most=_MAX_STOPS)
    if request.format is not None:
        schema = request.format.schema
        fields["response_format"] = {"type": "json_object"} | ({"json_schema": schema} if schema is not None else {})
    thinking = _thinking(request.reasoning, settings, losses)
    if thinking is not None:
        fields["thinking"] = thinking
    note_fields(request, losses, known=("content.detail",))
    note_prefill(request, losses)
    return fields


class _CohereMessages(TranslatedParts):
    """Writes messages and tools."""

    def __init__(self, settings: CohereSettings, losses: list[Loss], names: ToolMap) -> None:
        super().__init__(losses, names)
        self._settings = settings

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
        message: _Json = {"role": "assistant"}
        reasoning = [part for part in turn.parts if isinstance(part, ReasoningPart)]
        thought = "".join(part.text or "\n\n".join(part.summary) for part in reasoning)
        calls = self.calls(turn.parts)
        text = self.texts([part for part in turn.parts if not isinstance(part, ReasoningPart | ToolCall)])
        content: list[_Json] = [{"type": "text", "text": text}] if text else []
        if thought and self._settings.reasons:
            content.insert(0, {"type": "thinking", "thinking": thought})
        elif thought and calls:
            message["tool_plan"] = thought
        if thought and (self._settings.reasons or calls):
            self.losses.extend(Loss("seal-dropped", seal.scheme) for part in reasoning for seal in part.seals)
        elif reasoning:
            self.losses.extend(Loss("reasoning-dropped") for _ in reasoning)
        if content or not calls:
            message["content"] = content or text
        if calls:
            message["tool_calls"] = [self._call(call) for call in calls]
        return message

    def _call(self, call: ToolCall) -> _Json:
        self.note_cache(call.cache)
        function = {"name": self.names.name(call.name, call.namespace), "arguments": arguments_of(call)}
        return {"id": portable(call.id or call.name, _MAX_ID), "type": "function", "function": function}

    def _user(self, parts: Sequence[Part]) -> list[_Json]:
        """The results of tools, then everything else."""
        results, rest = self.results(parts)
        written: list[_Json] = [
            {"role": "tool", "tool_call_id": portable(result.call_id, _MAX_ID), "content": text}
            for result, text in results
        ]
        if rest or not written:
            written.append({"role": "user", "content": self._content(rest)})
        return written

    def _content(self, parts: Sequence[Part]) -> object:
        """One text, or a list of texts and images."""
        images = [part for part in parts if isinstance(part, MediaPart) and _is_image(part)]
        if not images:
            return self.texts(parts)
        content: list[_Json] = []
        for part in parts:
            if isinstance(part, MediaPart) and _is_image(part):
                detail = part.extras.get("detail")
                self.note_cache(part.cache)
                image: _Json = {"url": url_of(part)}
                content.append({"type": "image_url", "image_url": image | ({"detail": detail} if detail else {})})
            elif text := self.texts([part]):
                content.append({"type": "text", "text": text})
        return content

    def tools(self, request: Request) -> _Json:
        choice = request.tool_choice
        functions = self.functions(available_tools(request, self.losses))
        none = choice is not None and choice.mode == "none"
        allowed = functions if none else self.allowed(functions, choice)
        if not allowed:
            return {}
        fields: _Json = {"tools": [self._tool(tool) for tool in allowed]}
        if all(tool.strict for tool in allowed):
            fields["strict_tools"] = True
        else:
            self.losses.extend(Loss("tool-option-dropped", "strict") for tool in allowed if tool.strict)
        if none:
            fields["tool_choice"] = "NONE"
        elif choice is not None and (choice.mode in ("required", "tool") or choice.required):
            fields["tool_choice"] = "REQUIRED"
        return fields

    def _tool(self, tool: Tool) -> _Json:
        self.note_cache(tool.cache)
        function: _Json = {"name": self.names.name(tool.name, tool.namespace), "description": tool.description}
        function["parameters"] = tool.schema or {"type": "object", "properties": {}}
        return {"type": "function", "function": function}


def _is_image(part: MediaPart) -> bool:
    return part.kind == "image" and bool(part.url or part.data)


def _thinking(reasoning: ReasoningSettings | None, settings: CohereSettings, losses: list[Loss]) -> _Json | None:
    if reasoning is None:
        return None
    effort, budget = reasoning.effort or "", reasoning.budget
    if not settings.reasons:
        if effort != "none" and reasoning.enabled is not False:
            losses.append(Loss("field-dropped", "reasoning_effort"))
        return None
    if reasoning.enabled is False or effort == "none":
        return {"type": "disabled"}
    if budget is None and effort:
        budget = _BUDGETS.get(effort, _BUDGETS["high"])
        losses.append(Loss("effort-approximated", f"{effort} as {budget}"))
    return {"type": "enabled"} | ({"token_budget": budget} if budget is not None else {})
