"""Request: a client's request in a neutral form. ClientRequest: the request as it arrived, decoded only in part.

A `Request` has a typed field for everything that the gateway or a translation acts on. What only one dialect
understands is kept verbatim: as an `OpaquePart`, or as `extras` of a part, a tool or the request. A writer of the same
dialect writes it again; any other reports it as a loss (`core/hub/losses.py`).

The gateway works with a `ClientRequest`. If client and provider use the same dialect, the client's bytes are forwarded
with edits, and the `Request` is never made.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from penstock.core.hub.content import MediaPart, Part, TextPart, ToolChange, ToolResult
from penstock.core.hub.input_estimate import InputEstimate, estimate_input
from penstock.core.hub.losses import Loss
from penstock.core.hub.seals import last_issuer
from penstock.core.json.getters import shown
from penstock.core.json.members import JsonMembers

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
    deferred: bool = False
    """Whether the model may call it only after a `ToolChange` has added it."""
    cache: str = ""
    extras: dict[str, object] = {}


class ToolChoice(Struct, frozen=True, gc=False):
    """Which tools the model may or must call: any or none (`auto`), none, at least one, this one, or one of these."""

    mode: ToolChoiceMode
    names: tuple[str, ...] = ()
    required: bool = False
    """Whether the model must call one of these, if the mode is `allowed`."""


class Sampling(Struct, frozen=True, gc=False, kw_only=True):
    """How the next token is chosen. None if the client does not set it."""

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
    """How much the model should reason: an `effort` such as "low", a `budget` in tokens, or `enabled` to switch it.

    `summary` is how much of the reasoning the answer should show.
    """

    effort: str | None = None
    budget: int | None = None
    enabled: bool | None = None
    summary: str | None = None


class Request(Struct, frozen=True, gc=False, kw_only=True):
    """What a request asks, in neutral form. `extras` are the fields that only the client's dialect knows, as the client
    wrote them."""

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
    compact_at: int | None = None
    """The tokens of input from which the provider may put a summary in place of the conversation."""
    verbosity: str = ""
    """How much the answer should say: "low", "medium" or "high"."""
    invalid: tuple[str, str] | None = None
    """A member that no API can express, and what is wrong with it: only its own API may be asked."""
    extras: dict[str, object] = {}


def unknown_role(messages: Iterable[object], roles: Container[object], member: str) -> tuple[str, str] | None:
    """The problem with a role that the client's API lacks: another API would take the message for the user's."""
    given = (message.get("role") for message in messages if isinstance(message, dict))
    role = next((role for role in given if role not in roles), None)
    return (member, f"`{member}` has the unknown role {shown(role)}") if role is not None else None


def available_tools(request: Request, losses: list[Loss]) -> list[Tool]:
    """The tools that the model may call now: not those that are deferred and not yet added, nor those removed."""
    available = {tool.name: not tool.deferred for tool in request.tools}
    for change in _tool_changes(part for turn in request.turns for part in turn.parts):
        available |= dict.fromkeys(change.added, True) | dict.fromkeys(change.removed, False)
    losses.extend(Loss("tool-withheld", tool.name) for tool in request.tools if not available[tool.name])
    return [tool for tool in request.tools if available[tool.name]]


def _tool_changes(parts: Iterable[Part]) -> Iterator[ToolChange]:
    for part in parts:
        if isinstance(part, ToolChange):
            yield part
        elif isinstance(part, ToolResult):
            yield from _tool_changes(part.parts)


def without_system_turns(turns: Sequence[Message], losses: list[Loss], *, placed: bool = False) -> Sequence[Message]:
    """The turns, with those of the system as text of the user in the same place, for APIs that refuse them.

    The text becomes a part of the user's turn before or after it, so that roles still alternate. With `placed`, the
    API takes system turns between a user's turn and an assistant's, or at the end: these stay.
    """
    if not any(turn.role == "system" for turn in turns):
        return turns
    runs = [(role, [*run]) for role, run in groupby(turns, key=lambda turn: turn.role)]
    roles = ["", *(role for role, _ in runs), "assistant"]  # the next turn after the last one is the answer
    folded: list[tuple[Message, list[Part], dict[str, object]]] = []  # the first of each, and the parts of all
    for before, (role, run), after in zip(roles, runs, roles[2:], strict=False):
        moved = role == "system" and not (placed and before == "user" and after == "assistant")
        losses.extend(Loss("system-moved") for _ in run if moved)
        for turn in run:
            next = Message("user", tuple(map(_reminder, turn.parts)), extras=turn.extras) if moved else turn
            last, parts, extras = folded[-1] if folded else (None, [], {})
            if last is not None and last.role == next.role == "user" and (moved or last.name == next.name):
                parts += next.parts
                extras |= next.extras
            else:
                folded.append((next, [*next.parts], {**next.extras}))
    return [structs.replace(first, parts=tuple(parts), extras=extras) for first, parts, extras in folded]


def _reminder(part: Part) -> Part:
    """Text of the system, marked so that models tell it from the user's own words."""
    if not isinstance(part, TextPart):
        return part
    return structs.replace(part, text=f"<system-reminder>\n{part.text}\n</system-reminder>")


class Continuation(Struct, frozen=True, eq=False):
    """A request that continues an earlier answer: the id of that answer, and the members of the request's body."""

    previous: str
    members: JsonMembers


