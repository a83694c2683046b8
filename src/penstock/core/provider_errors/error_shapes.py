"""Recognises errors in the many shapes in which OpenAI-compatible providers send them."""

from penstock.core.json.getters import integer_of, object_of, text_of

# The fields that may hold the message of an error, in the order of preference.
_FLAT_MESSAGE_FIELDS = ("Message", "error_msg", "error_message", "errorMessage")
_MESSAGE_FIELDS = (
    "message", *_FLAT_MESSAGE_FIELDS, "detail", "msg", "faultstring", "reason", "title",
    "error", "errors", "Error", "code", "type",
)  # fmt: skip
# The fields of errors that are not in an error object: each of them has at least one.
_BARE_FIELDS = frozenset(("message", *_FLAT_MESSAGE_FIELDS, "msg", "title", "success", "detail"))
# Fields that hold an error object.
_ERROR_FIELDS = ("error", "errors", "Error", "fault")
# Fields that name the kind of an error.
_CODE_FIELDS = ("code", "type", "__type", "status")
# The SSE event names of answers and errors. An event with another name is not an error just because it has a message.
_ANSWER_EVENT_NAMES = ("", "message", "error")
_SUCCESS_STATUSES = frozenset(("0", "200", "ok", "success", "queued"))
_HEARTBEATS = frozenset(("ping", "heartbeat", "keepalive"))


def read_error(chunk: dict[str, object], event: str) -> tuple[str, dict[str, object]] | None:
    """The provider's message and its error object, if the JSON of a frame is an error or contains one.

    `error: null` and an empty `error` are not errors.
    """
    for name in _ERROR_FIELDS:
        if chunk.get(name):
            return error_of(chunk[name], chunk)
    status = chunk.get("base_resp")
    if isinstance(status, dict) and status.get("status_code"):
        return str(status.get("status_msg") or status), status
    if "choices" in chunk and event != "error":
        return None
    flat = chunk.get("object") == "error" or chunk.get("type") == "error" or event == "error"
    if flat or (event in _ANSWER_EVENT_NAMES and _is_bare_message(chunk)):
        return _message_of(chunk) or str(chunk), chunk
    return None


def error_of(error: object, around: dict[str, object]) -> tuple[str, dict[str, object]]:
    """The message and the object of an error that is not null; `around` is the object that contains it."""
    return _message_of(error) or _message_of(around) or str(error), _object(error, around)


def codes_of(error: dict[str, object]) -> list[str]:
    """The words by which an error names its kind, of an error object or of the object that contains it; and the names
    of the members of its `metadata`."""
    inner = error.get("error")
    objects = (error, inner) if isinstance(inner, dict) else (error,)
    codes = [text for each in objects for name in _CODE_FIELDS if (text := text_of(each.get(name)))]
    return codes + [name for each in objects for name in object_of(each.get("metadata")) if name]


def _is_bare_message(chunk: dict[str, object]) -> bool:
    """Whether it is `{"message": "…"}`, `{"detail": …}` or similar, as common web frameworks write their errors.

    An object with a status of success is not an error.
    """
    if chunk.keys().isdisjoint(_BARE_FIELDS):
        return False
    if chunk.get("usage") is not None or is_heartbeat(text_of(chunk.get("type"))):
        return False
    if any(text_of(chunk.get(name)).lower() in _SUCCESS_STATUSES for name in ("code", "status", "status_code")):
        return False
    status = integer_of(chunk.get("status"))
    problem = "title" in chunk and status is not None and status >= 400
    spelled = any(isinstance(chunk.get(name), str) for name in ("message", *_FLAT_MESSAGE_FIELDS))
    coded = "code" in chunk and isinstance(chunk.get("msg"), str)
    failed = chunk.get("success") is False
    return spelled or coded or problem or failed or (bool(chunk.get("detail")) and "object" not in chunk)


def is_heartbeat(name: str) -> bool:
    """Whether an event of this name or type is a heartbeat, which only shows that the sender is alive."""
    return name.lower().replace("-", "").replace("_", "") in _HEARTBEATS


def _message_of(error: object) -> str:
    if isinstance(error, str):
        return error
    if isinstance(error, dict):
        for key in _MESSAGE_FIELDS:
            if error.get(key):
                return _message_of(error[key]) or str(error[key])
    if isinstance(error, list):
        return "; ".join(filter(None, map(_message_of, error)))
    return ""


def _object(error: object, chunk: dict[str, object]) -> dict[str, object]:
    if isinstance(error, dict):
        return error
    return {
        key: value
        for key, value in chunk.items()
        if key not in ("id", "object", "created", "model", "choices", "usage")
    }
