"""What a connection may cost: sizes and seconds, each with its reason."""

from msgspec import Struct


class FrontLimits(Struct, frozen=True, kw_only=True):
    """Limits on what clients send. A client that exceeds one is answered, where that is possible, and cut off."""

    # OpenAI asks its callers to keep all request headers under 64 KiB; nobody needs a hundred of them.
    max_head: int = 65_536
    max_header: int = 16_384
    max_headers: int = 100
    max_target: int = 8_192
    # Room for a few images in base64; a provider's own limit is of the same order.
    max_body: int = 20_000_000
    # Bytes of chunk framing in a row without any body: extensions and trailers nobody sends in earnest.
    max_framing: int = 16_384
    max_connections: int = 20_000
    head_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    keep_alive_s: float = 75.0
    # A client that takes nothing for this long has gone, whatever its kernel says.
    stalled_client_s: float = 60.0
    # What may wait for a slow client in this process before its upstream is asked to pause; and in the kernel.
    write_buffer: int = 65_536
    send_buffer: int = 131_072


class UpstreamLimits(Struct, frozen=True, kw_only=True):
    """Limits on what upstreams send, and how their connections are kept."""

    max_head: int = 65_536
    max_headers: int = 200
    # An idle connection is kept shorter than the shortest time after which servers usually close it.
    idle_s: float = 50.0
    max_age_s: float = 300.0
    max_idle: int = 256
