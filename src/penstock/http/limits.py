"""The limits of connections: sizes and seconds, each with its reason."""

from msgspec import Struct


class FrontLimits(Struct, frozen=True, kw_only=True):
    """Limits on what clients send. A client that exceeds one gets an error where possible, and is disconnected."""

    # OpenAI requires that all request headers together are under 64 KiB; no known client sends a hundred of them.
    max_head: int = 65_536
    max_header: int = 16_384
    max_headers: int = 100
    max_target: int = 8_192
    # Enough for a few images in base64; a provider's own limit is of the same order.
    max_body: int = 20_000_000
    # Bytes of chunk framing in a row without any body: chunk extensions and trailers, which no known client sends.
    max_framing: int = 16_384
    max_connections: int = 20_000
    # Whether a new connection beyond these replaces the oldest one that has sent no complete request, instead of being
    # refused: a few hundred silent connections would otherwise block a port with a small limit.
    replaces_unused: bool = False
    head_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    keep_alive_s: float = 75.0
    # A client that reads nothing for this long counts as gone, even if its TCP connection is open.
    stalled_client_s: float = 60.0
    # Backpressure: how much may be buffered for a slow client in this process before its upstream is paused; and in the
    # kernel.
    write_buffer: int = 65_536
    send_buffer: int = 131_072


class UpstreamLimits(Struct, frozen=True, kw_only=True):
    """Limits on what upstreams send, and how their connections are kept."""

    max_head: int = 65_536
    max_headers: int = 200
    # Idle connections are kept for less than the shortest time after which servers usually close them.
    idle_s: float = 50.0
    max_age_s: float = 300.0
    max_idle: int = 256
