"""EmbeddingsRequest: a request for embeddings. It is forwarded as the client wrote it, except for the model's name.

(The dialects read requests for chats: `core/dialects/`.)
"""

from typing import ClassVar

from msgspec import Struct

from penstock.core.dialects.bodies import FIELDS, decode_members, refused
from penstock.core.dialects.proxy_members import embeddings_members
from penstock.core.hub.losses import Loss
from penstock.core.json.members import JsonMembers

_ONCE = ("model", "stream", "messages", "n")
_MAX_MODEL = 256
_NO_MODEL = f"`model` must name a model, in at most {_MAX_MODEL} characters"
_READ = ("model", "metadata", "user")


class EmbeddingsRequest(Struct, frozen=True):
    """A request for embeddings. Only the model is read; everything else stays as the client wrote it."""

    model: str
    members: JsonMembers
    dropped: tuple[Loss, ...] = ()
    """The members that were removed from it."""
    stream: ClassVar[bool] = False
    reference: ClassVar[None] = None


def parse_embeddings(body: bytes) -> EmbeddingsRequest:
    """The request in a body; raises `RequestError`."""
    members = decode_members(body, _ONCE)
    try:
        body.decode()  # the parser does not check that raw members are UTF-8
        # Decode now what is read later: the parser does not check raw members completely.
        read = {name: FIELDS.decode(members.values[name]) for name in _READ if name in members.values}
    except ValueError as error:
        raise refused(f"the body is not valid JSON: {error}", code="invalid_json") from None
    if "input" not in members.values:
        raise refused("`input` is missing: it must be the text to embed", param="input")
    model = read.get("model")
    if not isinstance(model, str) or not 0 < len(model) <= _MAX_MODEL:
        raise refused(_NO_MODEL, param="model")
    return EmbeddingsRequest(model, *embeddings_members(members))
