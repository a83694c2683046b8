"""The paths of the values in an event that a defect concerns (`DefectPlaces`)."""

from penstock.core.dialects.dialect import DefectPlaces, JsonPath

_MESSAGE: JsonPath = ("message",)
_BLOCK: JsonPath = ("content_block",)
_DELTA: JsonPath = ("delta",)
_TYPE: tuple[JsonPath, ...] = (("type",),)
_INDEX: tuple[JsonPath, ...] = (("index",), ("type",))
_FINISH: tuple[JsonPath, ...] = ((*_DELTA, "stop_reason"), ("stop_reason",), (*_MESSAGE, "stop_reason"))
_USAGE: tuple[JsonPath, ...] = (("usage",), (*_MESSAGE, "usage"))
_PATHS: dict[str, tuple[JsonPath, ...]] = {
    "data-after-done": _TYPE,
    "event-name-missing": _TYPE,
    "done-repeated": _TYPE,
    "message-start-missing": _TYPE,
    "message-start-repeated": ((*_MESSAGE, "id"), ("type",)),
    "message-appended": _TYPE,
    "role-missing": (_MESSAGE,),
    "envelope-incomplete": (_MESSAGE,),
    "block-index-missing": _INDEX,
    "block-start-missing": _INDEX,
    "block-restarted": _INDEX,
    "block-unclosed": _TYPE,
    "block-stop-repeated": _INDEX,
    "block-text-repeated": ((*_DELTA, "text"), (*_DELTA, "thinking")),
    "delta-in-wrong-block": ((*_DELTA, "type"),),
    "delta-unknown": ((*_DELTA, "type"), (*_DELTA, "citation")),
    "event-unknown": _TYPE,
    "signature-late": _INDEX,
    "finish-unknown": _FINISH,
    "finish-repeated": _FINISH,
    "finish-changed": _FINISH,
    "finish-stop-with-tools": _FINISH,
    "content-after-finish": (_DELTA, _BLOCK),
    "tool-id-missing": ((*_BLOCK, "id"), _BLOCK),
    "tool-id-repeated": ((*_BLOCK, "id"),),
    "tool-arguments-broken": _TYPE,
    "usage-placeholder": _USAGE,
    "usage-mistyped": tuple((*path, "*") for path in _USAGE),
    "usage-absurd": _USAGE,
    "usage-total-differs": _USAGE,
    "usage-details-exceed": _USAGE,
    "provider-error": (("error",),),
    "bad-shape": (_BLOCK, (*_MESSAGE, "id")),
    "tool-call-unnamed": (_BLOCK, _DELTA),
    "ignored-after-fault": _TYPE,
    "keepalive-event": _TYPE,
}
PLACES = DefectPlaces(paths=_PATHS)
