"""Dialect: one wire format, as an API to call (`UpstreamDialect`) and as an API to offer (`SurfaceDialect`).

A dialect is a package below `core/dialects/` and a row in `core/dialects/registry.py`. Everything outside
`core/dialects/` works with the ports of this module, and looks dialects up by name. A dialect may have only one of the
two. Between them is `AnswerDialect`: the answers of an API, without its requests. A surface has them, and so has an API
that only replay serves. Dialects derive from the ports. What only some of them have is an optional member of `Dialect`,
or has a default here; it is never a method that others stub.

    bytes ─ FrameReader ─▶ events ─ AnswerWriter ─▶ bytes         answers (`core/stream.py` joins the stages)
    bytes ─ read_request ─▶ ClientRequest ─ write_request ─▶ bytes   requests
    bytes ─ read_error ─▶ ProviderError … Failure ─ write_error ─▶ bytes   errors
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import force_setattr

from penstock.core.dialects.frame_reader import FrameReader as FrameReader
from penstock.core.fast.format import PassThroughFormat
from penstock.core.hub.completion import Completion
from penstock.core.hub.events import Event
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import ClientRequest, Continuation, ReasoningShown
from penstock.core.hub.sink import Sink
from penstock.core.hub.tool_map import ClientTool
from penstock.core.json.members import JsonMembers

Settings = TypeVar("Settings", bound=Struct)
"""The capabilities of a provider that its dialect knows (`Dialect.settings`)."""

# To call an API.


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
    members: dict[str, Raw] = {}
    """`overrides` and `model` as JSON, encoded once for many requests."""

    def __post_init__(self) -> None:
        members = {**self.overrides, "model": self.model}
        encoded = {name: Raw(msgspec.json.encode(value)) for name, value in members.items()}
        force_setattr(self, "members", encoded)

    def settings_as(self, type: type[Settings]) -> Settings:
        """The capabilities as the type that the dialect has for them."""
        return msgspec.convert(dict(self.settings), type) if self.settings else type()


class OutgoingRequest(Struct, frozen=True):
    """A request for a provider: its body, its additional headers, and the losses of the translation."""

    body: bytes
    headers: Mapping[str, str] = MappingProxyType({})
    losses: tuple[Loss, ...] = ()
    tools: Mapping[str, ClientTool] = MappingProxyType({})
    """The client's tools that have another name or form in the request, by their names in it."""


class RequestLimits(Struct, frozen=True, gc=False):
    """What budgets and prices depend on: the maximum output tokens of all choices together, if set, and the tier."""

    output: int | None = None
    tier: str = ""


class ProviderError(Struct, frozen=True):
    """The message of a provider's error. `envelope` is the error body for a client of the same dialect, if any."""

    message: str = ""
    envelope: bytes = b""
    status: int = 0
    """The HTTP status that the error stands for, if that is not the status of the response; else 0."""
    retry_after: str = ""
    """The seconds to wait before a retry, if the body says it and not a header."""


class UpstreamDialect(Protocol):
    """How to call an API: reads its answers and errors, and writes requests for it."""

    path: str
    """Where requests are posted, below a provider's `base_url`."""
    reader: type[FrameReader]
    """The reader of its answers."""
    large_events: re.Pattern[bytes] | None = None
    """What the data of an event contains that may repeat the whole answer, or a whole item of it such as an image. Such
    an event may be as large as an unstreamed answer. None if there are no such events."""

    def frame_reader(self, sink: Sink) -> FrameReader:
        """Make the reader of one answer."""
        return self.reader(sink)

    def write_request(self, request: ClientRequest, destination: Destination) -> OutgoingRequest:
        """The request for a provider: the client's bytes with edits if they are in this dialect, else a new body."""

    def limits(self, request: ClientRequest, destination: Destination) -> RequestLimits:
        """The limits of the request as it is written for this destination."""

    def read_error(self, body: bytes) -> ProviderError:
        """Read the body of a response with a status of 300 or more; raises `ValueError` if it is not JSON."""


# To offer an API.


class AnswerFacts(Struct, frozen=True, kw_only=True):
    """The facts about a call that a writer needs. `model` and `created` are defaults for what the provider omits."""

    call_id: str
    """The id of the call. Errors contain it, and the id of the answer is derived from it unless `id` is set."""
    id: str = ""
    model: str
    created: int
    include_usage: bool = False
    input_estimate: int = 0
    """The estimated tokens of the input, for dialects that report them before the provider does."""
    same_dialect: bool = True
    """Whether the provider speaks the client's dialect: then the writer also writes what only this dialect has."""
    issuer: str = ""
    """Identifies the provider and account that made the seals of the answer. Seals of other dialects are marked with
    it."""
    echo: Mapping[str, object] = MappingProxyType({})
    """Members of the request that the answer repeats, in dialects whose answers do (`ClientRequest.echo`)."""
    reasoning: ReasoningShown = "all"
    """How much of the reasoning of a provider of another dialect the client gets."""
    heartbeats: int = 0
    """How many heartbeats the client has got from earlier attempts at the same call."""
    stream_type: str = ""
    """The content type of a streamed answer, if it is not that of server-sent events (`ClientRequest.stream_type`)."""
    overrides: Mapping[str, object] = MappingProxyType({})
    """Members of the answer that the gateway sets in place of the provider's (`StoredAnswers.overrides`)."""


