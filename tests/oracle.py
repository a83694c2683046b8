"""The oracle: what a chat-completion stream says, worked out the simplest way that can be believed by reading it.

The tests judge Penstock's reader by this file, so it shares nothing with it: standard library only, the whole file at
once, no framing, no state machine, no provider's name. It answers *what* was said, not how badly it was framed.

1. JSON forbids raw line ends inside strings. So every line end is framing, a `data:` at the start of a line is framing,
   and once those are stripped each `{` outside an object opens the next payload. Whatever stands between two payloads
   (`event:`, `[DONE]`, commas of an array) is the *gap* before the second one.
2. A payload that does not parse is *cut* if the file ends in it, and *damaged* if anything follows, were it only the
   blank line that ends an event. Cut is truncated, damaged is failed; after damage only the ending is worth comparing.
3. Words are concatenated, never corrected; the last value wins; numbers are never added.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Literal

Ending = Literal["completed", "truncated", "failed"]
Json = dict[str, object]

# Our word for theirs, theirs in lower case; a word that is not here stays as it came.
FINISH_REASONS: dict[str, tuple[str, ...]] = {
    "stop": ("stop", "eos", "eos_token", "end_turn", "stop_sequence", "completed"),
    "length": ("length", "max_tokens", "model_length", "max_output_tokens", "max_length"),
    "tool_calls": ("tool_calls", "tool_call", "tool_use"),
    "content_filter": ("content_filter", "content_filtered", "safety", "recitation", "prohibited_content", "blocklist"),
}

# For each figure, where it may stand in a usage object; the first place that holds a number counts.
USAGE_PATHS: dict[str, tuple[str, ...]] = {
    "input": ("prompt_tokens", "input_tokens"),
    "output": ("completion_tokens", "output_tokens"),
    "total": ("total_tokens",),
    "cached": (
        "prompt_tokens_details.cached_tokens",
        "input_tokens_details.cached_tokens",
        "cached_tokens",
        "num_cached_tokens",
        "prompt_cache_hit_tokens",
        "cache_read_input_tokens",
    ),
    "reasoning": (
        "completion_tokens_details.reasoning_tokens",
        "output_tokens_details.reasoning_tokens",
        "reasoning_tokens",
    ),
}

# What ends a payload that does not parse: a blank line, a line that opens another, or a `data:` in its middle.
NEXT_PAYLOAD = re.compile(r'\n([ \t]*\n|\{|"?\[DONE\])|data:[ \t]*\{')


@dataclass(frozen=True, slots=True)
class ExpectedCall:
    """One tool call; `id` is empty where the provider gave none."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ExpectedChoice:
    """What one choice said, and how it ended in our word and in the provider's."""

    text: str
    reasoning: str
    refusal: str
    calls: tuple[ExpectedCall, ...]
    finish: str | None
    native_finish: str | None


@dataclass(frozen=True, slots=True)
class ExpectedUsage:
    """The provider's last figures; None where it never gave one."""

    input: int | None = None
    output: int | None = None
    total: int | None = None
    cached: int | None = None
    reasoning: int | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """Everything that a right reader gets from one file."""

    choices: dict[int, ExpectedChoice]
    usage: ExpectedUsage | None
    error: object | None  # the provider's first error, in its own shape
    ending: Ending
    done: bool  # `[DONE]` was there
    cut: bool
    damaged: bool
    payloads: int


