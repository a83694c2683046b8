"""Kept responses: how a request continues one by `previous_response_id`, and how clients read one again.

The gateway keeps the new input and the final response of each call. A request that continues a response becomes a
request without state: its `input` is the input and output of all responses before it, then its own. `instructions` are
no input, so they do not persist. Every provider can answer such a request.

Output becomes input as it is, without the ids of messages and calls: OpenAI refuses an item that it knows by its id
without the reasoning before it, and that may be missing in the request that is sent.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import msgspec
from msgspec import Raw, Struct

from penstock.core.dialects.bodies import FIELDS, decode_members, refused
from penstock.core.dialects.dialect import KeptAnswer
from penstock.core.dialects.openai_responses.failures import TYPED_CODES
from penstock.core.dialects.openai_responses.vocabulary import END_MARKER
from penstock.core.hub.request import Continuation
from penstock.core.json.getters import text_of
from penstock.core.json.members import JsonMembers

_PREVIOUS = "previous_response_id"
_FINAL = frozenset(("response.completed", "response.incomplete", "response.failed"))
# The values of `status`, as JSON, of responses that cannot be continued.
_ENDED_BADLY = frozenset((b'"failed"', b'"cancelled"'))
_ITEMS = msgspec.json.Decoder(list[Raw])
# Items that a provider accepts without an id.
_WITHOUT_ID = frozenset(("message", "function_call", "custom_tool_call"))
# What the ids of items begin with, by the type of the item; others begin with `item_`.
_PREFIXES = {
    "message": "msg_",
    "reasoning": "rs_",
    "function_call": "fc_",
    "function_call_output": "fco_",
    "custom_tool_call": "ctc_",
    "custom_tool_call_output": "ctco_",
}
_CALL_ID, _OUTPUT = b'"call_id"', b'_call_output"'
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_TEXT_TYPES = {"assistant": "output_text"}
# More items than a response has.
_MAX_NAMED = 1_000
_DEFAULT_LIMIT, _MAX_LIMIT = 20, 100


class _FinalEvent(Struct, frozen=True):
    type: str = ""
    response: Raw = Raw(b"")


_FINAL_EVENT = msgspec.json.Decoder(_FinalEvent)


class StoredResponses:
    """`StoredAnswers` of the Responses API."""

    id_prefix = "resp_"
    id_member = _PREVIOUS

    reference_type = "item_reference"

    def references(self, body: bytes) -> tuple[str, ...]:
        """The ids of the items that the input refers to, each once."""
        raw = decode_members(body, ("input",)).values.get("input", Raw(b"[]"))
        if not bytes(raw).lstrip().startswith(b"["):
            return ()
        ids = (self._referred(item) for item in _ITEMS.decode(raw))
        return tuple(dict.fromkeys(id for id in ids if id))

    def item_ids(self, kept: KeptAnswer) -> tuple[str, ...]:
        """The ids of the items of its output."""
        return tuple(_by_id(kept))[:_MAX_NAMED]

    def resolve(self, body: bytes, answers: Iterable[KeptAnswer]) -> bytes:
        """The body with the items of these responses in its input."""
        known: dict[str, Raw] = {}
        for kept in answers:
            known |= _by_id(kept)
        members = decode_members(body, ("input",))
        items: list[bytes] = []
        for raw in _ITEMS.decode(members.values["input"]):
            found = known.get(self._referred(raw))
            items += [bytes(raw)] if found is None else _as_input([found])
        return members.edited({"input": Raw(b"[%b]" % b",".join(items))})

    def _referred(self, raw: Raw) -> str:
        """The id of the item that an item refers to; empty if it is no reference."""
        item = _object(raw)
        return text_of(item.get("id")) if item.get("type") == self.reference_type else ""

    def continuation(self, body: bytes) -> Continuation | None:
        """Which response a request continues."""
        if _PREVIOUS.encode() not in body:
            return None  # nearly always. If the name is written with escapes, `Continuations.check` refuses the request
        members = decode_members(body, (_PREVIOUS, "input", "store"))
        value = members.values.get(_PREVIOUS)
        previous = FIELDS.decode(value) if value is not None else None
        if previous is None:
            return None
        if not isinstance(previous, str) or not previous:
            raise refused(f"`{_PREVIOUS}` must be the id of a response", param=_PREVIOUS)
        return Continuation(previous, members)

    def expand(self, continuation: Continuation, history: Sequence[KeptAnswer]) -> bytes:
        """The body with the whole conversation as its input."""
        items: list[bytes] = []
        for kept in history:
            if kept.output is None:
                raise refused(
                    f"the response {kept.id!r} failed; continue from the one before it",
                    param=_PREVIOUS,
                    code="previous_response_not_found",
                )
            items += map(bytes, _ITEMS.decode(kept.input))
            items += _as_input(_ITEMS.decode(kept.output))
        new = list(map(bytes, _ITEMS.decode(self.new_input(continuation.members))))
        _check_calls(items, new)
        items += new
        expanded = Raw(b"[%b]" % b",".join(items))
        return continuation.members.edited({"input": expanded, _PREVIOUS: None})

    def input_size(self, members: JsonMembers) -> int:
        """The bytes of the input."""
        return memoryview(members.values.get("input", Raw())).nbytes

    def new_input(self, members: JsonMembers) -> bytes:
        """The items of the input."""
        raw = bytes(members.values.get("input", Raw(b"[]"))).strip()
        if raw.startswith(b"["):
            return raw
        if raw == b"null":
            return b"[]"
        if not raw.startswith(b'"'):
            raise refused("`input` must be a text or a list of items", param="input")
        return b'[{"type":"message","role":"user","content":%b}]' % raw

    def overrides(self, id: str, previous: str) -> Mapping[str, object]:
        """Its id, and what the provider does not know: the response before it, and whether it is kept."""
        return {_PREVIOUS: previous or None, "store": bool(id)} | ({"id": id} if id else {})

    def read_answer(self, id: str, input: bytes, data: bytes) -> KeptAnswer | None:
        """The response in a body, or in the last event of a stream."""
        whole = data if data.startswith(b"{") else _last_response(data)
        if whole is None:
            return None
        members = JsonMembers(whole)
        output = members.values.get("output")
        if output is None or bytes(members.values.get("status", b"")).strip() in _ENDED_BADLY:
            error = _object(members.values.get("error", Raw(b"null")))
            code = TYPED_CODES.get(text_of(error.get("code")))
            typed = members.edited({"error": Raw(msgspec.json.encode(error | {"code": code}))}) if code else whole
            return KeptAnswer(id, input, None, typed)
        return KeptAnswer(id, input, bytes(output), members.edited({"output": None}))

    def write_unkept(self, data: bytes) -> bytes:
        """The bytes with `store: false` in the response."""
        if data.startswith(b"{"):
            return JsonMembers(data).edited({"store": Raw(b"false")})
        response = _last_response(data)
        return data if response is None else data.replace(response, self.write_unkept(response))

    def write_answer(self, kept: KeptAnswer) -> bytes:
        """The response."""
        return kept.answer if kept.output is None else JsonMembers(kept.answer).edited({"output": Raw(kept.output)})

    def write_input(self, history: Sequence[KeptAnswer], query: Mapping[str, str]) -> bytes:
        """A page of the input of the last of these responses, the newest item first unless `order` is `asc`."""
        limit, order, after = _limit(query.get("limit")), query.get("order", "desc"), query.get("after")
        if order not in ("asc", "desc"):
            raise refused("`order` must be asc or desc", param="order")
        items = list(_listed(history))
        if order == "desc":
            items.reverse()
        start = 0
        if after is not None:
            places = [place for place, item in enumerate(items) if item["id"] == after]
            if not places:
                raise refused(f"there is no item {after[:100]!r} in this input", param="after")
            start = places[0] + 1
        page = items[start : start + limit]
        return msgspec.json.encode(
            {
                "object": "list",
                "data": page,
                "first_id": page[0]["id"] if page else None,
                "last_id": page[-1]["id"] if page else None,
                "has_more": start + limit < len(items),
            }
        )

    def write_deleted(self, id: str) -> bytes:
        """What OpenAI answers to a deletion."""
        return msgspec.json.encode({"id": id, "object": "response", "deleted": True})


def _check_calls(before: Iterable[bytes], new: Iterable[bytes]) -> None:
    """Raise `RequestError` if a new item is the output of a call that the conversation does not have. OpenAI refuses
    that, too, and so does every other provider, in other words."""
    outputs = [item for raw in new if _OUTPUT in raw and str((item := _object(Raw(raw))).get("type")) in _OUTPUTS]
    if outputs:
        known = {
            _object(Raw(raw)).get("call_id") for raw in chain(before, new) if _CALL_ID in raw and _OUTPUT not in raw
        }
        for item in outputs:
            if (id := item.get("call_id")) not in known:
                raise refused(f"No tool call found for function call output with call_id {id}.", param="input")


def _last_response(data: bytes) -> bytes | None:
    """The response in the event that ends a stream."""
    for line in reversed(data.splitlines()):
        if line.startswith(b"data:") and line != END_MARKER.rstrip():
            event = _FINAL_EVENT.decode(line.removeprefix(b"data:"))
            if event.type in _FINAL:
                return bytes(event.response)
    return None


def _as_input(output: Iterable[Raw]) -> Iterable[bytes]:
    """Items of the output as items of an input."""
    for raw in output:
        item = _object(raw)
        kind = str(item.get("type"))
        yield JsonMembers(bytes(raw)).edited({"id": None}) if kind in _WITHOUT_ID and "id" in item else bytes(raw)


def _by_id(kept: KeptAnswer) -> dict[str, Raw]:
    """The items of an output that have an id."""
    items = _ITEMS.decode(kept.output or b"[]")
    return {id: raw for raw in items if (id := text_of(_object(raw).get("id")))}


def _object(raw: Raw) -> dict[str, object]:
    """An item as an object; empty if it is none."""
    value = FIELDS.decode(raw)
    return value if isinstance(value, dict) else {}


def _limit(text: str | None) -> int:
    if text is None:
        return _DEFAULT_LIMIT
    if not (text.isascii() and text.isdigit() and len(text) < 10) or not 1 <= int(text) <= _MAX_LIMIT:
        raise refused(f"`limit` must be a number from 1 to {_MAX_LIMIT}", param="limit")
    return int(text)


def _listed(history: Sequence[KeptAnswer]) -> Iterable[dict[str, object]]:
    """All items that the last response was generated from, each with an id that no other has."""
    seen: set[object] = set()
    for kept in history:
        items = _ITEMS.decode(kept.input)
        if kept is not history[-1] and kept.output is not None:
            items += _ITEMS.decode(kept.output)
        for place, item in enumerate(map(_normalised, filter(None, map(_object, items)))):
            id = item.get("id")
            if not isinstance(id, str) or not id or id in seen:
                number = hashlib.sha256(f"{kept.id}/{place}".encode()).hexdigest()[:48]
                id = _PREFIXES.get(str(item.get("type")), "item_") + number
            seen.add(id)
            yield {**item, "id": id}


def _normalised(item: dict[str, object]) -> dict[str, object]:
    """An item in full form: clients may leave out the type of a message, and write its content as a text."""
    if "role" not in item or item.get("type", "message") != "message":
        return item
    content = item.get("content")
    if isinstance(content, str):
        type = _TEXT_TYPES.get(str(item["role"]), "input_text")
        part: dict[str, object] = {"type": type, "text": content}
        content = [part if type == "input_text" else part | {"annotations": []}]
    return {"type": "message", "status": "completed"} | item | {"content": content}