class AnswerWriter(Protocol):
    """Writes one streamed answer."""

    losses: list[Loss]
    """What the client's dialect cannot express of the events written so far."""

    def write(self, events: Iterable[Event]) -> bytes:
        """The bytes of these events, as whole frames that can be sent at once."""

    def note(self, events: Iterable[Event]) -> None:
        """Observe events whose bytes are forwarded unchanged: what is written later must match them."""
        self.write(events)

    def heartbeat(self) -> bytes:
        """Bytes without meaning that keep the connection alive; empty if none can be sent now."""

    def fail(self, failure: Failure) -> bytes:
        """The last bytes of a stream that has begun and cannot be completed."""


class RequestError(Exception):
    """A request is rejected. `failure` is the error for the client."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class AnswerDialect(Protocol):
    """How servers of an API answer: writes answers and errors. Replay plays captures of any dialect with it."""

    path: str
    """The path of the endpoint, below /v1 or the version of the API; it may contain `{model}`."""
    request_id_header: str = ""
    """The response header with the id of the request, beside `x-request-id`; empty if there is none."""

    def writer(self, facts: AnswerFacts) -> AnswerWriter:
        """Make the writer of a streamed answer."""

    def write_body(self, completion: Completion, facts: AnswerFacts, losses: list[Loss]) -> bytes:
        """The body of an answer without streaming; what cannot be expressed is added to `losses`."""

    def status_of(self, failure: Failure) -> int:
        """The HTTP status of an error, for clients of this API."""
        return failure.status

    def write_error(self, failure: Failure, request_id: str) -> bytes:
        """The body of an error."""


class SurfaceDialect(AnswerDialect, Protocol):
    """How to offer an API: reads its requests, and writes answers and errors for its clients."""

    name: str
    """The name of this API in the ledger, in metrics and in traces."""

    def read_request(self, body: bytes, headers: Mapping[str, str], path: str) -> ClientRequest:
        """Read a request; checks only what the gateway acts on, and raises `RequestError`.

        `path` is that of the request, with its query.
        """


class TokenCounting(Protocol):
    """A request of an API that asks how many tokens an input has."""

    path: str
    """Where it is posted: below /v1, and below a provider's `base_url`; it may contain `{model}`."""

    def read_request(self, body: bytes, headers: Mapping[str, str], path: str) -> ClientRequest:
        """Parse a request body; raises `RequestError`. `path` is that of the request."""

    def read_count(self, body: bytes) -> int | None:
        """The count in a provider's response; None if there is none."""

    def write_count(self, tokens: int) -> bytes:
        """The body of the response to a client."""


class KeptAnswer(Struct, frozen=True, gc=False):
    """An answer that the gateway keeps, as JSON.

    `input` is a list: the input that was new in its request. `output` is a list: what may follow as the input of a
    later request. It is None if the answer failed, because no request can continue it. `answer` is the answer as the
    client got it, without `output`.
    """

    id: str
    input: bytes
    output: bytes | None
    answer: bytes = b""


class StoredAnswers(Protocol):
    """An API whose answers a client can read again, delete, and continue by their id. The gateway keeps them.

    The answer with an id is below the path of the surface. Methods that read a request raise `RequestError`.
    """

    id_prefix: str
    """What the id of every answer begins with."""
    id_member: str
    """The name of the member of a request that has the id of the answer that it continues."""

    reference_type: str
    """The type of an item in a request that stands for an item of an earlier answer."""

    def references(self, body: bytes) -> tuple[str, ...]:
        """The ids of the items of earlier answers that a request refers to."""

    def item_ids(self, kept: KeptAnswer) -> tuple[str, ...]:
        """The ids of the items of an answer, by which requests may refer to them."""

    def resolve(self, body: bytes, answers: Iterable[KeptAnswer]) -> bytes:
        """The body with items of these answers in place of the references to them. Other references stay."""

    def continuation(self, body: bytes) -> Continuation | None:
        """Which answer a request continues; None if it continues none."""

    def expand(self, continuation: Continuation, history: Sequence[KeptAnswer]) -> bytes:
        """The body with the whole conversation as its input: these answers, the oldest first, then its own input."""

    def input_size(self, members: JsonMembers) -> int:
        """The bytes of the new items of the input. To copy them takes long if they are many."""

    def new_input(self, members: JsonMembers) -> bytes:
        """The input of a request, as `KeptAnswer` has it."""

    def overrides(self, id: str, previous: str) -> Mapping[str, object]:
        """The members of an answer that differ from the provider's. `id` is empty if the answer is not kept,
        `previous` if it continues none."""

    def read_answer(self, id: str, input: bytes, data: bytes) -> KeptAnswer | None:
        """The answer in the last bytes of a stream, or in a body; None if they have none."""

    def write_unkept(self, data: bytes) -> bytes:
        """The last bytes of a stream, or a body, with an answer that says that it is not kept."""

    def write_answer(self, kept: KeptAnswer) -> bytes:
        """The answer as the client got it."""

    def write_input(self, history: Sequence[KeptAnswer], query: Mapping[str, str]) -> bytes:
        """A page of the whole input of the last of these answers. `query` are the parameters of the request."""

    def write_deleted(self, id: str) -> bytes:
        """The body of the response to a deletion."""


