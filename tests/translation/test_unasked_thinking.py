"""Messages clients that do not ask for thinking get no thinking blocks from providers of other APIs.

Anthropic sends none to them, and some clients lose the text of an answer that has one. With tools, a seal without text
is still sent: the provider wants it back with the tool's result.
"""

import asyncio
import json
from itertools import pairwise

import pytest
from msgspec import structs

from penstock import StreamReader, StreamWriter
from penstock.core.dialects.registry import surface_dialect
from penstock.core.hub.events import BlockEnd, BlockStart, ChoiceStart, End, Finish, Seal, Start, TextDelta
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import ReasoningShown
from penstock.core.hub.usage import Tokens
from penstock.gateway.record.attempt import Attempt, AttemptControl
from penstock.gateway.record.call import Call
from penstock.gateway.record.timeouts import AttemptTimeouts
from penstock.gateway.relay.relay import Relay
from tests import gemini as gem
from tests import streams as chat
from tests.gateway.support import Client, Clock, Connection
from tests.translation.scenarios import PROVIDERS, SCENARIOS, gemini_call
from tests.translation.support import CHAT, GEMINI, MESSAGES, Json, Lost, facts, folded

TOOLS: Json = {"tools": [{"name": "f", "input_schema": {"type": "object"}}]}
ASKS: dict[str, tuple[Json, ReasoningShown]] = {
    "nothing": ({}, "none"),
    "disabled": ({"thinking": {"type": "disabled"}}, "none"),
    "an effort alone": ({"output_config": {"effort": "high"}}, "none"),
    "tools": (TOOLS, "seals"),
    "tools, disabled": (TOOLS | {"thinking": {"type": "disabled"}}, "seals"),
    "a budget": ({"thinking": {"type": "enabled", "budget_tokens": 2_000}}, "all"),
    "adaptive, with tools, as Claude Code": (TOOLS | {"thinking": {"type": "adaptive", "display": "omitted"}}, "all"),
    "an unknown type": ({"thinking": {"type": "deep"}}, "all"),
}
# A call of Gemini 3, whose signature has no text.
SIGNED = gem.answer(gem.message(gemini_call("call_1", {"port": "Brest"}) | {"thoughtSignature": "c2VhbA=="}))


@pytest.mark.parametrize(("fields", "shown"), ASKS.values(), ids=ASKS)
def test_what_a_client_asks_for(fields: Json, shown: ReasoningShown) -> None:
    body = json.dumps(
        {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]} | fields
    ).encode()
    assert surface_dialect(MESSAGES).read_request(body, {}, "/v1/messages").reasoning == shown


def answers(provider: str, wire: bytes, shown: ReasoningShown) -> list[tuple[list[Json], Lost, Tokens]]:
    """The blocks that a client gets of a stream and of a body, the losses, and the tokens."""
    known = structs.replace(facts(provider, MESSAGES), reasoning=shown)
    reader, stream = StreamReader(provider), StreamWriter.for_call(MESSAGES, known)
    out = stream.write([*reader.feed(wire), *reader.close()])
    whole = StreamWriter.for_call(MESSAGES, known)
    body = whole.write_body(folded(provider, wire))
    found = []
    for writer, data in ((stream, out), (whole, body)):
        answer = folded(MESSAGES, data)
        assert answer.usage is not None
        assert answer.repairs == ()
        blocks = json.loads(StreamWriter.for_call(MESSAGES, facts(MESSAGES, MESSAGES)).write_body(answer))["content"]
        found.append((blocks, [(loss.code, loss.detail) for loss in writer.losses], Tokens.of(answer.usage)))
    return found


@pytest.mark.parametrize("shown", ["none", "seals"])
@pytest.mark.parametrize("provider", [name for name in PROVIDERS if name != MESSAGES])
def test_thinking_that_was_not_asked_for_is_hidden_and_declared(provider: str, shown: ReasoningShown) -> None:
    """Its tokens are reported and booked as before."""
    wire = (SCENARIOS["reasoning"].wires | SCENARIOS["reasoning with a seal"].wires)[provider]
    (_, _, tokens), _ = answers(provider, wire, "all")
    for blocks, losses, reported in answers(provider, wire, shown):
        assert blocks == [{"type": "text", "text": "So."}]
        assert losses == [("reasoning-hidden", "")]
        assert reported == tokens


