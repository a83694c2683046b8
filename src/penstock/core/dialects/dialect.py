"""Dialect: one wire format, as an API to call (`UpstreamDialect`) and as an API to offer (`SurfaceDialect`).

A dialect is a package below `core/dialects/` and a row in `core/dialects/registry.py`. Everything outside
`core/dialects/` works with the ports of this module, and looks dialects up by name. A dialect may have only one of the
two sides. What only some dialects have is an optional object of `Dialect`, never a method that others stub.

    bytes ─ FrameReader ─▶ events ─ AnswerWriter ─▶ bytes         answers (`core/stream.py` joins the stages)
    bytes ─ read_request ─▶ ClientRequest ─ write_request ─▶ bytes   requests
    bytes ─ read_error ─▶ ProviderError … Failure ─ write_error ─▶ bytes   errors
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Protocol, TypeAlias

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import force_setattr

from penstock.core.completion import Completion
from penstock.core.events import Event
from penstock.core.failure import Failure
from penstock.core.losses import Loss
from penstock.core.passthrough_format import PassThroughFormat
from penstock.core.request import ClientRequest
from penstock.core.sink import Sink

# To call an API.


class FrameReader(Protocol):
    """Makes events of the JSON of one stream, frame by frame, and puts them into the sink that it was made with.

    It says what it saw; `core/grammar.py` puts that into order.
    """

    done: bool
    """Whether the provider has said that nothing more will come."""
    unread: str
    """The first frame that was neither answer nor error nor anything else that is known; empty if all were."""
    sentinel: str
    """A word that the dialect sends in place of JSON, such as `[DONE]`; empty where it has none."""

    def read(self, value: object, *, event: str = "", surrogates: bool = False) -> None:
        """Take in the JSON of one frame, and the event name that the transport gave it.

        `surrogates`: strings in it may hold halves of surrogate pairs.
        """

    def read_undecodable(self, data: bytes, event: str) -> None:
        """Take in the data of a frame that is no JSON, the sentinel included."""

    def flush(self) -> None:
        """Emit what was held back: nothing more of it will be read."""

    def close(self) -> None:
        """No more frames will come: emit what was held back."""


class Destination(Struct, frozen=True, kw_only=True):
    """Whom a request is written for. What cannot be seen in bytes is a setting of the provider's data."""

    model: str
    overrides: Mapping[str, object] = MappingProxyType({})
    """Fields that the route sets, in the words of the provider's dialect."""
    include_usage: bool = True
    """Whether the provider accepts being asked for usage in a stream."""
    stream: bool | None = None
    """Whether to ask for a stream, whatever the client wants; None to ask for what the client wants."""
    settings: Mapping[str, object] = MappingProxyType({})
    """Further capabilities of the provider, by the names that its dialect gives them."""
    members: dict[str, Raw] = {}
    """`overrides` and `model` as JSON, encoded once for many requests."""

    def __post_init__(self) -> None:
        members = {**self.overrides, "model": self.model}
        encoded = {name: Raw(msgspec.json.encode(value)) for name, value in members.items()}
        force_setattr(self, "members", encoded)


class OutgoingRequest(Struct, frozen=True):
    """A request for a provider: its body, the headers that it needs, and what was lost in translation."""

    body: bytes
    headers: Mapping[str, str] = MappingProxyType({})
    losses: tuple[Loss, ...] = ()


class RequestLimits(Struct, frozen=True, gc=False):
    """What budgets and prices depend on: tokens that all choices may have together, if that is said; the tier."""

    output: int | None = None
    tier: str = ""


class ProviderError(Struct, frozen=True):
    """What the body of a provider's error says. `envelope` is its error for a client of the same dialect, if any."""

    message: str = ""
    envelope: bytes = b""


class UpstreamDialect(Protocol):
    """What it takes to call an API."""

    def frame_reader(self, sink: Sink) -> FrameReader:
        """What reads one answer."""

    def write_request(self, request: ClientRequest, destination: Destination) -> OutgoingRequest:
        """The request for a provider: the client's own, forwarded with edits, if it speaks this dialect; else anew."""

    def limits(self, request: ClientRequest, destination: Destination) -> RequestLimits:
        """What budgets and prices depend on, by the request as it is written."""

    def read_error(self, body: bytes) -> ProviderError:
        """What the JSON of an error says that came with a status of 300 or more; raises `ValueError` if it is none."""


