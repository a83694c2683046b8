"""Proxy members: members by which clients control LiteLLM's proxy, in a request of any API. No provider gets them.

| members | what becomes of them |
|---|---|
| `fallbacks` | the models to try next |
| `tags`, and `tags` in `metadata` | a tag of the call |
| `no-log` | nothing of the call is kept |
| `_REFUSED` | the request is refused: without them it would not do what the client expects |
| `_DROPPED` | a declared loss |
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec import Raw, Struct

from penstock.core.dialects.bodies import refused
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import ClientRequest
from penstock.core.json.members import JsonMembers

_FALLBACKS, _TAGS, _METADATA, _NO_LOG = "fallbacks", "tags", "metadata", "no-log"
_MOCKED = "LiteLLM's proxy answers it without a provider, and this gateway calls one; leave it out"
_CREDENTIAL = (
    "a credential or an address for a provider does not belong in the body; send your own credential in the "
    "provider's header and the gateway's key in x-penstock-key, or leave it out"
)
_PROMPT = "this gateway has no stored prompts; send the messages themselves"
_REFUSED: Mapping[str, str] = {
    "mock_response": _MOCKED,
    "mock_timeout": _MOCKED,
    "mock_tool_calls": _MOCKED,
    "mock_testing_fallbacks": _MOCKED,
    "mock_testing_context_fallbacks": _MOCKED,
    "mock_testing_content_policy_fallbacks": _MOCKED,
    "mock_testing_rate_limit_error": _MOCKED,
    "api_key": _CREDENTIAL,
    "api_base": _CREDENTIAL,
    "base_url": _CREDENTIAL,
    "user_config": _CREDENTIAL,
    "prompt_id": _PROMPT,
    "prompt_variables": _PROMPT,
    "litellm_system_prompt": _PROMPT,
}
_DROPPED = frozenset(
    (
        "additional_drop_params", "allowed_openai_params", "cache", "caching", "content_policy_fallback_dict",
        "context_window_fallback_dict", "cooldown_time", "custom_llm_provider", "disable_fallbacks", "drop_params",
        "enable_json_schema_validation", "fallback_depth", "force_timeout", "litellm_call_id",
        "litellm_credential_name", "litellm_logging_obj", "litellm_metadata", "litellm_params",
        "litellm_request_debug", "litellm_session_id", "litellm_trace_id", "max_fallbacks", "max_retries",
        "merge_reasoning_content_in_choices", "model_info", "num_retries", "proxy_server_request",
        "request_timeout", "retry_policy", "retry_strategy", "stream_timeout", "timeout", "use_litellm_proxy",
    )
)  # fmt: skip
_ALL = _DROPPED | _REFUSED.keys() | {_FALLBACKS, _TAGS, _NO_LOG}
# APIs with members of these names of their own.
_OWN: Mapping[str, frozenset[str]] = {"anthropic_messages": frozenset((_FALLBACKS,))}
_NOTHING: frozenset[str] = frozenset()
_MOST_FALLBACKS = 10
_LONGEST_NAME = 256


class ProxyMembers(Struct, frozen=True):
    """What these members of a request ask for, and the body's members without them."""

    edits: Mapping[str, Raw | None]
    fallbacks: tuple[str, ...]
    tags: str
    unkept: bool
    losses: tuple[Loss, ...]

    def apply(self, request: ClientRequest) -> None:
        """Set in a request, which was read without these members, what they ask for."""
        request.fallbacks, request.dropped = self.fallbacks, self.losses
        request.unkept = request.unkept or self.unkept
        if self.tags:
            request.metadata = {_TAGS: self.tags, **request.metadata}


def proxy_members(request: ClientRequest) -> ProxyMembers | None:
    """These members of a request; None if there are none, as nearly always. Raises `RequestError`."""
    fields = request.fields
    if _ALL.isdisjoint(fields) and type(fields.get(_METADATA)) is not dict:
        return None
    given = _ALL.intersection(fields) - _OWN.get(request.dialect, _NOTHING)
    _check(given, lambda name: fields[name] is None)
    edits: dict[str, Raw | None] = dict.fromkeys(given)
    tags = _listed(fields[_TAGS]) if _TAGS in given else ""
    metadata = fields.get(_METADATA)
    if isinstance(metadata, dict) and isinstance(labels := metadata.get(_TAGS), list):
        rest = {name: value for name, value in metadata.items() if name != _TAGS}
        edits[_METADATA] = Raw(msgspec.json.encode(rest)) if rest else None
        tags = ",".join(filter(None, (tags, _listed(labels))))
    if not edits:
        return None
    fallbacks = _fallbacks(fields[_FALLBACKS], request.model) if _FALLBACKS in given else ()
    losses = tuple(Loss("proxy-option-dropped", name) for name in sorted(given & _DROPPED) if fields[name] is not None)
    return ProxyMembers(edits, fallbacks, tags, fields.get(_NO_LOG) is True, losses)


def embeddings_members(members: JsonMembers) -> tuple[JsonMembers, tuple[Loss, ...]]:
    """The members of a request for embeddings without these, and what is lost. Only its own model can be asked, so
    `fallbacks` stays. Raises `RequestError`."""
    given = _ALL.intersection(members.values) - {_FALLBACKS}
    if not given:
        return members, ()
    missing = {name for name in given if bytes(members.values[name]) == b"null"}
    _check(given, missing.__contains__)
    lost = sorted(given - missing - {_NO_LOG})
    without = JsonMembers(members.edited(dict.fromkeys(given)))
    return without, tuple(Loss("proxy-option-dropped", name) for name in lost)


def _check(given: Iterable[str], is_missing: Callable[[str], bool]) -> None:
    """Raise `RequestError` if one of these members is refused."""
    for name in sorted(given):
        if name in _REFUSED and not is_missing(name):
            raise refused(f"`{name}` is not supported: {_REFUSED[name]}", param=name)


def _listed(labels: object) -> str:
    """The texts of a list of labels, as one tag."""
    if not isinstance(labels, list):
        return labels if isinstance(labels, str) else ""
    return ",".join(label for label in labels if isinstance(label, str))


def _fallbacks(value: object, model: str) -> tuple[str, ...]:
    """The models to try after the request's own, which LiteLLM's clients write in one of three ways."""
    names: list[object] = []
    for item in value if isinstance(value, list) else () if value is None else (value,):
        only = next(iter(item.items())) if isinstance(item, dict) and len(item) == 1 else ("", item)
        match only:
            case ("model", str(name)):
                names.append(name)
            case (str(name), list(listed)) if name:
                names += listed if name in (model, "*") else ()
            case _:
                names.append(item)
    texts = [name for name in names if isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME]
    if len(texts) < len(names) or len(names) > _MOST_FALLBACKS:
        raise refused(f"`{_FALLBACKS}` must be a list of at most {_MOST_FALLBACKS} names of models", param=_FALLBACKS)
    return tuple(dict.fromkeys(name for name in texts if name != model))
