"""Answers whose parts take turns: text, reasoning and up to five tool calls, as a provider of any API interleaves them.

Each client's API is read here by the plainest reader that its specification allows, which knows nothing of ours: it
gathers pieces by the index or id that they name, and reports everything that comes outside of its block.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Literal, NamedTuple

from penstock import StreamReader, StreamWriter
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.hub.blocks import Blocks
from penstock.core.hub.events import BlockEnd, Event, Finish, ToolCallDelta, ToolCallStart
from tests import bedrock, cohere, gemini, messages, ollama, responses
from tests.invariants import relayed
from tests.legal import overlaps, violations
from tests.streams import DONE, begins, by_event, calls, delta, finishes, fold, says, sse

Json = dict[str, Any]
CHAT = "openai_chat"
MOST_CALLS = 5
_TEXTS = ("Tide", " is", " hígh", "\n", '{"a":1}', " ☂", "}")
# Arguments in pieces: none, at once, split in the middle of everything, and empty objects.
_ARGUMENTS: tuple[tuple[str, ...], ...] = (
    (),
    ("{}",),
    ("{", "}"),
    ('{"port":"Brest"}',),
    ('{"po', 'rt":"Bre', 'st"}'),
    ('{"a":{"b":[1,', '{}],"c":"}"', "}", "}"),
    ('{"a":"\\', '"{"', "}"),
    (' {"a"', ":1", "} "),
)
# The input of a custom tool has no recognisable end.
_INPUTS: tuple[tuple[str, ...], ...] = ((), ("{}", "{}"), ("rm ", "-rf ", '"x"'), ("{", "\n}", "{}"))


class Call(NamedTuple):
    """A tool call: its head, and its arguments in pieces."""

    id: str
    name: str
    pieces: tuple[str, ...]
    custom: bool = False

    @property
    def value(self) -> object:
        """What the client's tool gets."""
        text = "".join(self.pieces)
        return {"input": text} if self.custom else json.loads(text or "{}")


class Talk(NamedTuple):
    """A piece of text or of reasoning."""

    kind: Literal["text", "reasoning"]
    text: str


class Answer(NamedTuple):
    """What a provider sends. A turn is talk, or a number: the next piece of that call, whose first one is its head."""

    calls: tuple[Call, ...]
    turns: tuple[int | Talk, ...]

    @property
    def seen(self) -> "Seen":
        """What a client must get: the calls in the order of their heads."""
        talk = [turn for turn in self.turns if isinstance(turn, Talk)]
        order = dict.fromkeys(turn for turn in self.turns if isinstance(turn, int))
        spoken = ["".join(each.text for each in talk if each.kind == kind) for kind in ("text", "reasoning")]
        return Seen(
            spoken[0], spoken[1], [(call.id, call.name, call.value) for call in map(self.calls.__getitem__, order)], []
        )


class Seen(NamedTuple):
    """What a client got, and what was wrong with how it came."""

    text: str
    reasoning: str
    calls: list[tuple[str, str, object]]
    broken: list[str]


def random_answer(random: Random, *, talk: bool, custom: bool) -> Answer:
    """Some calls whose pieces take turns at random, with `talk` also text and reasoning."""
    made = []
    for number in range(random.randint(1, MOST_CALLS)):
        is_custom = custom and random.random() < 0.3
        pieces = random.choice(_INPUTS if is_custom else _ARGUMENTS)
        made.append(Call(f"id_{number}", f"f{number}", pieces, is_custom))
    left = [1 + len(call.pieces) for call in made]
    turns: list[int | Talk] = []
    while any(left):
        number = random.choice([number for number, count in enumerate(left) if count])
        run = random.randint(1, left[number]) if random.random() < 0.5 else 1
        left[number] -= run
        turns += [number] * run
        while talk and random.random() < 0.3:
            turns.append(Talk("text" if random.random() < 0.5 else "reasoning", random.choice(_TEXTS)))
    return Answer(tuple(made), tuple(turns))


# What providers send.