# To offer an API.


class AnswerFacts(Struct, frozen=True, kw_only=True):
    """What a writer needs to know of a call. `model` and `created` stand in for what the provider does not say."""

    call_id: str
    """The id of the call: errors name it, and the id of the answer is made of it unless `id` is given."""
    id: str = ""
    model: str
    created: int
    include_usage: bool = False
    input_estimate: int = 0
    """Tokens of the input, for dialects that report them before the provider has."""


class AnswerWriter(Protocol):
    """Writes one streamed answer."""

    losses: list[Loss]
    """What the client's dialect cannot express of the events written so far."""

    def write(self, events: Iterable[Event]) -> bytes:
        """The bytes that tell these events; whole, so that they can be sent at once."""

    def note(self, events: Iterable[Event]) -> None:
        """Take note of events that the client gets as the provider sent them: what is written later goes with them."""

    def heartbeat(self) -> bytes:
        """Bytes that keep a client waiting, and mean nothing. May be empty: then nothing can be sent now."""

    def fail(self, failure: Failure) -> bytes:
        """The last bytes of a stream that has begun and cannot be completed."""


class RequestError(Exception):
    """A request cannot be read: why, for the client."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class SurfaceDialect(Protocol):
    """What it takes to offer an API."""

    name: str
    """What calls of this API are known by in the ledger, in metrics and traces."""
    path: str
    """Where requests are posted, below /v1."""

    def read_request(self, body: bytes, headers: Mapping[str, str], path: str) -> ClientRequest:
        """The request in a body, checked as far as the gateway acts on it; raises `RequestError`."""

    def writer(self, facts: AnswerFacts) -> AnswerWriter:
        """What writes a streamed answer."""

    def write_body(self, completion: Completion, facts: AnswerFacts, losses: list[Loss]) -> bytes:
        """The body of an unstreamed answer; what cannot be expressed is added to `losses`."""

    def write_error(self, failure: Failure, request_id: str) -> bytes:
        """The body of an error."""


# To tell a dialect by its bytes, and to explain a stream.

HINT = 1
"""Evidence that other dialects may have too."""
PROOF = 4
"""Evidence that no other dialect has."""


class Detector(Protocol):
    """Counts the evidence that an answer is of one dialect, as `HINT` or `PROOF`; 0 where there is none.

    Each question stands for itself. A heartbeat, or an error in a shape that many APIs have, is no evidence.
    """

    def in_frame(self, value: dict[str, object], event: str) -> int:
        """What the JSON object of one of the first frames says, and the event name that the transport gave it."""

    def in_exchange(self, path: str, content_type: str) -> int:
        """What the path of the request and the answer's content type say; each is empty where it is unknown."""


JsonPath: TypeAlias = tuple[str | int, ...]
"""Keys and places of lists that lead to a value in JSON; `*` stands for any of them."""


class DefectPlaces(Struct, frozen=True, kw_only=True):
    """Where in an event's JSON the values stand that a defect is about, for tools that show a stream with its defects.

    A defect without a place is shown where its event is.
    """

    paths: Mapping[str, tuple[JsonPath, ...]]
    """By the defect's code: the first of the paths that leads to something."""
    named: frozenset[str] = frozenset()
    """Defects whose detail names the members that they are about, at the top of the object."""
    group: str = ""
    """A list each of whose items is looked at as a whole, where a detail tells which of several values is meant."""


class Dialect(Struct, frozen=True, kw_only=True):
    """One wire format, by its name: the two sides of it, and what only some dialects have."""

    name: str
    title: str
    """What people call it, such as "OpenAI chat completions"."""
    upstream: UpstreamDialect | None = None
    surface: SurfaceDialect | None = None
    detector: Detector | None = None
    """Tells the dialect by the bytes of an answer; without it, only a capture that names the dialect is read so."""
    places: DefectPlaces | None = None
    incidental: frozenset[str] = frozenset(("model",))
    """Members of a request that may differ between two requests that ask for the same (replay compares the others)."""
    passthrough: PassThroughFormat | None = None
    """What is specific to its fast path, where it has one."""
