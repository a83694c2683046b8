"""RequestWriter: the base of the writers of requests of all dialects, and the destination that they write for.

It writes requests that arrive in another dialect, so there are no bytes to forward, and what the API cannot express is
a loss. A dialect derives from it, and writes the members of a body in `write`. What is the same in all APIs is here:
the checks of a request, the parts that are texts, the results of tools, and the losses of what an API lacks.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import force_setattr

from penstock.core.dialects.bodies import check_translatable, refused, require_one_choice
from penstock.core.dialects.cache_breakpoints import Breakpoint, PromptSections, set_breakpoints
from penstock.core.dialects.parameters import ParameterSettings, parameters_of
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
from penstock.core.hub.losses import Loss, described
from penstock.core.hub.media import media_loss
from penstock.core.hub.request import Message, ReasoningSettings, Request, Sampling, Tool, ToolChoice
from penstock.core.hub.tool_map import ToolMap, arguments_of, as_function
from penstock.core.json.getters import list_of
from penstock.core.wire.payload import TextDecoder, TooComplexError

Json: TypeAlias = dict[str, object]
"""A JSON object."""
Settings = TypeVar("Settings", bound=Struct)
"""The capabilities of a provider that its dialect knows (`Dialect.settings`)."""

# How many texts as complex as an event may be the arguments of a request may have. A thread decodes them.
_COMPLEX_TEXTS = 10
# The blocks of thinking in the APIs for Claude.
_THINKING = ("thinking", "redacted_thinking", "reasoningContent")
_DEFAULT_SAMPLING: Mapping[str, object] = {
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "logit_bias": {},
    "logprobs": False,
    "top_logprobs": 0,
}
MISSING_THINKING = "the reasoning before the last tool call is missing"
"""Why thinking is not requested, where `lacks_thinking`."""


class Destination(Struct, frozen=True, kw_only=True):
    """The target of a request that is written: the model, and the settings of its provider."""

    model: str
    overrides: Mapping[str, object] = MappingProxyType({})
    """Fields that the route sets, in the provider's dialect."""
    include_usage: bool = True
    """Whether the provider accepts a request for usage in a stream."""
    stream: bool | None = None
    """Whether to request a stream, regardless of the client; None to request what the client requests."""
    settings: Mapping[str, object] = MappingProxyType({})
    """Further capabilities of the provider, by the names that its dialect gives them."""
    issuer: str = ""
    """Identifies the provider and its account: only seals of the same issuer are sent back (`core/hub/seals.py`)."""
    shared_state: bool = False
    """Whether clients may use, and leave, state in the provider's account, which all clients share."""
    cache: bool = True
    """Whether requests get breakpoints for the prompt cache (`core/dialects/cache_breakpoints.py`)."""
    parameters: ParameterSettings | None = None
    """What the settings say of single members; None for nothing."""
    members: dict[str, Raw] = {}
    """`overrides` and `model` as JSON, encoded once for many requests."""

    def __post_init__(self) -> None:
        members = {**self.overrides, "model": self.model}
        encoded = {name: Raw(msgspec.json.encode(value)) for name, value in members.items()}
        force_setattr(self, "members", encoded)
        force_setattr(self, "parameters", parameters_of(self.settings))

    def settings_as(self, type: type[Settings]) -> Settings:
        """The capabilities as the type that the dialect has for them."""
        return msgspec.convert(dict(self.settings), type) if self.settings else type()


class RequestInputs:
    """The arguments of the calls in one request as objects, for APIs in which they are nothing else."""

    def __init__(self) -> None:
        self._decoder = TextDecoder(_COMPLEX_TEXTS)

    def read(self, call: ToolCall) -> dict[str, object]:
        """The arguments of a call. What is no JSON object is its `input`. Raises `RequestError`."""
        try:
            given = self._decoder.decode(arguments_of(call))
        except ValueError:
            given = None
        except TooComplexError:
            message = "the arguments of a tool call hold more values, or are nested deeper, than a request may have"
            raise refused(message, code="request_too_complex") from None
        return given if isinstance(given, dict) else {"input": call.arguments}


