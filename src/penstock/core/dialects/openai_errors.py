"""Errors in the many shapes in which OpenAI-compatible providers send them."""

# Where the words of an error stand, in the order of preference.
_WORDS = ("message", "Message", "error_msg", "error_message", "detail", "msg", "error", "errors", "code", "type")


def read_error(chunk: dict[str, object], event: str) -> tuple[str, dict[str, object]] | None:
    """The provider's own words and its error object, if the JSON of a frame is an error or carries one.

    `error: null`, and `error` with nothing in it, is not an error.
    """
    error = chunk.get("error") or chunk.get("errors")
    if error:
        return error_of(error, chunk)
    status = chunk.get("base_resp")
    if isinstance(status, dict) and status.get("status_code"):
        return str(status.get("status_msg") or status), status
    if "choices" in chunk and event != "error":
        return None
    flat = chunk.get("object") == "error" or chunk.get("type") == "error" or event == "error"
    if flat or (chunk.get("usage") is None and _is_bare_message(chunk)):
        return _words(chunk) or str(chunk), chunk
    return None


def error_of(error: object, around: dict[str, object]) -> tuple[str, dict[str, object]]:
    """The words and the object of an error that is not null; `around` is what it stands in."""
    return _words(error) or _words(around) or str(error), _object(error, around)


def _is_bare_message(chunk: dict[str, object]) -> bool:
    """Whether it is `{"message": "…"}`, `{"detail": …}` or the like, as common web frameworks write their errors."""
    spelled = any(isinstance(chunk.get(name), str) for name in ("message", "Message", "error_msg", "error_message"))
    coded = "code" in chunk and isinstance(chunk.get("msg"), str)
    return spelled or coded or (bool(chunk.get("detail")) and "object" not in chunk)


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
