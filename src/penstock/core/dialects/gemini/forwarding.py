"""Forwards requests of the Gemini dialect: the changes that a client's own contents need.

Clients get the seals of other providers as wrapped signatures (`core/seals.py`), and send them back also when a later
request goes to a Gemini provider. Google refuses a signature that it has not made. So a wrapped signature is removed;
one that was made by this issuer is unwrapped.
"""

import msgspec
from msgspec import Raw

from penstock.core.dialects.gemini.members import snake_case
from penstock.core.dialects.gemini.reader import SEAL_SCHEME
from penstock.core.json_getters import objects_of
from penstock.core.losses import Loss
from penstock.core.seals import PREFIX, opened, received

_NAMES = ("thoughtSignature", snake_case("thoughtSignature"))


def edit_contents(written: Raw, issuer: str, losses: list[Loss]) -> Raw | None:
    """The contents as the provider accepts them; None if they can stay as the client wrote them."""
    data = bytes(written)
    if PREFIX.encode() not in data:
        return None
    contents = msgspec.json.decode(data)
    changed = False
    for content in objects_of(contents if isinstance(contents, list) else [contents]):
        for part in objects_of(content.get("parts")):
            for name in _NAMES:
                value = part.get(name)
                if isinstance(value, str) and value.startswith(PREFIX):
                    changed = True
                    seal = opened((received(value, SEAL_SCHEME),), SEAL_SCHEME, issuer)
                    if seal is not None:
                        part[name] = seal.value
                    else:
                        del part[name]
                        losses.append(Loss("seal-dropped"))
    return Raw(msgspec.json.encode(contents)) if changed else None
