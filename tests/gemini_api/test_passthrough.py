"""A regular stream of Gemini, which is forwarded chunk by chunk, and everything that can end that: on real sockets."""

import json
import re

import pytest

from tests.faults.client import Response, post
from tests.faults.dialects import Provider
from tests.faults.regular import ON_SENT, SENT_TEXT, broken, on, regular, tolerated
from tests.faults.upstream import Gate, Op, chunk, fin, head, last_chunk, rst, send, until_read
from tests.gemini import GROUNDING, Json, answer, calls, finishes, message, report, says, thinks, wire
from tests.gemini_api.support import HI, KEY, GeminiGateway, messages, text

pytestmark = pytest.mark.slow

COUNTS = {"promptTokenCount": 5, "candidatesTokenCount": 3, "totalTokenCount": 8}


def _fails(words: str) -> bytes:
    return wire({"error": {"code": 503, "message": words, "status": "UNAVAILABLE"}})


GEMINI = Provider(
    dialect="gemini",
    begin=b"",
    says=lambda words, **fields: wire(says(words, usage=report(len(words), 5)) | fields),
    finish=wire(finishes(usage=COUNTS)),
    bill=b"",
    end=b"",
    fails=_fails,
    error=lambda words: json.dumps({"error": {"code": 503, "message": words, "status": "UNAVAILABLE"}}).encode(),
    body=lambda words: answer(says(words)),
    busy=_fails("slow down"),
)


def sent(response: Response) -> list[bytes]:
    """The messages of an answer as they came."""
    return re.findall(rb"data: .*?\r\n\r\n", response.body, re.DOTALL)


@pytest.mark.parametrize("name", tolerated(GEMINI))
def test_an_interruption_changes_nothing(gateway: GeminiGateway, name: str) -> None:
    ops, sent_text = tolerated(GEMINI)[name]
    model = gateway.upstream.play(regular(*ops, *on(GEMINI), each=GEMINI))
    response = gateway.generate(f"gem/{model}")
    assert text(response) == SENT_TEXT + sent_text + ON_SENT
    assert messages(response)[-1]["candidates"][0]["finishReason"] == "STOP"
    usage = messages(response)[-1]["usageMetadata"]
    assert {name: usage[name] for name in COUNTS} == COUNTS
    ((attempt,),) = (entry.attempts for entry in gateway.quiet())
    assert (attempt.measure, attempt.tokens.input, attempt.tokens.output) == ("reported", 5, 3)


@pytest.mark.parametrize("name", broken(GEMINI))
def test_what_breaks_it_is_reported_with_the_usage_so_far(gateway: GeminiGateway, name: str) -> None:
    ops, code = broken(GEMINI)[name]
    model = gateway.upstream.play(regular(*ops, each=GEMINI))
    response = gateway.generate(f"gem/{model}")
    *before, last = messages(response)
    assert set(last) == {"error"}
    parts = [part for each in before for part in each["candidates"][0]["content"]["parts"]]
    assert "".join(part["text"] for part in parts).startswith(SENT_TEXT)
    assert b"finishReason" not in response.body
    ((attempt,),) = (entry.attempts for entry in gateway.quiet())
    assert attempt.code == code
    # Each word was reported with its own length as the count.
    assert (attempt.measure, attempt.tokens.input) == ("reported", 5)
    assert attempt.tokens.output in (len(" word5"), len(" more"))


def test_healthy_text_is_forwarded_as_it_came(gateway: GeminiGateway) -> None:
    """With the usage of each message, and with members that are not known here."""
    words = [says(f"w{place} \n", usage=report(place + 1, prompt=5)) | {"mood": "calm"} for place in range(12)]
    ops = [chunk(wire(word)) for word in words]

    def forwarded() -> bool:
        """On a busy machine several events may arrive in one read, which takes the slow path."""
        model = gateway.upstream.play(regular(*ops, *on(GEMINI), each=GEMINI))
        found = sent(gateway.generate(f"gem/{model}"))
        return all(wire(word) in found for word in words[3:])

    assert any(forwarded() for _ in range(10))


def test_a_thought_and_its_signature_stay_together(gateway: GeminiGateway) -> None:
    pieces = [
        wire(thinks("Hm", usage=report(1))),
        *(wire(says(f"w{number} ", usage=report(number + 2))) for number in range(4)),
        wire(thinks("So", usage=report(8))),
        wire(message({"text": "", "thought": True, "thoughtSignature": "c2VhbA=="}, usage=report(9))),
        wire(says("done", usage=report(10))),
    ]
    model = gateway.upstream.play(regular(*map(chunk, pieces), *on(GEMINI), each=GEMINI))
    response = gateway.generate(f"gem/{model}")
    found = [part for each in messages(response) for part in each["candidates"][0].get("content", {}).get("parts", [])]
    thoughts = [part for part in found if part.get("thought")]
    assert "".join(part["text"] for part in thoughts) == "HmSo"
    assert [part["thoughtSignature"] for part in thoughts if "thoughtSignature" in part] == ["c2VhbA=="]
    assert not any("thoughtSignature" in part for part in found if not part.get("thought"))


