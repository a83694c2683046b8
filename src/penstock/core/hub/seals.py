"""Seals across providers: opaque proof of reasoning, wrapped so that it comes back to its issuer.

A client gets a provider's reasoning in the container of the client's own API, such as the `signature` of an Anthropic
thinking block, and sends it back with the next request. A seal that is native to the client's API is forwarded as it
is. Any other is wrapped:

    penstock1.<scheme>.<issuer>.<value as base64url>

`scheme` is the API that the seal belongs to, with `+redacted` where no readable text belongs to the seal. `issuer`
identifies the provider and account that made it: providers refuse seals of other accounts. On the way back a request
writer unwraps a seal only for the same scheme and issuer; for any other target it drops the seal, and keeps the
readable text where the target wants it. Penstock never makes up a seal.
"""

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping

from penstock.core.hub.content import ReasoningSeal

WRAPPED = "penstock"
"""The scheme of a seal whose value is wrapped."""
PREFIX = "penstock1."
PLACEHOLDER = "skip_thought_signature_validator"
"""What Google's documentation names as the signature of calls that another model has made."""
GOOGLE = "gemini"
"""The scheme of Gemini's thought signatures, in Google's own API and in its OpenAI-compatible one."""
_REDACTED = "+redacted"
# A longer body is searched in slices, because a thread searches it, and a call that takes long blocks all others.
_SLICE = 1_000_000
_ISSUER = re.compile(rb"penstock1\.[^.\"\\\\]{1,40}\.([0-9a-f]{1,64})\.")


def wrap(seal: ReasoningSeal, issuer: str) -> str:
    """The seal as text for a client of another API."""
    value = urlsafe_b64encode(seal.value.encode(errors="surrogatepass")).decode().rstrip("=")
    return f"{PREFIX}{seal.scheme}{_REDACTED if seal.redacted else ''}.{issuer}.{value}"


def unwrap(text: str) -> tuple[ReasoningSeal, str] | None:
    """The seal in a text that a client sent back, and its issuer; None if Penstock did not wrap it."""
    parts = text.removeprefix(PREFIX).split(".")
    if not text.startswith(PREFIX) or len(parts) != 3:
        return None
    scheme, issuer, value = parts
    try:
        decoded = urlsafe_b64decode(value + "=" * (-len(value) % 4)).decode(errors="surrogatepass")
    except (binascii.Error, ValueError):
        return None
    return ReasoningSeal(scheme.removesuffix(_REDACTED), decoded, scheme.endswith(_REDACTED)), issuer


def last_issuer(body: bytes) -> str:
    """The issuer of the last wrapped seal in a request; empty if it has none."""
    prefix = PREFIX.encode()
    ends = range(len(body), 0, -_SLICE)
    place = next((at for end in ends if (at := body.rfind(prefix, max(end - _SLICE - len(prefix), 0), end)) >= 0), -1)
    match = _ISSUER.match(body, place) if place >= 0 else None
    return match[1].decode() if match is not None else ""


def received(text: str, scheme: str, *, redacted: bool = False) -> ReasoningSeal:
    """The seal in a request: a wrapped one, or one that is native to the client's API (`scheme`)."""
    return ReasoningSeal(WRAPPED if text.startswith(PREFIX) else scheme, text, redacted)


def call_signature(extras: Mapping[str, object]) -> str:
    """The signature of a tool call in Google's OpenAI-compatible API, by the members that only this API has."""
    match extras:
        case {"extra_content": {"google": {"thought_signature": str(signature)}}}:
            return signature
        case _:
            return ""


def opened(seals: Iterable[ReasoningSeal], scheme: str, issuer: str) -> ReasoningSeal | None:
    """The first of the seals that this issuer has made in this scheme, as it made it."""
    for seal in seals:
        wrapped = unwrap(seal.value) if seal.scheme == WRAPPED else None
        if wrapped is not None and wrapped[0].scheme == scheme and wrapped[1] == issuer:
            return wrapped[0]
    return None
