"""A client never gets counts that cannot be true, from the same API or a translated one; the ledger has the report."""

import json
import re
from typing import Any

import pytest

from penstock import StreamReader, StreamWriter
from penstock.core.dialects.dialect import AnswerFacts
from penstock.gateway.billing.accounting import entry_of
from penstock.gateway.record.attempt import Attempt, AttemptControl
from penstock.gateway.record.call import Call
from penstock.gateway.record.timeouts import AttemptTimeouts
from penstock.gateway.relay.relay import Relay
from tests import gemini, messages, responses
from tests.gateway.support import Client, Clock, Connection
from tests.streams import DONE, begins, bill, by_event, finishes, says, sse

HUGE = 10**300
COUNT = re.compile("tokens?(count)?$", re.IGNORECASE)
# What is wrong, and the input, output and total that are reported.
REPORTS: dict[str, tuple[object, object, object]] = {
    "a negative count": (-5, 22, 17),
    "an absurd count": (11, HUGE, HUGE + 11),
    "numbers in strings": ("11", "22", "33"),
    "a null": (None, 22, None),
    "a total that is not the sum": (11, 22, 999),
}
WORDS = [f"word{number} " for number in range(6)]


def stream(dialect: str, input: object, output: object, total: object) -> bytes:
    """A stream of a dialect that reports these counts."""
    if dialect == messages.DIALECT:
        begin = messages.begins(usage={"input_tokens": input, "output_tokens": 1})
        finish = messages.finishes(usage={"input_tokens": input, "output_tokens": output})
        return messages.answer(*messages.says_all(*WORDS), begin=begin, finish=finish)
    if dialect == responses.DIALECT:
        usage = {"input_tokens": input, "output_tokens": output, "total_tokens": total}
        text = responses.message(responses.part("".join(WORDS)))
        return responses.answer(*responses.says_all(*WORDS), finish=responses.completes(text, usage=usage))
    if dialect == gemini.DIALECT:
        usage = {"promptTokenCount": input, "candidatesTokenCount": output, "totalTokenCount": total}
        return gemini.answer(*(gemini.says(word, usage=usage) for word in WORDS), finish=gemini.finishes(usage=usage))
    usage = {"prompt_tokens": input, "completion_tokens": output, "total_tokens": total}
    return sse(begins(), *map(says, WORDS), finishes(), bill(**usage), DONE)


class Keeping(Client):
    """A client that keeps what it gets."""

    def __init__(self, *, stream: bool) -> None:
        super().__init__()
        self.stream, self.got = stream, b""

    def write(self, data: bytes, /) -> None:
        self.got += data

    def end(self, data: bytes) -> None:
        self.got += data

    def answer(self, body: bytes) -> None:
        self.got = body


def answered(wire: bytes, provider: str, client: str, *, streamed: bool) -> tuple[str, Call]:
    """What a client of an API gets for the stream of a provider, and the call."""
    loop = Clock()

    async def run() -> tuple[str, Call]:
        call = Call("req_1", "m", stream=streamed, started=loop.time())
        call.progress.attempts.append(Attempt("p", "m"))
        call.progress.control = AttemptControl(call.progress.attempts[0])
        facts = AnswerFacts(
            call_id="1", model="m", created=0, include_usage=True, same_dialect=provider == client, input_estimate=7
        )
        got, timeouts = Keeping(stream=streamed), AttemptTimeouts(first_event_s=9, gap_s=9, heartbeat_s=0, total_s=99)
        writer = StreamWriter.for_call(client, facts)
        relay = Relay(call, got, StreamReader(provider), writer, timeouts, lambda _: None)
        relay.attach(Connection())
        relay.on_head(200, {})
        for event in by_event(wire):
            relay.on_data(event)
        relay.on_end()
        return got.got.decode(), call

    try:
        return loop.run_until_complete(run())
    finally:
        loop.close()


def reports_in(text: str, *, streamed: bool) -> list[Any]:
    """All objects in an answer that are a usage report."""
    values = [json.loads(data) for data in re.findall(r"^data: (\{.*)$", text, re.MULTILINE)] if streamed else []
    found, left = [], values or [json.loads(text)]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            found += [value[name] for name in ("usage", "usageMetadata") if value.get(name)]
            left += value.values()
        elif isinstance(value, list):
            left += value
    return found


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "unstreamed"])
@pytest.mark.parametrize("client", ["openai_chat", "anthropic_messages", "openai_responses", "gemini"])
@pytest.mark.parametrize("provider", ["openai_chat", "anthropic_messages", "openai_responses", "gemini"])
def test_no_client_gets_counts_that_cannot_be_true(provider: str, client: str, streamed: bool) -> None:
    for wrong, counts in REPORTS.items():
        text, call = answered(stream(provider, *counts), provider, client, streamed=streamed)
        assert call.progress.ending == "completed", wrong
        for report in reports_in(text, streamed=streamed):
            figures = {name: value for name, value in report.items() if COUNT.search(name)}
            if provider == client == "gemini":  # a null is the same as no member
                figures = {name: value for name, value in figures.items() if value is not None}
            assert all(type(value) is int and 0 <= value < 10**9 for value in figures.values()), (wrong, report)
            total = next((value for name, value in figures.items() if "total" in name), None)
            parts = [
                value for name, value in figures.items() if re.match("prompt|completion|input|output|candid", name)
            ]
            if len(parts) == 2 and total is not None:
                assert total == sum(parts), (wrong, report)


def test_the_ledger_estimates_what_the_client_does_not_get() -> None:
    text, call = answered(stream("openai_chat", -5, 22, 17), "openai_chat", "openai_chat", streamed=True)
    assert reports_in(text, streamed=True) == []
    assert call.progress.repairs == {"usage-absurd": 1}
    assert entry_of(call, lambda *_: 14).attempts[0].measure == "estimated"
