"""The OpenAI Responses dialect, requests forwarded: what must be changed in the input of a client's own request.

A request for a provider of the same dialect keeps its bytes, except:

1. Reasoning. Clients get the encrypted content wrapped with its issuer (`core/hub/seals.py`). It is unwrapped for the
   same issuer; any other account refuses it, for the rest of the conversation, so that reasoning is left out. So is
   reasoning without encrypted content: its id names what no provider has stored, unless clients may leave state there.
2. Conversations that a provider compacted: likewise, but another account cannot answer such a request at all.
3. Ids of items that another provider has made up: OpenAI refuses an id without the prefix of its type. No item needs
   one, but for those that others refer to.
4. Results of tools that are lists, where the provider's data says so (`result_parts`, llama.cpp).
"""

import re

import msgspec
from msgspec import Raw

from penstock.core.dialects.bodies import refused
from penstock.core.dialects.dialect import Destination
from penstock.core.dialects.openai_responses.request_writer import ResponsesSettings
from penstock.core.dialects.openai_responses.vocabulary import (
    COMPACTED_ELSEWHERE,
    COMPACTIONS,
    SEAL_SCHEME,
    SUMMARISED,
    Json,
    summary_in,
)
from penstock.core.hub.losses import Loss
from penstock.core.hub.seals import PREFIX, unwrap

_SEALED = re.compile(rb'"type"\s*:\s*"(?:reasoning|compaction)')
_RESULT_LIST = re.compile(rb'"output"\s*:\s*\[')
# The prefixes of ids, by the type of the item; an item of another type keeps its id.
_ID_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fc",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctc",
    "reasoning": "rs",
}
_OTHER_ID = re.compile(rb'"id"\s*:\s*"(?!(?:msg|fc|ctc|rs))')


def edit_input(written: Raw, settings: ResponsesSettings, destination: Destination, losses: list[Loss]) -> Raw | None:
    """The input as the provider accepts it; None if it can stay as the client wrote it."""
    data = bytes(written)
    flatten = not settings.result_parts and _RESULT_LIST.search(data)
    if not flatten and not _SEALED.search(data) and not _OTHER_ID.search(data):
        return None
    items = msgspec.json.decode(data)
    if not isinstance(items, list):
        return None
    edited: list[object] = []
    for item in items:
        if not isinstance(item, dict):
            edited.append(item)
            continue
        kept = _with_plain_id(item)
        if kept.get("type") == "reasoning":
            opened = _opened(kept, settings, destination, losses)
            edited += [opened] if opened is not None else []
        elif kept.get("type") in COMPACTIONS and (summary := summary_in(kept)):
            edited = [each for each in edited if isinstance(each, dict) and each.get("role") in ("system", "developer")]
            edited.append({"type": "message", "role": "user", "content": SUMMARISED.format(summary)})
        elif kept.get("type") in COMPACTIONS:
            edited.append(_opened_compaction(kept, destination))
        elif flatten and isinstance(kept.get("output"), list):
            edited += _flattened(kept, losses)
        else:
            edited.append(kept)
    return Raw(msgspec.json.encode(edited)) if edited != items else None


def _with_plain_id(item: Json) -> Json:
    """The item without an id that its type cannot have."""
    id = item.get("id")
    prefix = _ID_PREFIXES.get(str(item.get("type", "message")))
    if not isinstance(id, str) or prefix is None or id.startswith(prefix):
        return item
    return {name: value for name, value in item.items() if name != "id"}


def _opened(item: Json, settings: ResponsesSettings, destination: Destination, losses: list[Loss]) -> Json | None:
    """Reasoning as its provider knows it; None if it is another provider's."""
    proof = item.get("encrypted_content")
    if isinstance(proof, str) and proof and not proof.startswith(PREFIX):
        return item  # the client got it elsewhere
    if not proof and destination.shared_state:
        return item
    seal = unwrap(proof) if isinstance(proof, str) else None
    if seal is not None and seal[0].scheme == SEAL_SCHEME and seal[1] == destination.issuer:
        return item | {"encrypted_content": seal[0].value}
    if settings.open_reasoning:
        if proof:
            losses.append(Loss("seal-dropped", seal[0].scheme if seal is not None else ""))
        return {name: value for name, value in item.items() if name != "encrypted_content"}
    losses.append(Loss("reasoning-dropped"))
    return None


def _opened_compaction(item: Json, destination: Destination) -> Json:
    """A compacted conversation as its provider knows it. Raises `RequestError` if it is another provider's: without it
    the model would know nothing of the conversation."""
    proof = item.get("encrypted_content")
    if not isinstance(proof, str) or not proof.startswith(PREFIX):
        return item  # the client got it elsewhere
    seal = unwrap(proof)
    if seal is None or seal[0].scheme != SEAL_SCHEME or seal[1] != destination.issuer:
        raise refused(COMPACTED_ELSEWHERE, param="input")
    return item | {"encrypted_content": seal[0].value}


_TEXTS = ("input_text", "output_text", "text")


def _flattened(item: Json, losses: list[Loss]) -> list[Json]:
    """A result as text; its media follow in a message of the user."""
    parts = item["output"]
    assert isinstance(parts, list)
    texts = [part for part in parts if isinstance(part, dict) and part.get("type") in _TEXTS and "text" in part]
    media = [part for part in parts if isinstance(part, dict) and part not in texts]
    losses.extend(Loss("field-dropped", f"output.{name}") for part in texts for name in part.keys() - {"type", "text"})
    flat: list[Json] = [item | {"output": "\n".join(str(part["text"]) for part in texts)}]
    if media:
        call = str(item.get("call_id", ""))
        losses.append(Loss("result-media-moved", call))
        note: Json = {"type": "input_text", "text": f"The result of {call} is attached."}
        flat.append({"type": "message", "role": "user", "content": [note, *media]})
    return flat