class ListedModel(Struct, frozen=True):
    """A model in a list of models. `created` is in Unix seconds."""

    id: str
    created: int


class ModelList(Protocol):
    """A list of models in an API's own form, where that differs from OpenAI's."""

    def applies_to(self, headers: Mapping[str, str], path: str) -> bool:
        """Whether a client with these request headers expects this form. `path` is that of its request."""

    def write_list(self, models: Sequence[ListedModel]) -> bytes:
        """The body of a whole list."""

    def write_model(self, model: ListedModel) -> bytes:
        """The body of one model."""


# To detect a dialect by its bytes, and to explain a stream.

HINT = 1
"""Evidence that other dialects may have too."""
PROOF = 4
"""Evidence that no other dialect has."""


class Detector(Protocol):
    """Rates the evidence that an answer is of one dialect, as `HINT` or `PROOF`; 0 if there is none.

    Each call is independent of the others. A heartbeat, or an error in a shape that many APIs have, is no evidence.
    """

    def in_frame(self, value: dict[str, object], event: str) -> int:
        """The evidence in the JSON object of one of the first frames, and in the name of its SSE event."""

    def in_exchange(self, path: str, content_type: str) -> int:
        """The evidence in the path of the request and in the answer's content type; each is empty if unknown."""


JsonPath: TypeAlias = tuple[str | int, ...]
"""The path of a value in JSON: keys and list indexes; `*` matches any of them."""


class DefectPlaces(Struct, frozen=True, kw_only=True):
    """The paths of the values in an event's JSON that a defect concerns, for tools that show a stream with its defects.

    A defect without a path is shown at the start of its event.
    """

    paths: Mapping[str, tuple[JsonPath, ...]]
    """By the defect's code: its possible paths. The first one that exists is used."""
    named: frozenset[str] = frozenset()
    """Codes of defects whose detail names the top-level members that they concern."""
    group: str = ""
    """The name of a list. If several items match a path, the item of this list that contains the detail is used."""


class Dialect(Struct, frozen=True, kw_only=True):
    """One wire format: how to call it, how to offer it, and what only some dialects have."""

    name: str
    title: str
    """The name for people, such as "OpenAI chat completions"."""
    framing: Literal["sse", "json-lines", "event-stream"] = "sse"
    """The framing of its streams. A reader finds it by the first bytes; this is the one that is no defect."""
    upstream: UpstreamDialect | None = None
    surface: SurfaceDialect | None = None
    answers: AnswerDialect | None = None
    """How its servers answer. For a dialect with a surface, it is the surface."""
    unstreamed_path: str = ""
    """The path of the endpoint for answers that are not streamed, if it is another one than `AnswerDialect.path`."""
    streams_by_default: bool = False
    """Whether a request without `stream` gets a stream."""
    detector: Detector | None = None
    """Detects the dialect by the bytes of an answer. Without it, a capture must name the dialect."""
    places: DefectPlaces | None = None
    incidental: frozenset[str] = frozenset(("model",))
    """Members of a request that replay ignores when it compares two requests."""
    carried: frozenset[str] = frozenset()
    """Extras and counts of other dialects' answers that its writers write; clients lose all others
    (`answer_extras.py`)."""
    settings: type[Struct] | None = None
    """The capabilities of a provider that its configuration may state, as fields with defaults."""
    token_counting: TokenCounting | None = None
    model_list: ModelList | None = None
    stored: StoredAnswers | None = None
    """Which of its answers can be kept, and how a request continues one."""
    passthrough: PassThroughFormat | None = None
    """The description of its fast path, if it has one."""

    def __post_init__(self) -> None:
        if self.surface is not None:
            force_setattr(self, "answers", self.surface)