@pytest.mark.parametrize("method", ["streamGenerateContent", "generateContent"], ids=["an array", "whole"])
def test_a_client_that_wants_no_events_gets_none(gateway: GeminiGateway, method: str) -> None:
    model = gateway.upstream.play(regular(*on(GEMINI), each=GEMINI))
    response = gateway.generate(f"gem/{model}", method=method)
    assert b"data: " not in response.body
    assert text(response) == SENT_TEXT + ON_SENT
    ((attempt,),) = (entry.attempts for entry in gateway.quiet())
    assert (attempt.tokens.input, attempt.tokens.output) == (5, 3)


def test_the_usage_of_the_last_message_is_booked_if_there_is_no_finish(gateway: GeminiGateway) -> None:
    """Whatever the counts of the messages before were: all of them took the fast path."""
    words = [wire(says(f"w{number} ", usage=report(100 - number, prompt=number + 1))) for number in range(9)]
    for end in (rst(), fin()):
        model = gateway.upstream.play([*regular(*map(chunk, words), each=GEMINI), until_read(), end])
        gateway.generate(f"gem/{model}")
        (entry,) = gateway.quiet()
        (attempt,) = entry.attempts
        assert (entry.outcome, attempt.measure) == ("truncated", "reported")
        assert (attempt.tokens.input, attempt.tokens.output) == (9, 92)


LAST = says("Sail \n then.", finish="STOP", usage=report(42, prompt=5))


def ended(*messages: Json) -> list[Op]:
    """Messages, of which the last one comes with the end of the body."""
    *before, last = map(wire, messages)
    return [head(), *(each for piece in before for each in (chunk(piece), until_read())), together(last)]


def together(last: bytes) -> Op:
    return send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(last), last))


WORDS = [says(f"w{number} ", usage=report(number + 1, prompt=5)) for number in range(5)]
THOUGHT = thinks("Hm", usage=report(1, prompt=5, thoughtsTokenCount=3))


@pytest.mark.parametrize(
    ("messages", "as_it_came"),
    {
        "text": ([*WORDS, LAST], True),
        "one message": ([LAST], True),
        "the limit": ([*WORDS, LAST | says("x", finish="MAX_TOKENS", usage=report(42, prompt=5))], True),
        "a reason that is unknown": ([*WORDS, says("x", finish="MOON", usage=report(42, prompt=5))], False),
        "a count that is missing": ([THOUGHT, LAST], False),
        "no usage": ([*WORDS, says("x", finish="STOP")], False),
        "a new block": ([thinks("Hm"), LAST], False),
        "citations": ([*WORDS, says("x", finish="STOP", usage=report(42, prompt=5), **GROUNDING)], False),
        "a call before": ([message(calls()), LAST], False),
        "two parts": ([*WORDS, says("x", "y", finish="STOP", usage=report(42, prompt=5))], False),
    }.values(),
)
def test_a_last_message_is_forwarded_if_the_body_ends_with_it(
    gateway: GeminiGateway, messages: list[Json], as_it_came: bool
) -> None:
    response = gateway.generate(f"gem/{gateway.upstream.play(ended(*messages))}")
    last = messages[-1]["candidates"][0]
    assert response.complete
    assert (wire(messages[-1]) in sent(response)) == as_it_came
    assert text(response).endswith("".join(part["text"] for part in last["content"]["parts"]))
    assert response.body.count(b'"finishReason"') == 1
    assert last["finishReason"].encode() in sent(response)[-1] or last["finishReason"] == "MOON"
    (entry,) = gateway.quiet()
    ((attempt,), output) = (entry.attempts, 42 if "usageMetadata" in messages[-1] else 5)
    assert entry.outcome == "completed"
    assert (attempt.tokens.input, attempt.tokens.output - attempt.tokens.reasoning) == (5, output)


def test_a_last_message_that_comes_before_the_end_is_written_at_once(gateway: GeminiGateway) -> None:
    """Its text must not wait for the end of the body, and its finish must."""
    gate = Gate()
    pieces = [each for word in [*WORDS, LAST] for each in (chunk(wire(word)), until_read())]
    ops: list[Op] = [head(), *pieces, gate, last_chunk()]
    body = json.dumps({"contents": HI}).encode()
    path = f"/v1beta/models/gem/{gateway.upstream.play(ops)}:streamGenerateContent?alt=sse"
    gateway.expected += 1
    with gateway.client() as client:
        client.send(post(body, KEY, path))
        client.read_until(b"then.")
        gate.open()
        response = gateway.keep(client.response())
    assert response.body.count(b'"finishReason"') == 1
    assert messages(response)[-1]["usageMetadata"]["candidatesTokenCount"] == 42