class RequestWriter(ABC):
    """Writes one request for a provider, and notes what its API cannot express."""

    one_choice = True
    """Whether answers of the API have one choice. A request for several is then rejected."""

    def __init__(self, destination: Destination, names: ToolMap) -> None:
        self.issuer = destination.issuer
        self.names = names
        self.losses: list[Loss] = []
        self.breakpoints: tuple[Breakpoint, ...] = ()
        """Where the prompt cache got breakpoints that the client did not set."""
        self._inputs = RequestInputs()
        least = destination.settings.get("cache_minimum") if destination.cache else None
        self._cache_minimum = least if isinstance(least, int) else 0

    def fields(self, request: Request) -> Json:
        """The members of a body that asks the same. Raises `RequestError` if the client demands what the API lacks."""
        check_translatable(request)
        if self.one_choice:
            require_one_choice(request.choices)
        fields = self.write(request)
        if self._cache_minimum and (sections := self.sections(fields)) is not None:
            self.breakpoints = set_breakpoints(sections, request, self._cache_minimum)
        return fields

    def sections(self, fields: Json) -> PromptSections | None:  # noqa: ARG002
        """The sections of a body that may get breakpoints for the prompt cache; None if the API has none."""
        return None

    @abstractmethod
    def write(self, request: Request) -> Json:
        """The members of the body, without the model. What cannot be expressed is added to `losses`."""

    def note_cache(self, cache: str) -> None:
        """Note a hint for a cache that the API does not have."""
        if cache:
            self.losses.append(Loss("cache-hint-dropped", cache))

    def note_dropped(self, part: Part) -> None:
        """Note a part that the API cannot express."""
        match part:
            case OpaquePart(_, kind, loss=loss):
                self.losses.append(Loss(loss, kind))
            case ReasoningPart():
                self.losses.append(Loss("reasoning-dropped"))
            case MediaPart():
                self.losses.append(media_loss(part))
            case _:
                self.losses.append(Loss("content-dropped", type(part).__name__))

    def text(self, part: Part) -> str | None:
        """The text of a part; None if it is no text."""
        match part:
            case TextPart(text):
                self.note_cache(part.cache)
                return text
            case RefusalPart(text):
                return text
            case ToolChange():
                return str(part)
            case _:
                return None

    def texts(self, parts: Sequence[Part]) -> str:
        """The texts of all parts as one. Other parts are dropped."""
        found: list[str] = []
        for part in parts:
            text = self.text(part)
            if text is None:
                self.note_dropped(part)
            elif text:
                found.append(text)
        return "\n\n".join(found)

    def results(self, parts: Sequence[Part]) -> tuple[list[tuple[ToolResult, str]], list[Part]]:
        """The results of tools as texts, and all other parts of a turn. Media of results are among the others."""
        results: list[tuple[ToolResult, str]] = []
        moved: list[Part] = []
        for result in parts:
            if not isinstance(result, ToolResult):
                continue
            media = [part for part in result.parts if isinstance(part, MediaPart)]
            if media:
                self.losses.append(Loss("result-media-moved", result.call_id))
                moved += media
            text = self.texts([part for part in result.parts if not isinstance(part, MediaPart)])
            if result.is_error:
                self.losses.append(Loss("error-flag-as-text", result.call_id))
                text = f"Error: {text}"
            self.note_cache(result.cache)
            results.append((result, text))
        return results, [*moved, *(part for part in parts if not isinstance(part, ToolResult))]

    def calls(self, parts: Iterable[Part]) -> list[ToolCall]:
        """The calls that the client executes. Those that a provider executed itself are dropped."""
        calls = [part for part in parts if isinstance(part, ToolCall)]
        self.losses.extend(Loss("content-dropped", call.name) for call in calls if call.server)
        return [call for call in calls if not call.server]

    def arguments(self, call: ToolCall) -> dict[str, object]:
        """The arguments of a call as an object."""
        self.note_cache(call.cache)
        return self._inputs.read(call)

    def functions(self, tools: Iterable[Tool]) -> list[Tool]:
        """The tools as functions. Those that a provider executes itself are dropped."""
        return [function for tool in tools if (function := self.function(tool)) is not None]

    def function(self, tool: Tool) -> Tool | None:
        """A tool as a function; None if it is dropped, because a provider executes it itself."""
        if tool.kind == "server":
            self.losses.append(Loss("server-tool-dropped", tool.type or tool.name))
            return None
        return as_function(tool, self.losses) if tool.kind == "custom" else tool

    def allowed(self, tools: list[Tool], choice: ToolChoice | None) -> list[Tool]:
        """The tools that a choice allows, for APIs that cannot restrict it otherwise."""
        if choice is None or choice.mode in ("auto", "required"):
            return tools
        return [tool for tool in tools if tool.name in choice.names]

    def conversation(self, request: Request, written: list[Json]) -> list[Json]:
        """The messages for the provider. Raises `RequestError` if none has content: there is nothing to answer.

        If the client sent messages, those of the system are not enough. Items without a role are calls or results.
        """
        roles = ("system", "developer") if request.turns else ()
        for message in written:
            content = (value for name, value in message.items() if name not in ("role", "type", "name"))
            if "role" not in message or (message["role"] not in roles and any(content)):
                return written
        lost = described(self.losses)
        reason = f"nothing of it can be sent to the provider of this model: {lost}" if lost else "send a message"
        raise refused(f"the conversation is empty; {reason}", param="messages")

    # What requests have beside the conversation.

    def note_fields(self, request: Request, *, known: Collection[str] = ()) -> None:
        """Note the fields of a request that the API lacks, except the `known` ones."""
        given = {
            "parallel_tool_calls": request.parallel_calls is False,
            "user": request.user,
            "metadata": request.metadata,
            "verbosity": request.verbosity,
            "service_tier": request.tier not in ("", "auto", "default"),
        }
        dropped = [name for name, value in given.items() if value and name not in known]
        self.losses.extend(Loss("field-dropped", name) for name in dropped)
        self.note_unknown(request, known)
        if request.cache_key:
            self.losses.append(Loss("cache-hint-dropped", "prompt_cache_key"))
        if request.stop and "stop_sequence" not in known:
            self.losses.append(Loss("stop-sequence-unreported"))

    def note_unknown(self, request: Request, known: Collection[str] = ()) -> None:
        """Note what only the client's API has: members of the request, its messages, parts and tools; and citations.

        The provider's API has the members in `known`, too.
        """
        dropped = [*request.extras, *(["context_management"] if request.compact_at is not None else [])]
        if request.format is not None and request.format.description:
            dropped.append("response_format.description")
        reasoning = request.reasoning or ReasoningSettings()
        if reasoning.summary == "none":
            dropped.append("reasoning.summary")
        if reasoning.effort not in (None, "none") and (reasoning.budget is not None or reasoning.enabled is False):
            other = "none" if reasoning.enabled is False else f"{reasoning.budget} tokens"
            self.losses.append(Loss("effort-approximated", f"{reasoning.effort} and {other}"))
        for turn in request.turns:
            dropped += [f"messages.{name}" for name in (*turn.extras, *(["name"] if turn.name else []))]
        dropped = [name for name in dropped if name not in known]
        for parts in (request.system, *(turn.parts for turn in request.turns)):
            dropped += _unknown_of_parts(parts, self.losses, known)
        self.losses.extend(Loss("field-dropped", name) for name in dropped)
        for tool in request.tools:
            if tool.kind != "server":  # which is a loss as a whole
                self.losses.extend(Loss("tool-option-dropped", option) for option in tool.extras)

    def note_prefill(self, request: Request) -> None:
        """Note that a request ends with the beginning of an answer, which the API may not continue."""
        last = request.turns[-1] if request.turns else None
        if last is not None and last.role == "assistant" and any(isinstance(part, TextPart) for part in last.parts):
            self.losses.append(Loss("prefill-not-continued"))

    def note_sampling(self, sampling: Sampling, accepted: Collection[str]) -> None:
        """Note the settings that the API lacks. One that is its own default asks for nothing; the seed 0 is a seed."""
        given = {name: getattr(sampling, name) for name in Sampling.__struct_fields__ if name not in accepted}
        self.losses.extend(
            Loss("sampling-dropped", name)
            for name, value in given.items()
            if value is not None and value != _DEFAULT_SAMPLING.get(name)
        )

    def sampling(self, sampling: Sampling, names: Mapping[str, str]) -> dict[str, object]:
        """The settings that the API has, by the names in `names`; the others are losses."""
        self.note_sampling(sampling, names)
        return {names[name]: value for name in names if (value := getattr(sampling, name)) is not None}

    def stops(self, stops: Sequence[str], *, most: int | None = None, blank: bool = True) -> list[str]:
        """The stop sequences that the API takes: at most so many, and of white space only if it may be `blank`."""
        taken = [stop for stop in stops if stop.strip() or (blank and stop)]
        self.losses.extend(Loss("stop-dropped", repr(stop)) for stop in stops if not (stop.strip() or (blank and stop)))
        self.losses.extend(Loss("stop-dropped", stop) for stop in taken[len(taken) if most is None else most :])
        return taken[:most]


