// @ts-check
// What each repair and each fault means. Generated from `core/hub/repairs.py` by `scripts/reference`.

/** @type {Record<string, { wrong: string, done: string }>} */
export const REPAIRS = {
 "bom": {
  "wrong": "A byte order mark precedes the first event, or a line.",
  "done": "It is skipped."
 },
 "missing-blank-line": {
  "wrong": "There is no blank line between two events.",
  "done": "A `data:` line after complete JSON starts a new event."
 },
 "blank-line-with-spaces": {
  "wrong": "The line between two events contains white space.",
  "done": "It is read as a blank line."
 },
 "json-on-next-line": {
  "wrong": "A `data:` line is empty; its JSON is on the next line, without a prefix.",
  "done": "That line is the data."
 },
 "unprefixed-continuation": {
  "wrong": "The JSON of an event continues on lines without `data:`.",
  "done": "The lines are joined until the JSON is complete."
 },
 "no-data-prefix": {
  "wrong": "An event's JSON is on a line without `data:`.",
  "done": "It is read as an event."
 },
 "json-lines": {
  "wrong": "The stream is JSON lines, without SSE framing.",
  "done": "Each line is an event."
 },
 "json-array": {
  "wrong": "The stream is one JSON array, without SSE framing.",
  "done": "Each element is an event."
 },
 "array-unclosed": {
  "wrong": "The JSON array that contains the stream is not closed.",
  "done": "Its elements are used."
 },
 "no-final-blank-line": {
  "wrong": "There is no blank line after the last event.",
  "done": "The event is read."
 },
 "no-final-newline": {
  "wrong": "The last line has no newline.",
  "done": "The line is read."
 },
 "field-misspelled": {
  "wrong": "A field name is indented or in upper case.",
  "done": "It is read as that field."
 },
 "unknown-field": {
  "wrong": "A line has a field that server-sent events do not define.",
  "done": "It is ignored, as the standard requires, and counted."
 },
 "error-field": {
  "wrong": "An error is sent in an SSE field of its own, `error:`.",
  "done": "It is read as an error event."
 },
 "glued-events": {
  "wrong": "One event contains several JSON objects.",
  "done": "They are read one after another."
 },
 "data-prefix-twice": {
  "wrong": "The data begins with a second `data:`.",
  "done": "It is skipped."
 },
 "empty-event": {
  "wrong": "An event has no data, or null, a number, a string or a boolean instead of an object.",
  "done": "It is skipped."
 },
 "invalid-utf8": {
  "wrong": "A string contains bytes that are not UTF-8.",
  "done": "They are replaced by U+FFFD."
 },
 "raw-control-character": {
  "wrong": "A string contains a control character that JSON requires to be escaped.",
  "done": "It is read as that character; every kind of line ending is read as a newline."
 },
 "non-finite-number": {
  "wrong": "A number is NaN or infinite, which JSON does not have.",
  "done": "It is read as such, and written as null."
 },
 "split-surrogate": {
  "wrong": "An escaped character (a surrogate pair) is split over two deltas.",
  "done": "The halves are joined."
 },
 "lone-surrogate": {
  "wrong": "Half of an escaped character (a lone surrogate) has no other half.",
  "done": "It is replaced by U+FFFD."
 },
 "no-done": {
  "wrong": "The marker of the end is missing: `[DONE]`, the event `message_stop` of Anthropic Messages, or `metadata` of Bedrock.",
  "done": "The end of the bytes is the end of the stream."
 },
 "done-misspelled": {
  "wrong": "`[DONE]` is quoted, padded or in another case.",
  "done": "It is read as `[DONE]`."
 },
 "done-repeated": {
  "wrong": "The marker of the end (`[DONE]`, `message_stop`) is sent more than once.",
  "done": "The first one is used."
 },
 "data-after-done": {
  "wrong": "Events follow the marker of the end (`[DONE]`, `message_stop`).",
  "done": "They are read like others, except an incomplete event at the end of the bytes."
 },
 "done-unexpected": {
  "wrong": "`[DONE]` is sent in a dialect that does not have it.",
  "done": "It is ignored."
 },
 "keepalive-event": {
  "wrong": "A heartbeat is sent as an event.",
  "done": "It is skipped."
 },
 "choices-missing": {
  "wrong": "`choices` is null, missing or not a list.",
  "done": "An object is read as the only choice, everything else as no choice."
 },
 "choice-index-missing": {
  "wrong": "A choice has no valid index.",
  "done": "Its position in the list is used."
 },
 "delta-missing": {
  "wrong": "A choice has no delta.",
  "done": "It is read as an empty one; its other fields are kept."
 },
 "object-missing": {
  "wrong": "`object` is not `chat.completion.chunk`.",
  "done": "The chunk is recognised by its fields."
 },
 "object-missing-no-choices": {
  "wrong": "`object` is not `chat.completion.chunk` in a chunk without choices and usage.",
  "done": "Its other fields are kept."
 },
 "envelope-incomplete": {
  "wrong": "The id, model or creation time is missing when the answer begins.",
  "done": "The writer adds its own."
 },
 "envelope-mistyped": {
  "wrong": "The id, model or creation time has the wrong JSON type.",
  "done": "It is converted."
 },
 "id-changed": {
  "wrong": "The id changes within one stream.",
  "done": "The first one is used for the whole stream."
 },
 "model-changed": {
  "wrong": "The model changes within one stream.",
  "done": "The first one is used for the whole stream."
 },
 "created-changed": {
  "wrong": "The creation time changes within one stream.",
  "done": "The first one is used for the whole stream."
 },
 "role-missing": {
  "wrong": "A choice begins without a role.",
  "done": "It is `assistant`."
 },
 "role-repeated": {
  "wrong": "The role is sent again.",
  "done": "It is sent once."
 },
 "content-parts": {
  "wrong": "The content is a list of parts, not a string.",
  "done": "Text parts become text, thinking parts become reasoning, others are kept as extras."
 },
 "logprobs-mistyped": {
  "wrong": "The log probabilities of a choice are not an object.",
  "done": "They are dropped."
 },
 "reasoning-differs": {
  "wrong": "Two fields contain reasoning, and they differ.",
  "done": "The first is used, the other is kept as an extra."
 },
 "text-without-delta": {
  "wrong": "The text is in `text`, as in legacy completions, and not in the content of a delta.",
  "done": "It is read as content."
 },
 "message-beside-delta": {
  "wrong": "A choice repeats the whole message, which its deltas already contain.",
  "done": "The deltas are used, the repetition is dropped."
 },
 "finish-mapped": {
  "wrong": "The finish reason is a value of another API, or null written as a word.",
  "done": "It is mapped, and the native value is kept; a null finishes nothing."
 },
 "finish-unknown": {
  "wrong": "The finish reason is not a known value.",
  "done": "It is passed on unchanged: in Responses as the reason of an incomplete response, in Gemini as `OTHER`."
 },
 "finish-repeated": {
  "wrong": "A choice has the same finish reason more than once.",
  "done": "It is sent once, at the end."
 },
 "finish-changed": {
  "wrong": "A choice has two different finish reasons.",
  "done": "The last one is used."
 },
 "finish-stop-with-tools": {
  "wrong": "A choice with tool calls has the finish reason `stop`.",
  "done": "It becomes `tool_calls`; the native value is kept."
 },
 "prompt-blocked": {
  "wrong": "The provider blocks the prompt: the answer has a block reason and no candidate.",
  "done": "It is an empty answer with the finish reason `content_filter`; the native value is kept."
 },
 "content-after-finish": {
  "wrong": "A choice continues after its finish reason.",
  "done": "The content is used, and the finish reason is sent at the end."
 },
 "message-start-missing": {
  "wrong": "Content comes before `message_start`, or before `response.created` of OpenAI Responses.",
  "done": "The message begins with it; the writer adds an id."
 },
 "message-start-repeated": {
  "wrong": "`message_start` or `response.created` is sent again for the same answer.",
  "done": "The first one is used."
 },
 "message-appended": {
  "wrong": "The whole answer, as without streaming, follows the stream that has it already.",
  "done": "The stream is used, the repetition is dropped."
 },
 "block-index-missing": {
  "wrong": "An event of a content block or of an output item has no valid index.",
  "done": "It belongs to the item with its id, or to the open block; a start is that of the next block."
 },
 "block-start-missing": {
  "wrong": "An event belongs to a content block, or to an output item, that was not started.",
  "done": "Text, reasoning and whole items start a block of their own; anything else is ignored."
 },
 "block-restarted": {
  "wrong": "A content block or output item is started with the index of an earlier one.",
  "done": "The start ends the earlier one, if it is open, and begins another one."
 },
 "block-unclosed": {
  "wrong": "A content block is not stopped before the next one, or the end of the answer, comes.",
  "done": "It ends there."
 },
 "block-stop-repeated": {
  "wrong": "A content block or output item is stopped again.",
  "done": "The second stop is ignored."
 },
 "block-text-repeated": {
  "wrong": "The start of a content block has text that its deltas repeat.",
  "done": "The text of the deltas is used."
 },
 "delta-in-wrong-block": {
  "wrong": "A delta is of another kind than its block: thinking in a block of text, for example.",
  "done": "The block ends, and a block of the delta's kind begins."
 },
 "delta-unknown": {
  "wrong": "A delta in a block of a known type has a type that is not known.",
  "done": "It is forwarded to clients of the same API only."
 },
 "event-unknown": {
  "wrong": "An event has a type that is not known.",
  "done": "It is forwarded to clients of the same API only."
 },
 "event-name-missing": {
  "wrong": "An event has no name in the transport, or another one than the type in its JSON.",
  "done": "The type in the JSON is used, and the event is written with its name; it is reported once per stream."
 },
 "sequence-missing": {
  "wrong": "An event of OpenAI Responses has no `sequence_number`.",
  "done": "The writer numbers all events; it is reported once per stream."
 },
 "sequence-gap": {
  "wrong": "The `sequence_number` of an event does not follow that of the event before it.",
  "done": "The writer numbers all events; it is reported once per stream."
 },
 "item-id-changed": {
  "wrong": "The id of an output item changes between its events.",
  "done": "The first one is used; it is reported once per item."
 },
 "items-overlap": {
  "wrong": "An output item starts before the one before it is done.",
  "done": "They are read by their indexes. Text that follows of the earlier one is a part of its own."
 },
 "deltas-missing": {
  "wrong": "A text, or the arguments of a call, are longer as a whole than their deltas together.",
  "done": "What the deltas lack is emitted where the whole arrives."
 },
 "text-differs": {
  "wrong": "A text, or the arguments of a call, do not begin as a whole with what their deltas had.",
  "done": "The deltas are used."
 },
 "output-missing": {
  "wrong": "The response at the end has an empty `output`, although items were sent.",
  "done": "The items of the stream are used."
 },
 "signature-late": {
  "wrong": "The signature of a thinking block follows the end of the block.",
  "done": "It belongs to the block with its index."
 },
 "tool-index-missing": {
  "wrong": "A fragment of a tool call has no index.",
  "done": "It belongs to the call with its id, to a new call if it has a new name, or else to the last call."
 },
 "tool-index-mistyped": {
  "wrong": "A tool call's index is not an integer.",
  "done": "It is converted, or read as missing."
 },
 "tool-index-reused": {
  "wrong": "Two tool calls have the same index.",
  "done": "A new id with a name, or a new name after complete arguments, starts a new call."
 },
 "tool-index-drifting": {
  "wrong": "The index changes within one tool call.",
  "done": "It belongs to the call with its id, or to the only call that is not complete."
 },
 "tool-index-renumbered": {
  "wrong": "Tool calls are not numbered 0, 1, 2 \u2026",
  "done": "They are renumbered in the order in which they began."
 },
 "tool-id-missing": {
  "wrong": "A tool call has no id.",
  "done": "The writer generates one."
 },
 "tool-id-repeated": {
  "wrong": "A tool call's id is sent again.",
  "done": "It is sent once."
 },
 "tool-id-changed": {
  "wrong": "A tool call's id changes between its fragments.",
  "done": "The first one is used."
 },
 "tool-id-duplicate": {
  "wrong": "Two tool calls have the same id.",
  "done": "Both are kept, each with that id; of Gemini, Ollama, Cohere and Bedrock, the second one with a new id."
 },
 "tool-name-repeated": {
  "wrong": "A tool call's name is sent again.",
  "done": "It is sent once."
 },
 "tool-arguments-object": {
  "wrong": "A tool call's arguments are a JSON object, not a string.",
  "done": "The object is serialised as JSON text."
 },
 "tool-arguments-text": {
  "wrong": "A tool call's arguments are text, in an API where they are a JSON object.",
  "done": "The text is passed on."
 },
 "tool-arguments-broken": {
  "wrong": "A tool call's arguments are not complete JSON although its choice has finished.",
  "done": "They are passed on unchanged."
 },
 "model-json-tokens": {
  "wrong": "Special tokens of the model, such as `<|im_end|>` or `</tool_call>`, follow the JSON of a call or an answer.",
  "done": "The tokens are removed."
 },
 "model-json-fenced": {
  "wrong": "The JSON of a call or an answer is in a code fence.",
  "done": "The fence is removed."
 },
 "model-json-escaped": {
  "wrong": "The JSON of a call or an answer is escaped once more: it is a JSON string that holds an object.",
  "done": "The object in the string is used."
 },
 "model-json-python": {
  "wrong": "The JSON of a call or an answer has strings in single quotes, or `True`, `False` and `None`, as in Python.",
  "done": "They are written as JSON."
 },
 "model-json-commas": {
  "wrong": "The JSON of a call or an answer has commas before closing brackets.",
  "done": "The commas are removed."
 },
 "model-json-unclosed": {
  "wrong": "The JSON of a call or an answer lacks closing brackets or its last quote, although the model was done.",
  "done": "They are added."
 },
 "model-call-tagged": {
  "wrong": "A tool call is in the text of the answer, as `<tool_call>{\u2026}</tool_call>` (Hermes, Qwen).",
  "done": "The text becomes a tool call, and the finish reason `tool_calls`."
 },
 "model-call-listed": {
  "wrong": "Tool calls are in the text of the answer, as `[TOOL_CALLS] [{\u2026}]` (Mistral).",
  "done": "The text becomes a tool call, and the finish reason `tool_calls`."
 },
 "model-call-python-tag": {
  "wrong": "A tool call is in the text of the answer, as `<|python_tag|>{\u2026}` (Llama 3).",
  "done": "The text becomes a tool call, and the finish reason `tool_calls`."
 },
 "model-call-function-tag": {
  "wrong": "A tool call is in the text of the answer, as `<function=name>{\u2026}</function>` (Llama).",
  "done": "The text becomes a tool call, and the finish reason `tool_calls`."
 },
 "model-call-fenced": {
  "wrong": "A tool call is in the text of the answer, as an object in a code fence of `json`.",
  "done": "The text becomes a tool call, and the finish reason `tool_calls`."
 },
 "continuation-echo": {
  "wrong": "The model that goes on with an answer repeats all of it first.",
  "done": "The repetition is removed."
 },
 "continuation-overlap": {
  "wrong": "The model that goes on with an answer repeats the last words of it first.",
  "done": "The repetition is removed."
 },
 "usage-placeholder": {
  "wrong": "A usage report has only zeros.",
  "done": "It is ignored."
 },
 "usage-incomplete": {
  "wrong": "The usage lacks its total or its details, which OpenAI Responses always have.",
  "done": "The total is the sum, and a missing detail is unknown; the writer adds them."
 },
 "usage-mistyped": {
  "wrong": "A count in the usage is a string or a fraction.",
  "done": "It is converted if it is a whole number. Clients of the gateway do not get another one."
 },
 "usage-absurd": {
  "wrong": "A count in the usage is negative or impossibly large.",
  "done": "Clients of the gateway do not get the report, and the ledger estimates. The library keeps it as it was sent."
 },
 "usage-total-differs": {
  "wrong": "The total is not the sum of input and output.",
  "done": "Clients of the gateway get the sum as the total; for an output of 0, the rest of the total as the output. The library keeps all three as they were sent."
 },
 "usage-reasoning-apart": {
  "wrong": "The output does not include the reasoning tokens: the total is input, output and reasoning.",
  "done": "All are kept as they were sent."
 },
 "usage-details-apart": {
  "wrong": "The input does not include its cached, cache-write or audio tokens: only with them does the total add up.",
  "done": "All are kept as they were sent."
 },
 "usage-details-exceed": {
  "wrong": "A part is larger than its whole (cached over input, reasoning over output), and is not in the total.",
  "done": "Clients of the gateway get the whole without the part, which is not billed. The library keeps both as sent."
 },
 "ignored-after-fault": {
  "wrong": "The stream continues after it failed.",
  "done": "Only its usage is read."
 }
};

