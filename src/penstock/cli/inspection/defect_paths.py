"""The paths of the values in an event's JSON that a defect concerns, in all dialects.

In a path, `*` matches any member or item. The first path that exists in the event is used. A defect without one is
shown at the start of its event.
"""

_TOOL = "choices.*.delta.tool_calls.*"
_PARTS = "candidates.*.content.parts"
_CALL = f"{_PARTS}.*.functionCall"
_FINISH = (
    "choices.*.finish_reason delta.stop_reason stop_reason message.stop_reason response.incomplete_details "
    "response.status status candidates.*.finishReason delta.finish_reason finish_reason done_reason done"
)
_USAGE = "usage *.usage choices.*.usage message.usage response.usage usageMetadata delta.usage"
# By codes that share the paths.
_ROWS = {
    "choices-missing": "choices",
    "choice-index-missing": "choices.*.index choices.* candidates.*",
    "delta-missing": "choices.*.delta choices.*",
    "object-missing object-missing-no-choices": "object",
    "id-changed": "id response.id responseId",
    "model-changed": "model response.model modelVersion",
    "created-changed": "created response.created_at",
    "role-missing": "choices.*.delta message",
    "role-repeated": "choices.*.delta.role",
    "content-parts": "choices.*.delta.content",
    "logprobs-mistyped": "choices.*.logprobs",
    "reasoning-differs": "choices.*.delta.reasoning choices.*.delta",
    "text-without-delta": "choices.*.text",
    "message-beside-delta": "choices.*.message",
    "finish-mapped finish-unknown finish-repeated finish-changed finish-stop-with-tools": _FINISH,
    "content-after-finish": f"choices.*.delta delta content_block {_PARTS} type",
    "tool-index-missing": f"{_TOOL}.index {_TOOL}",
    "tool-index-mistyped tool-index-reused tool-index-drifting tool-index-renumbered": f"{_TOOL}.index",
    "tool-id-missing": "content_block.id content_block item.call_id item",
    "tool-id-repeated tool-id-changed tool-id-duplicate": f"{_TOOL}.id content_block.id {_CALL}.id",
    "tool-name-repeated": f"{_TOOL}.function.name",
    "tool-arguments-object": f"{_TOOL}.function.arguments item.arguments item.input",
    "tool-arguments-text": "message.tool_calls.*.function.arguments",
    "tool-arguments-broken": (
        f"item.arguments {_CALL} candidates.*.finishReason message.tool_calls.*.function.arguments type"
    ),
    "tool-call-ambiguous": _TOOL,
    "tool-call-unnamed": f"content_block delta.message.tool_calls delta item {_CALL} message.tool_calls.* type",
    "usage-placeholder usage-absurd usage-reasoning-apart usage-details-apart usage-details-exceed": _USAGE,
    "usage-incomplete": _USAGE,
    "usage-mistyped": (
        "usage.* *.usage.* choices.*.usage.* message.usage.* response.usage.* usageMetadata.* delta.usage usage "
        "prompt_eval_count eval_count"
    ),
    "usage-total-differs": f"usage.total_tokens *.usage.total_tokens choices.*.usage.total_tokens {_USAGE}",
    "provider-error": "error response.error candidates.*.finishReason message delta.finish_reason finish_reason",
    "prompt-blocked": "promptFeedback.blockReason",
    "bad-shape": (
        f"content_block message.id item response.id {_CALL} {_PARTS} candidates.* candidates "
        "delta.message.tool_calls delta.message.content message.content message.tool_calls message"
    ),
    "envelope-incomplete": "message response",
    "message-start-repeated": "message.id response.id id type",
    "message-appended": "object type",
    "block-index-missing signature-late": "index type",
    "block-start-missing block-restarted items-overlap": "index output_index type",
    "block-unclosed": f"{_CALL} candidates.*.finishReason type",
    "block-stop-repeated": f"index output_index {_CALL} type",
    "block-text-repeated": "delta.text delta.thinking",
    "delta-in-wrong-block": "delta.type type",
    "delta-unknown": "delta.type delta.citation annotation type",
    "item-id-changed": "item_id item.id",
    "deltas-missing text-differs": "text arguments input item.content item response.output",
    "output-missing": "response.output",
    "sequence-gap": "sequence_number",
    "data-after-done event-name-missing done-repeated message-start-missing sequence-missing": "type",
    "event-unknown ignored-after-fault keepalive-event": "type",
}
PATHS = {
    code: tuple(tuple(path.split(".")) for path in paths.split())
    for codes, paths in _ROWS.items()
    for code in codes.split()
}
"""By the code of the defect: its possible paths."""
NAMED = frozenset(("envelope-incomplete", "envelope-mistyped"))
"""Codes of defects whose detail names the top-level members that they concern."""
GROUP = "tool_calls"
"""The name of a list. If several items match a path, the item of this list that contains the detail is used."""
