"""Streams that grow in ways in which a naive reader would copy its buffer: do four times the bytes take as many times?

`properties/test_linear.py` counts calls, which other work on the machine cannot disturb. But copying is done in C
without a call, so it is timed here, by `scripts/fuzz` and not by the tests.
"""

import time
from collections.abc import Callable, Iterator

from penstock import Accumulator, StreamReader
from penstock.core.dialects.registry import DEFAULT_DIALECT
from tests import bedrock, cohere, gemini, messages, ollama, responses
from tests.event_streams import event
from tests.streams import DONE, Json, begins, bill, calls, choice, chunk, delta, finishes, piece, says, sse


def tokens(n: int) -> Iterator[Json]:
    for _ in range(n):
        yield chunk(
            choice({"content": "x"}, logprobs={"content": [{"token": "x", "logprob": -1.0, "top_logprobs": []}]})
        )


# What grows with the stream and has to be merged: the copying is C's, and a count of calls does not see it.
GROWING: dict[str, Callable[[int], bytes]] = {
    "text": lambda n: sse(begins(), *[says("x")] * (3 * n), finishes(), DONE),
    "one line": lambda n: sse(begins(), says("x" * (300 * n)), finishes(), DONE),
    "log probabilities": lambda n: sse(begins(), *tokens(2 * n), finishes(), DONE),
    "audio": lambda n: sse(begins(), *[delta({"audio": {"id": "a", "data": "A" * 16_000}})] * n, finishes(), DONE),
    "annotations": lambda n: sse(begins(), *[delta({"annotations": [{"type": "url"}]})] * (3 * n), finishes(), DONE),
    "new extras in every chunk": lambda n: sse(begins(), *(says("x") | {f"key{i}": i} for i in range(2 * n)), DONE),
    "many extras, one of them changing": lambda n: sse(
        begins() | {f"key{i}": i for i in range(10 * n)}, *(says("x", padding=i) for i in range(2 * n)), DONE
    ),
    "new figures in every usage": lambda n: sse(*(bill(prompt_tokens=1, **{f"key{i}": i}) for i in range(2 * n)), DONE),
    "many choices": lambda n: sse(*(delta({"role": "assistant", "content": "x"}, index=i) for i in range(n)), DONE),
    "many calls": lambda n: sse(begins(), *(calls(piece(i, f"c{i}", "f", "{}")) for i in range(n)), finishes(), DONE),
    "many calls, each with a finish": lambda n: sse(
        begins(), *(delta({"tool_calls": [piece(i, f"c{i}", "f", "{}")]}, finish="tool_calls") for i in range(n)), DONE
    ),
}  # fmt: skip


GROWING_MESSAGES: dict[str, Callable[[int], bytes]] = {
    "text": lambda n: messages.answer(*messages.says_all(*["x"] * (3 * n))),
    "text that its start has": lambda n: messages.answer(
        messages.opens(text="x" * (2 * n)), *[messages.says("x")] * (2 * n), messages.closes()
    ),
    "an unknown block": lambda n: messages.answer(
        messages.opens(0, "tide"), *[messages.delta(0, "tide_delta", level="x" * 100)] * (2 * n), messages.closes()
    ),
    "many calls, never stopped": lambda n: messages.answer(*(messages.calls(i, f"c{i}") for i in range(2 * n))),
    "new figures in every usage": lambda n: messages.answer(
        *(messages.finishes(usage={"output_tokens": i, f"key{i}": i}) for i in range(2 * n))
    ),
}


