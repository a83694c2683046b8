"""Members of requests by which a client reaches what it was not given: the table for all APIs, and the search in it.

All clients of a gateway share its providers' accounts. So an id of something that a provider keeps for the account (a
file, an item, a prompt, a vector store, a container, a cache, an object in S3 or Cloud Storage) is valid for each of
them. And some providers let a request choose another model or route than the one in `model`, which
bypasses the models and prices of a key. Both are refused unless the operator allows them: `[server] shared_state` and
`[server] provider_routing`.

The names count wherever they are in a request, because APIs add places for them. Excepted is JSON that belongs to the
client's tools, and what an answer quotes (`_OPAQUE`): providers look nothing up for it.
"""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Raw, Struct

from penstock.core.hub.request import Reference
from penstock.core.json.getters import object_of, text_of


class _SharedMembers(Struct, frozen=True, kw_only=True):
    """The members of one API. A member in both sets may be an id, or an object with one."""

    stored: frozenset[str] = frozenset()
    """Members that name what is stored: ids, lists of ids, or settings of a store."""
    with_id: frozenset[str] = frozenset()
    """Members that are objects, and name what is stored if they have an `id`."""
    items: Mapping[str, str] = {}
    """Types of items that are known by their id, and the member with which they are complete."""
    opaque: frozenset[str] = frozenset()
    """Further members whose values are the client's own JSON."""


_OPENAI = frozenset(("file_id", "file_ids", "vector_store_ids", "container_id", "skill_id", "data_sources"))
_TABLES = {
    "openai_chat": _SharedMembers(stored=_OPENAI, with_id=frozenset(("audio", "voice"))),
    "openai_responses": _SharedMembers(
        stored=_OPENAI | {"previous_response_id", "container", "conversation"},
        with_id=frozenset(("container", "conversation", "prompt")),
        items={"item_reference": "", "image_generation_call": "result"},
    ),
    "anthropic_messages": _SharedMembers(
        stored=frozenset(("file_id", "skill_id", "container")), with_id=frozenset(("container",))
    ),
    "gemini": _SharedMembers(
        stored=frozenset(
            (
                "cachedContent",
                "fileSearchStoreNames",
                "vertexAiSearch",
                "vertexRagStore",
                "cached_content",
                "file_search_store_names",
                "vertex_ai_search",
                "vertex_rag_store",
            )
        )
    ),
    "bedrock_converse": _SharedMembers(
        stored=frozenset(("guardrailIdentifier", "promptVariables")), opaque=frozenset(("inputSchema", "json"))
    ),
    "cohere": _SharedMembers(opaque=frozenset(("data",))),  # of a document
}
_NO_IDS = _SharedMembers()
# Addresses of media. Those of public servers name nothing in an account.
_URLS = frozenset(
    ("url", "image_url", "file_url", "video_url", "audio_url", "document_url", "fileUri", "file_uri", "uri")
)
_STORED_URL = re.compile(
    r"\s*(?:s3:|gs:|files/|https?://(?:[^/?#]*@)?(?:generativelanguage|[a-z0-9-]*aiplatform)\.googleapis\.com)",
    re.IGNORECASE,
)
_NAMES = {dialect: table.stored | table.with_id | _URLS for dialect, table in _TABLES.items()}
# Top-level members of OpenRouter, Vercel's gateway and LiteLLM's proxy, in any API.
_ROUTES = frozenset(("models", "route", "provider", "providerOptions", "preset", "fallbacks"))
# Those of them that an API has itself: each entry names a model, or the value is a word such as "default".
_FURTHER: Mapping[str, frozenset[str]] = {"anthropic_messages": frozenset(("fallbacks",))}
_NOTHING = (b"null", b"[]", b"{}", b'""')
# Members whose values are the client's own JSON, or quote an answer.
_OPAQUE = frozenset(
    (
        "parameters", "input_schema", "schema", "json_schema", "responseSchema", "parametersJsonSchema", "arguments",
        "args", "response", "input", "annotations", "citations", "results", "metadata", "labels", "logprobs",
    )
)  # fmt: skip
_OPAQUE_OF = {dialect: _OPAQUE | table.opaque for dialect, table in _TABLES.items()}
_NESTED = (dict, list)
# Results of tools that providers execute, which name files that they have made; and skills that all accounts have.
_OWN_TYPES = ("code_execution_output", "bash_code_execution_output", "anthropic")


def find_reference(dialect: str, fields: Mapping[str, object]) -> Reference | None:
    """A member of a request that refers to shared state, an id rather than an address; None if there is none."""
    table, names = _TABLES.get(dialect, _NO_IDS), _NAMES.get(dialect, _URLS)
    opaque = _OPAQUE_OF.get(dialect, _OPAQUE)
    found: list[Any] = [fields]
    address: Reference | None = None
    for value in found:  # which grows
        if type(value) is list:
            found += [
                item
                for item in value
                if type(item) is list
                or (
                    type(item) is dict
                    and (len(item) != 2 or "role" not in item or type(item.get("content")) is not str)
                )
            ]  # nearly all are messages of text
            continue
        if not names.isdisjoint(value):
            for name in names.intersection(value):
                if (reference := _reference(table, name, value)) is not None and reference.kind == "stored":
                    return reference
                address = address or reference
        if table.items and value is not fields and _is_item_reference(table, value):
            return Reference("input", "stored")
        for name, inner in value.items():
            if type(inner) in _NESTED and (name not in opaque or (value is fields and type(inner) is list)):
                found.append(inner)
    return address


def find_route(members: Mapping[str, Raw], dialect: str = "") -> str:
    """The top-level member of a body that chooses another model or route; empty if there is none.

    One that the API itself has is none: the models that it names are known (`further_models`)."""
    if _ROUTES.isdisjoint(members):
        return ""
    found = sorted(_ROUTES.intersection(members) - _FURTHER.get(dialect, frozenset()))
    return next((name for name in found if bytes(members[name]) not in _NOTHING), "")


def further_models(dialect: str, fields: Mapping[str, object]) -> tuple[str, ...]:
    """The models that may go on with the answer in place of the requested one. Where the provider chooses them, the
    word by which the request says so."""
    found: list[str] = []
    for name in _FURTHER.get(dialect, ()):
        value = fields.get(name)
        entries = value if isinstance(value, list) else [value]
        found += [
            text_of(object_of(entry).get("model")) if isinstance(entry, dict) else text_of(entry) for entry in entries
        ]
    return tuple(name for name in found if name)


def _reference(table: _SharedMembers, name: str, holder: Mapping[str, object]) -> Reference | None:
    value = holder[name]
    if not value or holder.get("type") in _OWN_TYPES:
        return None
    if isinstance(value, dict) and name in table.with_id:
        return Reference(name, "stored") if value.get("id") else None
    if name in table.stored:
        return Reference(name, "stored")
    return Reference(name, "object") if isinstance(value, str) and _STORED_URL.match(value) else None


def _is_item_reference(table: _SharedMembers, item: Mapping[str, object]) -> bool:
    """Whether an item is known by its id only. An object with an id and without a type is."""
    type = item.get("type")
    if type is None:
        return bool(item.get("id")) and "role" not in item
    complete = table.items.get(type) if isinstance(type, str) else None
    return complete is not None and not item.get(complete)