@pytest.mark.parametrize("shown", ["none", "seals"])
def test_a_seal_after_the_end_of_its_block_opens_no_block(shown: ReasoningShown) -> None:
    """Responses providers may end an item of reasoning after the message has begun."""
    writer = StreamWriter.for_call(MESSAGES, structs.replace(facts(GEMINI, MESSAGES), reasoning=shown))
    out = writer.write(
        [
            *(Start("a", "m", 1), ChoiceStart(0, "assistant"), BlockStart(0, 0, "reasoning"), BlockEnd(0, 0)),
            *(BlockStart(0, 1, "text"), TextDelta(0, "So."), Seal(0, 0, "gemini", "c2ln"), BlockEnd(0, 1)),
            *(Finish(0, "stop"), End("completed")),
        ]
    )
    assert out.count(b"event: content_block_start") == out.count(b"event: content_block_stop") == 1
    assert writer.losses == [Loss("seal-dropped", "gemini")]


def test_claude_s_own_thinking_is_as_claude_sent_it() -> None:
    for blocks, losses, _ in answers(MESSAGES, SCENARIOS["reasoning with a seal"].wires[MESSAGES], "none"):
        assert [block["type"] for block in blocks] == ["thinking", "text"]
        assert losses == []


@pytest.mark.parametrize(
    ("shown", "types", "lost"),
    [("all", ["thinking", "tool_use"], []), ("seals", ["thinking", "tool_use"], []), ("none", ["tool_use"], [""])],
)
def test_with_tools_a_seal_without_text_is_sent(shown: ReasoningShown, types: list[str], lost: list[str]) -> None:
    for blocks, losses, _ in answers(GEMINI, SIGNED, shown):
        assert [block["type"] for block in blocks] == types
        assert losses == [("reasoning-hidden", detail) for detail in lost]
        if len(types) > 1:
            assert (blocks[0]["thinking"], blocks[0]["signature"][:10]) == ("", "penstock1.")


class Reads(Client):
    """A client that keeps what it gets, with the time of each ping."""

    def __init__(self, loop: Clock) -> None:
        super().__init__()
        self._loop, self.pings, self.data = loop, list[float](), b""

    def write(self, data: bytes, /) -> None:
        self.pings += [self._loop.now] if data.startswith(b"event: ping") else []
        self.data += data


def test_a_client_gets_pings_while_hidden_thinking_streams() -> None:
    loop = Clock()

    async def run() -> Reads:
        call = Call("req_1", "m", stream=True, started=loop.time())
        call.progress.attempts.append(Attempt("p", "m"))
        call.progress.control = AttemptControl(call.progress.attempts[0])
        known = structs.replace(facts(CHAT, MESSAGES), reasoning="none")
        writer, client = StreamWriter.for_call(MESSAGES, known), Reads(loop)
        timeouts = AttemptTimeouts(first_event_s=60, gap_s=300, heartbeat_s=10, total_s=9000, drain_s=0)
        relay = Relay(call, client, StreamReader(CHAT), writer, timeouts, lambda _: None)
        relay.attach(Connection())
        relay.on_head(200, {})
        relay.on_data(chat.sse(chat.begins(), chat.delta({"reasoning_content": "Hmm"})))
        for _ in range(60):
            loop.now += 1.0
            relay.on_data(chat.sse(chat.delta({"reasoning_content": " more"})))
            await asyncio.sleep(0)
        for _ in range(30):
            loop.now += 1.0
            relay.on_data(chat.sse(chat.says("So. ")))
            await asyncio.sleep(0)
        relay.on_data(chat.sse(chat.finishes(), chat.DONE))
        relay.on_end()
        return client

    try:
        client = loop.run_until_complete(run())
    finally:
        loop.close()
    waits = [later - before for before, later in pairwise([1000.0, *client.pings])]
    assert all(10.0 <= wait <= 12.0 for wait in waits)
    assert 50.0 < client.pings[-1] - 1000.0 <= 61.0  # none while text streams
    assert b"more" not in client.data
    assert client.data.index(b"message_start") < client.data.index(b"event: ping") < client.data.index(b"So. ")
