"""The table of defects: every deviation that Penstock tolerates, and every one that it does not.

`REPAIRS` are tolerated. Each row says what is wrong, what is done about it, and why that cannot change what the model
generated. There are three levels:

- a `repair`: a client that follows the standard, without Penstock, could lose or duplicate something, or fail. It is
  repaired.
- a `finding`: the same, but it is not repaired, because that would be a guess. It is passed on, or ignored.
- a `notice`: a harmless deviation. Such a client gets the same text, tool calls, finish reason and usage from the bytes
  as they are. (`tests/core/test_levels.py` reads the captures of all notices in that way.)

`FAULTS` are not tolerated: continuing would mean guessing. `docs/reference/repairs.md` is generated from this table,
and `tests/captures/` has one small capture per row.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

Level: TypeAlias = Literal["notice", "finding", "repair"]


class RepairRow(Struct, frozen=True):
    """One row: what is wrong, what is done, why that is safe; whether it matters; and who has reported it."""

    wrong: str
    done: str
    safe: str
    level: Level = "repair"
    seen: tuple[str, ...] = ()
    """Public reports of it, on GitHub: `owner/repository#number`."""


_ONE_READING = "Exactly one reading is JSON that satisfies the schema; if there are more, nothing is changed."
_IS_CALL = "The text becomes a tool call, and the finish reason `tool_calls`."
_ONE_CALL = "It names a tool of the request, and exactly one reading of its arguments satisfies the tool's schema."

REPAIRS: dict[str, RepairRow] = {
    # Framing
    "bom": RepairRow(
        "A byte order mark precedes the first event, or a line.",
        "It is skipped.",
        "It is not part of any event; the standard skips the first one too.",
        "notice",
    ),
    "missing-blank-line": RepairRow(
        "There is no blank line between two events.",
        "A `data:` line after complete JSON starts a new event.",
        "A JSON object ends where its brackets close, so the boundary is certain.",
    ),
    "blank-line-with-spaces": RepairRow(
        "The line between two events contains white space.",
        "It is read as a blank line.",
        "White space has no meaning there.",
    ),
    "json-on-next-line": RepairRow(
        "A `data:` line is empty; its JSON is on the next line, without a prefix.",
        "That line is the data.",
        "An empty event has no meaning, and the line is complete JSON by itself.",
    ),
    "unprefixed-continuation": RepairRow(
        "The JSON of an event continues on lines without `data:`.",
        "The lines are joined until the JSON is complete.",
        "The joined text must parse as one JSON value; otherwise it is a fault.",
    ),
    "no-data-prefix": RepairRow(
        "An event's JSON is on a line without `data:`.",
        "It is read as an event.",
        "The line is complete JSON; a strict reader would drop it silently.",
    ),
    "json-lines": RepairRow(
        "The stream is JSON lines, without SSE framing.",
        "Each line is an event.",
        "Each line is complete JSON.",
    ),
    "json-array": RepairRow(
        "The stream is one JSON array, without SSE framing.",
        "Each element is an event.",
        "The elements are the same objects that events would contain.",
    ),
    "array-unclosed": RepairRow(
        "The JSON array that contains the stream is not closed.",
        "Its elements are used.",
        "Every element is complete; the ending still depends on the finish reasons.",
    ),
    "no-final-blank-line": RepairRow(
        "There is no blank line after the last event.",
        "The event is read.",
        "Its JSON is complete.",
    ),
    "no-final-newline": RepairRow(
        "The last line has no newline.",
        "The line is read.",
        "Its JSON is complete; an incomplete line counts as truncated.",
    ),
    "field-misspelled": RepairRow(
        "A field name is indented or in upper case.",
        "It is read as that field.",
        "No other field has that name.",
    ),
    "unknown-field": RepairRow(
        "A line has a field that server-sent events do not define.",
        "It is ignored, as the standard requires, and counted.",
        "Chat-completion streams have all content in `data:`.",
        "finding",
    ),
    "error-field": RepairRow(
        "An error is sent in an SSE field of its own, `error:`.",
        "It is read as an error event.",
        "A strict reader would ignore it and take the truncated answer for a complete one.",
    ),
    "glued-events": RepairRow(
        "One event contains several JSON objects.",
        "They are read one after another.",
        "Each of them is complete, and there is nothing between them.",
    ),
    "data-prefix-twice": RepairRow(
        "The data begins with a second `data:`.",
        "It is skipped.",
        "No JSON value begins like that.",
    ),
    "empty-event": RepairRow(
        "An event has no data, or null, a number, a string or a boolean instead of an object.",
        "It is skipped.",
        "It has no choices, so it has no content.",
    ),
    "invalid-utf8": RepairRow(
        "A string contains bytes that are not UTF-8.",
        "They are replaced by U+FFFD.",
        "The rest of the chunk is kept, and the damage stays visible.",
    ),
    "raw-control-character": RepairRow(
        "A string contains a control character that JSON requires to be escaped.",
        "It is read as that character; every kind of line ending is read as a newline.",
        "It can have no other meaning.",
    ),
    "non-finite-number": RepairRow(
        "A number is NaN or infinite, which JSON does not have.",
        "It is read as such, and written as null.",
        "It occurs in values such as log probabilities, never in text.",
    ),
    "split-surrogate": RepairRow(
        "An escaped character (a surrogate pair) is split over two deltas.",
        "The halves are joined.",
        "Neither half is a character; together they are exactly one.",
    ),
    "lone-surrogate": RepairRow(
        "Half of an escaped character (a lone surrogate) has no other half.",
        "It is replaced by U+FFFD.",
        "It was never a complete character.",
    ),
    # The end of the stream
    "no-done": RepairRow(
        "The marker of the end is missing: `[DONE]`, the event `message_stop` of Anthropic Messages, or `metadata` of "
        "Bedrock.",
        "The end of the bytes is the end of the stream.",
        "Every choice that began has its finish reason.",
    ),
    "done-misspelled": RepairRow(
        "`[DONE]` is quoted, padded or in another case.",
        "It is read as `[DONE]`.",
        "The whole data is compared, never a part of it.",
    ),
    "done-repeated": RepairRow(
        "The marker of the end (`[DONE]`, `message_stop`) is sent more than once.",
        "The first one is used.",
        "The others add nothing.",
        "notice",
    ),
    "data-after-done": RepairRow(
        "Events follow the marker of the end (`[DONE]`, `message_stop`).",
        "They are read like others, except an incomplete event at the end of the bytes.",
        "Some providers send usage there. The answer was complete at the marker.",
    ),
    "done-unexpected": RepairRow(
        "`[DONE]` is sent in a dialect that does not have it.",
        "It is ignored.",
        "The dialect has an event of its own for the end; the SDKs ignore events that they do not know.",
        "notice",
    ),
    # Chunks and choices
    "keepalive-event": RepairRow(
        "A heartbeat is sent as an event.",
        "It is skipped.",
        "It has no choices, no usage and no error.",
    ),
    "choices-missing": RepairRow(
        "`choices` is null, missing or not a list.",
        "An object is read as the only choice, everything else as no choice.",
        "Nothing else in a chunk contains what the model generates.",
    ),
    "choice-index-missing": RepairRow(
        "A choice has no valid index.",
        "Its position in the list is used.",
        "Providers that omit it send one choice.",
    ),
    "delta-missing": RepairRow(
        "A choice has no delta.",
        "It is read as an empty one; its other fields are kept.",
        "It has no content.",
    ),
    "object-missing": RepairRow(
        "`object` is not `chat.completion.chunk`.",
        "The chunk is recognised by its fields.",
        "It has the choices of a chunk. Helpers of official SDKs would skip it.",
    ),
    "object-missing-no-choices": RepairRow(
        "`object` is not `chat.completion.chunk` in a chunk without choices and usage.",
        "Its other fields are kept.",
        "Helpers of official SDKs skip it, and lose no content.",
        "notice",
    ),
    "envelope-incomplete": RepairRow(
        "The id, model or creation time is missing when the answer begins.",
        "The writer adds its own.",
        "They are not part of the answer.",
    ),
    "envelope-mistyped": RepairRow(
        "The id, model or creation time has the wrong JSON type.",
        "It is converted.",
        "The value stays the same.",
    ),
    "id-changed": RepairRow(
        "The id changes within one stream.",
        "The first one is used for the whole stream.",
        "One stream is one completion, whatever the ids of its chunks are.",
    ),
    "model-changed": RepairRow(
        "The model changes within one stream.",
        "The first one is used for the whole stream.",
        "The detail of the repair keeps the other name.",
    ),
    "created-changed": RepairRow(
        "The creation time changes within one stream.",
        "The first one is used for the whole stream.",
        "It is a property of the completion, not of its chunks.",
        "notice",
    ),
    "role-missing": RepairRow(
        "A choice begins without a role.",
        "It is `assistant`.",
        "An answer can have no other role.",
    ),
    "role-repeated": RepairRow(
        "The role is sent again.",
        "It is sent once.",
        "A choice has one role. Clients that concatenate strings would get `assistantassistant`.",
        "notice",
    ),
    "content-parts": RepairRow(
        "The content is a list of parts, not a string.",
        "Text parts become text, thinking parts become reasoning, others are kept as extras.",
        "The order is kept and no part is dropped.",
    ),
    "logprobs-mistyped": RepairRow(
        "The log probabilities of a choice are not an object.",
        "They are dropped.",
        "They do not say which token they belong to, and official SDKs fail on them.",
    ),
    "reasoning-differs": RepairRow(
        "Two fields contain reasoning, and they differ.",
        "The first is used, the other is kept as an extra.",
        "Only the provider knows which of them is the reasoning. None is dropped, and the text is not affected.",
    ),
    "text-without-delta": RepairRow(
        "The text is in `text`, as in legacy completions, and not in the content of a delta.",
        "It is read as content.",
        "The choice has no other content.",
    ),
    "message-beside-delta": RepairRow(
        "A choice repeats the whole message, which its deltas already contain.",
        "The deltas are used, the repetition is dropped.",
        "Using both would duplicate the text.",
    ),
    "finish-mapped": RepairRow(
        "The finish reason is a value of another API, or null written as a word.",
        "It is mapped, and the native value is kept; a null finishes nothing.",
        "The values mean the same.",
    ),
    "finish-unknown": RepairRow(
        "The finish reason is not a known value.",
        "It is passed on unchanged: in Responses as the reason of an incomplete response, in Gemini as `OTHER`.",
        "Nothing is invented. A reason that reports a failure, such as `error`, is the fault `provider-error`.",
        "finding",
    ),
    "finish-repeated": RepairRow(
        "A choice has the same finish reason more than once.",
        "It is sent once, at the end.",
        "The reason is the same.",
        "notice",
    ),
    "finish-changed": RepairRow(
        "A choice has two different finish reasons.",
        "The last one is used.",
        "It was sent when more of the answer was known.",
    ),
    "finish-stop-with-tools": RepairRow(
        "A choice with tool calls has the finish reason `stop`.",
        "It becomes `tool_calls`; the native value is kept.",
        "The calls are there. Agents that rely on `stop` would not run them.",
    ),
    "prompt-blocked": RepairRow(
        "The provider blocks the prompt: the answer has a block reason and no candidate.",
        "It is an empty answer with the finish reason `content_filter`; the native value is kept.",
        "The provider has decided that there is no answer. Clients that expect a candidate would fail.",
    ),
    "content-after-finish": RepairRow(
        "A choice continues after its finish reason.",
        "The content is used, and the finish reason is sent at the end.",
        "The provider sent it as part of the same choice.",
    ),
    # Messages, output items and content blocks
    "message-start-missing": RepairRow(
        "Content comes before `message_start`, or before `response.created` of OpenAI Responses.",
        "The message begins with it; the writer adds an id.",
        "The envelope is not part of the answer.",
    ),
    "message-start-repeated": RepairRow(
        "`message_start` or `response.created` is sent again for the same answer.",
        "The first one is used.",
        "It has the same id. Another id would be another answer, which is a fault.",
    ),
    "message-appended": RepairRow(
        "The whole answer, as without streaming, follows the stream that has it already.",
        "The stream is used, the repetition is dropped.",
        "Using both would duplicate the text.",
    ),
    "block-index-missing": RepairRow(
        "An event of a content block or of an output item has no valid index.",
        "It belongs to the item with its id, or to the open block; a start is that of the next block.",
        "One block is open at a time.",
    ),
    "block-start-missing": RepairRow(
        "An event belongs to a content block, or to an output item, that was not started.",
        "Text, reasoning and whole items start a block of their own; anything else is ignored.",
        "The type of an event says what it is. Arguments that stay without their call are a fault.",
    ),
    "block-restarted": RepairRow(
        "A content block or output item is started with the index of an earlier one.",
        "The start ends the earlier one, if it is open, and begins another one.",
        "What was sent before it belongs to the first block, what follows to the second.",
    ),
    "block-unclosed": RepairRow(
        "A content block is not stopped before the next one, or the end of the answer, comes.",
        "It ends there.",
        "Nothing of it follows.",
    ),
    "block-stop-repeated": RepairRow(
        "A content block or output item is stopped again.",
        "The second stop is ignored.",
        "It adds nothing.",
        "notice",
    ),
    "block-text-repeated": RepairRow(
        "The start of a content block has text that its deltas repeat.",
        "The text of the deltas is used.",
        "The deltas begin with exactly that text, so it was sent twice. Text that they do not repeat is kept.",
    ),
    "delta-in-wrong-block": RepairRow(
        "A delta is of another kind than its block: thinking in a block of text, for example.",
        "The block ends, and a block of the delta's kind begins.",
        "The type of the delta says what it is. SDKs fail on such a delta, or lose it.",
    ),
    "delta-unknown": RepairRow(
        "A delta in a block of a known type has a type that is not known.",
        "It is forwarded to clients of the same API only.",
        "Clients ignore types that they do not know.",
        "notice",
    ),
    "event-unknown": RepairRow(
        "An event has a type that is not known.",
        "It is forwarded to clients of the same API only.",
        "Clients ignore types that they do not know.",
        "notice",
    ),
    "event-name-missing": RepairRow(
        "An event has no name in the transport, or another one than the type in its JSON.",
        "The type in the JSON is used, and the event is written with its name; it is reported once per stream.",
        "The type says what the event is. Anthropic's SDKs ignore events without a name, OpenAI's go by the type.",
    ),
    "sequence-missing": RepairRow(
        "An event of OpenAI Responses has no `sequence_number`.",
        "The writer numbers all events; it is reported once per stream.",
        "The order of the events is the order of their arrival.",
        "notice",
    ),
    "sequence-gap": RepairRow(
        "The `sequence_number` of an event does not follow that of the event before it.",
        "The writer numbers all events; it is reported once per stream.",
        "A text is compared with the whole that follows it: if they differ, that is the fault `delta-lost`.",
        "notice",
    ),
    "item-id-changed": RepairRow(
        "The id of an output item changes between its events.",
        "The first one is used; it is reported once per item.",
        "The index names the item. SDKs that go by the id lose such an item.",
    ),
    "items-overlap": RepairRow(
        "An output item starts before the one before it is done.",
        "They are read by their indexes. Text that follows of the earlier one is a part of its own.",
        "Each piece arrives in its order, and none is lost.",
        "notice",
    ),
    "deltas-missing": RepairRow(
        "A text, or the arguments of a call, are longer as a whole than their deltas together.",
        "What the deltas lack is emitted where the whole arrives.",
        "The whole begins with exactly what the deltas had.",
    ),
    "text-differs": RepairRow(
        "A text, or the arguments of a call, do not begin as a whole with what their deltas had.",
        "The deltas are used.",
        "Clients have them already; which of the two the model generated is not known.",
        "finding",
    ),
    "output-missing": RepairRow(
        "The response at the end has an empty `output`, although items were sent.",
        "The items of the stream are used.",
        "Each of them was sent as a whole. SDKs that read the last event only would get an empty answer.",
    ),
    "signature-late": RepairRow(
        "The signature of a thinking block follows the end of the block.",
        "It belongs to the block with its index.",
        "A signature is for exactly one block, and the index names it.",
    ),
    # Tool calls
    "tool-index-missing": RepairRow(
        "A fragment of a tool call has no index.",
        "It belongs to the call with its id, to a new call if it has a new name, or else to the last call.",
        "If more than one call could own it, it is a fault.",
    ),
    "tool-index-mistyped": RepairRow(
        "A tool call's index is not an integer.",
        "It is converted, or read as missing.",
        "The value stays the same.",
    ),
    "tool-index-reused": RepairRow(
        "Two tool calls have the same index.",
        "A new id with a name, or a new name after complete arguments, starts a new call.",
        "Fragments that could belong to either are a fault.",
    ),
    "tool-index-drifting": RepairRow(
        "The index changes within one tool call.",
        "It belongs to the call with its id, or to the only call that is not complete.",
        "A fragment without id and name cannot start a call.",
    ),
    "tool-index-renumbered": RepairRow(
        "Tool calls are not numbered 0, 1, 2 …",
        "They are renumbered in the order in which they began.",
        "Clients use the index as a position in a list.",
    ),
    "tool-id-missing": RepairRow(
        "A tool call has no id.",
        "The writer generates one.",
        "The id only links a call to its result.",
    ),
    "tool-id-repeated": RepairRow(
        "A tool call's id is sent again.",
        "It is sent once.",
        "Clients that concatenate strings would get the id twice.",
    ),
    "tool-id-changed": RepairRow(
        "A tool call's id changes between its fragments.",
        "The first one is used.",
        "The fragments have no new name, so they belong to the same call.",
    ),
    "tool-id-duplicate": RepairRow(
        "Two tool calls have the same id.",
        "Both are kept, each with that id; of Gemini, Ollama, Cohere and Bedrock, the second one with a new id.",
        "Each is complete, and their arguments differ. An exact repetition of a call is sent once.",
    ),
    "tool-name-repeated": RepairRow(
        "A tool call's name is sent again.",
        "It is sent once.",
        "The name is the same, or the fragment continues it under the same id.",
    ),
    "tool-arguments-object": RepairRow(
        "A tool call's arguments are a JSON object, not a string.",
        "The object is serialised as JSON text.",
        "Parsing the text gives the same object.",
    ),
    "tool-arguments-text": RepairRow(
        "A tool call's arguments are text, in an API where they are a JSON object.",
        "The text is passed on.",
        "It is what the object would be written as.",
        "finding",
    ),
    "tool-arguments-broken": RepairRow(
        "A tool call's arguments are not complete JSON although its choice has finished.",
        "They are passed on unchanged.",
        "Completing them would invent arguments; the client must see that they are broken.",
        "finding",
    ),
    # What models write wrong. These are only repaired for routes with `repair_tool_arguments`.
    "model-json-tokens": RepairRow(
        "Special tokens of the model, such as `<|im_end|>` or `</tool_call>`, follow the JSON of a call or an answer.",
        "The tokens are removed.",
        _ONE_READING,
        seen=("ollama/ollama#14180", "NousResearch/hermes-agent#81765"),
    ),
    "model-json-fenced": RepairRow(
        "The JSON of a call or an answer is in a code fence.",
        "The fence is removed.",
        _ONE_READING,
        seen=("earendil-works/pi#8858", "langchain-ai/langchain#33012"),
    ),
    "model-json-escaped": RepairRow(
        "The JSON of a call or an answer is escaped once more: it is a JSON string that holds an object.",
        "The object in the string is used.",
        _ONE_READING,
        seen=("quarkiverse/quarkus-langchain4j#2642", "vllm-project/vllm#54964", "livekit/agents#5409"),
    ),
    "model-json-python": RepairRow(
        "The JSON of a call or an answer has strings in single quotes, or `True`, `False` and `None`, as in Python.",
        "They are written as JSON.",
        _ONE_READING,
        seen=("waybarrios/vllm-mlx#63", "QwenLM/qwen-code#288"),
    ),
    "model-json-commas": RepairRow(
        "The JSON of a call or an answer has commas before closing brackets.",
        "The commas are removed.",
        _ONE_READING,
        seen=("bytedance/deer-flow#2368", "MatterAIOrg/OrbCode#52"),
    ),
    "model-json-unclosed": RepairRow(
        "The JSON of a call or an answer lacks closing brackets or its last quote, although the model was done.",
        "They are added.",
        _ONE_READING,
        seen=("ollama/ollama#17565", "vllm-project/vllm#22885", "NousResearch/hermes-agent#102311"),
    ),
    "model-call-tagged": RepairRow(
        "A tool call is in the text of the answer, as `<tool_call>{…}</tool_call>` (Hermes, Qwen).",
        _IS_CALL,
        _ONE_CALL,
        seen=("NVIDIA/NemoClaw#2731", "NousResearch/hermes-agent#742"),
    ),
    "model-call-listed": RepairRow(
        "Tool calls are in the text of the answer, as `[TOOL_CALLS] [{…}]` (Mistral).",
        _IS_CALL,
        _ONE_CALL,
        seen=("theroyallab/tabbyAPI#314", "vllm-project/vllm#5649"),
    ),
    "model-call-python-tag": RepairRow(
        "A tool call is in the text of the answer, as `<|python_tag|>{…}` (Llama 3).",
        _IS_CALL,
        _ONE_CALL,
        seen=("raullenchai/Rapid-MLX#703",),
    ),
    "model-call-function-tag": RepairRow(
        "A tool call is in the text of the answer, as `<function=name>{…}</function>` (Llama).",
        _IS_CALL,
        _ONE_CALL,
        seen=("raullenchai/Rapid-MLX#703",),
    ),
    "model-call-fenced": RepairRow(
        "A tool call is in the text of the answer, as an object in a code fence of `json`.",
        _IS_CALL,
        _ONE_CALL,
        seen=("1CatAI/1Cat-vLLM#26",),
    ),
    # Continuations, only on routes with `continue`
    "continuation-echo": RepairRow(
        "The model that goes on with an answer repeats all of it first.",
        "The repetition is removed.",
        "It is the whole text that the client has, character by character, and has at least three words.",
    ),
    "continuation-overlap": RepairRow(
        "The model that goes on with an answer repeats the last words of it first.",
        "The repetition is removed.",
        "It has at least 16 characters and three words, the last ones that the client has, and it has them once.",
    ),
    # Usage
    "usage-placeholder": RepairRow(
        "A usage report has only zeros.",
        "It is ignored.",
        "No answer uses zero tokens; a report with other values is used, whether it comes before or after.",
    ),
    "usage-incomplete": RepairRow(
        "The usage lacks its total or its details, which OpenAI Responses always have.",
        "The total is the sum, and a missing detail is unknown; the writer adds them.",
        "Input and output are there. Codex fails on usage without them.",
    ),
    "usage-mistyped": RepairRow(
        "A count in the usage is a string or a fraction.",
        "It is converted if it is a whole number. Clients of the gateway do not get another one.",
        "The value stays the same, and the library keeps the raw object.",
    ),
    "usage-absurd": RepairRow(
        "A count in the usage is negative or impossibly large.",
        "Clients of the gateway do not get the report, and the ledger estimates. The library keeps it as it was sent.",
        "The value is the provider's; the repair warns everyone who bills by it.",
    ),
    "usage-total-differs": RepairRow(
        "The total is not the sum of input and output.",
        "Clients of the gateway get the sum as the total; for an output of 0, the rest of the total as the output. The "
        "library keeps all three as they were sent.",
        "The values are the provider's; the repair warns everyone who bills by them.",
    ),
    "usage-reasoning-apart": RepairRow(
        "The output does not include the reasoning tokens: the total is input, output and reasoning.",
        "All are kept as they were sent.",
        "The values are the provider's; the billable output is output and reasoning together.",
        "finding",
    ),
    "usage-details-apart": RepairRow(
        "The input does not include its cached, cache-write or audio tokens: only with them does the total add up.",
        "All are kept as they were sent.",
        "The values are the provider's; the billable input is input and those parts together.",
        "finding",
    ),
    "usage-details-exceed": RepairRow(
        "A part is larger than its whole (cached over input, reasoning over output), and is not in the total.",
        "Clients of the gateway get the whole without the part, which is not billed. The library keeps both as sent.",
        "The total contradicts the part, and providers bill by their totals.",
    ),
    "ignored-after-fault": RepairRow(
        "The stream continues after it failed.",
        "Only its usage is read.",
        "What follows a gap is not the answer.",
        "finding",
    ),
}

NOTICES = frozenset(code for code, row in REPAIRS.items() if row.level == "notice")
FINDINGS = frozenset(code for code, row in REPAIRS.items() if row.level == "finding")


def level_of(code: str) -> Level:
    """The level of a repair; one that only a later version knows is taken for a repair."""
    return REPAIRS[code].level if code in REPAIRS else "repair"


def by_level(counts: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Counts by code, apart: those of repairs, of findings, and of notices."""
    if not counts:  # nearly always
        return {}, {}, {}
    levels: dict[Level, dict[str, int]] = {"repair": {}, "finding": {}, "notice": {}}
    for code, count in counts.items():
        levels[level_of(code)][code] = count
    return levels["repair"], levels["finding"], levels["notice"]


