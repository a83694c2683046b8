"""Signatures in the Gemini dialect: seals of reasoning as the text of a `thoughtSignature`.

The member holds bytes, so SDKs decode it as base64 and encode it again. A seal of another API is wrapped
(`core/hub/seals.py`) and then encoded, so that it survives that.
"""

import binascii
from base64 import b64decode, b64encode

from penstock.core.dialects.gemini.reader import SEAL_SCHEME
from penstock.core.hub.content import ReasoningSeal
from penstock.core.hub.seals import PREFIX, received, wrap

# The beginning of every wrapped seal in base64. It stands for whole groups of three bytes.
ENCODED_PREFIX = b64encode(PREFIX.encode()[: len(PREFIX) // 3 * 3]).decode()


def standard_base64(text: str) -> str:
    """Base64 in the standard alphabet and padded. Google accepts both alphabets, and its SDKs send either."""
    return text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4)  # quicker than `translate` for an image


def write_signature(scheme: str, value: str, issuer: str, *, redacted: bool = False) -> str:
    """The signature that a client gets for a seal."""
    if scheme == SEAL_SCHEME:
        return value
    return b64encode(wrap(ReasoningSeal(scheme, value, redacted), issuer).encode()).decode()


def read_signature(signature: str) -> ReasoningSeal:
    """The seal in a signature that a client sent back."""
    return received(unwrapped(signature) or signature, SEAL_SCHEME)


def unwrapped(signature: str) -> str:
    """The wrapped seal in a signature; empty if it has none."""
    if not signature.startswith(ENCODED_PREFIX):
        return ""
    try:
        text = b64decode(standard_base64(signature)).decode()
    except (binascii.Error, ValueError):
        return ""
    return text if text.startswith(PREFIX) else ""
