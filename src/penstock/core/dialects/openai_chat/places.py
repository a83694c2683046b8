"""The paths of the values in a chunk that a defect concerns (`DefectPlaces`)."""

from penstock.core.dialects.dialect import DefectPlaces, JsonPath

_CHOICE: JsonPath = ("choices", "*")
_DELTA: JsonPath = (*_CHOICE, "delta")
_TOOL: JsonPath = (*_DELTA, "tool_calls", "*")
_FINISH: JsonPath = (*_CHOICE, "finish_reason")
_USAGE: tuple[JsonPath, ...] = (("usage",), ("*", "usage"), ("choices", "*", "usage"))
# By the defect's code: its possible paths. The first one that exists is used.
_PATHS: dict[str, tuple[JsonPath, ...]] = {
    "choices-missing": (("choices",),),
    "choice-index-missing": ((*_CHOICE, "index"), _CHOICE),
    "delta-missing": (_DELTA, _CHOICE),
    "object-missing": (("object",),),
    "object-missing-no-choices": (("object",),),
    "id-changed": (("id",),),
    "model-changed": (("model",),),
    "created-changed": (("created",),),
    "role-missing": (_DELTA,),
    "role-repeated": ((*_DELTA, "role"),),
    "content-parts": ((*_DELTA, "content"),),
    "logprobs-mistyped": ((*_CHOICE, "logprobs"),),
    "reasoning-differs": ((*_DELTA, "reasoning"), _DELTA),
    "text-without-delta": ((*_CHOICE, "text"),),
    "message-beside-delta": ((*_CHOICE, "message"),),
    "finish-mapped": (_FINISH,),
    "finish-unknown": (_FINISH,),
    "finish-repeated": (_FINISH,),
    "finish-changed": (_FINISH,),
    "finish-stop-with-tools": (_FINISH,),
    "content-after-finish": (_DELTA,),
    "tool-index-missing": ((*_TOOL, "index"), _TOOL),
    "tool-index-mistyped": ((*_TOOL, "index"),),
    "tool-index-reused": ((*_TOOL, "index"),),
    "tool-index-drifting": ((*_TOOL, "index"),),
    "tool-index-renumbered": ((*_TOOL, "index"),),
    "tool-id-repeated": ((*_TOOL, "id"),),
    "tool-id-changed": ((*_TOOL, "id"),),
    "tool-id-duplicate": ((*_TOOL, "id"),),
    "tool-name-repeated": ((*_TOOL, "function", "name"),),
    "tool-arguments-object": ((*_TOOL, "function", "arguments"),),
    "tool-call-ambiguous": (_TOOL,),
    "usage-placeholder": _USAGE,
    "usage-mistyped": tuple((*path, "*") for path in _USAGE),
    "usage-absurd": _USAGE,
    "usage-total-differs": tuple((*path, "total_tokens") for path in _USAGE),
    "usage-reasoning-apart": _USAGE,
    "usage-details-apart": _USAGE,
    "usage-details-exceed": _USAGE,
    "provider-error": (("error",),),
}
PLACES = DefectPlaces(paths=_PATHS, named=frozenset(("envelope-incomplete", "envelope-mistyped")), group="tool_calls")
