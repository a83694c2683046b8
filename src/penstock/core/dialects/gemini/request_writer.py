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

from msgspec import Struct

from penstock.core.dialects.bodies import check_translatable, require_conversation
from penstock.core.dialects.gemini.reader import SEAL_SCHEME
from penstock.core.dialects.openai_options import Effort, write_effort
from penstock.core.dialects.translated_parts import RequestInputs, note_unknown, write_sampling, write_stops
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
from penstock.core.hub.tool_map import ToolMap, as_function

_Json = dict[str, object]
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


class GeminiSettings(Struct, frozen=True, kw_only=True):
    """What a provider of this dialect accepts; capabilities that bytes cannot show."""

    thinking: Literal["level", "budget", "none"] = "budget"
    """How the model wants thinking to be requested: Gemini 3 takes a level, Gemini 2.5 a budget of tokens."""
    efforts: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high")
    """How much the model may be asked to think: the levels that it takes, and `none` if thinking can be turned off."""
    budgets: tuple[int, int] = (0, 32_768)
    """The least and the most tokens for thinking that the model takes, besides 0 for `none`."""
    signature_placeholder: bool = False
    """Whether the first call of a turn needs a signature, even if another model has made the call."""


def write_request(request: Request, settings: GeminiSettings, issuer: str, losses: list[Loss], names: ToolMap) -> _Json:
    """The fields of an equivalent body. Raises `RequestError` if the client demands a tool that the API lacks."""
    check_translatable(request)
    writer = _GeminiContents(settings, issuer, losses, names)
    fields: _Json = {"contents": require_conversation(request, writer.contents(request.turns), losses)}
    system = [part for each in request.system if (part := writer.system_part(each)) is not None]
    if system:
        fields["systemInstruction"] = {"parts": system}
    declared = [body for tool in available_tools(request, losses) if (body := writer.tool(tool)) is not None]
    if declared:
        fields["tools"] = [{"functionDeclarations": declared}]
        if request.tool_choice is not None:
            fields["toolConfig"] = {"functionCallingConfig": _write_choice(request.tool_choice, names)}
    config: _Json = {}
    if request.max_output is not None:
        config["maxOutputTokens"] = request.max_output
    if request.choices > 1:
        config["candidateCount"] = request.choices
    if request.stop:
        config["stopSequences"] = write_stops(request.stop, losses, most=_MAX_STOPS)
        losses.append(Loss("stop-sequence-unreported"))
    _write_sampling(request.sampling, config, losses)
    _write_format(request.format, config)
    _write_reasoning(request.reasoning, settings, config, losses)
    if config:
        fields["generationConfig"] = config
    if request.tier in _TIERS:
        fields["serviceTier"] = request.tier
    elif request.tier not in ("", "auto", "default"):
        losses.append(Loss("field-dropped", "service_tier"))
    _note_losses(request, losses)
    return fields


def _note_losses(request: Request, losses: list[Loss]) -> None:
    """Note the fields of a request that the API lacks."""
    given = {
        "parallel_tool_calls": request.parallel_calls is False,
        "user": request.user,
        "metadata": request.metadata,
        "verbosity": request.verbosity,
    }
    dropped = [name for name, value in given.items() if value]
    losses.extend(Loss("field-dropped", name) for name in dropped)
    note_unknown(request, losses)
    if request.cache_key:
        losses.append(Loss("cache-hint-dropped", "prompt_cache_key"))


