"""Dialect: one wire format, as an API to call (`UpstreamDialect`) and as an API to offer (`SurfaceDialect`).

A dialect is a package below `core/dialects/` and a row in `core/dialects/registry.py`. Everything outside
`core/dialects/` works with the ports of this module, and looks dialects up by name. A dialect may have only one of the
two. Between them is `AnswerDialect`: the answers of an API, without its requests. A surface has them, and so has an API
that only replay serves. Dialects derive from the ports. What only some of them have is an optional member of `Dialect`,
or has a default here; it is never a method that others stub.

    bytes ─ FrameReader ─▶ events ─ AnswerWriter ─▶ bytes         answers (`core/stream.py` and `stream_writer.py` join
                                                                  the stages)
    bytes ─ read_request ─▶ ClientRequest ─ RequestWriter ─▶ bytes   requests
    bytes ─ read_error ─▶ ProviderError … Failure ─ write_error ─▶ bytes   errors
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from operator import attrgetter
from types import MappingProxyType
from typing import Literal, Protocol

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import force_setattr

from penstock.core.dialects.answer_writer import AnswerFacts as AnswerFacts
from penstock.core.dialects.answer_writer import AnswerWriter as AnswerWriter
from penstock.core.dialects.cache_breakpoints import Breakpoint
from penstock.core.dialects.frame_reader import FrameReader as FrameReader
from penstock.core.dialects.openai_errors import write_error
from penstock.core.dialects.request_writer import Destination as Destination
from penstock.core.dialects.request_writer import Json as Json
from penstock.core.dialects.request_writer import RequestWriter as RequestWriter
from penstock.core.dialects.stable_prefix import prefix_digest
from penstock.core.fast.format import TextFormat
from penstock.core.hub.completion import Completion
from penstock.core.hub.failure import Failure
from penstock.core.hub.failure import RequestError as RequestError
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import ClientRequest, Continuation
from penstock.core.hub.sink import Sink
from penstock.core.hub.tool_map import ClientTool, ToolMap
from penstock.core.json.getters import integer_of, object_of, text_of
from penstock.core.json.members import JsonMembers
from penstock.core.provider_errors.error_shapes import read_error

CACHE_KEY = "prompt_cache_key"
"""The member of a body by which a client names a prompt cache."""
# The setting of providers whose cache finds a conversation by a name of it.
_NAMES_CACHE = "cache_key"
_SALT = "cache_salt"

# To call an API.


class OutgoingRequest(Struct, frozen=True):
    """A request for a provider: its body, its additional headers, and the losses of the translation."""

    body: bytes
    headers: Mapping[str, str] = MappingProxyType({})
    losses: tuple[Loss, ...] = ()
    tools: Mapping[str, ClientTool] = MappingProxyType({})
    """The client's tools that have another name or form in the request, by their names in it."""
    path: str = ""
    """Another endpoint of the API than the one for answers; empty if it is that one."""
    breakpoints: tuple[Breakpoint, ...] = ()
    """Where the prompt cache got breakpoints that the client did not set."""


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