class _Chat:
    """The events of chat completions: calls have numbers of their own, and no borders."""

    begin = (sse(begins()),)
    end = (sse(finishes("tool_calls")), sse(DONE))

    def talk(self, kind: str, text: str, _: int) -> bytes:
        return sse(says(text) if kind == "text" else delta({"reasoning_content": text}))

    def head(self, call: Call, _: int, number: int) -> bytes:
        body = {"name": call.name, "input" if call.custom else "arguments": ""}
        kind = "custom" if call.custom else "function"
        return sse(calls({"index": number, "id": call.id, "type": kind, kind: body}))

    def more(self, call: Call, text: str, _: int, number: int) -> bytes:
        kind, name = ("custom", "input") if call.custom else ("function", "arguments")
        return sse(calls({"index": number, kind: {name: text}}))

    def stop(self, _: Call, __: int) -> bytes:
        return b""


class _Messages:
    begin = (messages.named(messages.begins()),)
    end = (messages.wire(messages.finishes("tool_use"), messages.STOPS),)

    def talk(self, kind: str, text: str, index: int) -> bytes:
        type, spoken = ("text", messages.says) if kind == "text" else ("thinking", messages.thinks)
        deltas = [spoken(character, index) for character in text]
        return messages.wire(messages.opens(index, type), *deltas, messages.closes(index))

    def head(self, call: Call, index: int, _: int) -> bytes:
        return messages.named(messages.calls(index, call.id, call.name))

    def more(self, _: Call, text: str, index: int, __: int) -> bytes:
        return messages.named(messages.passes(text, index))

    def stop(self, _: Call, index: int) -> bytes:
        return messages.named(messages.closes(index))


class _Responses:
    begin = (responses.wire(*responses.begins()),)
    end = (responses.named(responses.completes()),)

    def talk(self, kind: str, text: str, index: int) -> bytes:
        id = f"it_{index}"
        spoken = responses.says_all(*text, index=index, id=id)
        return responses.wire(*(spoken if kind == "text" else responses.thinks_all(text, index=index, id=id)))

    def head(self, call: Call, index: int, _: int) -> bytes:
        return responses.named(responses.added(index, self._item(call) | {"arguments": "", "status": "in_progress"}))

    def more(self, call: Call, text: str, index: int, _: int) -> bytes:
        return responses.named(responses.passes(text, index, f"fc_{call.id}"))

    def stop(self, call: Call, index: int) -> bytes:
        return responses.named(responses.done(index, self._item(call)))

    def _item(self, call: Call) -> Json:
        return responses.function("".join(call.pieces), id=f"fc_{call.id}", call_id=call.id, name=call.name)


class _Bedrock:
    begin = (bedrock.BEGIN,)
    end = (bedrock.stops("tool_use"), bedrock.bill())

    def talk(self, kind: str, text: str, index: int) -> bytes:
        return (bedrock.says_all if kind == "text" else bedrock.thinks_all)(text, index=index)

    def head(self, call: Call, index: int, _: int) -> bytes:
        return bedrock.block("Start", index, start=bedrock.call(call.id, call.name))

    def more(self, _: Call, text: str, index: int, __: int) -> bytes:
        return bedrock.passes(text, index)

    def stop(self, _: Call, index: int) -> bytes:
        return bedrock.block("Stop", index)


_PROVIDERS: dict[str, _Chat | _Messages | _Responses | _Bedrock] = {
    CHAT: _Chat(),
    messages.DIALECT: _Messages(),
    responses.DIALECT: _Responses(),
    bedrock.DIALECT: _Bedrock(),
}
PROVIDERS = tuple(_PROVIDERS)
"""The APIs whose streams say of each piece which call it belongs to."""


def provided(answer: Answer, dialect: str) -> list[bytes]:
    """The answer as the reads of a provider's stream."""
    provider = _PROVIDERS[dialect]
    out = [*provider.begin]
    index = 0  # of the next block
    heads: dict[int, tuple[int, int]] = {}  # of each call that has begun: its block, and its number
    left = {number: list(call.pieces) for number, call in enumerate(answer.calls)}
    for turn in answer.turns:
        if isinstance(turn, Talk):
            out.append(provider.talk(turn.kind, turn.text, index))
            index += 1
            continue
        call = answer.calls[turn]
        if turn not in heads:
            heads[turn] = index, len(heads)
            out.append(provider.head(call, *heads[turn]))
            index += 1
        else:
            out.append(provider.more(call, left[turn].pop(0), *heads[turn]))
        if not left[turn]:
            out.append(provider.stop(call, heads[turn][0]))
    return [*out, *provider.end]


# What clients see.


