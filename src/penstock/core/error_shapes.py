"""Errors in the many shapes in which OpenAI-compatible providers send them, and what only looks like one."""

from penstock.core.json_getters import integer_of, text_of

# Where the words of an error stand, in the order of preference.
_FLAT_WORDS = ("Message", "error_msg", "error_message", "errorMessage")
_WORDS = (
    "message", *_FLAT_WORDS, "detail", "msg", "faultstring", "reason", "title",
    "error", "errors", "Error", "code", "type",
)  # fmt: skip
# Fields that hold an error, in one spelling or another.
_ERROR_FIELDS = ("error", "errors", "Error", "fault")
# The names of events that may carry an answer; one with another name is not an error for having a message.
_NAMES_OF_ANSWERS = ("", "message", "error")
_ALL_IS_WELL = frozenset(("0", "200", "ok", "success", "queued"))
_HEARTBEATS = frozenset(("ping", "heartbeat", "keepalive"))


def read_error(chunk: dict[str, object], event: str) -> tuple[str, dict[str, object]] | None:
    """The provider's own words and its error object, if the JSON of a frame is an error or carries one.

    `error: null`, and `error` with nothing in it, is not an error.
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
    if flat or (event in _NAMES_OF_ANSWERS and _is_bare_message(chunk)):
        return _words(chunk) or str(chunk), chunk
    return None


def error_of(error: object, around: dict[str, object]) -> tuple[str, dict[str, object]]:
    """The words and the object of an error that is not null; `around` is what it stands in."""
    return _words(error) or _words(around) or str(error), _object(error, around)


def _is_bare_message(chunk: dict[str, object]) -> bool:
    """Whether it is `{"message": "…"}`, `{"detail": …}` or the like, as common web frameworks write their errors.

    A status among it that says that all is well makes it something else.
    """
    if chunk.get("usage") is not None or is_heartbeat(text_of(chunk.get("type"))):
        return False
    if any(text_of(chunk.get(name)).lower() in _ALL_IS_WELL for name in ("code", "status", "status_code")):
        return False
    status = integer_of(chunk.get("status"))
    problem = "title" in chunk and status is not None and status >= 400
    spelled = any(isinstance(chunk.get(name), str) for name in ("message", *_FLAT_WORDS))
    coded = "code" in chunk and isinstance(chunk.get("msg"), str)
    failed = chunk.get("success") is False
    return spelled or coded or problem or failed or (bool(chunk.get("detail")) and "object" not in chunk)


def is_heartbeat(name: str) -> bool:
    """Whether something with that name only says that the sender is alive."""
    return name.lower().replace("-", "").replace("_", "") in _HEARTBEATS


def _words(error: object) -> str:
    if isinstance(error, str):
        return error
    if isinstance(error, dict):
        for key in _WORDS:
            if error.get(key):
                return _words(error[key]) or str(error[key])
    if isinstance(error, list):
        return "; ".join(filter(None, map(_words, error)))
    return ""


def _object(error: object, chunk: dict[str, object]) -> dict[str, object]:
    if isinstance(error, dict):
        return error
    return {
        key: value
        for key, value in chunk.items()
        if key not in ("id", "object", "created", "model", "choices", "usage")
    }
