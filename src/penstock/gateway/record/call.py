"""Call: one client request, from its admission to its settlement."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import ParamSpec, Protocol

from msgspec import Struct, field

from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.core.hub.events import Event
from penstock.gateway.content.collected import CollectedContent
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.record.client_credentials import ClientCredentials
from penstock.gateway.record.price import STANDARD, ServiceTier
from penstock.gateway.record.progress import Progress
from penstock.gateway.record.trace import Trace

Arguments = ParamSpec("Arguments")


def _raise(error: BaseException) -> None:
    raise error


class AnswerKeeping(Protocol):
    """Keeps the answer of a call, so that the client can read it again and continue it."""

    def overrides(self, issuer: str) -> Mapping[str, object]:
        """The members of the answer that the gateway sets, if this provider account answers."""

    def keep(self, data: bytes, then: Callable[[bytes], None]) -> bool:
        """Keep the answer in the last bytes for the client, then call `then` with these bytes. If the answer could not
        be kept, they say so.

        Returns False if nothing is to be kept, and `then` is not called.
        """


class Call(Struct, eq=False):
    """One client request: what is known when it is admitted, and its progress."""

    id: str
    model: str
    stream: bool
    started: float
    surface: str = "chat"
    dialect: str = DEFAULT_DIALECT
    """The client's."""
    trace: Trace | None = None
    """The trace that it belongs to, if traces are exported."""
    read_s: float = 0.0
    """When the request was read, by `time.perf_counter`."""
    at_ms: int = 0
    """When it was received, in milliseconds since 1970."""
    key: ClientKey | None = None
    credentials: ClientCredentials | None = None
    """The client's own credentials for a provider, if it sent some."""
    tags: Mapping[str, str] = {}
    user: str = ""
    input_estimate: int = 0
    tier: ServiceTier = STANDARD
    """The service tier that the client requests."""
    on_text: Callable[[list[Event]], None] | None = None
    """Called with the events as they come, while the admin page shows the call's text."""
    stream_type: str = ""
    """The content type of a streamed answer, if it is not that of server-sent events."""
    failures_in_stream: frozenset[str] = frozenset()
    """As in `ClientRequest`."""
    tells_cost: bool = False
    """Whether the client learns what the call has cost, if its answer is not streamed."""
    reported: bool = False
    """Whether the client asks for a report at the end of a stream."""
    strict: bool = False
    """Whether a loss that changes the meaning is a failure."""
    keeping: AnswerKeeping | None = None
    """Keeps its answer, if the client may continue it."""
    content: CollectedContent | None = None
    """Its request and answer, if the operator may keep them."""
    progress: Progress = field(default_factory=Progress)
    fail: Callable[[BaseException], None] = _raise
    """Ends the call after an exception of ours: the client gets an internal error. The client's side sets it."""

    def guarded(self, callback: Callable[Arguments, None]) -> Callable[Arguments, None]:
        """The callback, of which every exception ends this call and reaches no event loop, which would drop it."""
        return partial(self._run_guarded, callback)

    def _run_guarded(
        self, callback: Callable[Arguments, None], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> None:
        try:
            callback(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the call ends
            self.fail(error)