def _payloads(wire: bytes) -> list[Json]:
    """The JSON of server-sent events, or of lines."""
    lines = [line.removeprefix(b"data: ") for line in wire.splitlines()]
    return [json.loads(line) for line in lines if line.startswith(b"{")]


class _Gathered:
    """The parts of an answer in the order of their starts, by the key that the API gives them."""

    def __init__(self) -> None:
        self.parts: dict[object, Json] = {}
        self.open: set[object] = set()
        self.broken: list[str] = []

    def start(self, key: object, *, alone: bool = False, **fields: Any) -> None:
        if key in self.parts or (alone and self.open):
            self.broken.append(f"{key} starts twice, or while {self.open} is open")
        self.parts[key] = {"kind": "call", "pieces": [], **fields}
        self.open.add(key)

    def add(self, key: object, text: str) -> None:
        if key not in self.open:
            self.broken.append(f"a delta of {key}, which is not open")
        else:
            self.parts[key]["pieces"].append(text)

    def end(self, key: object) -> None:
        if key not in self.open:
            self.broken.append(f"{key} ends, and is not open")
        self.open.discard(key)

    def seen(self) -> Seen:
        spoken = {"text": "", "reasoning": ""}
        called: list[tuple[str, str, object]] = []
        for part in self.parts.values():
            text = "".join(part["pieces"])
            if part["kind"] != "call":
                spoken[part["kind"]] += text
            else:
                value = {"input": text} if part.get("custom") else json.loads(text or "{}")
                called.append((part["id"], part["name"], value))
        broken = [*self.broken, *(f"{key} never ends" for key in self.open)]
        return Seen(spoken["text"], spoken["reasoning"], called, broken)


def _chat_client(wire: bytes) -> Seen:
    got = _Gathered()
    for each in _payloads(wire):
        for choice in each["choices"]:
            given = choice["delta"]
            for kind, name in (("text", "content"), ("reasoning", "reasoning_content")):
                if given.get(name):
                    if kind not in got.parts:
                        got.start(kind, kind=kind)
                    got.add(kind, given[name])
            for call in given.get("tool_calls", ()):
                body = call.get("custom") or call.get("function") or {}
                if call.get("id"):
                    got.start(call["index"], id=call["id"], name=body["name"], custom=call["type"] == "custom")
                got.add(call["index"], body.get("arguments") or body.get("input") or "")
    got.open.clear()  # the finish ends everything
    return got.seen()


def _messages_client(wire: bytes) -> Seen:
    got = _Gathered()
    for each in _payloads(wire):
        match each:
            case {"type": "content_block_start", "index": index, "content_block": {"type": "tool_use"} as block}:
                got.start(index, alone=True, id=block["id"], name=block["name"])
            case {"type": "content_block_start", "index": index, "content_block": {"type": type}}:
                got.start(index, alone=True, kind="text" if type == "text" else "reasoning")
            case {"type": "content_block_delta", "index": index, "delta": given}:
                got.add(index, given.get("text") or given.get("thinking") or given.get("partial_json") or "")
            case {"type": "content_block_stop", "index": index}:
                got.end(index)
            case _:
                pass
    return got.seen()


def _responses_client(wire: bytes) -> Seen:
    got = _Gathered()
    last: Seen | None = None
    for each in _payloads(wire):
        match each:
            case {"type": "response.output_item.added", "output_index": index, "item": item}:
                named = {"id": item["call_id"], "name": item["name"]} if "call_id" in item else {}
                kind = {"message": "text", "reasoning": "reasoning"}.get(item["type"], "call")
                got.start(index, kind=kind, custom=item["type"] == "custom_tool_call", **named)
            case {"type": str(type), "output_index": index, "delta": str(text)} if type.endswith(".delta"):
                got.add(index, text)
            case {"type": "response.output_item.done", "output_index": index, "item": item}:
                got.end(index)
                if item.get("arguments", item.get("input", "")) != _joined(got.parts[index], "call"):
                    got.broken.append(f"item {index} ends with other arguments than it streamed")
            case {"type": "response.completed", "response": response}:
                last = _responses_body(json.dumps(response).encode())
            case _:
                pass
    seen = got.seen()
    if last is None or last[:3] != seen[:3]:
        seen.broken.append("the last response is another one than was streamed")
    return seen


