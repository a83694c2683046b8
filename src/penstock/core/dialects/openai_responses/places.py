"""Where in the JSON of an event the values stand that a defect is about."""

from penstock.core.dialects.dialect import DefectPlaces, JsonPath

_RESPONSE: JsonPath = ("response",)
_ITEM: JsonPath = ("item",)
_OUTPUT: JsonPath = (*_RESPONSE, "output")
_TYPE: tuple[JsonPath, ...] = (("type",),)
_INDEX: tuple[JsonPath, ...] = (("output_index",), ("type",))
_WHOLE: tuple[JsonPath, ...] = (("text",), ("arguments",), ("input",), (*_ITEM, "content"), _ITEM, _OUTPUT)
_FINISH: tuple[JsonPath, ...] = ((*_RESPONSE, "incomplete_details"), (*_RESPONSE, "status"), ("status",))
_USAGE: tuple[JsonPath, ...] = ((*_RESPONSE, "usage"), ("usage",))
_PATHS: dict[str, tuple[JsonPath, ...]] = {
    "event-name-missing": _TYPE,
    "sequence-missing": _TYPE,
    "sequence-gap": (("sequence_number",),),
    "item-id-changed": (("item_id",), (*_ITEM, "id")),
    "items-overlap": _INDEX,
    "deltas-missing": _WHOLE,
    "text-differs": _WHOLE,
    "output-missing": (_OUTPUT,),
    "data-after-done": _TYPE,
    "done-repeated": _TYPE,
    "message-start-missing": _TYPE,
    "message-start-repeated": ((*_RESPONSE, "id"), ("type",)),
    "message-appended": (("object",),),
    "envelope-incomplete": (_RESPONSE,),
    "id-changed": ((*_RESPONSE, "id"),),
    "model-changed": ((*_RESPONSE, "model"),),
    "created-changed": ((*_RESPONSE, "created_at"),),
    "block-index-missing": _TYPE,
    "block-start-missing": _INDEX,
    "block-restarted": _INDEX,
    "block-unclosed": _TYPE,
    "block-stop-repeated": _INDEX,
    "delta-in-wrong-block": _TYPE,
    "delta-unknown": (("annotation",), ("type",)),
    "event-unknown": _TYPE,
    "finish-unknown": _FINISH,
    "finish-repeated": _FINISH,
    "finish-changed": _FINISH,
    "content-after-finish": _TYPE,
    "tool-id-missing": ((*_ITEM, "call_id"), _ITEM),
    "tool-arguments-object": ((*_ITEM, "arguments"), (*_ITEM, "input")),
    "tool-arguments-broken": ((*_ITEM, "arguments"), ("type",)),
    "usage-placeholder": _USAGE,
    "usage-incomplete": _USAGE,
    "usage-mistyped": tuple((*path, "*") for path in _USAGE),
    "usage-absurd": _USAGE,
    "usage-total-differs": _USAGE,
    "usage-details-exceed": _USAGE,
    "provider-error": (("error",), (*_RESPONSE, "error")),
    "bad-shape": (_ITEM, (*_RESPONSE, "id")),
    "tool-call-unnamed": (_ITEM, ("type",)),
    "ignored-after-fault": _TYPE,
    "keepalive-event": _TYPE,
}
PLACES = DefectPlaces(paths=_PATHS)
