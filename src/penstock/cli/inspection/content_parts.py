"""Parts: what `inspect --json` says of each content part of an answer, in the order in which they were said."""

import msgspec

from penstock import MediaPart, OpaquePart, Part, ReasoningPart, RefusalPart, TextPart, ToolCall, ToolResult
from penstock.cli.inspection.summary import decoded_size

# What a part is called in its `type`.
TYPES: dict[type[Part], str] = {
    TextPart: "text",
    ReasoningPart: "reasoning",
    RefusalPart: "refusal",
    MediaPart: "media",
    ToolCall: "tool_call",
    ToolResult: "tool_result",
    OpaquePart: "opaque",
}
# Members that every part of its type has; others are left out where they say nothing.
ALWAYS = frozenset(("text", "id", "name", "arguments"))


def describe_part(part: Part) -> dict[str, object]:
    """One part: its type and what it holds. Media are told by their size, not by their data."""
    fields: dict[str, object] = msgspec.to_builtins(part)
    if isinstance(part, OpaquePart):
        fields["native_type"] = fields.pop("type")
    if isinstance(part, ToolResult):
        fields["parts"] = [describe_part(each) for each in part.parts]
    if isinstance(part, MediaPart):
        fields["size"] = decoded_size(part.data) or None
        del fields["data"]
    told = {name: value for name, value in fields.items() if name in ALWAYS or value}
    return {"type": TYPES[type(part)], **told}
