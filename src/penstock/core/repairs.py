"""The table of defects: every departure that Penstock tolerates, and every one that it refuses.

`REPAIRS` are tolerated: each row says what is wrong, what is done about it, and why that cannot change what the model
said. Its level tells them apart:

- a `repair`: a client that reads the stream by the book, without it, may lose or double something, or fail.
- a `notice`: a harmless habit of providers. Such a client gets the same answer, calls, finish reason and usage from the
  bytes as they are. (`tests/core/test_levels.py` reads the captures of all notices in that way.)

`FAULTS` are refused: going on would mean guessing. `docs/reference/repairs.md` is generated from this table, and
`tests/captures/` holds one small capture per row.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

Level: TypeAlias = Literal["notice", "repair"]


class RepairRow(Struct, frozen=True):
    """One row: what is wrong, what is done, why that is safe; and whether it matters."""

    wrong: str
    done: str
    safe: str
    level: Level = "repair"


REPAIRS: dict[str, RepairRow] = {
    # Framing
    "bom": RepairRow(
        "A byte order mark stands before the first event.",
        "It is skipped.",
        "It is not part of any event; the standard skips it too.",
        "notice",
    ),
    "missing-blank-line": RepairRow(
        "There is no blank line between two events.",
        "A `data:` line that follows whole JSON opens a new event.",
        "Two JSON objects cannot be one: where the first one's brackets close, it ends.",
    ),
    "blank-line-with-spaces": RepairRow(
        "The line between two events is not blank but holds white space.",
        "It is read as blank.",
        "White space carries nothing.",
    ),
    "json-on-next-line": RepairRow(
        "`data:` stands alone; its JSON is on the next line, without a prefix.",
        "That line is the data.",
        "An empty event has no meaning, and the line is whole JSON on its own.",
    ),
    "unprefixed-continuation": RepairRow(
        "The JSON of an event goes on in lines without `data:`.",
        "The lines are joined until the JSON is whole.",
        "The joined text must parse as one JSON value; otherwise it is refused.",
    ),
    "no-data-prefix": RepairRow(
        "An event's JSON stands on a line without `data:`.",
        "It is read as an event.",
        "The line is whole JSON; a strict reader would lose it silently.",
    ),
    "json-lines": RepairRow(
        "The stream is JSON lines, without SSE framing.",
        "Each line is an event.",
        "Each line is whole JSON.",
    ),
    "json-array": RepairRow(
        "The stream is one JSON array, without SSE framing.",
        "Each element is an event.",
        "The elements are the same objects that events would carry.",
    ),
    "array-unclosed": RepairRow(
        "The JSON array that holds the stream is not closed.",
        "Its elements stand.",
        "Every element is whole; the ending still depends on the finish reasons.",
    ),
    "no-final-blank-line": RepairRow(
        "The last event lacks its blank line.",
        "It is read all the same.",
        "Its JSON is whole.",
    ),
    "no-final-newline": RepairRow(
        "The last line lacks its newline.",
        "It is read all the same.",
        "Its JSON is whole; a line that is not whole counts as cut.",
    ),
    "field-misspelled": RepairRow(
        "A field's name is indented or in capitals.",
        "It is read as the field that it is.",
        "No other field has that name.",
    ),
    "unknown-field": RepairRow(
        "A line has a field that server-sent events do not know.",
        "It is ignored, as the standard says, and counted.",
        "Chat-completion streams carry everything in `data:`.",
    ),
    "error-field": RepairRow(
        "An error comes in an SSE field of its own, `error:`.",
        "It is read as an error event.",
        "A strict reader ignores it and takes the cut for success.",
    ),
    "glued-events": RepairRow(
        "Several JSON objects stand in one event.",
        "They are read one after another.",
        "Each parses whole, and nothing stands between them.",
    ),
    "data-prefix-twice": RepairRow(
        "The data begins with a second `data:`.",
        "It is skipped.",
        "No JSON value begins so.",
    ),
    "empty-event": RepairRow(
        "An event has no data, or null or a bare number, string or truth value in place of an object.",
        "It is skipped.",
        "It has no choices, so it says nothing.",
    ),
    "invalid-utf8": RepairRow(
        "A string holds bytes that are not UTF-8.",
        "They are replaced by U+FFFD.",
        "The rest of the chunk is kept; the damage stays visible.",
    ),
    "raw-control-character": RepairRow(
        "A string holds a control character that JSON wants escaped.",
        "It is read as that character, a line end of any kind as a newline.",
        "There is no other meaning it could have.",
    ),
    "non-finite-number": RepairRow(
        "A number is NaN or infinite, which JSON does not know.",
        "It is read as such and written as null.",
        "It occurs in figures such as log probabilities, never in text.",
    ),
    "split-surrogate": RepairRow(
        "A character is escaped in two halves that stand in two deltas.",
        "The halves are joined.",
        "Neither half is a character; together they are exactly one.",
    ),
    "lone-surrogate": RepairRow(
        "Half an escaped character stands alone.",
        "It is replaced by U+FFFD.",
        "No character is lost that was ever whole.",
    ),
    # The end of the stream
    "no-done": RepairRow(
        "There is no `[DONE]`.",
        "The end of the bytes is the end.",
        "Every choice that began has its finish reason.",
    ),
    "done-misspelled": RepairRow(
        "`[DONE]` is quoted, padded or in other letters.",
        "It is read as `[DONE]`.",
        "The whole data is compared, never a part of it.",
    ),
    "done-repeated": RepairRow(
        "`[DONE]` comes more than once.",
        "The first one counts.",
        "It says nothing new.",
        "notice",
    ),
    "data-after-done": RepairRow(
        "Events follow `[DONE]`.",
        "They are read like any other; but half an event at the end of the bytes is left.",
        "Some providers send the usage there. What `[DONE]` ended is whole without it.",
    ),
    # Chunks and choices
    "keepalive-event": RepairRow(
        "A heartbeat is sent as an event.",
        "It is skipped.",
        "It has no choices, no usage and no error.",
    ),
    "choices-missing": RepairRow(
        "`choices` is null, absent or no list in a chunk.",
        "An object is read as the only choice, all else as no choice.",
        "Nothing else in a chunk carries what the model says.",
    ),
    "choice-index-missing": RepairRow(
        "A choice has no usable index.",
        "Its place in the list is its index.",
        "Providers that leave it out send one choice.",
    ),
    "delta-missing": RepairRow(
        "A choice has no delta.",
        "It is read as an empty one; its other fields are kept.",
        "Nothing was said in it.",
    ),
    "object-missing": RepairRow(
        "`object` is not `chat.completion.chunk`.",
        "The chunk is read by its shape.",
        "It has the choices of one; helpers of official SDKs skip it whole.",
    ),
    "object-missing-no-choices": RepairRow(
        "`object` is not `chat.completion.chunk` in a chunk without choices and usage.",
        "Its other fields are kept.",
        "Helpers of official SDKs skip it, and miss nothing that the model says.",
        "notice",
    ),
    "envelope-incomplete": RepairRow(
        "The stream has no id, model or creation time when the answer begins.",
        "The writer puts its own in their place.",
        "They do not touch the answer.",
    ),
    "envelope-mistyped": RepairRow(
        "The id, model or creation time has the wrong JSON type.",
        "It is converted.",
        "The value stays the same.",
    ),
    "id-changed": RepairRow(
        "The id changes within one stream.",
        "The first one stands for the whole stream.",
        "One stream is one completion, whatever its chunks are called.",
    ),
    "model-changed": RepairRow(
        "The model changes within one stream.",
        "The first one stands for the whole stream.",
        "The detail of the repair keeps the other name.",
    ),
    "created-changed": RepairRow(
        "The creation time changes within one stream.",
        "The first one stands for the whole stream.",
        "It is a property of the completion, not of its chunks.",
        "notice",
    ),
    "role-missing": RepairRow(
        "A choice begins without a role.",
        "It is the assistant's.",
        "No other role can answer.",
    ),
    "role-repeated": RepairRow(
        "The role is sent again.",
        "It is told once.",
        "A choice has one role; clients that add strings up get `assistantassistant`.",
        "notice",
    ),
    "content-parts": RepairRow(
        "The content is a list of parts, not a string.",
        "Text parts become text, thinking parts reasoning, others are kept as extras.",
        "The order is kept and no part is dropped.",
    ),
    "logprobs-mistyped": RepairRow(
        "The log probabilities of a choice are not an object.",
        "They are dropped.",
        "They say nothing about which token they belong to, and official SDKs break on them.",
    ),
    "reasoning-differs": RepairRow(
        "Two fields hold reasoning, and not the same.",
        "The first is told, the other kept as an extra.",
        "Which of them is the model's thinking only the provider knows; none is dropped, and text is not touched.",
    ),
    "text-without-delta": RepairRow(
        "Text stands in `text`, as in legacy completions, and not in the content of a delta.",
        "It is read as the content.",
        "It is all that the choice says.",
    ),
    "message-beside-delta": RepairRow(
        "A choice repeats the whole message although deltas carry it.",
        "The deltas count, the repetition is dropped.",
        "Reading both would double the text.",
    ),
    "finish-mapped": RepairRow(
        "The finish reason is another API's word, or null written as a word.",
        "It is mapped, the native word kept; a null finishes nothing.",
        "The words mean the same.",
    ),
    "finish-unknown": RepairRow(
        "The finish reason is none that is known.",
        "It is passed on as it is.",
        "Nothing is invented.",
    ),
    "finish-repeated": RepairRow(
        "A choice is finished more than once, with the same reason.",
        "It is finished once, at the end.",
        "The reason is the same.",
        "notice",
    ),
    "finish-changed": RepairRow(
        "A choice is finished again with another reason.",
        "The last one counts.",
        "It was said with more of the answer known.",
    ),
    "finish-stop-with-tools": RepairRow(
        "A choice that calls tools is finished with `stop`.",
        "The reason becomes `tool_calls`; the native word is kept.",
        "The calls are there; agents that trust `stop` would not run them.",
    ),
    "content-after-finish": RepairRow(
        "A choice goes on after its finish reason.",
        "What it says counts; the finish is told at the end.",
        "Text is text wherever it stands.",
    ),
    # Tool calls
    "tool-index-missing": RepairRow(
        "A piece of a tool call has no index.",
        "It belongs to the call of its id, to a new call if it brings a new name, else to the last call.",
        "Where more than one call could own it, it is refused.",
    ),
    "tool-index-mistyped": RepairRow(
        "A tool call's index is not an integer.",
        "It is converted, or read as missing.",
        "The value stays the same.",
    ),
    "tool-index-reused": RepairRow(
        "Two tool calls share one index.",
        "A new id with a name, or a new name after whole arguments, opens a new call.",
        "Pieces that could belong to either are refused.",
    ),
    "tool-index-drifting": RepairRow(
        "The index changes within one tool call.",
        "The id, or being the only unfinished call, decides.",
        "A piece without id and name cannot begin a call.",
    ),
    "tool-index-renumbered": RepairRow(
        "Tool calls are not numbered 0, 1, 2 …",
        "They are renumbered in the order in which they began.",
        "Clients use the index as a place in a list.",
    ),
    "tool-id-missing": RepairRow(
        "A tool call has no id.",
        "The writer gives it one.",
        "The id only links a call to its result.",
    ),
    "tool-id-repeated": RepairRow(
        "A tool call's id is sent again.",
        "It is told once.",
        "Clients that add strings up get the id twice.",
    ),
    "tool-id-changed": RepairRow(
        "A tool call's id changes on the way.",
        "The first one counts.",
        "The pieces bring no new name, so they are the same call.",
    ),
    "tool-id-duplicate": RepairRow(
        "Two tool calls have the same id.",
        "Both are kept, each with that id.",
        "Each is whole and their arguments differ; a call that is merely said again is told once.",
    ),
    "tool-name-repeated": RepairRow(
        "A tool call's name is sent again.",
        "It is told once.",
        "The name is the same, or a later part of it under the same id.",
    ),
    "tool-arguments-object": RepairRow(
        "A tool call's arguments are a JSON object, not a string.",
        "The object is written as JSON text.",
        "Parsing the text gives the same object.",
    ),
    "tool-arguments-broken": RepairRow(
        "A tool call's arguments are not whole JSON although its choice is finished.",
        "They are passed on exactly as they are.",
        "Closing them would invent arguments; the client must see that they are broken.",
    ),
    # Usage
    "usage-placeholder": RepairRow(
        "A usage report holds nothing but zeros.",
        "It is ignored.",
        "No answer costs nothing; a report with figures counts whether it comes before or after.",
    ),
    "usage-mistyped": RepairRow(
        "A count in the usage is a string or a fraction.",
        "It is converted where it is a whole number.",
        "The value stays the same; the raw object is kept.",
    ),
    "usage-absurd": RepairRow(
        "A count in the usage is negative or beyond any model.",
        "It is kept as it was sent.",
        "The figure is the provider's; who bills by it is warned.",
    ),
    "usage-total-differs": RepairRow(
        "The total is not the sum of input and output.",
        "All three are kept as they were sent.",
        "The figures are the provider's; who bills by them is warned.",
    ),
    "usage-reasoning-apart": RepairRow(
        "The output does not include the reasoning tokens: the total is input, output and reasoning.",
        "All are kept as they were sent.",
        "The figures are the provider's; the billable output is output and reasoning together.",
    ),
    "usage-details-apart": RepairRow(
        "The input does not include its cached, cache-write or audio tokens: only with them does the total add up.",
        "All are kept as they were sent.",
        "The figures are the provider's; the billable input is input and those parts together.",
    ),
    "usage-details-exceed": RepairRow(
        "A part is larger than its whole (cached over input, reasoning over output), and not in the total.",
        "Both are kept as they were sent. The part is not billed: the whole is, at its own rate.",
        "The total contradicts the part, and providers bill by their totals.",
    ),
    "ignored-after-fault": RepairRow(
        "The stream goes on after it failed.",
        "Only its usage is still read.",
        "What follows a gap is not the answer.",
    ),
}

NOTICES = frozenset(code for code, row in REPAIRS.items() if row.level == "notice")


def level_of(code: str) -> Level:
    """The level of a repair; one that only a later version knows is taken for a repair."""
    return "notice" if code in NOTICES else "repair"


def by_level(counts: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """Counts by code, apart: those of repairs, and those of notices."""
    if not counts:  # nearly always
        return {}, {}
    repairs = {code: count for code, count in counts.items() if code not in NOTICES}
    return repairs, {code: count for code, count in counts.items() if code in NOTICES}


FAULTS: dict[str, RepairRow] = {
    "provider-error": RepairRow(
        "The provider says that it failed.",
        "Its own words are reported; the ending is `failed`.",
        "An error is an error whatever finish reason stands beside it.",
    ),
    "bad-json": RepairRow(
        "An event's data is not JSON and cannot be split into JSON.",
        "The stream has failed.",
        "Dropping the event would lose text without a trace.",
    ),
    "bad-shape": RepairRow(
        "A field that carries the answer has a type that cannot be read as what it should be.",
        "The stream has failed.",
        "Converting it would be a guess at what the model said.",
    ),
    "not-a-stream": RepairRow(
        "There is plain text where an event should be.",
        "The text is reported; the stream has failed.",
        "It is somebody's error message, not the model's answer.",
    ),
    "html-page": RepairRow(
        "There is an HTML page where a stream should be.",
        "The page's words are reported; the stream has failed.",
        "Proxies answer so when the provider does not.",
    ),
    "binary": RepairRow(
        "The bytes are compressed or otherwise binary.",
        "The stream has failed.",
        "It was labelled wrongly; decompress it first.",
    ),
    "event-too-large": RepairRow(
        "An event exceeds the cap (1 MB by default).",
        "The stream has failed and no more of it is read.",
        "Memory per stream is bounded.",
    ),
    "event-too-complex": RepairRow(
        "An event holds too much to be read in 20 ms: thousands of choices, parts or glued objects, a hundred thousand "
        "keys or brackets, numbers of hundreds of digits.",
        "The stream has failed.",
        "No event of one stream holds up the others.",
    ),
    "empty-stream": RepairRow(
        "The stream ends without any answer: it is empty, or only comments, `[DONE]` or usage.",
        "The stream has failed.",
        "A provider that says nothing has not answered.",
    ),
    "other-dialect": RepairRow(
        "The events are of another API's dialect.",
        "The dialect is named; the stream has failed.",
        "Reading it as chat completions would lose all of it.",
    ),
    "tool-call-ambiguous": RepairRow(
        "A piece of a tool call could belong to more than one call.",
        "The stream has failed.",
        "A guess could run a tool with another call's arguments.",
    ),
    "tool-call-unnamed": RepairRow(
        "A tool call never gets a name.",
        "The stream has failed.",
        "Nobody can tell which tool to run.",
    ),
}
