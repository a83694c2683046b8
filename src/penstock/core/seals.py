"""Seals across providers: opaque proof of reasoning, wrapped so that it comes back to its issuer.

A client gets a provider's reasoning in the container of the client's own API, such as the `signature` of an Anthropic
thinking block, and sends it back with the next request. A seal that is native to the client's API is forwarded as it
is. Any other is wrapped:

    penstock1.<scheme>.<issuer>.<value as base64url>

`scheme` is the API that the seal belongs to. `issuer` identifies the provider and account that made it: providers
refuse seals of other accounts. On the way back a request writer unwraps a seal only for the same scheme and issuer;
for any other target it drops the seal and keeps the readable text. Penstock never makes up a seal.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode

from penstock.core.content import ReasoningSeal

_PREFIX = "penstock1."


def wrap(seal: ReasoningSeal, issuer: str) -> str:
    """The seal as text for a client of another API."""
    value = urlsafe_b64encode(seal.value.encode(errors="surrogatepass")).decode().rstrip("=")
    return f"{_PREFIX}{seal.scheme}.{issuer}.{value}"


def unwrap(text: str) -> tuple[ReasoningSeal, str] | None:
    """The seal in a text that a client sent back, and its issuer; None if Penstock did not wrap it."""
    parts = text.removeprefix(_PREFIX).split(".")
    if not text.startswith(_PREFIX) or len(parts) != 3:
        return None
    scheme, issuer, value = parts
    try:
        decoded = urlsafe_b64decode(value + "=" * (-len(value) % 4)).decode(errors="surrogatepass")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return ReasoningSeal(scheme, decoded), issuer