class _GeminiContents:
    """Writes turns and tools, and notes the losses."""

    def __init__(self, settings: GeminiSettings, issuer: str, losses: list[Loss], names: ToolMap) -> None:
        self._settings = settings
        self._issuer = issuer
        self._losses = losses
        self._inputs = RequestInputs()
        self._names = names
        self._calls: dict[str, tuple[int, str]] = {}  # by id: the number of each call so far, and its name

    def contents(self, turns: Sequence[Message]) -> list[_Json]:
        written: list[tuple[str, list[_Json]]] = []
        for turn in without_system_turns(turns, self._losses):
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

    def _order(self, part: _Json) -> tuple[int, int]:
        """Results first, in the order of their calls; everything else stays as it is."""
        result = part.get("functionResponse")
        if not isinstance(result, dict):
            return 1, 0
        return 0, self._calls.get(str(result.get("id")), (0, ""))[0]

    def system_part(self, part: Part) -> _Json | None:
        if isinstance(part, TextPart):
            self._note_cache(part.cache)
            return {"text": part.text} if part.text else None
        self._losses.append(Loss("content-dropped", f"system.{type(part).__name__}"))
        return None

    def _user_parts(self, parts: Sequence[Part]) -> list[_Json]:
        written: list[_Json] = []
        for part in parts:
            if isinstance(part, ToolResult):
                written += self._result(part)
            elif (body := self._part(part)) is not None:
                written.append(body)
        return written

    def _model_parts(self, parts: Sequence[Part]) -> list[_Json]:
        """The parts of an earlier answer, each with its signature (rule 3)."""
        written: list[_Json] = []
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

    def _reasoning(self, part: ReasoningPart) -> tuple[_Json | None, str]:
        """A thought as a part, or the signature of the part after it; neither if another issuer made it."""
        seal = opened(part.seals, SEAL_SCHEME, self._issuer)
        text = part.text or "\n\n".join(part.summary)
        if seal is None:
            self._losses.append(Loss("reasoning-dropped"))
            return None, ""
        if text:
            return {"text": text, "thought": True, "thoughtSignature": seal.value}, ""
        return None, seal.value

    def _part(self, part: Part) -> _Json | None:
        match part:
            case TextPart(text):
                self._note_cache(part.cache)
                return {"text": text} if text else None
            case RefusalPart(text):
                return {"text": text} if text else None
            case MediaPart():
                self._note_cache(part.cache)
                return self._media(part)
            case ToolCall():
                return self._call(part)
            case OpaquePart(_, kind, loss=loss):
                self._losses.append(Loss(loss, kind))
                return None
            case ToolChange():
                return {"text": str(part)}
            case ToolResult() | ReasoningPart():
                self._losses.append(Loss("content-dropped", type(part).__name__))
                return None

    def _note_cache(self, cache: str) -> None:
        if cache:
            self._losses.append(Loss("cache-hint-dropped", cache))

    def _media(self, part: MediaPart) -> _Json | None:
        """Data must name its type. The type of a URL is optional (Google's reference of `FileData`)."""
        if part.file_id or not (part.url or part.mime):
            self._losses.append(media_loss(part))
            return None
        mime: _Json = {"mimeType": part.mime} if part.mime else {}
        if part.kind == "file" and part.name:
            self._losses.append(Loss("field-dropped", "content.name"))
        if part.url:
            return {"fileData": mime | {"fileUri": part.url}}
        return {"inlineData": mime | {"data": part.data}}

    def _call(self, call: ToolCall) -> _Json | None:
        if call.server:
            self._losses.append(Loss("content-dropped", call.name))
            return None
        given = self._inputs.read(call)
        name = self._names.name(call.name, call.namespace)
        body: _Json = {"name": name, "args": given}
        if call.id:
            id = body["id"] = portable(call.id, _MAX_ID)
            self._calls[id] = (len(self._calls), name)
        self._note_cache(call.cache)
        return {"functionCall": body}

    def _result(self, result: ToolResult) -> list[_Json]:
        """A result, and its media as parts beside it."""
        id = portable(result.call_id, _MAX_ID) if result.call_id else ""
        known = self._calls.get(id)
        name = known[1] if known is not None else self._names.name(result.name) if result.name else id
        texts: list[str] = []
        beside: list[_Json] = []
        for part in result.parts:
            body = self._part(part)
            if body is not None and isinstance(body.get("text"), str):
                texts.append(str(body["text"]))
            elif body is not None:
                self._losses.append(Loss("result-media-moved"))
                beside.append(body)
        self._note_cache(result.cache)
        response = {"error" if result.is_error else "output": "\n".join(texts)}
        written: _Json = {"name": name, "response": response}
        if id:
            written["id"] = id
        return [{"functionResponse": written}, *beside]

    def tool(self, tool: Tool) -> _Json | None:
        if tool.kind == "server":
            self._losses.append(Loss("server-tool-dropped", tool.type or tool.name))
            return None
        if tool.kind == "custom":
            tool = as_function(tool, self._losses)
        body: _Json = {"name": self._names.name(tool.name, tool.namespace)}
        if tool.description:
            body["description"] = tool.description
        if tool.schema:
            body["parametersJsonSchema"] = tool.schema
        if tool.strict:
            self._losses.append(Loss("tool-option-dropped", "strict"))
        self._note_cache(tool.cache)
        return body


def _is_call_unsigned(parts: Sequence[Part]) -> bool:
    """Whether the first call has no signature directly before it, so that an earlier one belongs to it (rule 3)."""
    for position, part in enumerate(parts):
        if isinstance(part, ToolCall) and not part.server:
            before = parts[position - 1] if position else None
            return not (isinstance(before, ReasoningPart) and before.seals)
    return False


def _write_choice(choice: ToolChoice, names: ToolMap) -> _Json:
    match choice.mode:
        case "auto":
            return {"mode": "AUTO"}
        case "none":
            return {"mode": "NONE"}
        case "required":
            return {"mode": "ANY"}
        case "tool":
            return {"mode": "ANY", "allowedFunctionNames": [names.chosen(name) for name in choice.names]}
        case "allowed":
            mode = "ANY" if choice.required else "VALIDATED"
            return {"mode": mode, "allowedFunctionNames": [names.chosen(name) for name in choice.names]}


def _write_sampling(sampling: Sampling, config: _Json, losses: list[Loss]) -> None:
    config |= write_sampling(sampling, _SAMPLING, losses)
    if sampling.temperature is not None and sampling.temperature > _MAX_TEMPERATURE:
        config["temperature"] = _MAX_TEMPERATURE
        losses.append(Loss("temperature-clamped", str(sampling.temperature)))


def _write_format(form: ResponseFormat | None, config: _Json) -> None:
    if form is not None:
        config["responseMimeType"] = "application/json"
        if form.kind == "schema" and form.schema is not None:
            config["responseJsonSchema"] = form.schema


def _write_reasoning(
    reasoning: ReasoningSettings | None, settings: GeminiSettings, config: _Json, losses: list[Loss]
) -> None:
    if reasoning is None:
        return
    if settings.thinking == "none" or not settings.efforts:
        losses.append(Loss("field-dropped", "reasoning_effort"))
        return
    silent = reasoning.enabled is False or reasoning.effort == "none"
    thinking: _Json = {} if silent else {"includeThoughts": True}
    if settings.thinking == "level":
        level = write_effort(reasoning, [effort for effort in settings.efforts if effort != "none"], losses)
        thinking |= {"thinkingLevel": level.upper()} if level else {}
    elif silent or reasoning.effort or reasoning.budget is not None:
        asked = "none" if silent else reasoning.effort or str(reasoning.budget)
        wanted = 0 if silent else reasoning.budget
        tokens = _BUDGETS.get(asked, _BUDGETS["medium"]) if wanted is None else wanted
        least, most = settings.budgets
        if not silent or "none" not in settings.efforts:
            tokens = min(max(tokens, least), most)
        if tokens != wanted:
            losses.append(Loss("effort-approximated", f"{asked} as {tokens}"))
        thinking["thinkingBudget"] = tokens
    config["thinkingConfig"] = thinking
