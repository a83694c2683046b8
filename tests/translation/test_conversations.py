"""Conversations of three turns, for every pair of a client's and a provider's API.

Each answer thinks, speaks and calls two tools. The client sends it back as its API's documentation says, with the
results, and the provider gets the whole conversation: every call has an id of its own, each result belongs to its call,
and each proof of reasoning is where it was.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from itertools import chain

import pytest

from penstock import Accumulator, StreamReader, StreamWriter
from penstock.core.dialects.dialect import AnswerFacts
from tests import bedrock as aws
from tests import cohere as co
from tests import gemini as gem
from tests import messages as ant
from tests import ollama as oll
from tests import responses as res
from tests import streams as chat
from tests.translation.scenarios import CLIENTS, PROVIDERS, chat_call, in_chat, in_messages
from tests.translation.support import BEDROCK, CHAT, COHERE, GEMINI, ISSUER, MESSAGES, OLLAMA, RESPONSES, Json, asked

TURNS = (1, 2)
PORTS = ("Brest", "Cork")


def proof(turn: int) -> str:
    """What a provider has its reasoning sent back with."""
    return b64encode(f"proof of turn {turn}".encode()).decode()


def arguments(turn: int, port: str) -> str:
    return json.dumps({"port": port, "day": turn})


def of_chat(turn: int) -> bytes:
    calls = [chat_call(number, f"c{turn}{number}", arguments(turn, port)) for number, port in enumerate(PORTS)]
    return in_chat(chat.delta({"reasoning_content": "Hm."}), chat.says("So."), *chain(*calls), finish="tool_calls")


def of_messages(turn: int) -> bytes:
    thought = [ant.opens(0, "thinking"), ant.thinks("Hm."), ant.signs(proof(turn)), ant.closes()]
    calls = [
        ant.calls_all(arguments(turn, port), number + 2, id=f"toolu_{turn}{number}")
        for number, port in enumerate(PORTS)
    ]
    return in_messages(*thought, *ant.says_all("So.", index=1), *chain(*calls), reason="tool_use")


def of_responses(turn: int) -> bytes:
    calls = [
        res.calls_all(arguments(turn, port), number + 2, f"fc_{turn}{number}", call_id=f"call_{turn}{number}")
        for number, port in enumerate(PORTS)
    ]
    thought = res.thinks_all(["Hm."], id=f"rs_{turn}", seal=proof(turn))
    return res.answer(*thought, *res.says_all("So.", index=1, id=f"msg_{turn}"), *chain(*calls))


def of_gemini(turn: int) -> bytes:
    """The thought has no signature, and the first call has the only one. Calls have no ids."""
    first, second = ({"functionCall": {"name": "get_tide", "args": json.loads(arguments(turn, p))}} for p in PORTS)
    return gem.answer(
        gem.thinks("Hm."), gem.says("So."), gem.message(first | {"thoughtSignature": proof(turn)}, second)
    )


def of_ollama(turn: int) -> bytes:
    calls = [
        {"function": {"name": "get_tide", "arguments": json.loads(arguments(turn, port))}} for port in PORTS
    ]  # without ids
    return oll.answer(oll.message(thinking="Hm."), oll.message("So."), oll.message(tool_calls=calls))


def of_cohere(turn: int) -> bytes:
    calls = [
        co.calls_all(f"get_tide_{turn}{number}", arguments(turn, port), index=number)
        for number, port in enumerate(PORTS)
    ]
    return co.answer(co.plans("So."), *chain(*calls), finish=co.ends("TOOL_CALL"))


def of_bedrock(turn: int) -> bytes:
    calls = [
        aws.calls_all(f"tooluse_{turn}{number}", arguments(turn, port), index=number + 2)
        for number, port in enumerate(PORTS)
    ]
    thought = aws.thinks_all("Hm.", seal=proof(turn))
    return aws.answer(thought, aws.says_all("So.", index=1), *calls, reason="tool_use")


ANSWERS: dict[str, Callable[[int], bytes]] = {
    CHAT: of_chat,
    MESSAGES: of_messages,
    RESPONSES: of_responses,
    GEMINI: of_gemini,
    OLLAMA: of_ollama,
    COHERE: of_cohere,
    BEDROCK: of_bedrock,
}


def answered(provider: str, client: str, turn: int, *, streamed: bool, wire: bytes | None = None) -> Json:
    """The answer of this turn, as the client has it in the end."""
    facts = AnswerFacts(
        call_id=f"req_{turn}", model="m", created=1, same_dialect=provider == client, issuer=ISSUER, include_usage=True
    )
    reader, writer, answer = StreamReader(provider), StreamWriter.for_call(client, facts), Accumulator()
    events = [*reader.feed(wire or ANSWERS[provider](turn)), *reader.close()]
    if streamed:
        return summed(writer.write(events))
    answer.extend(events)
    body: Json = json.loads(writer.write_body(answer.completion))
    return body


def summed(stream: bytes) -> Json:
    """The message that a client of chat completions adds up."""
    message: Json = {"role": "assistant", "tool_calls": []}
    for line in stream.decode().splitlines():
        if not line.startswith("data: {") or not (choices := json.loads(line[6:])["choices"]):
            continue
        for name, value in choices[0]["delta"].items():
            if name == "tool_calls":
                for piece in value:
                    if piece["index"] == len(message["tool_calls"]):
                        message["tool_calls"].append(piece | {"function": dict(piece["function"])})
                    else:
                        call = message["tool_calls"][piece["index"]]
                        call["function"]["arguments"] += piece["function"]["arguments"]
            elif name != "role" and value is not None:
                message[name] = message[name] + value if name in message else value
    return {"choices": [{"message": message}]}


def next_of_chat(fields: Json, answer: Json) -> None:
    message = answer["choices"][0]["message"]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": result_of(call["function"])}
        for call in message["tool_calls"]
    ]
    fields["messages"] += [message, *results]


def next_of_messages(fields: Json, answer: Json) -> None:
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": result_of(block)}
        for block in answer["content"]
        if block["type"] == "tool_use"
    ]
    fields["messages"] += [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": results}]


def next_of_responses(fields: Json, answer: Json) -> None:
    results = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": result_of(item)}
        for item in answer["output"]
        if item["type"] == "function_call"
    ]
    fields["input"] += [*answer["output"], *results]


def next_of_gemini(fields: Json, answer: Json) -> None:
    content = answer["candidates"][0]["content"]
    results = [
        {
            "functionResponse": {"name": call["name"], "response": {"result": result_of(call)}}
            | {n: call[n] for n in ("id",) if n in call}
        }
        for part in content["parts"]
        if (call := part.get("functionCall"))
    ]
    fields["contents"] += [content, {"role": "user", "parts": results}]


def next_of_cohere(fields: Json, answer: Json) -> None:
    message = answer["message"]
    results = [
        {
            "role": "tool",
            "tool_call_id": call["id"],
            "content": [{"type": "document", "document": {"data": {"seen": result_of(call["function"])}}}],
        }
        for call in message["tool_calls"]
    ]
    fields["messages"] += [message, *results]


def next_of_bedrock(fields: Json, answer: Json) -> None:
    message = answer["output"]["message"]
    results = [
        {"toolResult": {"toolUseId": use["toolUseId"], "content": [{"json": {"seen": result_of(use)}}]}}
        for block in message["content"]
        if (use := block.get("toolUse"))
    ]
    fields["messages"] += [message, {"role": "user", "content": results}]


def result_of(call: Json) -> str:
    """A result that names the arguments of its call."""
    given = call[next(name for name in ("arguments", "input", "args") if name in call)]
    parsed = json.loads(given) if isinstance(given, str) else given
    return f"result of {parsed['port']} {parsed['day']}"


START: dict[str, Json] = {
    CHAT: {"messages": [{"role": "user", "content": "Tides?"}]},
    MESSAGES: {"messages": [{"role": "user", "content": "Tides?"}]},
    RESPONSES: {"input": [{"role": "user", "content": "Tides?"}]},
    GEMINI: {"contents": [{"role": "user", "parts": [{"text": "Tides?"}]}]},
    COHERE: {"messages": [{"role": "user", "content": "Tides?"}]},
    BEDROCK: {"messages": [{"role": "user", "content": [{"text": "Tides?"}]}]},
}
# The APIs whose answers have no place for a proof, so that its loss is declared.
UNPROVED = (COHERE,)
CONTINUE: dict[str, Callable[[Json, Json], None]] = {
    CHAT: next_of_chat,
    MESSAGES: next_of_messages,
    RESPONSES: next_of_responses,
    GEMINI: next_of_gemini,
    COHERE: next_of_cohere,
    BEDROCK: next_of_bedrock,
}
# Where a provider's request has the ids of calls, and those of their results: a path of members for each.
IDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    CHAT: (("tool_calls", "id"), ("tool_call_id",)),
    MESSAGES: (("tool_use", "id"), ("tool_use_id",)),
    RESPONSES: (("function_call", "call_id"), ("function_call_output", "call_id")),
    GEMINI: (("functionCall", "id"), ("functionResponse", "id")),
    OLLAMA: (("tool_calls", "id"), ("tool_call_id",)),
    COHERE: (("tool_calls", "id"), ("tool_call_id",)),
    BEDROCK: (("toolUse", "toolUseId"), ("toolResult", "toolUseId")),
}


def objects(value: object) -> Iterator[Json]:
    """All objects in a body, in order."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from objects(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from objects(inner)