class RoleMessagesWriter(RequestWriter):
    """For APIs with messages that have a role and one text, and functions in the form of chat completions."""

    def messages(self, request: Request) -> list[Json]:
        """The system prompt and the turns."""
        system = self.texts(request.system)
        written: list[Json] = [{"role": "system", "content": system}] if system else []
        for turn in request.turns:
            if turn.role == "system":
                written.append({"role": "system", "content": self.texts(turn.parts)})
            elif turn.role == "assistant":
                message = self.answer(turn)
                written += [message] if is_written(message, turn) else []
            else:
                written += self.user(turn.parts)
        return written

    @abstractmethod
    def answer(self, turn: Message) -> Json:
        """The message of a turn of the assistant."""

    @abstractmethod
    def user(self, parts: Sequence[Part]) -> list[Json]:
        """The messages of a turn of the user: the results of tools, then everything else."""

    def declared(self, tool: Tool) -> Json:
        """A function that the model may call."""
        self.note_cache(tool.cache)
        function: Json = {"name": self.names.name(tool.name, tool.namespace), "description": tool.description}
        function["parameters"] = tool.schema or {"type": "object", "properties": {}}
        return {"type": "function", "function": function}


def trim_prefill(messages: Sequence[Mapping[str, object]]) -> None:
    """Remove spaces at the end of a conversation: Claude refuses the beginning of an answer that ends with them."""
    content = list_of(messages[-1]["content"]) if messages and messages[-1]["role"] == "assistant" else []
    if content and isinstance(last := content[-1], dict) and isinstance(last.get("text"), str):
        last["text"] = last["text"].rstrip()


