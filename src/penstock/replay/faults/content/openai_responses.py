"""Faults in the events of OpenAI Responses."""

from collections.abc import Mapping
from itertools import count

from penstock.replay.faults import framing
from penstock.replay.faults.edits import (
    Json,
    changed,
    edited,
    object_at,
    object_in,
    objects_in,
    of_type,
    repeated,
    without,
    without_members,
    zero_members,
)
from penstock.replay.faults.form import FaultForm, counted, plain
from penstock.replay.faults.script import ScriptedResponse

_ends = of_type("response.completed", "response.incomplete", "response.failed")
_starts = of_type("response.created", "response.in_progress")
_ADDED = ("response.output_item.added", "response.content_part.added", "response.reasoning_summary_part.added")


def no_usage(event: Json) -> list[Json] | None:
    """Replace the usage with null."""
    return _with_member(event, "usage", None)


def completed_output_empty(event: Json) -> list[Json] | None:
    """Leave the output items out of the last event."""
    return _with_member(event, "output", [])


def item_id_rotates(script: ScriptedResponse) -> ScriptedResponse:
    """Give the output item another id in each of its events."""
    numbers = count()

    def change(event: Json) -> list[Json] | None:
        item = event.get("item")
        if isinstance(item, dict) and "id" in item:
            return [event | {"item": item | {"id": f"{item['id']}-{next(numbers)}"}}]
        return [event | {"item_id": f"{event['item_id']}-{next(numbers)}"}] if "item_id" in event else None

    return changed(script, change)


def broken_arguments(script: ScriptedResponse) -> ScriptedResponse:
    """Remove the last character of the last tool call's arguments, wherever they are sent."""
    calls = [item for item in _items_at_end(script) if item.get("type") == "function_call"]
    if not calls:
        return script
    whole = str(calls[-1].get("arguments"))
    sent = 0

    def shortened(item: object) -> object:
        last = isinstance(item, dict) and item.get("id") == calls[-1].get("id") and item.get("arguments")
        return item | {"arguments": whole[:-1]} if isinstance(item, dict) and last else item

    def change(event: Json) -> list[Json] | None:
        nonlocal sent
        response, delta = event.get("response"), event.get("delta")
        if event.get("item_id") == calls[-1].get("id"):
            if isinstance(delta, str):
                sent += len(delta)
                return [event | {"delta": delta[:-1]}] if sent == len(whole) else None
            return [event | {"arguments": whole[:-1]}]
        if isinstance(response, dict) and isinstance(response.get("output"), list):
            return [event | {"response": response | {"output": [shortened(item) for item in response["output"]]}}]
        return [event | {"item": shortened(event["item"])}] if "item" in event else None

    return changed(script, change)


def _items_at_end(script: ScriptedResponse) -> list[Json]:
    for piece in reversed(script.by_event().pieces):
        output = object_at(object_in(piece.data), "response").get("output")
        if isinstance(output, list):
            return objects_in(output)
    return []


def _with_member(event: Json, name: str, value: object) -> list[Json] | None:
    """Replace a member of the whole response in the last event."""
    response = object_at(event, "response")
    return [event | {"response": response | {name: value}}] if _ends(event) and response.get(name) else None


def _is_added_text(event: Json) -> bool:
    """Whether an output item, or a part of one, starts. Without its start, a tool call has no name."""
    return event.get("type") in _ADDED and "name" not in object_at(event, "item")


FORMS: Mapping[str, FaultForm] = {
    "no-usage": edited("completed", no_usage),
    "zero-usage": edited("completed, `usage-placeholder`", zero_members("usage")),
    "start-missing": edited("completed, `message-start-missing`, `envelope-incomplete`", without(_starts)),
    "start-repeated": edited(
        "completed, `sequence-gap`, `message-start-repeated`", repeated(of_type("response.created"))
    ),
    "block-start-missing": edited("completed, `sequence-gap`, `block-start-missing`", without(_is_added_text)),
    "block-unclosed": edited(
        "completed, `sequence-gap`, `block-unclosed`", without(lambda event: str(event.get("type")).endswith(".done"))
    ),
    "block-index-missing": edited("completed, `block-index-missing`", without_members("output_index")),
    "item-id-rotates": plain("completed, `item-id-changed`", item_id_rotates),
    "completed-output-empty": edited("completed, `output-missing`", completed_output_empty),
    "sequence-number-missing": edited("completed, `sequence-missing`", without_members("sequence_number")),
    "broken-arguments": plain("completed, `tool-arguments-broken`", broken_arguments),
    "no-done": edited("truncated", without(_ends)),
    "done-twice": edited("completed, `sequence-gap`, `done-repeated`", repeated(_ends)),
    "event-name-missing": plain("completed, `event-name-missing`", framing.no_event_names),
    "bad-json": counted("failed, `bad-json`, `sequence-gap`, `ignored-after-fault`", framing.bad_json),
    "glued": plain("completed, `glued-events`, `event-name-missing`", framing.glued),
    "json-lines": plain("completed, `event-name-missing`, `json-lines`", framing.json_lines),
    "pings": plain("completed, `keepalive-event`", framing.pings),
}
