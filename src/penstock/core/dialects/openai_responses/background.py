"""Background responses: a client asks for one, goes away, and reads it later by its id.

The gateway generates each of them as a stream, which it keeps. So the request loses `background` and streams; what the
client reads before the end is the response of the newest event that has one.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Raw, Struct

from penstock.core.dialects.bodies import refused
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.openai_responses.output import ResponseEnvelope
from penstock.core.hub.request import ClientRequest
from penstock.core.json.members import JsonMembers

_ERROR = {"code": "server_error", "message": "the gateway stopped before the response was complete"}


class _Event(Struct, frozen=True):
    sequence_number: int | None = None
    response: Raw = Raw(b"")


_EVENT = msgspec.json.Decoder(_Event)


class BackgroundResponses:
    """`BackgroundAnswers` of the Responses API."""

    def as_stream(self, request: ClientRequest) -> bytes:
        """The body of the request, as one for a stream."""
        if request.fields.get("store") is False:
            raise refused("`background` needs a response that is stored; leave `store` out", param="background")
        return request.members.edited({"background": None, "stream": Raw(b"true")})

    def overrides(self) -> Mapping[str, object]:
        """The members that differ in every response."""
        return {"background": True}

    def write_queued(self, id: str, created: int, request: ClientRequest) -> bytes:
        """The response before it has begun."""
        facts = AnswerFacts(
            call_id="", id=id, model=request.model, created=created, same_dialect=False, echo=request.echo
        )
        previous = request.continuation.previous if request.continuation is not None else None
        members = {"previous_response_id": previous or None, "store": True, **self.overrides()}
        return msgspec.json.encode(ResponseEnvelope(facts).body("queued", output=[], usage=None, **members))

    def write_running(self, queued: bytes, events: Iterable[bytes], status: str | None) -> bytes:
        """The response as it is, by its events so far. `status` is None if that of the last event is right."""
        found = [event.response for _, event in _decoded(events) if event.response]
        response = bytes(found[-1]) if found else queued
        changes = {} if status is None else {"status": Raw(msgspec.json.encode(status))}
        if status == "failed":
            changes["error"] = Raw(msgspec.json.encode(_ERROR))
        return JsonMembers(response).edited(changes)

    def position(self, events: Iterable[bytes], after: int) -> int:
        """How many of the events have a number up to this one."""
        numbered = [place for place, event in _decoded(events) if (event.sequence_number or 0) <= after]
        return numbered[-1] + 1 if numbered and after >= 0 else 0


def _decoded(events: Iterable[bytes]) -> Iterable[tuple[int, _Event]]:
    """The events that are JSON, each with its place."""
    for place, event in enumerate(events):
        _, marked, data = event.partition(b"data:")
        if marked and data.lstrip()[:1] == b"{":
            yield place, _EVENT.decode(data)
