// What each repair and each fault means. Generated from `core/repairs.py` by `scripts/reference`.

export const REPAIRS = {
 "bom": {
  "wrong": "A byte order mark stands before the first event.",
  "done": "It is skipped."
 },
 "missing-blank-line": {
  "wrong": "There is no blank line between two events.",
  "done": "A `data:` line that follows whole JSON opens a new event."
 },
 "blank-line-with-spaces": {
  "wrong": "The line between two events is not blank but holds white space.",
  "done": "It is read as blank."
 },
 "json-on-next-line": {
  "wrong": "`data:` stands alone; its JSON is on the next line, without a prefix.",
  "done": "That line is the data."
 },
 "unprefixed-continuation": {
  "wrong": "The JSON of an event goes on in lines without `data:`.",
  "done": "The lines are joined until the JSON is whole."
 },
 "no-data-prefix": {
  "wrong": "An event's JSON stands on a line without `data:`.",
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
  "wrong": "The JSON array that holds the stream is not closed.",
  "done": "Its elements stand."
 },
 "no-final-blank-line": {
  "wrong": "The last event lacks its blank line.",
  "done": "It is read all the same."
 },
 "no-final-newline": {
  "wrong": "The last line lacks its newline.",
  "done": "It is read all the same."
 },
 "field-misspelled": {
  "wrong": "A field's name is indented or in capitals.",
  "done": "It is read as the field that it is."
 },
 "unknown-field": {
  "wrong": "A line has a field that server-sent events do not know.",
  "done": "It is ignored, as the standard says, and counted."
 },
 "error-field": {
  "wrong": "An error comes in an SSE field of its own, `error:`.",
  "done": "It is read as an error event."
 },
 "glued-events": {
  "wrong": "Several JSON objects stand in one event.",
  "done": "They are read one after another."
 },
 "data-prefix-twice": {
  "wrong": "The data begins with a second `data:`.",
  "done": "It is skipped."
 },
 "empty-event": {
  "wrong": "An event has no data, or null or a bare number, string or truth value in place of an object.",
  "done": "It is skipped."
 },
 "invalid-utf8": {
  "wrong": "A string holds bytes that are not UTF-8.",
  "done": "They are replaced by U+FFFD."
 },
 "raw-control-character": {
  "wrong": "A string holds a control character that JSON wants escaped.",
  "done": "It is read as that character, a line end of any kind as a newline."
 },
 "non-finite-number": {
  "wrong": "A number is NaN or infinite, which JSON does not know.",
  "done": "It is read as such and written as null."
 },
 "split-surrogate": {
  "wrong": "A character is escaped in two halves that stand in two deltas.",
  "done": "The halves are joined."
 },
 "lone-surrogate": {
  "wrong": "Half an escaped character stands alone.",
  "done": "It is replaced by U+FFFD."
 },
 "no-done": {
  "wrong": "There is no `[DONE]`.",
  "done": "The end of the bytes is the end."
 },
 "done-misspelled": {
  "wrong": "`[DONE]` is quoted, padded or in other letters.",
  "done": "It is read as `[DONE]`."
 },
 "done-repeated": {
  "wrong": "`[DONE]` comes more than once.",
  "done": "The first one counts."
 },
 "data-after-done": {
  "wrong": "Events follow `[DONE]`.",
  "done": "They are read like any other; but half an event at the end of the bytes is left."
 },
 "keepalive-event": {
  "wrong": "A heartbeat is sent as an event.",
  "done": "It is skipped."
 },
 "choices-missing": {
  "wrong": "`choices` is null, absent or no list in a chunk.",
  "done": "An object is read as the only choice, all else as no choice."
 },
 "choice-index-missing": {
  "wrong": "A choice has no usable index.",
  "done": "Its place in the list is its index."
 },
 "delta-missing": {
  "wrong": "A choice has no delta.",
  "done": "It is read as an empty one; its other fields are kept."
 },
 "object-missing": {
  "wrong": "`object` is not `chat.completion.chunk`.",
  "done": "The chunk is read by its shape."
 },
 "object-missing-no-choices": {
  "wrong": "`object` is not `chat.completion.chunk` in a chunk without choices and usage.",
  "done": "Its other fields are kept."
 },
 "envelope-incomplete": {
  "wrong": "The stream has no id, model or creation time when the answer begins.",
  "done": "The writer puts its own in their place."
 },
 "envelope-mistyped": {
  "wrong": "The id, model or creation time has the wrong JSON type.",
  "done": "It is converted."
 },
 "id-changed": {
  "wrong": "The id changes within one stream.",
  "done": "The first one stands for the whole stream."
 },
 "model-changed": {
  "wrong": "The model changes within one stream.",
  "done": "The first one stands for the whole stream."
 },
 "created-changed": {
  "wrong": "The creation time changes within one stream.",
  "done": "The first one stands for the whole stream."
 },
 "role-missing": {
  "wrong": "A choice begins without a role.",
  "done": "It is the assistant's."
 },
 "role-repeated": {
  "wrong": "The role is sent again.",
  "done": "It is told once."
 },
 "content-parts": {
  "wrong": "The content is a list of parts, not a string.",
  "done": "Text parts become text, thinking parts reasoning, others are kept as extras."
 },
 "logprobs-mistyped": {
  "wrong": "The log probabilities of a choice are not an object.",
  "done": "They are dropped."
 },
 "reasoning-differs": {
  "wrong": "Two fields hold reasoning, and not the same.",
  "done": "The first is told, the other kept as an extra."
 },
 "text-without-delta": {
  "wrong": "Text stands in `text`, as in legacy completions, and not in the content of a delta.",
  "done": "It is read as the content."
 },
 "message-beside-delta": {
  "wrong": "A choice repeats the whole message although deltas carry it.",
  "done": "The deltas count, the repetition is dropped."
 },
 "finish-mapped": {
  "wrong": "The finish reason is another API's word, or null written as a word.",
  "done": "It is mapped, the native word kept; a null finishes nothing."
 },
 "finish-unknown": {
  "wrong": "The finish reason is none that is known.",
  "done": "It is passed on as it is."
 },
 "finish-repeated": {
  "wrong": "A choice is finished more than once, with the same reason.",
  "done": "It is finished once, at the end."
 },
 "finish-changed": {
  "wrong": "A choice is finished again with another reason.",
  "done": "The last one counts."
 },
 "finish-stop-with-tools": {
  "wrong": "A choice that calls tools is finished with `stop`.",
  "done": "The reason becomes `tool_calls`; the native word is kept."
 },
 "content-after-finish": {
  "wrong": "A choice goes on after its finish reason.",
  "done": "What it says counts; the finish is told at the end."
 },
 "tool-index-missing": {
  "wrong": "A piece of a tool call has no index.",
  "done": "It belongs to the call of its id, to a new call if it brings a new name, else to the last call."
 },
 "tool-index-mistyped": {
  "wrong": "A tool call's index is not an integer.",
  "done": "It is converted, or read as missing."
 },
 "tool-index-reused": {
  "wrong": "Two tool calls share one index.",
  "done": "A new id with a name, or a new name after whole arguments, opens a new call."
 },
 "tool-index-drifting": {
  "wrong": "The index changes within one tool call.",
  "done": "The id, or being the only unfinished call, decides."
 },
 "tool-index-renumbered": {
  "wrong": "Tool calls are not numbered 0, 1, 2 \u2026",
  "done": "They are renumbered in the order in which they began."
 },
 "tool-id-missing": {
  "wrong": "A tool call has no id.",
  "done": "The writer gives it one."
 },
 "tool-id-repeated": {
  "wrong": "A tool call's id is sent again.",
  "done": "It is told once."
 },
 "tool-id-changed": {
  "wrong": "A tool call's id changes on the way.",
  "done": "The first one counts."
 },
 "tool-id-duplicate": {
  "wrong": "Two tool calls have the same id.",
  "done": "Both are kept, each with that id."
 },
 "tool-name-repeated": {
  "wrong": "A tool call's name is sent again.",
  "done": "It is told once."
 },
 "tool-arguments-object": {
  "wrong": "A tool call's arguments are a JSON object, not a string.",
  "done": "The object is written as JSON text."
 },
 "tool-arguments-broken": {
  "wrong": "A tool call's arguments are not whole JSON although its choice is finished.",
  "done": "They are passed on exactly as they are."
 },
 "usage-placeholder": {
  "wrong": "A usage report holds nothing but zeros.",
  "done": "It is ignored."
 },
 "usage-mistyped": {
  "wrong": "A count in the usage is a string or a fraction.",
  "done": "It is converted where it is a whole number."
 },
 "usage-absurd": {
  "wrong": "A count in the usage is negative or beyond any model.",
  "done": "It is kept as it was sent."
 },
 "usage-total-differs": {
  "wrong": "The total is not the sum of input and output.",
  "done": "All three are kept as they were sent."
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
  "wrong": "A part is larger than its whole (cached over input, reasoning over output), and not in the total.",
  "done": "Both are kept as they were sent. The part is not billed: the whole is, at its own rate."
 },
 "ignored-after-fault": {
  "wrong": "The stream goes on after it failed.",
  "done": "Only its usage is still read."
 }
};