class Reference(Struct, frozen=True, gc=False):
    """A member that refers to something in the provider's account.

    `stored`: an id that only an API of the same kind knows. `object`: the address of a stored object, which other APIs
    may know too.
    """

    member: str
    kind: Literal["stored", "object"]


# Some 10 microseconds each if they are items of a list. As many small texts as an hour of chat has are far fewer.
_MANY_VALUES = 1_000
# In bytes, of which estimates and copies take a nanosecond each.
_LARGE = 1_000_000
MAX_TAGS = 16
"""The maximum number of members of the client's metadata that are kept as tags."""


class ReadOnce(Struct, eq=False):
    """Makes the neutral form of a request when it is first called, and returns the same object from then on.

    Every call has one, and few requests need it. So it is a struct, which is made faster than a `functools.cache`.
    """

    read: Callable[[Mapping[str, object]], Request]
    fields: Mapping[str, object]
    request: Request | None = None

    def __call__(self) -> Request:
        """The neutral form."""
        if self.request is None:
            self.request = self.read(self.fields)
        return self.request


ReasoningShown: TypeAlias = Literal["all", "seals", "none"]
"""How much of a provider's reasoning a client gets. Seals without text are those that the next request needs."""


class ClientRequest(Struct, eq=False, kw_only=True):
    """A request as a client sent it: its bytes, the fields that the gateway acts on, and the neutral form on demand."""

    dialect: str
    model: str
    stream: bool
    members: JsonMembers
    """The members of the body as bytes, for forwarding with edits."""
    fields: Mapping[str, object]
    """The decoded members of the body, which only its own dialect interprets."""
    include_usage: bool = False
    """Whether a streamed answer must report usage."""
    stream_type: str = ""
    """The content type of a streamed answer, if the client wants another one than that of server-sent events."""
    tier: str = ""
    user: str = ""
    metadata: Mapping[str, str] = {}
    stream_members: Mapping[str, object] | None = None
    """The members of the body that ask for a durable stream, which are removed from it; None if there are none."""
    background: Literal["", "polled", "streamed"] = ""
    """Whether the answer is generated in the background, and whether the client reads its stream."""
    continues: str = ""
    """Which targets may go on with an answer that breaks off, if the client allows fewer than the route."""
    unkept: bool = False
    """Whether the client asks that nothing of the call is kept."""
    fallbacks: tuple[str, ...] = ()
    """The models that the client wants to be tried after its own."""
    dropped: tuple[Loss, ...] = ()
    """What was removed from the body before any target was chosen."""
    failures_in_stream: frozenset[str] = frozenset()
    """Codes of failures before the first content that the client expects in a stream, and not as an HTTP status."""
    echo: Mapping[str, object] = {}
    """Members that the answer repeats, in dialects whose answers do."""
    reasoning: ReasoningShown = "all"
    """How much of the reasoning of a provider of another dialect the client expects."""
    headers: Mapping[str, str] = {}
    """Request headers that a provider of the same dialect gets, too: neither credentials nor hop-by-hop headers."""
    read: Callable[[], Request]
    """Makes the neutral form."""
    reference: Reference | None = None
    """The member that refers to something in a provider's account, after `core/dialects/shared_state.py` searched."""
    continuation: Continuation | None = None
    """The request as the client sent it, if it continues an answer that the gateway keeps: `members` and `fields` are
    those of the whole conversation."""
    compacts: JsonMembers | None = None
    """The members of the body as the client sent it, if it asks to compact a conversation: `members` and `fields` are
    those of a request for a summary."""
    fetched: Mapping[str, MediaPart] = {}
    """The media that the gateway has fetched for providers that fetch none, by the URLs in the request."""
    tenant: str = ""
    """Whose prompts it may share a provider's cache with. What it names or salts such a cache by is made the tenant's
    own; empty to leave it as it is."""
    memory: object = None
    """What lives as long as the request does: the memory that is reserved for it."""
    _estimate: InputEstimate | None = None
    _issuer: str | None = None

    def estimate(self) -> InputEstimate:
        """The estimated tokens of the input, computed once. A thread does so if the request `has_many_values`."""
        if self._estimate is None:
            self._estimate = estimate_input(self.members.body, self.fields)
        return self._estimate

    def issuer(self) -> str:
        """The provider account that made the last reasoning in it, searched for once; empty if there is none."""
        if self._issuer is None:
            self._issuer = last_issuer(self.members.body)
        return self._issuer

    @property
    def provider_state(self) -> str:
        """The member that refers to something which only a provider of this dialect keeps; empty if there is none."""
        return self.reference.member if self.reference is not None and self.reference.kind == "stored" else ""

    @property
    def has_many_values(self) -> bool:
        """Whether it takes milliseconds to read, to estimate and to write, because of its messages, parts and tools.

        The time depends on the number of values, so the commas between them are counted. Of a large body it also
        depends on the bytes.
        """
        body = self.members.body
        return len(body) > _MANY_VALUES and (len(body) > _LARGE or body.count(b",") > _MANY_VALUES)

    def figures(self) -> dict[str, bool | int | float]:
        """The settings that are numbers or flags, by their names in the client's dialect. They hold no content."""
        return {name: value for name, value in self.fields.items() if isinstance(value, bool | int | float)}