FAULTS: dict[str, RepairRow] = {
    "provider-error": RepairRow(
        "The provider reports an error.",
        "Its message is reported; the ending is `failed`.",
        "An error is an error, whatever finish reason comes with it.",
    ),
    "bad-json": RepairRow(
        "An event's data is not JSON and cannot be split into JSON.",
        "The stream fails.",
        "Dropping the event would lose text silently.",
    ),
    "bad-shape": RepairRow(
        "A field that contains the answer has a type that cannot be read.",
        "The stream fails.",
        "Converting it would be a guess at what the model generated.",
    ),
    "delta-lost": RepairRow(
        "The numbers of the events have a gap, and the whole text that follows is not that of the deltas.",
        "The stream fails. An answer that is not streamed to its client gets the whole text instead.",
        "A part of the text is missing, and the client has got the text after it.",
    ),
    "not-a-stream": RepairRow(
        "There is plain text where an event should be.",
        "The text is reported; the stream fails.",
        "It is an error message of a server or a proxy, not the model's answer.",
    ),
    "html-page": RepairRow(
        "There is an HTML page where a stream should be.",
        "The text of the page is reported; the stream fails.",
        "Proxies send such pages when the provider does not answer.",
    ),
    "binary": RepairRow(
        "The bytes are compressed or otherwise binary.",
        "The stream fails.",
        "It was labelled wrongly; decompress it first.",
    ),
    "event-stream-damaged": RepairRow(
        "A message of an AWS event stream has a wrong checksum, or lengths or headers that cannot be read.",
        "The stream fails, and no more of it is read.",
        "Where the next message begins would be a guess.",
    ),
    "event-too-large": RepairRow(
        "An event exceeds the limit (1 MB by default).",
        "The stream fails, and no more of it is read.",
        "Memory per stream is bounded.",
    ),
    "event-too-complex": RepairRow(
        "An event would take over 20 ms to parse: thousands of choices, parts or glued objects, a hundred thousand "
        "keys or brackets, numbers of hundreds of digits.",
        "The stream fails.",
        "One stream must not delay the others.",
    ),
    "empty-stream": RepairRow(
        "The stream ends without an answer: it is empty, or has only comments, `[DONE]` or usage.",
        "The stream fails.",
        "A provider that sends no content has not answered.",
    ),
    "other-dialect": RepairRow(
        "The events are of another API's dialect.",
        "The dialect is named; the stream fails.",
        "Reading it as the expected dialect would lose all of it.",
    ),
    "tool-call-ambiguous": RepairRow(
        "A fragment of a tool call could belong to more than one call, or continues a call that was complete.",
        "The stream fails.",
        "A guess could run a tool with another call's arguments.",
    ),
    "tool-call-unnamed": RepairRow(
        "A tool call never gets a name.",
        "The stream fails.",
        "It is not known which tool to run.",
    ),
}