GROWING_RESPONSES: dict[str, Callable[[int], bytes]] = {
    "text": lambda n: responses.answer(*responses.says_all(*["x"] * (3 * n))),
    "text with escapes": lambda n: responses.answer(*responses.says_all(*["x", "\n"] * (2 * n))),
    "numbers with gaps": lambda n: b"".join(
        responses.named(event | {"sequence_number": 2 * number})
        for number, event in enumerate([*responses.begins(), *responses.says_all(*["x"] * (2 * n))])
    ),
    "summaries that take turns": lambda n: responses.answer(
        *(
            responses.of_item("reasoning_summary_text.delta", 0, "rs_1", summary_index=place % 2, delta="x")
            for place in range(2 * n)
        )
    ),
    "many items": lambda n: responses.answer(
        *(event for index in range(n // 2) for event in responses.says_all("x", index=index, id=f"msg_{index}"))
    ),
    "an item whose ids rotate": lambda n: responses.answer(
        *(responses.says("x", id=f"msg_{place}") for place in range(2 * n))
    ),
}


GROWING_GEMINI: dict[str, Callable[[int], bytes]] = {
    "text": lambda n: gemini.answer(*[gemini.says("x")] * (3 * n)),
    "an array": lambda n: gemini.array(*[gemini.says("x")] * n, gemini.finishes()),
    "many calls": lambda n: gemini.answer(*[gemini.message(gemini.calls())] * n),
    "streamed arguments": lambda n: gemini.answer(
        gemini.passes(name="f"),
        *(gemini.passes({"jsonPath": f"$.a[{i}].b", "numberValue": i}) for i in range(2 * n)),
        gemini.passes(more=False),
    ),
    "a streamed string": lambda n: gemini.answer(
        gemini.passes(name="f"),
        *[gemini.passes({"jsonPath": "$.a", "stringValue": "x", "willContinue": True})] * (2 * n),
        gemini.passes({"jsonPath": "$.a", "stringValue": ""}, more=False),
    ),
    "usage and sources in every message": lambda n: gemini.answer(
        *[gemini.says("x", usage=gemini.USAGE, **gemini.GROUNDING)] * n
    ),
    "new figures in every usage": lambda n: gemini.answer(
        *(gemini.says("x", usage={"promptTokenCount": 1, f"key{i}": i}) for i in range(2 * n))
    ),
}


GROWING_OLLAMA: dict[str, Callable[[int], bytes]] = {
    "text": lambda n: ollama.answer(*[ollama.message("x")] * (3 * n)),
    "one line": lambda n: ollama.answer(ollama.message("x" * (300 * n))),
    "many calls": lambda n: ollama.answer(*(ollama.message(tool_calls=[ollama.call(f"c{i}", {})]) for i in range(n))),
    "all on one line": lambda n: ollama.answer(*[ollama.message("x")] * n).replace(b"\n", b""),
}


GROWING_COHERE: dict[str, Callable[[int], bytes]] = {
    "text": lambda n: cohere.answer(*cohere.says_all(*["x"] * (3 * n))),
    "blocks that never end": lambda n: cohere.answer(*[cohere.says_all()[0]] * (2 * n)),
    "citations": lambda n: cohere.answer(*cohere.says_all("x"), *cohere.cites("x") * n),
}


GROWING_BEDROCK: dict[str, Callable[[int], bytes]] = {
    "text": lambda n: bedrock.answer(bedrock.says("x") * (3 * n)),
    "one message": lambda n: bedrock.answer(bedrock.says("x" * (300 * n))),
    "blocks that never end": lambda n: bedrock.answer(*(bedrock.says("x", i) for i in range(2 * n))),
    "deltas without an index": lambda n: bedrock.answer(event("contentBlockDelta", {"delta": {"text": "x"}}) * (2 * n)),
    "usage in every message": lambda n: bedrock.answer((bedrock.says("x") + bedrock.bill()) * n),
}


def growth() -> dict[str, float]:
    """For each kind of stream, how many times as long four times the bytes take: 4, or 16 if it were quadratic."""
    chat = {name: _growth(make, DEFAULT_DIALECT) for name, make in GROWING.items()}
    others = (
        ("messages", messages.DIALECT, GROWING_MESSAGES),
        ("responses", responses.DIALECT, GROWING_RESPONSES),
        ("gemini", gemini.DIALECT, GROWING_GEMINI),
        ("ollama", ollama.DIALECT, GROWING_OLLAMA),
        ("cohere", cohere.DIALECT, GROWING_COHERE),
        ("bedrock", bedrock.DIALECT, GROWING_BEDROCK),
    )
    return chat | {
        f"{api}: {name}": _growth(make, dialect) for api, dialect, growing in others for name, make in growing.items()
    }


def _growth(make: Callable[[int], bytes], dialect: str) -> float:
    return _seconds(make(1_000), dialect) / max(_seconds(make(250), dialect), 0.002)


def _seconds(wire: bytes, dialect: str) -> float:
    """The time to read and fold the bytes: the best of three runs, to exclude other work on the machine."""
    return min(_seconds_once(wire, dialect) for _ in range(3))


def _seconds_once(wire: bytes, dialect: str) -> float:
    reader, answer = StreamReader(dialect, max_event=10_000_000), Accumulator()
    start = time.process_time()
    answer.extend(reader.feed(wire))
    answer.extend(reader.close())
    return time.process_time() - start
