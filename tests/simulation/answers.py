"""Answers that generated providers send: what is said in them, and its bytes in the API of each provider."""

import json
from random import Random
from typing import Any

from msgspec import Struct

from tests import bedrock, cohere, gemini, messages, ollama, responses, streams

DIALECTS = ("openai_chat", "anthropic_messages", "openai_responses", "gemini", "ollama", "cohere", "bedrock_converse")
_WORDS = (
    "tide", " high", " water", "\n", " at", " noón", ' "Brest"', " {", "}", " data: ", "[DONE]", " 👩‍👩‍👧", " \\n",
    " 7.5", "…", " event:", " null", "</s>", " the", " and", " of", "\t", " <b>", "&amp;", " 水", " %s", " \u2028",
)  # fmt: skip


class Answer(Struct, frozen=True):
    """What a model says, and what its provider says that it costs."""

    texts: tuple[str, ...]
    calls: tuple[tuple[str, str], ...]
    """Tool calls: names and arguments."""
    input: int
    output: int

    @property
    def text(self) -> str:
        return "".join(self.texts)


def generated(chance: Random, *, input: int, most: int = 60) -> Answer:
    """An answer of any length."""
    size = chance.choice((1, 2, 5, 12, most))
    texts = tuple("".join(chance.choices(_WORDS, k=chance.randint(1, 4))) for _ in range(chance.randint(1, size)))
    calls = tuple(
        (f"get_tide_{number}", json.dumps({"port": chance.choice(_WORDS), "days": chance.randrange(9)}))
        for number in range(chance.choice((0, 0, 0, 1, 2)))
    )
    return Answer(texts, calls, input, len(texts) * 2 + 12 * len(calls))


def events_of(dialect: str, answer: Answer) -> list[bytes]:
    """The events of a stream, each with its framing."""
    return _STREAMS[dialect](answer)


def body_of(dialect: str, answer: Answer) -> bytes:
    """A whole answer that is not streamed."""
    return _BODIES[dialect](answer)


def _chat(answer: Answer) -> list[bytes]:
    events = [streams.begins(), *map(streams.says, answer.texts)]
    for index, (name, arguments) in enumerate(answer.calls):
        half = len(arguments) // 2
        events.append(streams.calls(streams.piece(index, f"call_{index}", name, "")))
        events += [streams.calls(streams.piece(index, arguments=part)) for part in (arguments[:half], arguments[half:])]
    events.append(streams.finishes("tool_calls" if answer.calls else "stop"))
    usage = streams.bill(**streams.counts(answer.input, answer.output))
    return [*(streams.sse(each) for each in (*events, usage)), streams.sse(streams.DONE)]


def _messages(answer: Answer) -> list[bytes]:
    events = [
        messages.begins(usage={"input_tokens": answer.input, "output_tokens": 1}),
        *messages.says_all(*answer.texts),
    ]
    for index, (name, arguments) in enumerate(answer.calls, 1):
        events += messages.calls_all(arguments, index, id=f"toolu_{index}", name=name)
    reason = "tool_use" if answer.calls else "end_turn"
    events.append(messages.finishes(reason, usage={"output_tokens": answer.output}))
    return [messages.wire(each) for each in (*events, messages.STOPS)]


def _responses(answer: Answer) -> list[bytes]:
    events: list[Any] = responses.says_all(*answer.texts)
    for index, (name, arguments) in enumerate(answer.calls, 1):
        events += responses.calls_all(arguments, index, id=f"fc_{index}", call_id=f"call_{index}", name=name)
    usage = responses.USAGE | {
        "input_tokens": answer.input, "output_tokens": answer.output, "total_tokens": answer.input + answer.output,
    }  # fmt: skip
    whole = [*responses.begins(), *events, responses.completes(*responses.items_of(events), usage=usage)]
    return [responses.named(each) for each in responses.numbered(whole) if not isinstance(each, str)]


def _gemini(answer: Answer) -> list[bytes]:
    events = [gemini.says(text) for text in answer.texts]
    events += [gemini.message(gemini.calls(name, json.loads(arguments))) for name, arguments in answer.calls]
    return [gemini.wire(each) for each in (*events, gemini.finishes(usage=gemini.report(answer.output, answer.input)))]


def _ollama(answer: Answer) -> list[bytes]:
    lines = [ollama.message(text) for text in answer.texts]
    calls = [ollama.call(f"call_{n}", json.loads(text), name, n) for n, (name, text) in enumerate(answer.calls)]
    lines += [ollama.message(tool_calls=calls)] if calls else []
    end = ollama.message() | ollama.ends("stop", answer.input, answer.output)
    return [ollama.wire(each) for each in (*lines, end)]


