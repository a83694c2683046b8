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

from penstock.core.content import Part
from penstock.core.json_members import JsonMembers

Role: TypeAlias = Literal["user", "assistant", "system"]
ToolChoiceMode: TypeAlias = Literal["auto", "none", "required", "tool", "allowed"]


class Message(Struct, frozen=True, gc=False):
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
    turns: tuple[Message, ...] = ()
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


MAX_TAGS = 16
"""Of the client's own metadata, so many are kept as tags."""


class ClientRequest(Struct, eq=False, kw_only=True):
    """A request as a client sent it: its bytes, what the gateway acts on, and the neutral form when it is needed."""

    dialect: str
    model: str
    stream: bool
    members: JsonMembers
    """The body, to be forwarded with edits."""
    fields: Mapping[str, object]
    """Its members, decoded: only its own dialect knows what they mean."""
    include_usage: bool = False
    """Whether a streamed answer must report usage."""
    tier: str = ""
    user: str = ""
    metadata: Mapping[str, str] = {}
    estimate: Callable[[], int]
    """Estimates the tokens of the input, without reading all of it where it is long."""
    read: Callable[[], Request]
    """Reads the whole of it."""

    def figures(self) -> dict[str, bool | int | float]:
        """The settings that are numbers or flags, by their names in the client's dialect: nothing that anybody said."""
        return {name: value for name, value in self.fields.items() if isinstance(value, bool | int | float)}