@dataclass(slots=True)
class Call:
    """A tool call being put together."""

    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class Choice:
    """A choice being put together."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: list[Call] = field(default_factory=list)
    open_at: dict[object, Call] = field(default_factory=dict)  # index: the call that its fragments go to
    native_finish: str | None = None
    message: Json | None = None


def expect(data: bytes) -> Expected:
    """Reads a whole file of any framing."""
    payloads, last_gap, cut, damaged = split(data)
    choices: dict[int, Choice] = {}
    usage: dict[str, int] = {}
    error: object | None = None
    chunks = 0
    for gap, payload in [*payloads, (last_gap, Json())]:
        error = find_error(gap, payload) if error is None else error
        chunks += "choices" in payload or "usage" in payload
        for position, entry in enumerate(objects(payload.get("choices"))):
            index = entry.get("index")
            fold(choices.setdefault(index if isinstance(index, int) else position, Choice()), entry)
        for holder in [*objects(payload.get("choices")), payload.get("x_groq"), payload]:
            usage.update(figures(holder.get("usage")) if isinstance(holder, dict) else {})
    if error is None and not chunks:  # an error body of a shape of its own, where the chunks should be
        error = next((payload for _, payload in payloads if "message" in payload or "detail" in payload), None)
    expected = {index: settle(choice) for index, choice in sorted(choices.items())}
    whole = bool(expected) and all(choice.finish for choice in expected.values()) and not cut
    ending: Ending = "completed" if whole else "truncated"
    if error is not None or damaged or not (chunks or cut):
        ending = "failed"
    return Expected(
        choices=expected,
        usage=ExpectedUsage(**usage) if usage else None,
        error=error,
        ending=ending,
        done="[DONE]" in last_gap or any("[DONE]" in gap for gap, _ in payloads),
        cut=cut,
        damaged=damaged,
        payloads=len(payloads),
    )


def split(data: bytes) -> tuple[list[tuple[str, Json]], str, bool, bool]:
    """Every top-level JSON object with the gap before it, the last gap, and whether one was cut or damaged."""
    text = re.sub(r"\r\n?", "\n", data.decode("utf-8-sig", "replace"))
    text = re.sub(r"(?m)^:.*$", "", text)  # comments
    text = re.sub(r"(?m)^(data:[ \t]*)+", "", text)
    found: list[tuple[str, Json]] = []
    position, damaged = 0, False
    while (start := text.find("{", position)) >= 0:
        gap = text[position:start]
        try:
            payload, position = json.JSONDecoder().raw_decode(text, start)
            found.append((gap, payload))
        except ValueError:
            following = NEXT_PAYLOAD.search(text, start + 1)
            if following is None and re.match(r'\{\s*("|$)', text[start:]):
                return found, gap, True, damaged
            position, damaged = following.start() if following else len(text), True
    return found, text[position:], False, damaged


def find_error(gap: str, payload: Json) -> object | None:
    """The error that a payload, or the gap before it, reports."""
    if payload.get("error") is not None:
        return payload["error"]
    if sent_text := re.search(r"(?m)^(?:event:[ \t]*error[ \t]*\n|error:)[ \t]*(.*)$", gap):
        return sent_text[1] or payload or None  # bare words, or the object that follows
    if payload.get("object") == "error":
        return payload
    status = payload.get("base_resp")
    if isinstance(status, dict) and status.get("status_code") not in (0, None):
        return status
    for entry in objects(payload.get("choices")):
        if entry.get("error") is not None:
            return entry["error"]
        if entry.get("finish_reason") == "error":
            return entry
    return None


def fold(choice: Choice, entry: Json) -> None:
    """Adds one entry of `choices` to the choice it belongs to."""
    delta, message, finish = entry.get("delta"), entry.get("message"), entry.get("finish_reason")
    if isinstance(delta, dict):
        add(choice, delta)
    if isinstance(message, dict):
        choice.message = message
    if isinstance(finish, str) and finish:
        choice.native_finish = finish


def add(choice: Choice, delta: Json) -> None:
    """Adds what one delta, or one whole message, says."""
    content = delta.get("content")
    choice.text += string(content)
    for part in objects(content):
        choice.text += string(part.get("text"))
        thinking = part.get("thinking")
        choice.reasoning += string(thinking) + "".join(string(piece.get("text")) for piece in objects(thinking))
    copies = [string(delta.get(name)) for name in ("reasoning_content", "reasoning", "thinking")]
    details = [string(part.get("text") or part.get("summary")) for part in objects(delta.get("reasoning_details"))]
    choice.reasoning += next((copy for copy in copies if copy), "".join(details))
    choice.refusal += string(delta.get("refusal"))
    for part in objects(delta.get("tool_calls")):
        add_call(choice, part.get("index"), string(part.get("id")), part.get("function"))
    add_call(choice, "function_call", "", delta.get("function_call"))


def add_call(choice: Choice, index: object, call_id: str, function: object) -> None:
    """Adds one fragment of a tool call to the call it belongs to."""
    if not isinstance(function, dict):
        return
    name, arguments = string(function.get("name")), function.get("arguments")
    last = choice.calls[-1] if choice.calls else None
    call = last if index is None else choice.open_at.get(index)
    another_id = call is not None and call_id not in ("", call.id)
    another_name = index is None and not call_id
    if call is None or (name and (another_id or another_name)):
        call = Call()
        choice.calls.append(call)
    choice.open_at[index] = call
    call.id = call.id or call_id
    call.name = call.name or name
    call.arguments += json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, dict) else string(arguments)


def settle(choice: Choice) -> ExpectedChoice:
    """The choice as it stands at the end of the file."""
    sent_text = choice.text or choice.reasoning or choice.refusal or choice.calls
    if choice.message is not None and not sent_text:
        add(choice, choice.message)
    native = choice.native_finish
    finish = next((ours for ours, theirs in FINISH_REASONS.items() if native and native.lower() in theirs), native)
    return ExpectedChoice(
        text=joined(choice.text),
        reasoning=joined(choice.reasoning),
        refusal=joined(choice.refusal),
        calls=tuple(ExpectedCall(call.id, call.name, joined(call.arguments)) for call in choice.calls),
        finish="tool_calls" if finish == "stop" and choice.calls else finish,
        native_finish=native,
    )


def figures(usage: object) -> dict[str, int]:
    """The numbers of one usage object; none if all are zero, for then it is a placeholder."""
    found: dict[str, int] = {}
    for name, paths in USAGE_PATHS.items():
        for path in reversed(paths):
            value = usage
            for key in path.split("."):
                value = value.get(key) if isinstance(value, dict) else None
            if isinstance(value, int):
                found[name] = value
    return found if any(found.values()) else {}


def objects(value: object) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def string(value: object) -> str:
    return value if isinstance(value, str) else ""


def joined(text: str) -> str:
    """Joins surrogate halves that came in two deltas; a half alone becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
