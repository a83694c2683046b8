"""The answers of the scenarios in the dialects that only providers speak: each as a stream, and as a whole body.

No client speaks these dialects, so Penstock need not write them. What a provider sends is written here by hand.
"""

from typing import NamedTuple

from tests import bedrock as aws
from tests import cohere as co
from tests import ollama as oll
from tests.event_streams import exception
from tests.translation.support import BEDROCK, COHERE, OLLAMA

BREST, CORK = {"port": "Brest"}, {"port": "Cork"}
TIDE, CORK_TIDE = '{"port":"Brest"}', '{"port":"Cork"}'
URL = "https://tides.example"
LOGPROB = {"token": "So.", "logprob": -0.1, "bytes": None, "top_logprobs": []}
IMAGE = {"format": "png", "source": {"bytes": "aW1hZ2U="}}
WEB = {"title": "Tides", "sourceContent": [], "location": {"web": {"url": URL}}}
PAGE = {"title": "D", "sourceContent": [], "location": {"documentPage": {"documentIndex": 0, "start": 1, "end": 2}}}
CACHED = {"inputTokens": 40, "outputTokens": 9, "totalTokens": 109, "cacheReadInputTokens": 60}
WRITTEN = CACHED | {"inputTokens": 10, "cacheWriteInputTokens": 30}
SEARCHES = aws.calls_all("srv_1", '{"query":"tide"}', name="nova_grounding", type="server_tool_use")
FINDS = (
    aws.block("Start", 1, start={"toolResult": {"toolUseId": "srv_1", "type": "nova_grounding_result"}})
    + aws.delta(1, toolResult=[{"json": {"hits": 3}}])
    + aws.block("Stop", 1)
)


class ProviderAnswer(NamedTuple):
    """What a provider sends."""

    stream: bytes
    body: bytes = b""
    """The same answer unstreamed; empty for one that breaks off, or that cannot be whole."""


def called(id: str, arguments: object, name: str = "get_tide") -> dict[str, object]:
    """A tool call in an unstreamed answer of Bedrock."""
    return {"toolUse": {"toolUseId": id, "name": name, "input": arguments}}