def _cohere(answer: Answer) -> list[bytes]:
    events = [cohere.BEGIN, *cohere.says_all(*answer.texts)]
    for index, (name, arguments) in enumerate(answer.calls):
        events += cohere.calls_all(f"call_{index}", arguments[:5], arguments[5:], index=index, name=name)
    reason = "TOOL_CALL" if answer.calls else "COMPLETE"
    end = cohere.ends(reason, cohere.usage(answer.input, answer.output))
    return [*(cohere.wire(each) for each in (*events, end)), cohere.DONE]


def _bedrock(answer: Answer) -> list[bytes]:
    events = [bedrock.BEGIN, *(bedrock.says(text) for text in answer.texts), bedrock.block("Stop")]
    for index, (name, arguments) in enumerate(answer.calls, 1):
        half = len(arguments) // 2
        events += [
            bedrock.block("Start", index, start=bedrock.call(f"call_{index}", name)),
            bedrock.passes(arguments[:half], index),
            bedrock.passes(arguments[half:], index),
            bedrock.block("Stop", index),
        ]
    usage = {"inputTokens": answer.input, "outputTokens": answer.output, "totalTokens": answer.input + answer.output}
    return [*events, bedrock.stops("tool_use" if answer.calls else "end_turn"), bedrock.bill(usage)]


def _chat_body(answer: Answer) -> bytes:
    calls = [
        {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": text}}
        for n, (name, text) in enumerate(answer.calls)
    ]
    message = {"role": "assistant", "content": answer.text, **({"tool_calls": calls} if calls else {})}
    finish = "tool_calls" if calls else "stop"
    whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": "sluice-1"}
    whole |= {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}
    return json.dumps(whole | {"usage": streams.counts(answer.input, answer.output)}).encode()


def _messages_body(answer: Answer) -> bytes:
    begun = messages.begins(usage={"input_tokens": answer.input, "output_tokens": answer.output})["message"]
    content: list[Any] = [{"type": "text", "text": answer.text}]
    content += [
        {"type": "tool_use", "id": f"toolu_{n}", "name": name, "input": json.loads(text)}
        for n, (name, text) in enumerate(answer.calls)
    ]
    reason = "tool_use" if answer.calls else "end_turn"
    return json.dumps(begun | {"content": content, "stop_reason": reason}).encode()


def _responses_body(answer: Answer) -> bytes:
    usage = responses.USAGE | {
        "input_tokens": answer.input, "output_tokens": answer.output, "total_tokens": answer.input + answer.output,
    }  # fmt: skip
    items = [responses.message(responses.part(answer.text))]
    items += [
        responses.function(text, id=f"fc_{n}", call_id=f"call_{n}", name=name)
        for n, (name, text) in enumerate(answer.calls)
    ]
    return json.dumps(responses.response("completed", *items, usage=usage)).encode()


def _gemini_body(answer: Answer) -> bytes:
    parts: list[Any] = [{"text": answer.text}]
    parts += [gemini.calls(name, json.loads(text)) for name, text in answer.calls]
    return json.dumps(gemini.message(*parts, finish="STOP", usage=gemini.report(answer.output, answer.input))).encode()


def _ollama_body(answer: Answer) -> bytes:
    calls = [ollama.call(f"call_{n}", json.loads(text), name, n) for n, (name, text) in enumerate(answer.calls)]
    line = ollama.message(answer.text, **({"tool_calls": calls} if calls else {}))
    return ollama.body(line, input=answer.input, output=answer.output)


def _cohere_body(answer: Answer) -> bytes:
    calls = [cohere.call(f"call_{n}", text, name) for n, (name, text) in enumerate(answer.calls)]
    return cohere.body(
        "TOOL_CALL" if calls else "COMPLETE",
        cohere.usage(answer.input, answer.output),
        content=[cohere.text(answer.text)],
        **({"tool_calls": calls} if calls else {}),
    )


def _bedrock_body(answer: Answer) -> bytes:
    content: list[Any] = [{"text": answer.text}]
    content += [
        {"toolUse": {"toolUseId": f"call_{n}", "name": name, "input": json.loads(text)}}
        for n, (name, text) in enumerate(answer.calls)
    ]
    usage = {"inputTokens": answer.input, "outputTokens": answer.output, "totalTokens": answer.input + answer.output}
    return bedrock.body(*content, reason="tool_use" if answer.calls else "end_turn", usage=usage)


_STREAMS = dict(zip(DIALECTS, (_chat, _messages, _responses, _gemini, _ollama, _cohere, _bedrock), strict=True))
_BODIES = dict(
    zip(
        DIALECTS,
        (_chat_body, _messages_body, _responses_body, _gemini_body, _ollama_body, _cohere_body, _bedrock_body),
        strict=True,
    )
)