// Those that are not repaired, and those that are harmless deviations of providers.
export const FINDINGS = new Set(["finish-unknown", "ignored-after-fault", "text-differs", "tool-arguments-broken", "tool-arguments-text", "unknown-field", "usage-details-apart", "usage-reasoning-apart"]);
export const NOTICES = new Set(["block-stop-repeated", "bom", "created-changed", "delta-unknown", "done-repeated", "done-unexpected", "event-unknown", "finish-repeated", "items-overlap", "object-missing-no-choices", "role-repeated", "sequence-gap", "sequence-missing"]);

/** @type {Record<string, { wrong: string, done: string }>} */
export const FAULTS = {
 "provider-error": {
  "wrong": "The provider reports an error.",
  "done": "Its message is reported; the ending is `failed`."
 },
 "bad-json": {
  "wrong": "An event's data is not JSON and cannot be split into JSON.",
  "done": "The stream fails."
 },
 "bad-shape": {
  "wrong": "A field that contains the answer has a type that cannot be read.",
  "done": "The stream fails."
 },
 "delta-lost": {
  "wrong": "The numbers of the events have a gap, and the whole text that follows is not that of the deltas.",
  "done": "The stream fails. An answer that is not streamed to its client gets the whole text instead."
 },
 "not-a-stream": {
  "wrong": "There is plain text where an event should be.",
  "done": "The text is reported; the stream fails."
 },
 "html-page": {
  "wrong": "There is an HTML page where a stream should be.",
  "done": "The text of the page is reported; the stream fails."
 },
 "binary": {
  "wrong": "The bytes are compressed or otherwise binary.",
  "done": "The stream fails."
 },
 "event-stream-damaged": {
  "wrong": "A message of an AWS event stream has a wrong checksum, or lengths or headers that cannot be read.",
  "done": "The stream fails, and no more of it is read."
 },
 "event-too-large": {
  "wrong": "An event exceeds the limit (1 MB by default).",
  "done": "The stream fails, and no more of it is read."
 },
 "event-too-complex": {
  "wrong": "An event would take over 20 ms to parse: thousands of choices, parts or glued objects, a hundred thousand keys or brackets, numbers of hundreds of digits.",
  "done": "The stream fails."
 },
 "empty-stream": {
  "wrong": "The stream ends without an answer: it is empty, or has only comments, `[DONE]` or usage.",
  "done": "The stream fails."
 },
 "other-dialect": {
  "wrong": "The events are of another API's dialect.",
  "done": "The dialect is named; the stream fails."
 },
 "tool-call-ambiguous": {
  "wrong": "A fragment of a tool call could belong to more than one call, or continues a call that was complete.",
  "done": "The stream fails."
 },
 "tool-call-unnamed": {
  "wrong": "A tool call never gets a name.",
  "done": "The stream fails."
 }
};