ANSWERS: dict[str, dict[str, ProviderAnswer]] = {
    "text": {
        OLLAMA: ProviderAnswer(
            oll.answer(oll.message("High tide"), oll.message(", low tide")),
            oll.body(oll.message("High tide, low tide")),
        ),
        COHERE: ProviderAnswer(
            co.answer(*co.says_all("High tide", ", low tide")), co.body(content=[co.text("High tide, low tide")])
        ),
        BEDROCK: ProviderAnswer(
            aws.answer(aws.says_all("High tide", ", low tide")), aws.body({"text": "High tide, low tide"})
        ),
    },
    "reasoning": {
        OLLAMA: ProviderAnswer(
            oll.answer(oll.message(thinking="Hmm"), oll.message(thinking=", well"), oll.message("So.")),
            oll.body(oll.message("So.", thinking="Hmm, well")),
        ),
        COHERE: ProviderAnswer(
            co.answer(*co.says_all("Hmm", ", well", kind="thinking"), *co.says_all("So.", index=1)),
            co.body(content=[co.text("Hmm, well", "thinking"), co.text("So.")]),
        ),
    },
    "reasoning with a seal": {
        BEDROCK: ProviderAnswer(
            aws.answer(aws.thinks_all("Hmm", ", well", seal="c2ln"), aws.says_all("So.", index=1)),
            aws.body(
                {"reasoningContent": {"reasoningText": {"text": "Hmm, well", "signature": "c2ln"}}}, {"text": "So."}
            ),
        ),
    },
    "two parallel calls": {
        OLLAMA: ProviderAnswer(
            oll.answer(
                oll.message("Let me look."), oll.message(tool_calls=[oll.call("call_1", BREST)]),
                oll.message(tool_calls=[oll.call("call_2", CORK, index=1)]),
            ),
            oll.body(oll.message("Let me look.", tool_calls=[oll.call("call_1", BREST), oll.call("call_2", CORK)])),
        ),
        COHERE: ProviderAnswer(
            co.answer(
                *co.says_all("Let me look."), *co.calls_all("call_1", '{"port":', '"Brest"}'),
                *co.calls_all("call_2", CORK_TIDE, index=1), finish=co.ends("TOOL_CALL"),
            ),
            co.body(
                "TOOL_CALL", content=[co.text("Let me look.")],
                tool_calls=[co.call("call_1", TIDE), co.call("call_2", CORK_TIDE)],
            ),
        ),
        BEDROCK: ProviderAnswer(
            aws.answer(
                aws.says_all("Let me look."), aws.calls_all("call_1", '{"port":', '"Brest"}', index=1),
                aws.calls_all("call_2", CORK_TIDE, index=2), reason="tool_use",
            ),
            aws.body({"text": "Let me look."}, called("call_1", BREST), called("call_2", CORK), reason="tool_use"),
        ),
    },
    "a call without arguments": {
        OLLAMA: ProviderAnswer(
            oll.answer(oll.message(tool_calls=[oll.call("call_1", {}, "now")])),
            oll.body(oll.message(tool_calls=[oll.call("call_1", {}, "now")])),
        ),
        COHERE: ProviderAnswer(
            co.answer(*co.calls_all("call_1", name="now"), finish=co.ends("TOOL_CALL")),
            co.body("TOOL_CALL", tool_calls=[co.call("call_1", "{}", "now")]),
        ),
        BEDROCK: ProviderAnswer(
            aws.answer(aws.calls_all("call_1", name="now"), reason="tool_use"),
            aws.body(called("call_1", {}, "now"), reason="tool_use"),
        ),
    },
    "a plan before a call": {
        COHERE: ProviderAnswer(
            co.answer(
                co.plans("I will look"), co.plans(" it up."), *co.calls_all("call_1", TIDE), finish=co.ends("TOOL_CALL")
            ),
            co.body("TOOL_CALL", tool_plan="I will look it up.", tool_calls=[co.call("call_1", TIDE)]),
        ),
    },
    "log probabilities": {
        OLLAMA: ProviderAnswer(
            oll.answer(oll.message("So.") | {"logprobs": [LOGPROB]}),
            oll.body(oll.message("So.") | {"logprobs": [LOGPROB]}),
        ),
    },
    "an empty list of calls beside text": {
        OLLAMA: ProviderAnswer(
            oll.answer(oll.message("So.", tool_calls=[])), oll.body(oll.message("So.", tool_calls=[]))
        ),
        COHERE: ProviderAnswer(
            co.answer(*co.says_all("So.")), co.body(content=[co.text("So.")], tool_calls=[], citations=[])
        ),
    },
    "a content filter": {
        BEDROCK: ProviderAnswer(
            aws.answer(aws.says_all("How to"), reason="guardrail_intervened"),
            aws.body({"text": "How to"}, reason="guardrail_intervened"),
        ),
    },
    "the limit on the output": {
        OLLAMA: ProviderAnswer(
            oll.answer(oll.message("Once upon"), reason="length"), oll.body(oll.message("Once upon"), "length")
        ),
        COHERE: ProviderAnswer(
            co.answer(*co.says_all("Once upon"), finish=co.ends("MAX_TOKENS")),
            co.body("MAX_TOKENS", content=[co.text("Once upon")]),
        ),
        BEDROCK: ProviderAnswer(
            aws.answer(aws.says_all("Once upon"), reason="max_tokens"),
            aws.body({"text": "Once upon"}, reason="max_tokens"),
        ),
    },
    "a call that the limit cuts off": {
        COHERE: ProviderAnswer(co.answer(*co.calls_all("call_1", '{"port":"Br'), finish=co.ends("MAX_TOKENS"))),
        BEDROCK: ProviderAnswer(aws.answer(aws.calls_all("call_1", '{"port":"Br'), reason="max_tokens")),
    },
    "a stop sequence": {
        OLLAMA: ProviderAnswer(oll.answer(oll.message("Once")), oll.body(oll.message("Once"))),
        COHERE: ProviderAnswer(
            co.answer(*co.says_all("Once"), finish=co.ends("STOP_SEQUENCE")),
            co.body("STOP_SEQUENCE", content=[co.text("Once")]),
        ),
        BEDROCK: ProviderAnswer(
            aws.answer(aws.says_all("Once"), reason="stop_sequence"),
            aws.body({"text": "Once"}, reason="stop_sequence"),
        ),
    },
    "cached input": {
        COHERE: ProviderAnswer(
            co.answer(*co.says_all("So."), finish=co.ends(counts=co.usage(100, 9, cached=60))),
            co.body(content=[co.text("So.")], counts=co.usage(100, 9, cached=60)),
        ),
        BEDROCK: ProviderAnswer(
            aws.answer(aws.says_all("So."), usage=CACHED), aws.body({"text": "So."}, usage=CACHED)
        ),
    },
    "cached input and reasoning": {
        COHERE: ProviderAnswer(
            co.answer(*co.says_all("So."), finish=co.ends(counts=co.usage(100, 9, cached=60, reasoning_tokens=5))),
            co.body(content=[co.text("So.")], counts=co.usage(100, 9, cached=60, reasoning_tokens=5)),
        ),
    },
    "writes into the cache": {
        BEDROCK: ProviderAnswer(
            aws.answer(aws.says_all("So."), usage=WRITTEN), aws.body({"text": "So."}, usage=WRITTEN)
        ),
    },
    "heartbeats": {
        OLLAMA: ProviderAnswer(
            oll.answer(oll.message(), oll.message("So."), oll.message()), oll.body(oll.message("So."))
        ),
        COHERE: ProviderAnswer(
            co.wire(co.BEGIN) + b": ping\n\n" + co.wire(*co.says_all("So."), co.ends()) + co.DONE,
            co.body(content=[co.text("So.")]),
        ),
        BEDROCK: ProviderAnswer(aws.answer(aws.says(""), aws.says_all("So.", "")), aws.body({"text": "So."})),
    },
    "a fault in mid-stream": {
        OLLAMA: ProviderAnswer(oll.wire(oll.message("Half"), {"error": "Overloaded"})),
        COHERE: ProviderAnswer(
            co.wire(co.BEGIN, *co.says_all("Half")[:2], co.ends("ERROR", counts={}, error="Overloaded"))
        ),
        BEDROCK: ProviderAnswer(aws.BEGIN + aws.says("Half") + exception("modelStreamErrorException", "Overloaded")),
    },
    "a stream that is cut off": {
        OLLAMA: ProviderAnswer(oll.wire(oll.message("Half"))),
        COHERE: ProviderAnswer(co.wire(co.BEGIN, *co.says_all("Half")[:2])),
        BEDROCK: ProviderAnswer(aws.BEGIN + aws.says("Half") + aws.stops()[:40]),
    },
    "a tool of Amazon's own": {
        BEDROCK: ProviderAnswer(
            aws.answer(SEARCHES, FINDS, aws.says_all("It rises.", index=2)),
            aws.body(
                {"toolUse": aws.call("srv_1", "nova_grounding", type="server_tool_use")["toolUse"] | {"input": {}}},
                {"toolResult": {"toolUseId": "srv_1", "type": "nova_grounding_result", "content": []}},
                {"text": "It rises."},
            ),
        ),
    },
    "a source on the web": {
        COHERE: ProviderAnswer(
            co.answer(*co.says_all("High at noon")[:-1], *co.cites("High", url=URL), co.closes()),
            co.body(content=[co.text("High at noon")], citations=[co.citation("High", url=URL)]),
        ),
        BEDROCK: ProviderAnswer(
            aws.answer(aws.says("High at noon"), aws.delta(citation=WEB), aws.block("Stop")),
            aws.body({"citationsContent": {"content": [{"text": "High at noon"}], "citations": [WEB]}}),
        ),
    },
    "a citation of a document": {
        COHERE: ProviderAnswer(
            co.answer(*co.says_all("High at noon")[:-1], *co.cites("High", title="D"), co.closes()),
            co.body(content=[co.text("High at noon")], citations=[co.citation("High", title="D")]),
        ),
    },
    "a citation of a place in a document": {
        BEDROCK: ProviderAnswer(
            aws.answer(aws.says("High at noon"), aws.delta(citation=PAGE), aws.block("Stop")),
            aws.body({"citationsContent": {"content": [{"text": "High at noon"}], "citations": [PAGE]}}),
        ),
    },
    "an image": {
        BEDROCK: ProviderAnswer(
            aws.answer(
                aws.block("Start", start={"image": {"format": "png"}}), aws.delta(image={"source": IMAGE["source"]}),
                aws.block("Stop"), aws.says_all("Here.", index=1),
            ),
            aws.body({"image": IMAGE}, {"text": "Here."}),
        ),
    },
}  # fmt: skip
