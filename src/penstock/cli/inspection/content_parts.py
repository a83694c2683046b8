"""Content parts: the JSON of `inspect --json` for each content part of an answer."""

import msgspec

from penstock import MediaPart, OpaquePart, Part, ReasoningPart, RefusalPart, TextPart, ToolCall, ToolResult
from penstock.cli.inspection.summary import decoded_size

# The value of `type` in the JSON.
TYPES: dict[type[Part], str] = {
    TextPart: "text",
    ReasoningPart: "reasoning",
    RefusalPart: "refusal",
    MediaPart: "media",
    ToolCall: "tool_call",
    ToolResult: "tool_result",
    OpaquePart: "opaque",
}
# Fields that are always present; others are omitted if they are empty.
ALWAYS = frozenset(("text", "id", "name", "arguments"))


def describe_part(part: Part) -> dict[str, object]:
    """One part as JSON. Media have their size instead of their data."""
    fields: dict[str, object] = msgspec.to_builtins(part)
    if isinstance(part, OpaquePart):
        fields["native_type"] = fields.pop("type")
    if isinstance(part, ToolResult):
        fields["parts"] = [describe_part(each) for each in part.parts]
    if isinstance(part, MediaPart):
        fields["size"] = decoded_size(part.data) or None
        del fields["data"]
    present = {name: value for name, value in fields.items() if name in ALWAYS or value}
    return {"type": TYPES[type(part)], **present}
