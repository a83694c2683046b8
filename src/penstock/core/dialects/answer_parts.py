"""What writers of answers have in common: the one choice, calls, summaries, and what an API cannot express."""

from typing import TypeAlias

from penstock.core.hub.completion import Choice, Completion
from penstock.core.hub.content import MediaPart, OpaquePart, ToolCall, ToolChange, ToolResult
from penstock.core.hub.events import Annotation, BlockStart, Event, Extra, Repair, Seal, ToolCallStart
from penstock.core.hub.losses import Loss
from penstock.core.hub.tool_map import json_arguments
from penstock.core.wire.payload import TextDecoder, TooComplexError


def first_choice(completion: Completion, losses: list[Loss]) -> Choice:
    """The only choice of an answer, for APIs whose answers have one."""
    if len(completion.choices) > 1:
        losses.append(Loss("choices-dropped"))
    return completion.choices[0] if completion.choices else Choice(0)


def call_name(call: ToolCallStart | ToolCall) -> str:
    """The name of a tool, with its namespace."""
    return f"{call.namespace}__{call.name}" if call.namespace else call.name


def adds_to_call(event: Event) -> bool:
    """Whether a call that has just started may wait for more than this event: its extras follow its start."""
    return isinstance(event, Repair) or (isinstance(event, Extra) and event.place == "tool")


class CallInputs:
    """The arguments of one answer's calls as objects, for APIs in which they are nothing else."""

    def __init__(self, losses: list[Loss]) -> None:
        self._losses = losses
        self._decoder = TextDecoder()

    def read(self, call: ToolCallStart | ToolCall, arguments: str) -> dict[str, object]:
        """The arguments as an object. What is no JSON object, such as the text of a custom tool, is its `input`.

        So are arguments that are too complex to decode.
        """
        if call.kind == "custom":
            return {"input": arguments}
        try:
            given = self._decoder.decode(json_arguments(arguments))
        except (ValueError, TooComplexError):
            given = None
        if isinstance(given, dict):
            return given
        self._losses.append(Loss("arguments-as-text", call.name))
        return {"input": arguments}


_Hidden: TypeAlias = (
    Annotation | BlockStart | Seal | ToolCallStart | ToolCall | MediaPart | OpaquePart | ToolResult | ToolChange
)


def note_hidden(item: _Hidden, losses: list[Loss]) -> None:
    """Note the loss of something that an API cannot express. Blocks of text and of reasoning are none."""
    match item:
        case BlockStart(kind="media", type=detail) | MediaPart(mime=detail):
            losses.append(Loss("media-dropped", detail))
        case (
            BlockStart(kind="result" | "opaque", type=detail)
            | OpaquePart(type=detail)
            | ToolResult(name=detail)
            | ToolCallStart(name=detail)
            | ToolCall(name=detail)
        ):
            losses.append(Loss("server-activity-hidden", detail))
        case Annotation(title=detail):
            losses.append(Loss("citation-dropped", detail))
        case Seal():
            losses.append(Loss("seal-dropped"))
        case BlockStart() | ToolChange():
            pass  # only requests have the latter


class SummaryParts:
    """Joins the parts of a summary of reasoning, with a blank line between two parts."""

    _part: int | None = None

    def start(self) -> None:
        """Another block begins."""
        self._part = None

    def join(self, part: int | None, text: str) -> str:
        """A piece of a summary, or of the reasoning itself (no `part`), as it follows the piece before."""
        before, self._part = self._part, part
        return text if part is None or before in (None, part) else f"\n\n{text}"
