"""Request: what a client asks, in no provider's terms. ClientRequest: the same as it came, before anybody read it all.

A `Request` is typed where the gateway or a translation acts on it. What only one dialect understands is kept verbatim:
as an `OpaquePart`, as `extras` of a part, a tool or the request. A writer of the same dialect writes it again, any
other declares it as a loss (`core/losses.py`).

A `ClientRequest` is what the gateway works with. Where client and provider speak the same dialect, the client's bytes
are forwarded and the `Request` is never made.
"""

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.core.content import MediaPart, OpaquePart, Part, ReasoningPart, TextPart, ToolCall, ToolResult
from penstock.core.json_members import JsonMembers

Role: TypeAlias = Literal["user", "assistant", "system"]
ToolChoiceMode: TypeAlias = Literal["auto", "none", "required", "tool", "allowed"]


class Turn(Struct, frozen=True, gc=False):
    """One turn of the conversation. The results of tools are parts of a `user` turn.

    A `system` turn is an instruction in the middle of the conversation, and keeps its place there.
    """

    role: Role
    parts: tuple[Part, ...]
    name: str = ""
    extras: dict[str, object] = {}


class Tool(Struct, frozen=True, gc=False, kw_only=True):
    """A tool that the model may call. `schema` is the JSON Schema of its arguments.

    A `custom` tool takes free text, perhaps of a grammar (`format`). A `server` tool is executed by the provider:
    `type` is its name in the dialect that it comes from, and `extras` its settings.
    """

    name: str
    description: str = ""
    schema: dict[str, object] | None = None
    strict: bool | None = None
    kind: Literal["function", "custom", "server"] = "function"
    namespace: str | None = None
    type: str = ""
    format: dict[str, object] | None = None
    cache: str = ""
    extras: dict[str, object] = {}


class ToolChoice(Struct, frozen=True, gc=False):
    """Which tools the model may or must call: any it likes, none, at least one, this one, or one of these."""

    mode: ToolChoiceMode
    names: tuple[str, ...] = ()


class Sampling(Struct, frozen=True, gc=False, kw_only=True):
    """How the next token is chosen. None where the client does not say."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, object] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None


class ResponseFormat(Struct, frozen=True, gc=False):
    """The form that the answer must have: any JSON, or JSON by a schema."""

    kind: Literal["json", "schema"]
    name: str = ""
    schema: dict[str, object] | None = None
    strict: bool | None = None
    description: str = ""


class ReasoningSettings(Struct, frozen=True, gc=False):
    """How much the model should think: by a word, or by tokens; or not at all. `summary`: how much of it to show."""

    effort: str | None = None
    budget: int | None = None
    enabled: bool | None = None
    summary: str | None = None


class Request(Struct, frozen=True, gc=False, kw_only=True):
    """What a client asks. `extras` are the fields that only `dialect` knows, as the client wrote them."""

    dialect: str
    model: str
    stream: bool = False
    system: tuple[Part, ...] = ()
    turns: tuple[Turn, ...] = ()
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_calls: bool | None = None
    max_output: int | None = None
    choices: int = 1
    stop: tuple[str, ...] = ()
    sampling: Sampling = Sampling()
    format: ResponseFormat | None = None
    reasoning: ReasoningSettings | None = None
    tier: str = ""
    user: str = ""
    metadata: Mapping[str, str] = {}
    cache_key: str = ""
    extras: dict[str, object] = {}


class RequestSize(Struct, frozen=True, gc=False, kw_only=True):
    """How large the input of a request is, as far as tokens are estimated from it: characters, and what is no text."""

    turns: int = 0
    ascii: int = 0
    """Characters of text in ASCII."""
    other_bytes: int = 0
    """Bytes, in UTF-8, of all other text."""
    media: int = 0
    """Images, sounds and files."""
    schema_bytes: int = 0
    """Bytes of tools, schemas and calls, as JSON."""


class ClientRequest(Struct, eq=False, kw_only=True):
    """A request as a client sent it: its bytes, what the gateway acts on, and the neutral form when it is needed."""

    dialect: str
    model: str
    stream: bool
    members: JsonMembers
    """The body, to be forwarded with edits."""
    include_usage: bool = False
    """Whether a streamed answer must report usage."""
    max_output: int | None = None
    """Tokens that all choices of the answer may have together; None where the client does not say."""
    tier: str = ""
    user: str = ""
    metadata: Mapping[str, str] = {}
    figures: Mapping[str, bool | int | float] = {}
    """Settings of the request that are numbers or flags, for traces: nothing that anybody said."""
    measure: Callable[[], RequestSize]
    """Measures the input, without reading all of it where it is long."""
    read: Callable[[], Request]
    """Reads the whole of it."""


def size_of(request: Request) -> RequestSize:
    """How large the input of a request is."""
    counter = _Counter()
    for part in request.system:
        counter.add(part)
    for turn in request.turns:
        for part in turn.parts:
            counter.add(part)
    schemas = [tool.schema for tool in request.tools] + [request.format.schema if request.format else None]
    described = sum(len(tool.name) + len(tool.description) for tool in request.tools)
    return RequestSize(
        turns=len(request.turns) + bool(request.system),
        ascii=counter.ascii,
        other_bytes=counter.other_bytes,
        media=counter.media,
        schema_bytes=counter.schema_bytes + described + sum(len(str(schema)) for schema in schemas if schema),
    )


class _Counter:
    ascii = other_bytes = media = schema_bytes = 0

    def add(self, part: Part) -> None:
        match part:
            case TextPart(text) | ReasoningPart(text):
                self.add_text(text)
            case MediaPart():
                self.media += 1
            case ToolCall(_, name, arguments):
                self.schema_bytes += len(name) + len(arguments)
            case ToolResult(_, parts):
                for inner in parts:
                    self.add(inner)
            case OpaquePart(_, _, data):
                self.schema_bytes += len(str(data))
            case _:
                self.add_text(part.text)

    def add_text(self, text: str) -> None:
        if text.isascii():
            self.ascii += len(text)
        else:
            ascii = len(text.encode("ascii", "ignore"))
            self.ascii += ascii
            self.other_bytes += len(text.encode("utf-8", "replace")) - ascii