def _joined(part: Json, kind: str) -> str:
    return "".join(part["pieces"]) if part["kind"] == kind else ""


def _gemini_client(wire: bytes) -> Seen:
    return _of_parts([part for each in _payloads(wire) for part in _gemini_parts(each)])


def _gemini_parts(message: Json) -> list[Json]:
    return [part for each in message.get("candidates", ()) for part in each.get("content", {}).get("parts", ())]


def _of_parts(parts: Sequence[Json]) -> Seen:
    text = "".join(part["text"] for part in parts if "text" in part and not part.get("thought"))
    thought = "".join(part["text"] for part in parts if part.get("thought"))
    called = [part["functionCall"] for part in parts if "functionCall" in part]
    return Seen(text, thought, [(call["id"], call["name"], call["args"]) for call in called], [])


def _ollama_client(wire: bytes) -> Seen:
    given = [each["message"] for each in _payloads(wire)]
    called = [call for message in given for call in message.get("tool_calls", ())]
    return Seen(
        "".join(message["content"] for message in given),
        "".join(message.get("thinking", "") for message in given),
        [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in called],
        [],
    )


def _cohere_client(wire: bytes) -> Seen:
    got = _Gathered()
    for each in _payloads(wire):
        kind, key = each["type"], (each["type"].rpartition("-")[0], each.get("index"))
        given = each.get("delta", {}).get("message", {})
        if kind == "tool-call-start":
            got.start(key, alone=True, id=given["tool_calls"]["id"], name=given["tool_calls"]["function"]["name"])
        elif kind == "tool-call-delta":
            got.add(key, given["tool_calls"]["function"]["arguments"])
        elif kind == "content-start":
            got.start(key, alone=True, kind="reasoning" if given["content"]["type"] == "thinking" else "text")
        elif kind == "content-delta":
            got.add(key, given["content"].get("text") or given["content"].get("thinking") or "")
        elif kind in ("tool-call-end", "content-end"):
            got.end(key)
    return got.seen()


def _bedrock_client(wire: bytes) -> Seen:
    got = _Gathered()
    while wire:  # a message: the lengths of all and of the headers, a checksum, the headers, the payload, a checksum
        total, headers = (int.from_bytes(wire[start : start + 4], "big") for start in (0, 4))
        head, payload, wire = wire[12 : 12 + headers], wire[12 + headers : total - 4], wire[total:]
        each = json.loads(payload)
        index = each.get("contentBlockIndex")
        if b"contentBlockStart" in head:
            use = each["start"]["toolUse"]
            got.start(index, alone=True, id=use["toolUseId"], name=use["name"])
        elif b"contentBlockDelta" in head:
            given = each["delta"]
            if index not in got.parts:
                got.start(index, alone=True, kind="text" if "text" in given else "reasoning")
            thought = given.get("reasoningContent", {}).get("text", "")
            got.add(index, given.get("text") or thought or given.get("toolUse", {}).get("input", ""))
        elif b"contentBlockStop" in head:
            got.end(index)
    return got.seen()


def _chat_body(body: bytes) -> Seen:
    message = json.loads(body)["choices"][0]["message"]
    called: list[tuple[str, str, object]] = []
    for call in message.get("tool_calls") or ():
        given = call.get("custom") or call["function"]
        value = {"input": given["input"]} if "custom" in call else json.loads(given["arguments"] or "{}")
        called.append((call["id"], given["name"], value))
    return Seen(message["content"] or "", message.get("reasoning_content") or "", called, [])


