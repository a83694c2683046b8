"""The OpenAI Responses dialect: `POST /v1/responses`, as an API to call and as one to offer.

An answer is a list of output items. Reader and writer agree on how these are events of the hub (`core/hub/events.py`):

- The response's `id`, `model`, `created_at` and `service_tier` are `Start`, followed by `ChoiceStart(0, "assistant")`.
  Other fields of the response object are `Extra("chunk", fields)`: those of the first event, and later what changes.
- A content part of a `message` item is a block: `BlockStart(0, block, "text" | "refusal", item id, "message", fields)`.
  Parts of one item have the same item id. `fields` are the item's other members, such as `phase`.
  Annotations are `Annotation` with the native object. `logprobs` are an `Extra` of the choice before their text.
- A `reasoning` item is `BlockStart(0, block, "reasoning", item id, "reasoning", fields)`. Part n of its summary is
  `ReasoningDelta(part=n)`; `reasoning_text` is `ReasoningDelta(part=None)`. `encrypted_content` is a `Seal`
  (`SEAL_SCHEME`, not redacted) before the end of the block.
- A `function_call` or `custom_tool_call` is `ToolCallStart(id=call_id, block=…)` of kind `function` or `custom`, with
  its `namespace`; then `Extra("tool", {"id": item id, …}, 0, call)`.
- An `image_generation_call` with a result is `BlockStart(0, block, "media", item id, type, the item without its
  result)`, one `MediaDelta`, `BlockEnd`.
- Any other item is opaque. Its events from `output_item.added` on are `Extra("event", fields)`, without their
  `sequence_number`, and with the number of the block as `output_index`. When it is whole, it is
  `BlockStart(0, block, "opaque", item id, type, the whole item)` and `BlockEnd`.
- What is known of an item only at its end, such as an unusual `status`, is the `data` of its last `BlockEnd`.
- Events of unknown types are `Extra("event", fields)`.
- `completed` is `Finish(0, "stop" | "tool_calls")`, and `incomplete` is `Finish(0, "length" | "content_filter")` with
  the native reason. `failed` and `error` are a `Fault` with the error object.
"""
