"""ResponseSum: adds up the events of a response as an application without a helper does, and checks their grammar.

Every rule is one that a client relies on: numbers without gaps, one id per item, each item and part added before its
deltas and done after them, whole texts equal to their deltas, and a last response that has all items.
"""

from typing import Any

from tests.messages import Json

_ENDS = ("response.completed", "response.incomplete", "response.failed")
# For the events of each kind of text: the place of the text in its item, and where its `done` has the whole.
_TEXTS = {
    "response.output_text": ("content", "content_index", "text"),
    "response.refusal": ("content", "content_index", "refusal"),
    "response.reasoning_text": ("content", "content_index", "text"),
    "response.reasoning_summary_text": ("summary", "summary_index", "text"),
}
_CALLS = {
    "response.function_call_arguments": "arguments",
    "response.custom_tool_call_input": "input",
}
_STREAMED = ("message", "reasoning", "function_call", "custom_tool_call")
_PARTS = {"response.content_part": "content_index", "response.reasoning_summary_part": "summary_index"}


class ResponseSum:
    """The sum of the events so far. `add` raises where an event is out of place."""

    def __init__(self) -> None:
        self._number = -1
        self._id = ""
        self._items: list[Json] = []
        self._done: set[int] = set()
        self._parts: dict[tuple[int, str, int], Json] = {}
        self._written: dict[int, str] = {}
        self._last: Json | None = None

    def add(self, event: Json) -> str:
        """Add one event; returns its text."""
        assert self._last is None, f"an event after the last: {event['type']}"
        assert event["sequence_number"] == self._number + 1, event
        self._number += 1
        type = str(event["type"])
        stem, _, step = type.rpartition(".")
        if "response" in event:
            self._add_response(type, event["response"])
        elif type == "response.output_item.added":
            self._add_item(event)
        elif type == "response.output_item.done":
            self._end_item(event)
        elif stem in _PARTS:
            self._add_part(stem, step, event)
        elif stem in _TEXTS:
            return self._add_text(stem, step, event)
        elif stem in _CALLS:
            self._add_arguments(stem, step, event)
        elif type == "response.output_text.annotation.added":
            self._part(event, "content", "content_index")["annotations"].append(event["annotation"])
        elif "output_index" in event:
            self._item(event)  # of a tool that the provider executes
        return ""

    def whole(self) -> Json:
        """The last response, which agrees with the events."""
        assert self._last is not None, "the response has no end"
        return self._last

    def _add_response(self, type: str, response: Json) -> None:
        if self._number == 0:
            assert type == "response.created", type
            self._id = response["id"]
        assert response["id"] == self._id
        assert response["object"] == "response"
        if type not in _ENDS:
            assert (response["status"], response["output"]) == ("in_progress", []), type
            return
        assert type == f"response.{response['status']}"
        if type != "response.failed":
            assert self._done == set(range(len(self._items))), "an item is not done"
            assert response["output"] == self._items
            if (usage := response["usage"]) is not None:  # a provider of this API sent none
                assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
                assert isinstance(usage["input_tokens_details"]["cached_tokens"], int)
                assert isinstance(usage["output_tokens_details"]["reasoning_tokens"], int)
        self._last = response

    def _add_item(self, event: Json) -> None:
        item = event["item"]
        assert event["output_index"] == len(self._items)
        assert item["id"] not in [each["id"] for each in self._items]
        if item["type"] in _STREAMED:  # items of tools that the provider executes may be whole at once
            assert not any(item.get(member) for member in ("content", "arguments", "input"))
        self._items.append(item)

    def _end_item(self, event: Json) -> None:
        index, item = event["output_index"], event["item"]
        begun = self._items[index]
        assert index not in self._done
        self._done.add(index)
        assert (item["id"], item["type"]) == (begun["id"], begun["type"])
        for member in ("content", "summary"):
            parts = [part for (at, name, _), part in sorted(self._parts.items()) if (at, name) == (index, member)]
            if parts or item["type"] == "message":
                assert [text_of(part) for part in item.get(member) or []] == [text_of(part) for part in parts]
        if index in self._written:
            assert self._written[index] == item.get("arguments", item.get("input"))
        self._items[index] = item

    def _item(self, event: Json) -> Json:
        item = self._items[event["output_index"]]
        assert event["output_index"] not in self._done, f"after its end: {event['type']}"
        if "item_id" in event:
            assert event["item_id"] == item["id"]
        return item

    def _part(self, event: Json, member: str, index: str) -> Json:
        self._item(event)
        return self._parts[event["output_index"], member, event[index]]

    def _add_part(self, stem: str, step: str, event: Json) -> None:
        index = _PARTS[stem]
        member = index.partition("_")[0]
        place = (event["output_index"], member, event[index])
        self._item(event)
        if step == "added":
            assert place not in self._parts
            assert not text_of(event["part"])
            self._parts[place] = dict(event["part"])
        else:
            assert text_of(event["part"]) == text_of(self._parts[place])

    def _add_text(self, stem: str, step: str, event: Json) -> str:
        member, index, name = _TEXTS[stem]
        if stem == "response.reasoning_text":  # whose parts OpenAI does not announce
            self._parts.setdefault(
                (event["output_index"], member, event[index]), {"type": "reasoning_text", "text": ""}
            )
        part = self._part(event, member, index)
        if step == "done":
            assert event[name] == part[name]
            return ""
        part[name] += event["delta"]
        return event["delta"] if stem == "response.output_text" else ""

    def _add_arguments(self, stem: str, step: str, event: Json) -> None:
        self._item(event)
        index = event["output_index"]
        if step == "done":
            assert event[_CALLS[stem]] == self._written.get(index, "")
        else:
            self._written[index] = self._written.get(index, "") + event["delta"]


def text_of(part: Any) -> str:
    """The text of a part, of whichever type."""
    return str(part["refusal"] if part["type"] == "refusal" else part["text"])
