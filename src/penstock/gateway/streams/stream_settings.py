"""StreamSettings: the section [streams] of the configuration."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

Durability: TypeAlias = Literal["never", "on request", "always"]
OnDisconnect: TypeAlias = Literal["cancel", "continue", "linger"]
_Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=604_800)]
_Size: TypeAlias = Annotated[int, Meta(ge=65_536)]


class StreamSettings(Struct, frozen=True, kw_only=True):
    """Streams to which clients can come back."""

    durable: Durability = "on request"
    """Which streams are durable: `"on request"` those whose client asks for it, `"always"` all, `"never"` none. A route
    can have [its own rule](reference/configuration.md#routesname); `"never"` wins over every other rule."""
    store: Literal["memory", "file"] = "memory"
    """Where streams are kept: `"memory"`, or also in a `"file"` each, in the folder of the ledger, so that they survive
    `kill -9` and a restart."""
    on_disconnect: OnDisconnect = "linger"
    """What happens when the last reader of a durable stream disconnects: `"cancel"` stops the call, `"continue"` lets
    it run to its end, `"linger"` stops it after `linger_s`. A client can ask for one of them."""
    linger_s: _Seconds = 60.0
    """Seconds for which a call goes on without a reader."""
    keep_s: _Seconds = 600.0
    """Seconds for which a stream can be read after its end."""
    # The longest answers of models have some 700 KB.
    max_stream: _Size = 4_000_000
    """Bytes of one stream. A longer one loses its oldest events; a reader that needs them gets a 410."""
    max_total: _Size = 256_000_000
    """Bytes of all streams of one process. Beyond it, the streams that ended first are forgotten."""
    max_cached: _Size = 64_000_000
    """Bytes of all [cached answers](streams.md#cached-answers) of one process. Beyond it, those that were not used for
    the longest time are forgotten."""
    max_readers: Annotated[int, Meta(ge=1, le=1000)] = 16
    """Readers of one stream at the same time."""
    max_per_key: Annotated[int, Meta(ge=1, le=100_000)] = 100
    """Streams of one key, running or kept. Beyond it, its stream that ended first is forgotten."""
