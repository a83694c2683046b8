"""Faults in the events of OpenAI Responses."""

from collections.abc import Callable, Mapping

from penstock.replay.faults import framing
from penstock.replay.faults.edits import Json, changed, object_in, repeated, without, without_member, zeroed
from penstock.replay.faults.form import FaultForm, counted, plain
from penstock.replay.faults.script import ScriptedResponse

_ENDS = ("response.completed", "response.incomplete", "response.failed")
_STARTS = ("response.created", "response.in_progress")
_ADDED = ("response.output_item.added", "response.content_part.added", "response.reasoning_summary_part.added")


def no_usage(script: ScriptedResponse) -> ScriptedResponse:
    """Replace the usage with null."""
    return _with_response(script, lambda response: {"usage": None} if response.get("usage") else {})


def zero_usage(script: ScriptedResponse) -> ScriptedResponse:
    """Replace every count of the usage with zero."""
    return _with_response(script, lambda response: {"usage": zeroed(response.get("usage"))})


def completed_output_empty(script: ScriptedResponse) -> ScriptedResponse:
    """Leave the output items out of the last event."""
    return _with_response(script, lambda response: {"output": []} if response.get("output") else {})


def item_id_rotates(script: ScriptedResponse) -> ScriptedResponse:
    """Give the output item another id in each of its events."""
    numbers = iter(range(len(script.data)))

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
        response = (object_in(piece.data) or {}).get("response")
        if isinstance(response, dict) and isinstance(response.get("output"), list):
            return [item for item in response["output"] if isinstance(item, dict)]
    return []


def _with_response(script: ScriptedResponse, change: Callable[[Json], Json]) -> ScriptedResponse:
    """Replace members of the whole response in the last event."""

    def change_event(event: Json) -> list[Json] | None:
        response = event.get("response")
        if event.get("type") not in _ENDS or not isinstance(response, dict):
            return None
        members = change(response)
        return [event | {"response": response | members}] if members else None

    return changed(script, change_event)


def _is_added_text(event: Json) -> bool:
    """Whether an output item, or a part of one, starts. Without its start, a tool call has no name."""
    item = event.get("item")
    return event.get("type") in _ADDED and not (isinstance(item, dict) and "name" in item)


FORMS: Mapping[str, FaultForm] = {
    "no-usage": plain("completed", no_usage),
    "zero-usage": plain("completed, `usage-placeholder`", zero_usage),
    "start-missing": plain(
        "completed, `message-start-missing`, `envelope-incomplete`",
        lambda script: without(script, lambda event: event.get("type") in _STARTS),
    ),
    "start-repeated": plain(
        "completed, `sequence-gap`, `message-start-repeated`",
        lambda script: repeated(script, lambda event: event.get("type") == _STARTS[0]),
    ),
    "block-start-missing": plain(
        "completed, `sequence-gap`, `block-start-missing`", lambda script: without(script, _is_added_text)
    ),
    "block-unclosed": plain(
        "completed, `sequence-gap`, `block-unclosed`",
        lambda script: without(script, lambda event: str(event.get("type")).endswith(".done")),
    ),
    "block-index-missing": plain(
        "completed, `block-index-missing`", lambda script: without_member(script, "output_index")
    ),
    "item-id-rotates": plain("completed, `item-id-changed`", item_id_rotates),
    "completed-output-empty": plain("completed, `output-missing`", completed_output_empty),
    "sequence-number-missing": plain(
        "completed, `sequence-missing`", lambda script: without_member(script, "sequence_number")
    ),
    "broken-arguments": plain("completed, `tool-arguments-broken`", broken_arguments),
    "no-done": plain("truncated", lambda script: without(script, lambda event: event.get("type") in _ENDS)),
    "done-twice": plain(
        "completed, `sequence-gap`, `done-repeated`",
        lambda script: repeated(script, lambda event: event.get("type") in _ENDS),
    ),
    "event-name-missing": plain("completed, `event-name-missing`", framing.no_event_names),
    "bad-json": counted("failed, `bad-json`, `sequence-gap`, `ignored-after-fault`", framing.bad_json),
    "glued": plain("completed, `glued-events`, `event-name-missing`", framing.glued),
    "json-lines": plain("completed, `event-name-missing`, `json-lines`", framing.json_lines),
    "pings": plain("completed, `keepalive-event`", framing.pings),
}
