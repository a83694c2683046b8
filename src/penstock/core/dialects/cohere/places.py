"""The paths of the values in an event that a defect concerns (`DefectPlaces`)."""

from penstock.core.dialects.dialect import DefectPlaces, JsonPath

_FINISH: tuple[JsonPath, ...] = (("delta", "finish_reason"), ("finish_reason",))
_INDEX: tuple[JsonPath, ...] = (("index",),)
_USAGE: tuple[JsonPath, ...] = (("delta", "usage"), ("usage",))
_CALL: tuple[JsonPath, ...] = (("delta", "message", "tool_calls"),)
_PATHS: dict[str, tuple[JsonPath, ...]] = {
    "message-start-repeated": (("id",),),
    "block-start-missing": _INDEX,
    "block-stop-repeated": _INDEX,
    "finish-unknown": _FINISH,
    "usage-mistyped": _USAGE,
    "usage-details-exceed": _USAGE,
    "tool-call-unnamed": _CALL,
    "provider-error": (("error",), ("message",), *_FINISH),
    "bad-shape": (*_CALL, ("delta", "message", "content")),
}
PLACES = DefectPlaces(paths=_PATHS)
