"""Output items and their parts while they are written."""

from typing import NamedTuple

from msgspec import Raw, Struct

from penstock.core.dialects.openai_responses.vocabulary import Json
from penstock.core.hub.events import Annotation


class PartForm(NamedTuple):
    """How a part of an item is written."""

    list: str
    """The member of the item that lists such parts."""
    number: str
    """The member of an event that has the position in the list."""
    events: str
    """What the types of its own events begin with."""
    text_events: str
    """What the types of the events of its text begin with."""
    text: str
    """The member that has its text."""


PART_FORMS = {
    "output_text": PartForm("content", "content_index", "response.content_part", "response.output_text", "text"),
    "refusal": PartForm("content", "content_index", "response.content_part", "response.refusal", "refusal"),
    "reasoning_text": PartForm("content", "content_index", "response.content_part", "response.reasoning_text", "text"),
    "summary_text": PartForm(
        "summary", "summary_index", "response.reasoning_summary_part", "response.reasoning_summary_text", "text"
    ),
}


class OpenPart(Struct):
    """A part of an item that is being written."""

    form: PartForm
    body: Json
    place: Json
    """Which item an event concerns, and which part of it."""
    summary: int | None = None
    """Which part of the summary it is, in the hub."""
    pieces: list[str] = []
    citations: list[Annotation] = []
    """Those that concern all of its text: they are written at its end."""


class OpenItem(Struct):
    """An output item that was started."""

    index: int
    body: Json
    name: str | None = None
    """The id that the provider gave to it."""
    part: OpenPart | None = None
    pieces: list[str] = []
    """Of the arguments of a call, or of an image."""
    encoded: str | Raw | None = None
    """The arguments as the first event of them has them, if no other follows."""
    ended: bool = False
    done: bool = False
    """Whether its end was written."""

    @property
    def type(self) -> str:
        """The API's word for such items."""
        return str(self.body["type"])

    @property
    def address(self) -> Json:
        """Which item an event concerns."""
        return {"item_id": self.body["id"], "output_index": self.index}