def ids(body: Json, path: tuple[str, ...]) -> list[str]:
    """The ids at a path: below a member, or in objects of a type."""
    if len(path) == 1:
        return [found[path[0]] for found in objects(body) if path[0] in found]
    kind, name = path
    below = [inner for found in objects(body) for inner in objects(found.get(kind)) if name in inner]
    return [inner[name] for inner in below or (found for found in objects(body) if found.get("type") == kind)]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", [*CLIENTS, "chat, streamed"])
def test_calls_and_proofs_of_three_turns_stay_apart(client: str, provider: str) -> None:
    api = CHAT if client not in CLIENTS else client
    fields: Json = json.loads(json.dumps(START[api]))
    for turn in TURNS:
        answer = answered(provider, api, turn, streamed=client != api)
        assert api != MESSAGES or answer["id"].startswith("msg_")
        CONTINUE[api](fields, answer)
    body, _ = asked(api, provider, fields)
    calls, results = (ids(body, path) for path in IDS[provider])
    if client != provider or provider != GEMINI:  # whose calls have no ids
        assert len(set(calls)) == len(calls) == len(TURNS) * len(PORTS)
    assert results == calls
    written = json.dumps(body)
    places = [written.index(f"result of {port} {turn}") for turn in TURNS for port in PORTS]
    assert places == sorted(places)
    if client in UNPROVED and client != provider:
        assert not any(proof(turn) in written for turn in TURNS)
        return
    if provider in (MESSAGES, RESPONSES, BEDROCK):
        assert [written.count(proof(turn)) for turn in TURNS] == [1, 1]
    if provider == GEMINI:
        signed = [found for found in objects(body) if "thoughtSignature" in found]
        assert [part["thoughtSignature"] for part in signed] == [proof(turn) for turn in TURNS]
        assert [part["functionCall"]["args"] for part in signed] == [{"port": "Brest", "day": turn} for turn in TURNS]


