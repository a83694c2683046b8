"""Writes requests in the Gemini dialect: `Request` → the fields of a body, and the losses.

It is for requests that arrived in another dialect. (`upstream.py` forwards those of this dialect.) The API demands:

1. Two roles, `user` and `model`, which alternate: turns of one role that follow each other are joined. The system
   prompt is apart; system messages between others become text of the user.
2. The results of calls come first in the user's turn after the calls, in the order of the calls. A result names its
   function, and is an object.
3. A signature comes back where it was: on the part that it was made for. In the hub it is a reasoning part without text
   before that part. Clients of APIs without an order of parts send it at the beginning of the turn; then it belongs to
   the first call. A signature of another issuer is dropped.
4. Newer models refuse the first call of a turn without a signature. For calls that another model has made, Google
   documents a placeholder; the provider's data says which models want it (`signature_placeholder`).
"""

from collections.abc import Sequence
from typing import Literal

from penstock.core.dialects.gemini.reader import SEAL_SCHEME
from penstock.core.dialects.openai_options import Effort, write_effort
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
from penstock.core.hub.media import media_loss
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
from penstock.core.hub.seals import PLACEHOLDER, opened
from penstock.core.hub.tool_ids import portable
from penstock.core.hub.tool_map import ToolMap

_MAX_ID = 64
_MAX_STOPS = 5
_MAX_TEMPERATURE = 2.0
_SAMPLING = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}
# The budget for each effort: those of Google's own OpenAI-compatible API.
_BUDGETS = {"minimal": 1_024, "low": 1_024, "medium": 8_192, "high": 24_576, "xhigh": 24_576, "max": 24_576}
_TIERS = ("flex", "priority", "standard")


class GeminiSettings(ParameterSettings, frozen=True, kw_only=True):
    """What a provider of this dialect accepts; capabilities that bytes cannot show."""

    thinking: Literal["level", "budget", "none"] = "budget"
    """How the model wants thinking to be requested: `"budget"` as a number of tokens (Gemini 2.5), `"level"` (Gemini
    3), or `"none"` if it cannot think."""
    efforts: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high")
    """How much the model can be asked to think: the levels that it takes, and `none` if thinking can be turned off. The
    nearest one is sent. Empty if it cannot think."""
    budgets: tuple[int, int] = (0, 32_768)
    """With `thinking = "budget"`: the least and the most tokens that it takes, besides 0 for `none`."""
    signature_placeholder: bool = False
    """Whether calls of tools that another model has made get the signature that Google documents for them
    (`skip_thought_signature_validator`). Gemini 3 refuses a call without a signature."""


