"""The paths of the values in a message that a defect concerns (`DefectPlaces`)."""

from penstock.core.dialects.dialect import DefectPlaces, JsonPath

_CANDIDATE: JsonPath = ("candidates", "*")
_PARTS: JsonPath = (*_CANDIDATE, "content", "parts")
_PART: JsonPath = (*_PARTS, "*")
_CALL: tuple[JsonPath, ...] = ((*_PART, "functionCall"),)
_FINISH: tuple[JsonPath, ...] = ((*_CANDIDATE, "finishReason"),)
_USAGE: tuple[JsonPath, ...] = (("usageMetadata",),)
_PATHS: dict[str, tuple[JsonPath, ...]] = {
    "prompt-blocked": (("promptFeedback", "blockReason"),),
    "choice-index-missing": (_CANDIDATE,),
    "id-changed": (("responseId",),),
    "model-changed": (("modelVersion",),),
    "finish-mapped": _FINISH,
    "finish-unknown": _FINISH,
    "finish-repeated": _FINISH,
    "finish-changed": _FINISH,
    "finish-stop-with-tools": _FINISH,
    "content-after-finish": (_PARTS,),
    "block-unclosed": (*_CALL, *_FINISH),
    "block-stop-repeated": _CALL,
    "tool-arguments-broken": (*_CALL, *_FINISH),
    "tool-call-unnamed": _CALL,
    "tool-id-duplicate": ((*_PART, "functionCall", "id"),),
    "usage-placeholder": _USAGE,
    "usage-mistyped": (("usageMetadata", "*"),),
    "usage-absurd": _USAGE,
    "usage-total-differs": _USAGE,
    "usage-details-exceed": _USAGE,
    "provider-error": (("error",), *_FINISH),
    "bad-shape": (*_CALL, _PARTS, _CANDIDATE, ("candidates",)),
}
PLACES = DefectPlaces(paths=_PATHS)
