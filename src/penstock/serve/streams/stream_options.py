"""StreamOptions: what a request asks of durable streams, in its headers or in its body."""

import re
from collections.abc import Mapping

from msgspec import Struct, structs

from penstock.core.hub.failure import Failure, RequestError
from penstock.gateway.streams.stream_settings import Durability, OnDisconnect

DURABLE = "x-penstock-durable"
ON_DISCONNECT = "x-penstock-on-disconnect"
# The id of a conversation that the client has chosen, as the web page of llama.cpp sends it.
CHOSEN_ID = "x-conversation-id"
RETRY_KEY = "idempotency-key"
LAST_EVENT = "last-event-id"
# The id of a call, and of a durable stream.
CALL_ID = re.compile(r"req_[0-9a-f]{24}")
_EVENT_ID = re.compile(rf"({CALL_ID.pattern})-([0-9]{{1,12}})")
# The members of a body that ask the same. They never reach a provider.
MEMBERS = ("stream_resumable", "stream_id", "on_disconnect")
_MAX_CHOSEN = 200
_POLICIES: Mapping[str, OnDisconnect] = {"cancel": "cancel", "continue": "continue", "linger": "linger"}


class StreamOptions(Struct, frozen=True):
    """What a request asks. Values that mean nothing here are empty."""

    durable: bool | None = None
    """Whether the stream must be durable; None if the request does not say."""
    resumed: str = ""
    """The id of the stream whose rest is asked for."""
    position: int = 0
    """The position in it after which the rest begins."""
    chosen: str = ""
    """The client's own id of the stream."""
    retry_key: str = ""
    """What requests have in common that are one request, sent again."""
    on_disconnect: OnDisconnect | None = None

    def with_members(self, members: Mapping[str, object]) -> "StreamOptions":
        """The options of the headers, with those of the body. Raises `RequestError`."""
        durable, chosen = members.get("stream_resumable"), members.get("stream_id", "")
        policy = members.get("on_disconnect", "")
        if not isinstance(durable, bool | None):
            raise RequestError(_refused("stream_resumable", "is true or false"))
        if not isinstance(chosen, str):
            raise RequestError(_refused("stream_id", "is a text"))
        if policy and policy not in _POLICIES:
            raise RequestError(_refused("on_disconnect", "is cancel, continue or linger"))
        options = self if durable is None else structs.replace(self, durable=durable)
        options = structs.replace(options, chosen=chosen or self.chosen)
        if CALL_ID.fullmatch(options.chosen) or len(options.chosen) > _MAX_CHOSEN:
            raise RequestError(
                _refused("stream_id", f"has at most {_MAX_CHOSEN} characters, and not the form of our ids")
            )
        return structs.replace(options, on_disconnect=_POLICIES[str(policy)]) if policy else options

    def makes_durable(self, rule: Durability) -> bool:
        """Whether the stream becomes durable where this rule holds."""
        if rule == "never" or self.durable is False:
            return False
        return rule == "always" or bool(self.durable or self.chosen or self.retry_key)


def _refused(param: str, what: str) -> Failure:
    return Failure(code="invalid_parameter", message=f"{param} {what}", param=param, retryable=False)


def read_options(headers: Mapping[str, str]) -> StreamOptions | None:
    """The options in these headers; None if there are none."""
    if headers.keys().isdisjoint((DURABLE, ON_DISCONNECT, CHOSEN_ID, RETRY_KEY, LAST_EVENT)):
        return None
    durable = None
    if DURABLE in headers:
        durable = headers[DURABLE].strip().lower() not in ("", "0", "false")
    return StreamOptions(
        durable,
        *read_event_id(headers.get(LAST_EVENT, "")),
        headers.get(CHOSEN_ID, ""),
        headers.get(RETRY_KEY, ""),
        _POLICIES.get(headers.get(ON_DISCONNECT, "").strip().lower()),
    )


def read_event_id(text: str) -> tuple[str, int]:
    """The stream and the position that the id of an event names; empty and 0 if it is no id of ours."""
    event = _EVENT_ID.fullmatch(text)
    return (event[1], int(event[2])) if event is not None else ("", 0)