class UpstreamDialect:
    """How to call an API: reads its answers and errors, and writes requests for it."""

    path: str
    """Where requests are posted, below a provider's `base_url`."""
    reader: type[FrameReader]
    """The reader of its answers."""
    request_writer: type[RequestWriter]
    """The writer of requests that arrive in another dialect."""
    name = ""
    """The name of the dialect if clients speak it, too: their requests are forwarded. Empty if none does. `Dialect`
    sets it."""
    in_path = False
    """Whether the path has the model and says that the answer is streamed, so that the body does not."""
    headers: Mapping[str, str] = MappingProxyType({})
    """The headers of every request that is translated."""
    stream_member = "stream"
    """The member of a body that asks for a stream."""
    always_says_stream = False
    """Whether a body has that member also if it asks for no stream."""
    output_member = "max_tokens"
    """The member of a body that limits the tokens of the output; with a dot if it is in another one."""
    tier_member = ""
    """The member of a body that names the service tier; empty if it has none."""
    large_events: re.Pattern[bytes] | None = None
    """What the data of an event contains that may repeat the whole answer, or a whole item of it such as an image. Such
    an event may be as large as an unstreamed answer. None if there are no such events."""

    def frame_reader(self, sink: Sink) -> FrameReader:
        """Make the reader of one answer."""
        return self.reader(sink)

    def write_request(self, request: ClientRequest, destination: Destination) -> OutgoingRequest:
        """The request for a provider: the client's bytes with edits if they are in this dialect, else a new body."""
        if request.dialect == self.name:
            return self.forward(request, destination)
        neutral = request.read()
        names = ToolMap(neutral.tools)
        writer = self.request_writer(destination, names)
        fields = ({} if self.in_path else {"model": destination.model}) | writer.fields(neutral)
        if destination.parameters is not None:
            writer.losses += destination.parameters.apply(fields)
        fields |= destination.overrides
        stream = request.stream if destination.stream is None else destination.stream
        if (stream or self.always_says_stream) and not self.in_path:
            fields[self.stream_member] = stream
        breakpoints = writer.breakpoints
        if destination.cache and destination.settings.get(_NAMES_CACHE) and CACHE_KEY not in fields:
            fields[CACHE_KEY] = prefix_digest(request, destination.model).hex()
            breakpoints += ("key",)
        if request.tenant:
            fields |= cache_names(request.tenant, fields, destination)
        self.complete(fields, request, destination)
        return OutgoingRequest(
            msgspec.json.encode(fields),
            self.headers,
            tuple(writer.losses),
            names.changed(),
            breakpoints=breakpoints,
        )

    def continued(
        self,
        written: OutgoingRequest,  # noqa: ARG002
        prefix: str,  # noqa: ARG002
        spent: int,  # noqa: ARG002
        destination: Destination,  # noqa: ARG002
    ) -> OutgoingRequest | None:
        """The request that asks the model to go on with an answer that has this text, or anew if it has none; None if
        the API or the model cannot. `spent` are the tokens of the output so far."""
        return None

    def complete(self, fields: Json, request: ClientRequest, destination: Destination) -> None:
        """Change the members of a new body that depend on what the route sets."""

    def forward(self, request: ClientRequest, destination: Destination) -> OutgoingRequest:
        """The client's own bytes, with the edits that routing and the route demand."""
        losses: list[Loss] = []
        changes = self.changes(request, destination, losses)
        return OutgoingRequest(request.members.edited(changes), losses=tuple(losses))

    def changes(self, request: ClientRequest, destination: Destination, losses: list[Loss]) -> dict[str, Raw | None]:
        """The members of a client's own body that are others for this destination. What is removed is a loss."""
        changes: dict[str, Raw | None] = {**destination.members}
        if destination.parameters is not None:
            edits, lost = destination.parameters.edits(request.members.values)
            losses += lost
            changes = edits | changes
        if request.tenant:
            names = cache_names(request.tenant, request.fields, destination)
            changes |= {name: Raw(msgspec.json.encode(value)) for name, value in names.items()}
        if destination.stream is not None and destination.stream != request.stream:
            changes[self.stream_member] = Raw(b"true" if destination.stream else b"false")
        return changes

    def limits(self, request: ClientRequest, destination: Destination) -> RequestLimits:
        """The limits of the request as it is written for this destination."""
        names = (self.output_member, self.tier_member)
        if request.dialect == self.name:
            given = [_member(request.fields, name) for name in names]
        else:
            neutral = request.read()
            given = [neutral.max_output, neutral.tier if self.tier_member else ""]
        changed = [_member(destination.overrides, name) for name in names]
        most, tier = (was if now is None else now for was, now in zip(given, changed, strict=True))
        return RequestLimits(most if isinstance(most, int) and most >= 0 else None, text_of(tier).lower())

    def read_error(self, body: bytes) -> ProviderError:
        """Read the body of a response with a status of 300 or more; raises `ValueError` if it is not JSON.

        The body is for clients of the same dialect if it has an object `error`.
        """
        parsed = msgspec.json.decode(body)
        found = read_error(parsed, "error") if isinstance(parsed, dict) else None
        own = bool(self.name) and isinstance(parsed, dict) and isinstance(parsed.get("error"), dict)
        return ProviderError(found[0] if found else "", body if own else b"")


def cache_names(tenant: str, fields: Mapping[str, object], destination: Destination) -> dict[str, str]:
    """The members of a body that name or salt a provider's prompt cache, made a tenant's own: another tenant that sends
    the same cannot find out by the time or the price of an answer whether a prompt was sent before (CacheProbe)."""
    names = [name for name in (CACHE_KEY, _SALT) if isinstance(fields.get(name), str)]
    if destination.settings.get(_SALT) and _SALT not in names:
        names.append(_SALT)
    values = {name: f"{tenant}\0{fields.get(name, '')}".encode(errors="surrogatepass") for name in names}
    return {name: blake2b(value, digest_size=16).hexdigest() for name, value in values.items()}