// Those of them that are harmless habits of providers.
export const NOTICES = new Set(["bom", "created-changed", "done-repeated", "finish-repeated", "object-missing-no-choices", "role-repeated"]);

export const FAULTS = {
 "provider-error": {
  "wrong": "The provider says that it failed.",
  "done": "Its own words are reported; the ending is `failed`."
 },
 "bad-json": {
  "wrong": "An event's data is not JSON and cannot be split into JSON.",
  "done": "The stream has failed."
 },
 "bad-shape": {
  "wrong": "A field that carries the answer has a type that cannot be read as what it should be.",
  "done": "The stream has failed."
 },
 "not-a-stream": {
  "wrong": "There is plain text where an event should be.",
  "done": "The text is reported; the stream has failed."
 },
 "html-page": {
  "wrong": "There is an HTML page where a stream should be.",
  "done": "The page's words are reported; the stream has failed."
 },
 "binary": {
  "wrong": "The bytes are compressed or otherwise binary.",
  "done": "The stream has failed."
 },
 "event-too-large": {
  "wrong": "An event exceeds the cap (1 MB by default).",
  "done": "The stream has failed and no more of it is read."
 },
 "event-too-complex": {
  "wrong": "An event holds too much to be read in 20 ms: thousands of choices, parts or glued objects, a hundred thousand keys or brackets, numbers of hundreds of digits.",
  "done": "The stream has failed."
 },
 "empty-stream": {
  "wrong": "The stream ends without any answer: it is empty, or only comments, `[DONE]` or usage.",
  "done": "The stream has failed."
 },
 "other-dialect": {
  "wrong": "The events are of another API's dialect.",
  "done": "The dialect is named; the stream has failed."
 },
 "tool-call-ambiguous": {
  "wrong": "A piece of a tool call could belong to more than one call.",
  "done": "The stream has failed."
 },
 "tool-call-unnamed": {
  "wrong": "A tool call never gets a name.",
  "done": "The stream has failed."
 }
};
