"""Forwards requests of the Gemini dialect: the changes that a client's own contents need.

Clients get the seals of other providers as wrapped signatures (`signatures.py`), and send them back also when a later
request goes to a Gemini provider. Google refuses a signature that it has not made, so a wrapped one is removed.
"""

import msgspec
from msgspec import Raw

from penstock.core.dialects.gemini.members import snake_case
from penstock.core.dialects.gemini.signatures import ENCODED_PREFIX, unwrapped
from penstock.core.hub.losses import Loss
from penstock.core.json.getters import object_of, objects_of

_NAMES = ("thoughtSignature", snake_case("thoughtSignature"))


def edit_contents(written: Raw, losses: list[Loss]) -> Raw | None:
    """The contents as the provider accepts them; None if they can stay as the client wrote them."""
    data = bytes(written)
    if ENCODED_PREFIX.encode() not in data:
        return None
    contents = msgspec.json.decode(data)
    found = len(losses)
    for content in objects_of(contents if isinstance(contents, list) else [contents]):
        for part in objects_of(content.get("parts")):
            for name in _NAMES:
                value = part.get(name)
                if isinstance(value, str) and unwrapped(value):
                    del part[name]
                    losses.append(Loss("seal-dropped"))
    return Raw(msgspec.json.encode(contents)) if len(losses) > found else None


def with_model(written: Raw, model: str) -> Raw:
    """The request whose tokens a client wants to be counted, with the provider's name of the model."""
    return Raw(msgspec.json.encode(object_of(msgspec.json.decode(written)) | {"model": f"models/{model}"}))