def _unknown_of_parts(parts: Iterable[Part], losses: list[Loss], known: Collection[str]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, OpaquePart) or (isinstance(part, ToolCall) and part.server):
            continue  # each is a loss as a whole
        of_images = known if not isinstance(part, MediaPart) or part.kind == "image" else ()
        yield from (name for each in part.extras if (name := f"content.{each}") not in of_images)
        if isinstance(part, TextPart):
            losses.extend(Loss("citation-dropped", citation.url) for citation in part.citations)
        elif isinstance(part, ToolResult):
            yield from _unknown_of_parts(part.parts, losses, known)


def is_written(message: Mapping[str, object], turn: Message) -> bool:
    """Whether a message of the assistant says anything, or its turn said nothing."""
    return not turn.parts or any(value for name, value in message.items() if name != "role")


def note_lifetime(cache: str, known: Mapping[str, str], losses: list[Loss]) -> str:
    """How the provider's API writes the lifetime of a mark for its cache; empty for its default.

    `known` has the lifetimes by the clients' words. A mark of another lifetime gets the default, which is a loss.
    """
    if cache not in known:
        losses.append(Loss("cache-hint-dropped", f"the lifetime {cache}"))
    return known.get(cache, "")


def lacks_thinking(messages: Sequence[Mapping[str, Any]], kind_of: Callable[[dict[str, object]], str]) -> bool:
    """Whether the last turn of the assistant has tool calls and does not begin with thinking.

    Claude refuses to think after such a turn (the rule `claude-thinking-history`).
    """
    content = next((each["content"] for each in reversed(messages) if each["role"] == "assistant"), ())
    kinds = [kind_of(block) for block in content]
    return not {"tool_use", "toolUse"}.isdisjoint(kinds) and kinds[0] not in _THINKING
