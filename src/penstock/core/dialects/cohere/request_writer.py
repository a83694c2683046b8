"""Writes requests in the dialect of Cohere: `Request` → the fields of a body, and the losses.

1. `tool_choice` is `REQUIRED` or `NONE`. If the client allows only some tools, only these are written.
2. Earlier reasoning before tool calls is `tool_plan`. Models that think take it as thinking.
3. All tools are strict, or none.
"""

from collections.abc import Sequence

from penstock.core.dialects.cohere.request import SAMPLING
from penstock.core.dialects.parameters import ParameterSettings
from penstock.core.dialects.request_writer import Destination, Json, RoleMessagesWriter
from penstock.core.hub.content import MediaPart, Part, ReasoningPart, ToolCall
from penstock.core.hub.losses import Loss
from penstock.core.hub.media import url_of
from penstock.core.hub.request import Message, ReasoningSettings, Request, available_tools
from penstock.core.hub.tool_ids import portable
from penstock.core.hub.tool_map import ToolMap, arguments_of

_SAMPLING = {ours: theirs for theirs, ours in SAMPLING.items()}
_MAX_STOPS = 5
_MAX_ID = 64
_BUDGETS = {"minimal": 512, "low": 1_024, "medium": 8_192, "high": 24_576}


class CohereSettings(ParameterSettings, frozen=True, kw_only=True):
    """What a provider of this dialect accepts; capabilities that bytes cannot show."""

    reasons: bool = False
    """Whether the model can think before it answers, and takes earlier thinking."""


class CohereRequestWriter(RoleMessagesWriter):
    """Writes requests for Cohere."""

    def __init__(self, destination: Destination, names: ToolMap) -> None:
        super().__init__(destination, names)
        self._settings = destination.settings_as(CohereSettings)

    def write(self, request: Request) -> Json:
        """The members of the body."""
        fields: Json = {"messages": self.conversation(request, self.messages(request))}
        fields |= self.tools(request)
        fields |= self.sampling(request.sampling, _SAMPLING)
        if request.max_output is not None:
            fields["max_tokens"] = request.max_output
        if request.stop:
            fields["stop_sequences"] = self.stops(request.stop, most=_MAX_STOPS)
        if request.format is not None:
            schema = request.format.schema
            given = {"json_schema": schema} if schema is not None else {}
            fields["response_format"] = {"type": "json_object", **given}
        thinking = self._thinking(request.reasoning)
        if thinking is not None:
            fields["thinking"] = thinking
        self.note_fields(request, known=("content.detail",))
        self.note_prefill(request)
        return fields

    def answer(self, turn: Message) -> Json:
        message: Json = {"role": "assistant"}
        reasoning = [part for part in turn.parts if isinstance(part, ReasoningPart)]
        thought = "".join(part.thought for part in reasoning)
        calls = self.calls(turn.parts)
        text = self.texts([part for part in turn.parts if not isinstance(part, ReasoningPart | ToolCall)])
        content: list[Json] = [{"type": "text", "text": text}] if text else []
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

    def _call(self, call: ToolCall) -> Json:
        self.note_cache(call.cache)
        function = {"name": self.names.name(call.name, call.namespace), "arguments": arguments_of(call)}
        return {"id": portable(call.id or call.name, _MAX_ID), "type": "function", "function": function}

    def user(self, parts: Sequence[Part]) -> list[Json]:
        """The results of tools, then everything else."""
        results, rest = self.results(parts)
        written: list[Json] = [
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
        content: list[Json] = []
        for part in parts:
            if isinstance(part, MediaPart) and _is_image(part):
                detail = part.extras.get("detail")
                self.note_cache(part.cache)
                image: Json = {"url": url_of(part)}
                content.append({"type": "image_url", "image_url": image | ({"detail": detail} if detail else {})})
            elif text := self.texts([part]):
                content.append({"type": "text", "text": text})
        return content

    def tools(self, request: Request) -> Json:
        choice = request.tool_choice
        functions = self.functions(available_tools(request, self.losses))
        none = choice is not None and choice.mode == "none"
        allowed = functions if none else self.allowed(functions, choice)
        if not allowed:
            return {}
        fields: Json = {"tools": [self.declared(tool) for tool in allowed]}
        if all(tool.strict for tool in allowed):
            fields["strict_tools"] = True
        else:
            self.losses.extend(Loss("tool-option-dropped", "strict") for tool in allowed if tool.strict)
        if none:
            fields["tool_choice"] = "NONE"
        elif choice is not None and (choice.mode in ("required", "tool") or choice.required):
            fields["tool_choice"] = "REQUIRED"
        return fields

    def _thinking(self, reasoning: ReasoningSettings | None) -> Json | None:
        if reasoning is None:
            return None
        effort, budget = reasoning.effort or "", reasoning.budget
        if not self._settings.reasons:
            if effort != "none" and reasoning.enabled is not False:
                self.losses.append(Loss("field-dropped", "reasoning_effort"))
            return None
        if reasoning.enabled is False or effort == "none":
            return {"type": "disabled"}
        if budget is None and effort:
            budget = _BUDGETS.get(effort, _BUDGETS["high"])
            self.losses.append(Loss("effort-approximated", f"{effort} as {budget}"))
        return {"type": "enabled"} | ({"token_budget": budget} if budget is not None else {})


def _is_image(part: MediaPart) -> bool:
    return part.kind == "image" and bool(part.url or part.data)
