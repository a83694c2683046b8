"""EmbeddingsRequest: a request for embeddings, which is forwarded as the client wrote it, but for the model's name.

(Requests for answers are read by the dialects: `core/dialects/`.)
"""

from typing import ClassVar

from msgspec import Struct

from penstock.core.dialects.bodies import FIELDS, decode_members, refused
from penstock.core.json_members import JsonMembers

_ONCE = ("model", "stream", "messages", "n")
_MAX_MODEL = 256
_NO_MODEL = f"`model` must name a model, in at most {_MAX_MODEL} characters"
_READ = ("model", "metadata", "user")


class EmbeddingsRequest(Struct, frozen=True):
    """A request for embeddings: only its model is looked at, everything else stays as it was written."""

    model: str
    members: JsonMembers
    stream: ClassVar[bool] = False


def parse_embeddings(body: bytes) -> EmbeddingsRequest:
    """The request in a body; raises `RequestError`."""
    members = decode_members(body, _ONCE)
    try:
        body.decode()  # of what is kept as it is written, the parser does not ask whether it is UTF-8
        # What is read of them later must be readable: of what is kept as it is written, not all was looked at.
        read = {name: FIELDS.decode(members.values[name]) for name in _READ if name in members.values}
    except RecursionError:
        raise refused("the body is nested too deep", code="invalid_json") from None
    except ValueError as error:
        raise refused(f"the body is not valid JSON: {error}", code="invalid_json") from None
    if "input" not in members.values:
        raise refused("`input` must be what to embed", param="input")
    model = read.get("model")
    if not isinstance(model, str) or not 0 < len(model) <= _MAX_MODEL:
        raise refused(_NO_MODEL, param="model")
    return EmbeddingsRequest(model, members)