def _member(fields: Mapping[str, object], path: str) -> object:
    """The value at a path of members; None if there is none."""
    name, _, inner = path.partition(".")
    return _member(object_of(fields.get(name)), inner) if inner else fields.get(name)


# To offer an API.


class AnswerDialect(Struct, frozen=True, kw_only=True):
    """How servers of an API answer: writes answers and errors. Replay plays captures of any dialect with it."""

    path: str
    """The path of the endpoint, below /v1 or the version of the API; it may contain `{model}`."""
    writer: type[AnswerWriter]
    """The writer of a streamed answer."""
    write_body: Callable[[Completion, AnswerFacts, list[Loss]], bytes]
    """Takes an answer. Returns its body without streaming; what cannot be expressed is added to the losses."""
    write_error: Callable[[Failure, str], bytes] = write_error
    """Takes a failure and the id of the request. Returns the body of the error; by default in OpenAI's form."""
    status_of: Callable[[Failure], int] = attrgetter("status")
    """The HTTP status of an error, for clients of this API."""
    request_id_header: str = ""
    """The response header with the id of the request, beside `x-request-id`; empty if there is none."""
    event_ids: bool = False
    """Whether an event of a durable stream has an `id:`, by which a client comes back. Else it counts the events."""
    write_report: Callable[[bytes, bytes], bytes] | None = None
    """Takes the last bytes of a stream, and a report on the call as JSON. Returns the bytes with the report. None: a
    comment before the last event, if the stream has server-sent events, and else nothing."""


class SurfaceDialect(AnswerDialect, frozen=True, kw_only=True):
    """How to offer an API: reads its requests, and writes answers and errors for its clients."""

    name: str = ""
    """The name of this API in the ledger, in metrics and in traces. Default: that of the dialect."""
    read_request: Callable[[bytes, Mapping[str, str], str], ClientRequest]
    """Takes a body, the headers, and the path with its query. Checks only what the gateway acts on, and raises
    `RequestError`."""


class TokenCounting(Struct, frozen=True, kw_only=True):
    """A request of an API that asks how many tokens an input has."""

    path: str
    """Where it is posted: below /v1, and below a provider's `base_url`; it may contain `{model}`."""
    read_request: Callable[[bytes, Mapping[str, str], str], ClientRequest]
    """Takes a body, the headers and the path. Raises `RequestError`."""
    names: tuple[str, ...] = ("input_tokens",)
    """The names that the member of the response with the count may have. The first one is written."""
    others: Mapping[str, object] = MappingProxyType({})
    """Further members of the response."""

    def read_count(self, body: bytes) -> int | None:
        """The count in a provider's response; None if there is none."""
        try:
            counted = object_of(msgspec.json.decode(body))
        except (ValueError, RecursionError):
            return None
        tokens = next((integer_of(counted[name]) for name in self.names if name in counted), None)
        return tokens if tokens is not None and tokens >= 0 else None

    def write_count(self, tokens: int) -> bytes:
        """The body of the response to a client."""
        return msgspec.json.encode({**self.others, self.names[0]: tokens})


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


class BackgroundAnswers(Protocol):
    """An API whose clients can let an answer be generated in the background, and read it later by its id."""

    def as_stream(self, request: ClientRequest) -> bytes:
        """The body of a request for an answer in the background, as one for a stream. Raises `RequestError`."""

    def overrides(self) -> Mapping[str, object]:
        """The members of the answer that differ from one that is not in the background."""

    def write_queued(self, id: str, created: int, request: ClientRequest) -> bytes:
        """The answer before it has begun."""

    def write_running(self, queued: bytes, events: Iterable[bytes], status: str | None) -> bytes:
        """The answer as the events of its stream have it so far, with this status if it is not None."""

    def position(self, events: Iterable[bytes], after: int) -> int:
        """How many of these events have a number up to this one."""


class Compaction(Protocol):
    """A request of an API that asks for a shorter conversation, which takes the place of the longer one."""

    name: str
    """Its name in the ledger, in metrics and in traces."""
    path: str
    """Where it is posted: below /v1, and below a provider's `base_url`."""
    prefix: str
    """What a summary begins with that the gateway has sealed for a client."""
    mark: bytes
    """What every request contains that has a summary, or `is_triggered`: one search finds both."""

    def read_request(self, body: bytes, headers: Mapping[str, str]) -> ClientRequest:
        """The request for a summary, which has the client's own as `compacts`. Raises `RequestError`."""

    def write(self, asked: bytes, data: bytes, call_id: str, seal: Callable[[str], str]) -> tuple[bytes, bool]:
        """The response to a client that has asked so, made of the body of an answer, and whether it is a stream. Raises
        `RequestError` if the answer has no summary."""

    def is_triggered(self, body: bytes) -> bool:
        """Whether a request for an answer asks to compact the conversation instead. Few do."""

    def open(self, body: bytes, unseal: Callable[[str], str | None]) -> bytes:
        """A request with its summaries as messages. Raises `RequestError` if one was not sealed for this client."""


