"""The paths of the values in a line that a defect concerns (`DefectPlaces`)."""

from penstock.core.dialects.dialect import DefectPlaces, JsonPath

_CALL: tuple[JsonPath, ...] = (("message", "tool_calls", "*"),)
_ARGUMENTS: tuple[JsonPath, ...] = ((*_CALL[0], "function", "arguments"),)
_FINISH: tuple[JsonPath, ...] = (("done_reason",), ("done",))
_PATHS: dict[str, tuple[JsonPath, ...]] = {
    "model-changed": (("model",),),
    "finish-mapped": _FINISH,
    "finish-unknown": _FINISH,
    "tool-arguments-text": _ARGUMENTS,
    "tool-arguments-broken": _ARGUMENTS,
    "tool-call-unnamed": _CALL,
    "usage-mistyped": (("prompt_eval_count",), ("eval_count",)),
    "provider-error": (("error",),),
    "bad-shape": (("message", "content"), ("message", "tool_calls"), ("message",)),
}
PLACES = DefectPlaces(paths=_PATHS)