def _messages_body(body: bytes) -> Seen:
    blocks = json.loads(body)["content"]
    called = [(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]
    spoken = ["".join(block.get(name, "") for block in blocks) for name in ("text", "thinking")]
    return Seen(spoken[0], spoken[1], called, [])


def _responses_body(body: bytes) -> Seen:
    output = json.loads(body)["output"]
    called: list[tuple[str, str, object]] = []
    for item in output:
        if item["type"] == "custom_tool_call":
            called.append((item["call_id"], item["name"], {"input": item["input"]}))
        elif item["type"] == "function_call":
            called.append((item["call_id"], item["name"], json.loads(item["arguments"] or "{}")))
    spoken = [
        "".join(part["text"] for item in output if item["type"] == type for part in item[name])
        for type, name in (("message", "content"), ("reasoning", "summary"))
    ]
    return Seen(spoken[0], spoken[1], called, [])


def _cohere_body(body: bytes) -> Seen:
    message = json.loads(body)["message"]
    given = [(call["id"], call["function"]) for call in message.get("tool_calls", ())]
    called: list[tuple[str, str, object]] = [
        (id, each["name"], json.loads(each["arguments"] or "{}")) for id, each in given
    ]
    content = message.get("content", ())
    spoken = ["".join(part.get(name, "") for part in content) for name in ("text", "thinking")]
    return Seen(spoken[0], spoken[1], called, [])


def _bedrock_body(body: bytes) -> Seen:
    content = json.loads(body)["output"]["message"]["content"]
    used = [part["toolUse"] for part in content if "toolUse" in part]
    thoughts = [part["reasoningContent"]["reasoningText"]["text"] for part in content if "reasoningContent" in part]
    called = [(use["toolUseId"], use["name"], use["input"]) for use in used]
    return Seen("".join(part.get("text", "") for part in content), "".join(thoughts), called, [])


CLIENTS: dict[str, tuple[Callable[[bytes], Seen], Callable[[bytes], Seen]]] = {
    CHAT: (_chat_client, _chat_body),
    messages.DIALECT: (_messages_client, _messages_body),
    responses.DIALECT: (_responses_client, _responses_body),
    gemini.DIALECT: (_gemini_client, lambda body: _of_parts(_gemini_parts(json.loads(body)))),
    ollama.DIALECT: (_ollama_client, _ollama_client),
    cohere.DIALECT: (_cohere_client, _cohere_body),
    bedrock.DIALECT: (_bedrock_client, _bedrock_body),
}
"""By API: what its client sees in a stream, and in a body."""


def differences(answer: Answer, provider: str, clients: Iterable[str] = CLIENTS) -> list[str]:
    """Every difference between what the provider sent and what clients get, streamed and not."""
    pieces = provided(answer, provider)
    reader = StreamReader(provider)
    reads = [reader.feed(each) for each in pieces] + [reader.close()]
    events = [event for each in reads for event in each]
    broken = violations(events) + overlaps(Blocks([]).order(events)) + _ended_too_early(events, answer)
    for client in clients:
        streamed, whole = CLIENTS[client]
        facts = AnswerFacts(call_id="1", model="m", created=1, same_dialect=client == provider)
        writer = StreamWriter.for_call(client, facts)
        written = b"".join(map(writer.write, reads))
        body = StreamWriter.for_call(client, facts).write_body(fold(events))
        got = {"streamed": streamed(written), "unstreamed": whole(body)}
        if client == provider:  # healthy text is forwarded unchanged
            got["relayed"] = streamed(relayed(by_event(b"".join(pieces)), StreamReader(provider))[0])
        for how, seen in got.items():
            broken += [f"{provider} to {client}, {how}: {each}" for each in _compared(answer.seen, seen)]
        broken += [f"{provider} to {client}: the loss {loss.code}" for loss in writer.losses]
    return broken


def _ended_too_early(events: list[Event], answer: Answer) -> list[str]:
    """Calls that end with a part of their arguments, if the answer is cut. A client may execute what has ended."""
    values = {call.id: call.value for call in answer.calls}
    broken = []
    for cut in range(0, len(events), 3):
        blocks: dict[int | None, tuple[str | None, list[str]]] = {}
        pieces: dict[int, list[str]] = {}
        for event in Blocks([]).order([event for event in events[:cut] if not isinstance(event, Finish)]):
            if isinstance(event, ToolCallStart):
                blocks[event.block] = event.id, pieces.setdefault(event.call, [])
            elif isinstance(event, ToolCallDelta):
                pieces[event.call].append(event.arguments)
            elif isinstance(event, BlockEnd) and event.block in blocks:
                id, given = blocks[event.block]
                if json.loads("".join(given) or "{}") != values[id or ""]:
                    broken.append(f"cut after {cut} events, {id} ends with {given}")
    return broken


def _compared(sent: Seen, got: Seen) -> list[str]:
    unequal = [
        f"{name} is {getattr(got, name)!r}, not {getattr(sent, name)!r}"
        for name in ("text", "reasoning", "calls")
        if getattr(got, name) != getattr(sent, name)
    ]
    return [*got.broken, *unequal]