class SocketRequest(Struct, frozen=True):
    """A message of a client that requests an answer: the body that it would post, and which answer it continues."""

    body: bytes
    previous: str = ""
    prewarm: bool = False
    """Whether the client only announces the request, so that a later one continues it: no answer is generated."""


class SocketMessages(Protocol):
    """How an API is spoken over a WebSocket: messages in place of bodies, events and errors."""

    def read(self, message: bytes) -> SocketRequest:
        """A message of the client. Raises `RequestError`."""

    def events(self, data: bytes) -> Iterable[bytes]:
        """The messages in place of these bytes of a stream, which consist of whole events of this dialect's writer."""

    def has_failed(self, data: bytes) -> bool:
        """Whether the last bytes of a stream say that the answer has failed."""

    def write_error(self, status: int, headers: Mapping[str, str], body: bytes) -> bytes:
        """The message in place of a response with an error."""


class ListedModel(Struct, frozen=True):
    """A model in a list of models. `created` is in Unix seconds."""

    id: str
    created: int


class ModelList(Protocol):
    """A list of models in an API's own form, where that differs from OpenAI's: one page with all of them."""

    member: str = "models"
    """What has the models in a list."""

    def applies_to(self, headers: Mapping[str, str], path: str) -> bool:
        """Whether a client with these request headers expects this form. `path` is that of its request."""

    def model(self, model: ListedModel) -> dict[str, object]:
        """A model in a list."""

    def write_list(self, models: Sequence[ListedModel]) -> dict[str, object]:
        """The JSON of a whole list."""
        return {self.member: [self.model(model) for model in models]}

    def write_model(self, model: ListedModel) -> dict[str, object]:
        """The JSON of one model."""
        return self.model(model)


# To detect a dialect by its bytes.

HINT = 1
"""Evidence that other dialects may have too."""
PROOF = 4
"""Evidence that no other dialect has."""


class Detector(Struct, frozen=True, kw_only=True):
    """Rates the evidence that an answer is of one dialect, as `HINT` or `PROOF`; 0 if there is none.

    Each call is independent of the others. A heartbeat, or an error in a shape that many APIs have, is no evidence.
    """

    in_frame: Callable[[dict[str, object], str], int]
    """Takes the JSON object of one of the first frames, and the name of its SSE event."""
    paths: tuple[str, ...] = ()
    """How the paths of its endpoints end, besides `AnswerDialect.path` and `Dialect.unstreamed_path`."""
    content_type: str = ""
    """A part of the answer's content type that is a hint; empty if there is none."""


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
    socket: SocketMessages | None = None
    """What it is over a WebSocket, at the path for answers; such a dialect has `stored` answers."""
    compaction: Compaction | None = None
    background: BackgroundAnswers | None = None
    text_format: TextFormat | None = None
    """The format of its fast path, if it has one."""

    def __post_init__(self) -> None:
        if self.surface is not None:
            if not self.surface.name:
                force_setattr(self.surface, "name", self.name)
            force_setattr(self, "answers", self.surface)
            if self.upstream is not None:
                self.upstream.name = self.name

    def rate_exchange(self, path: str, content_type: str) -> int:
        """The evidence in the path of the request and in the answer's content type; each is empty if unknown."""
        if (detector := self.detector) is None:
            return 0
        paths = (self.answers.path if self.answers is not None else "", self.unstreamed_path)
        ends = (*detector.paths, *(path.rpartition("{model}")[2] for path in paths if path))
        typed = bool(detector.content_type) and detector.content_type in content_type
        return HINT if typed or path.partition("?")[0].endswith(ends) else 0

    @property
    def client_paths(self) -> tuple[str, ...]:
        """The paths of its APIs for clients, below /v1: for answers, to count tokens, and to compact conversations."""
        counting = self.token_counting.path if self.token_counting is not None else ""
        compacting = self.compaction.path if self.compaction is not None else ""
        paths = (self.surface.path, self.unstreamed_path, counting, compacting) if self.surface else ()
        return tuple(filter(None, paths))