CALL = {"functionCall": {"name": "get_tide", "args": {"port": "Brest", "day": 1}}}
OTHER_CALL = {"functionCall": {"name": "get_tide", "args": {"port": "Cork", "day": 1}}}
SIGNED: dict[str, list[Json]] = {
    "a call after a thought": [{"text": "Hm.", "thought": True}, CALL | {"thoughtSignature": proof(1)}],
    "a thought": [{"text": "Hm.", "thought": True, "thoughtSignature": proof(1)}, CALL],
    "a text, and a call": [{"text": "So.", "thoughtSignature": proof(1)}, CALL | {"thoughtSignature": proof(2)}],
    "two calls": [CALL | {"thoughtSignature": proof(1)}, OTHER_CALL | {"thoughtSignature": proof(2)}],
    "the second thought, and a call": [
        {"text": "Hm.", "thought": True},
        {"text": "So."},
        {"text": "Well.", "thought": True, "thoughtSignature": proof(1)},
        CALL | {"thoughtSignature": proof(2)},
    ],
}


@pytest.mark.parametrize("parts", SIGNED.values(), ids=SIGNED)
@pytest.mark.parametrize("client", [*(client for client in CLIENTS if client not in UNPROVED), "chat, streamed"])
def test_a_signature_of_gemini_returns_to_its_part(client: str, parts: list[Json]) -> None:
    api = CHAT if client not in CLIENTS else client
    fields: Json = json.loads(json.dumps(START[api]))
    wire = gem.answer(*map(gem.message, parts))
    CONTINUE[api](fields, answered(GEMINI, api, 1, streamed=client != api, wire=wire))
    body, _ = asked(api, GEMINI, fields)
    returned = [part for part in objects(body) if "thoughtSignature" in part]
    for part in returned:
        part.get("functionCall", {}).pop("id", None)
    assert returned == [part for part in parts if "thoughtSignature" in part]
