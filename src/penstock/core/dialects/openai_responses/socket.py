"""The Responses API over a WebSocket (Open Responses, 2026-04-24): the messages in place of bodies, events and errors.

A message of the client is the body of a request with `"type": "response.create"`. Each event of a stream is a message:
the JSON that is the `data` of a server-sent event. A failure is `{"type": "error", "status": …, "error": …}`; the
headers that it would have over HTTP are its `headers`.

A stream that fails ends with `error` and `response.failed`. Both have the same error, and a client takes either for the
end of the response, so only the second one is sent. The report of a call, a comment in a stream, is a message before
the last one: it is for clients that ask for it.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from penstock.core.dialects.bodies import FIELDS, decode_members, refused
from penstock.core.dialects.dialect import SocketRequest
from penstock.core.json.getters import text_of

_TYPE, _CREATE, _PREWARM, _PREVIOUS = "type", "response.create", "generate", "previous_response_id"
_ONCE = (_TYPE, _PREWARM, _PREVIOUS, "stream")
_DATA, _DONE = b"data: ", b"[DONE]"
_REPORT = b": penstock "
_ERROR, _FAILED = b"event: error\n", b"event: response.failed\n"


class ResponsesSocket:
    """`SocketMessages` of the Responses API."""

    def read(self, message: bytes) -> SocketRequest:
        """A message of the client. Raises `RequestError`."""
        members = decode_members(message, _ONCE)
        given = {name: FIELDS.decode(members.values[name]) for name in _ONCE if name in members.values}
        if given.get(_TYPE) != _CREATE:
            raise refused(f"`{_TYPE}` must be `{_CREATE}`: no other message is supported", param=_TYPE)
        generate = given.get(_PREWARM)
        if not isinstance(generate, bool | None):
            raise refused(f"`{_PREWARM}` must be true or false", param=_PREWARM)
        body = members.edited({_TYPE: None, _PREWARM: None, "stream": Raw(b"true")})
        return SocketRequest(body, text_of(given.get(_PREVIOUS)), generate is False)

    def events(self, data: bytes) -> list[bytes]:
        """The messages in place of these bytes of a stream."""
        messages: list[bytes] = []
        for event in data.split(b"\n\n"):
            _, _, payload = event.partition(_DATA)
            if event.startswith(_REPORT):
                report = b'{"type":"penstock.report","report":%b}' % event.removeprefix(_REPORT)
                messages.insert(len(messages) - 1, report)
            elif payload and payload != _DONE and not event.startswith(_ERROR):
                messages.append(payload)
        return messages

    def has_failed(self, data: bytes) -> bool:
        """Whether the last bytes of a stream say that the answer has failed."""
        return _FAILED in data

    def write_error(self, status: int, headers: Mapping[str, str], body: bytes) -> bytes:
        """The message in place of a response with an error. A provider's own body may have no code."""
        given = FIELDS.decode(body)
        error = given.get("error") if isinstance(given, dict) else None
        members: dict[str, object] = error if isinstance(error, dict) else {"message": str(error or given)}
        if not isinstance(members.get("code"), str):
            members = members | {"code": text_of(members.get("type")) or f"status_{status}"}
        others = {name: value for name, value in headers.items() if name != "content-type"}
        return msgspec.json.encode({"type": "error", "status": status, "error": members, "headers": others})
