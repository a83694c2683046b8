"""The fast path of Responses: what `core/passthrough.py` needs to know about this dialect.

Deltas of texts and of reasoning are forwarded. All events are numbered, and name their item and part. So a delta is
forwarded only while the writer's own numbers and names are those of the provider (`RepeatedText`). A heartbeat, a
repaired item id and an event that the writer does not write all end that, for the rest of the answer. OpenAI pads
deltas with `obfuscation`. The usual opening of an answer that begins with a message, and the usual ending of one that
ends with it (`trailer.py`), are read without the slow path if each comes in one read. They are written anew.
"""

import re
from typing import cast

from penstock.core.dialects.openai_responses.items import OpenText
from penstock.core.dialects.openai_responses.reader import OpenAIResponsesReader
from penstock.core.dialects.openai_responses.trailer import ResponsesTrailer, trailer_after
from penstock.core.dialects.openai_responses.writer import OpenAIResponsesWriter
from penstock.core.events import BlockStart, ChoiceStart, Event, Extra, Start
from penstock.core.json_getters import object_of
from penstock.core.passthrough_format import (
    NumberedOpeningFormat,
    PassThroughFormat,
    RepeatedField,
    RepeatedText,
    TemplateSlot,
    TrailerFormat,
)
from penstock.core.running_text import RunningText

_OPENING = (
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
)


def _is_usual(decoded: list[object], events: list[Event]) -> bool:
    """Whether an opening starts one message with one empty text."""
    fields = [object_of(event) for event in decoded]
    if tuple(event.get("type") for event in fields) != _OPENING:
        return False
    added, part_added = fields[2:]
    item, part = object_of(added.get("item")), object_of(part_added.get("part"))
    places = (added.get("output_index"), part_added.get("output_index"), part_added.get("content_index"))
    if any(type(place) is not int or place for place in places) or item.get("type") != "message":
        return False
    if item.get("content", []) != [] or part.get("type") != "output_text" or part.get("text") != "":
        return False
    start, *others, choice, block = events
    return (
        isinstance(start, Start)
        and all(isinstance(event, Extra) and event.place == "chunk" for event in others)
        and isinstance(choice, ChoiceStart)
        and isinstance(block, BlockStart)
        and block.kind == "text"
    )


def _open(known: list[Event], values: dict[str, bytes]) -> list[Event]:
    """The events of an opening, made from those of the learned one (`known`)."""
    start, *others, block = known
    assert isinstance(start, Start)
    assert isinstance(block, BlockStart)
    start = Start(values["id"].decode(), start.model, int(values["created_at"]), start.tier)
    return [start, *others, BlockStart(0, block.block, block.kind, values["item_id"].decode(), block.type, block.data)]


def _trailer(opening: list[Event], _fields: dict[str, object]) -> ResponsesTrailer:
    start, block = opening[0], opening[-1]
    assert isinstance(start, Start)
    assert isinstance(block, BlockStart)
    extras = next((event.fields for event in opening if isinstance(event, Extra)), {})
    message = OpenText(block.id or "", 0, block.block, RunningText(), ("message",))
    return ResponsesTrailer(start, extras, message, None)


RESPONSES_PASS_THROUGH = PassThroughFormat(
    text_path=lambda _: ("delta",),
    name_path=("type",),
    slots=(
        TemplateSlot("sequence_number", ("sequence_number",), "counter"),
        TemplateSlot("obfuscation", ("obfuscation",), "padding"),
    ),
    opening=NumberedOpeningFormat(
        fields=(
            RepeatedField("id", "token", ((0, ("response", "id")), (1, ("response", "id")))),
            RepeatedField("created_at", "seconds", ((0, ("response", "created_at")), (1, ("response", "created_at")))),
            RepeatedField("item_id", "token", ((2, ("item", "id")), (3, ("item_id",))), in_deltas=("item_id",)),
        ),
        number=("sequence_number",),
        is_usual=_is_usual,
        make=_open,
    ),
    trailer=TrailerFormat(
        mark=re.compile(rb"\nevent: response\.completed\n"),
        make=_trailer,
        after=lambda reader, grammar: trailer_after(cast("OpenAIResponsesReader", reader), grammar),
    ),
    repeated=RepeatedText(
        reader=lambda reader: cast("OpenAIResponsesReader", reader),
        writer=lambda writer: cast("OpenAIResponsesWriter", writer),
        trailer=lambda trailer: cast("ResponsesTrailer", trailer),
    ),
)