class GeminiRequestWriter(RequestWriter):
    """Writes requests for Gemini's API."""

    one_choice = False

    def __init__(self, destination: Destination, names: ToolMap) -> None:
        super().__init__(destination, names)
        self._settings = destination.settings_as(GeminiSettings)
        self._calls: dict[str, tuple[int, str]] = {}  # by id: the number of each call so far, and its name

    def write(self, request: Request) -> Json:
        """The members of the body."""
        fields: Json = {"contents": self.conversation(request, self.contents(request.turns))}
        system = [part for each in request.system if (part := self.system_part(each)) is not None]
        if system:
            fields["systemInstruction"] = {"parts": system}
        declared = [body for tool in available_tools(request, self.losses) if (body := self.tool(tool)) is not None]
        if declared:
            fields["tools"] = [{"functionDeclarations": declared}]
            if request.tool_choice is not None:
                fields["toolConfig"] = {"functionCallingConfig": self._write_choice(request.tool_choice)}
        config: Json = {}
        if request.max_output is not None:
            config["maxOutputTokens"] = request.max_output
        if request.choices > 1:
            config["candidateCount"] = request.choices
        if request.stop:
            config["stopSequences"] = self.stops(request.stop, most=_MAX_STOPS)
        self._write_sampling(request.sampling, config)
        _write_format(request.format, config)
        self._write_reasoning(request.reasoning, config)
        if config:
            fields["generationConfig"] = config
        if request.tier in _TIERS:
            fields["serviceTier"] = request.tier
        self.note_fields(request, known=("service_tier",) if request.tier in _TIERS else ())
        return fields

    def contents(self, turns: Sequence[Message]) -> list[Json]:
        written: list[tuple[str, list[Json]]] = []
        for turn in without_system_turns(turns, self.losses):
            role = "model" if turn.role == "assistant" else "user"
            parts = self._model_parts(turn.parts) if role == "model" else self._user_parts(turn.parts)
            if parts and written and written[-1][0] == role:
                written[-1][1].extend(parts)
            elif parts:
                written.append((role, parts))
        for role, parts in written:
            if role == "user":
                parts.sort(key=self._order)
        return [{"role": role, "parts": parts} for role, parts in written]

    def _order(self, part: Json) -> tuple[int, int]:
        """Results first, in the order of their calls; everything else stays as it is."""
        result = part.get("functionResponse")
        if not isinstance(result, dict):
            return 1, 0
        return 0, self._calls.get(str(result.get("id")), (0, ""))[0]

    def system_part(self, part: Part) -> Json | None:
        if isinstance(part, TextPart):
            self.note_cache(part.cache)
            return {"text": part.text} if part.text else None
        self.losses.append(Loss("content-dropped", f"system.{type(part).__name__}"))
        return None

    def _user_parts(self, parts: Sequence[Part]) -> list[Json]:
        written: list[Json] = []
        for part in parts:
            if isinstance(part, ToolResult):
                written += self._result(part)
            elif (body := self._part(part)) is not None:
                written.append(body)
        return written

    def _model_parts(self, parts: Sequence[Part]) -> list[Json]:
        """The parts of an earlier answer, each with its signature (rule 3)."""
        written: list[Json] = []
        signature = ""
        call_waits = _is_call_unsigned(parts)
        for part in parts:
            if isinstance(part, ReasoningPart):
                thought, own = self._reasoning(part)
                signature = own or signature
                if thought is not None:
                    written.append(thought)
                continue
            body = self._part(part)
            if body is None:
                continue
            is_call = "functionCall" in body
            if signature and (is_call or not call_waits):
                body["thoughtSignature"], signature = signature, ""
            call_waits = call_waits and not is_call
            written.append(body)
        if signature:
            written.append({"text": "", "thoughtSignature": signature})
        first = next((body for body in written if "functionCall" in body), None)
        if first is not None and "thoughtSignature" not in first and self._settings.signature_placeholder:
            first["thoughtSignature"] = PLACEHOLDER
        return written

    def _reasoning(self, part: ReasoningPart) -> tuple[Json | None, str]:
        """A thought as a part, or the signature of the part after it; neither if another issuer made it."""
        seal = opened(part.seals, SEAL_SCHEME, self.issuer)
        text = part.thought
        if seal is None:
            self.losses.append(Loss("reasoning-dropped"))
            return None, ""
        if text:
            return {"text": text, "thought": True, "thoughtSignature": seal.value}, ""
        return None, seal.value

    def _part(self, part: Part) -> Json | None:
        match part:
            case TextPart(text):
                self.note_cache(part.cache)
                return {"text": text} if text else None
            case RefusalPart(text):
                return {"text": text} if text else None
            case MediaPart():
                self.note_cache(part.cache)
                return self._media(part)
            case ToolCall():
                return self._call(part)
            case OpaquePart(_, kind, loss=loss):
                self.losses.append(Loss(loss, kind))
                return None
            case ToolChange():
                return {"text": str(part)}
            case ToolResult() | ReasoningPart():
                self.losses.append(Loss("content-dropped", type(part).__name__))
                return None

    def _media(self, part: MediaPart) -> Json | None:
        """Data must name its type. The type of a URL is optional (Google's reference of `FileData`)."""
        if part.file_id or not (part.url or part.mime):
            self.losses.append(media_loss(part))
            return None
        mime: Json = {"mimeType": part.mime} if part.mime else {}
        if part.kind == "file" and part.name:
            self.losses.append(Loss("field-dropped", "content.name"))
        if part.url:
            return {"fileData": mime | {"fileUri": part.url}}
        return {"inlineData": mime | {"data": part.data}}

    def _call(self, call: ToolCall) -> Json | None:
        if call.server:
            self.losses.append(Loss("content-dropped", call.name))
            return None
        given = self._inputs.read(call)
        name = self.names.name(call.name, call.namespace)
        body: Json = {"name": name, "args": given}
        if call.id:
            id = body["id"] = portable(call.id, _MAX_ID)
            self._calls[id] = (len(self._calls), name)
        self.note_cache(call.cache)
        return {"functionCall": body}

    def _result(self, result: ToolResult) -> list[Json]:
        """A result, and its media as parts beside it."""
        id = portable(result.call_id, _MAX_ID) if result.call_id else ""
        known = self._calls.get(id)
        name = known[1] if known is not None else self.names.name(result.name) if result.name else id
        texts: list[str] = []
        beside: list[Json] = []
        for part in result.parts:
            body = self._part(part)
            if body is not None and isinstance(body.get("text"), str):
                texts.append(str(body["text"]))
            elif body is not None:
                self.losses.append(Loss("result-media-moved"))
                beside.append(body)
        self.note_cache(result.cache)
        response = {"error" if result.is_error else "output": "\n".join(texts)}
        written: Json = {"name": name, "response": response}
        if id:
            written["id"] = id
        return [{"functionResponse": written}, *beside]

    def tool(self, tool: Tool) -> Json | None:
        function = self.function(tool)
        if function is None:
            return None
        body: Json = {"name": self.names.name(function.name, function.namespace)}
        if function.description:
            body["description"] = function.description
        if function.schema:
            body["parametersJsonSchema"] = function.schema
        if function.strict:
            self.losses.append(Loss("tool-option-dropped", "strict"))
        self.note_cache(tool.cache)
        return body

    def _write_choice(self, choice: ToolChoice) -> Json:
        match choice.mode:
            case "auto":
                return {"mode": "AUTO"}
            case "none":
                return {"mode": "NONE"}
            case "required":
                return {"mode": "ANY"}
            case "tool":
                return {"mode": "ANY", "allowedFunctionNames": [self.names.chosen(name) for name in choice.names]}
            case "allowed":
                mode = "ANY" if choice.required else "VALIDATED"
                return {"mode": mode, "allowedFunctionNames": [self.names.chosen(name) for name in choice.names]}

    def _write_sampling(self, sampling: Sampling, config: Json) -> None:
        config |= self.sampling(sampling, _SAMPLING)
        if sampling.temperature is not None and sampling.temperature > _MAX_TEMPERATURE:
            config["temperature"] = _MAX_TEMPERATURE
            self.losses.append(Loss("temperature-clamped", str(sampling.temperature)))

    def _write_reasoning(self, reasoning: ReasoningSettings | None, config: Json) -> None:
        if reasoning is None:
            return
        if self._settings.thinking == "none" or not self._settings.efforts:
            self.losses.append(Loss("field-dropped", "reasoning_effort"))
            return
        silent = reasoning.enabled is False or reasoning.effort == "none"
        thinking: Json = {} if silent else {"includeThoughts": True}
        if self._settings.thinking == "level":
            efforts = [effort for effort in self._settings.efforts if effort != "none"]
            level = write_effort(reasoning, efforts, self.losses)
            thinking |= {"thinkingLevel": level.upper()} if level else {}
        elif silent or reasoning.effort or reasoning.budget is not None:
            asked = "none" if silent else reasoning.effort or str(reasoning.budget)
            wanted = 0 if silent else reasoning.budget
            tokens = _BUDGETS.get(asked, _BUDGETS["medium"]) if wanted is None else wanted
            least, most = self._settings.budgets
            if not silent or "none" not in self._settings.efforts:
                tokens = min(max(tokens, least), most)
            if tokens != wanted:
                self.losses.append(Loss("effort-approximated", f"{asked} as {tokens}"))
            thinking["thinkingBudget"] = tokens
        config["thinkingConfig"] = thinking


def _is_call_unsigned(parts: Sequence[Part]) -> bool:
    """Whether the first call has no signature directly before it, so that an earlier one belongs to it (rule 3)."""
    for position, part in enumerate(parts):
        if isinstance(part, ToolCall) and not part.server:
            before = parts[position - 1] if position else None
            return not (isinstance(before, ReasoningPart) and before.seals)
    return False


def _write_format(form: ResponseFormat | None, config: Json) -> None:
    if form is not None:
        config["responseMimeType"] = "application/json"
        if form.kind == "schema" and form.schema is not None:
            config["responseJsonSchema"] = form.schema
