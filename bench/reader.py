"""How long Penstock takes to read a chunk, beside the `openai` package on the same bytes: `scripts/bench-reader`.

Both sides get the same list of `bytes`, as reads of a socket would give them, and no socket, no HTTP:

- **reader**: `StreamReader.feed` and `.close`: every event of the answer.
- **+ accumulator**: the same, and an `Accumulator` that makes the whole answer of it. This is what the ratio is about.
- **+ writer**: the reader, and a `StreamWriter` that writes the stream again.
- **openai**: the package's own `Stream`, iterated: it splits the bytes into events, parses each one's JSON and builds a
  `ChatCompletionChunk` of it. It does not add the chunks up; an application has to.

Time is the CPU time of the thread, so that neighbours disturb it least. The sides take turns within a round. A figure
is the median of its rounds, the ratio the median of the rounds' ratios.
"""

import argparse
import gc
import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import openai
from openai.types.chat import ChatCompletionChunk

from penstock import Accumulator, StreamReader, StreamWriter

SEEDS = Path(__file__).parents[1] / "tests/seeds"
GOAL = 10.0
CLIENT = openai.OpenAI(api_key="none")


class Load(NamedTuple):
    """A stream in the reads that both sides are given. The SDK cannot read some framings: it then sits out."""

    name: str
    reads_name: str
    reads: list[bytes]
    chunks: int
    sdk_reads_it: bool


class Response:
    """What the SDK's `Stream` asks of an HTTP response: its bytes."""

    def __init__(self, reads: list[bytes]) -> None:
        self._reads = reads

    def iter_bytes(self) -> Iterator[bytes]:
        return iter(self._reads)

    def close(self) -> None:
        pass


def read(reads: list[bytes]) -> None:
    reader = StreamReader()
    for data in reads:
        reader.feed(data)
    reader.close()


def accumulate(reads: list[bytes]) -> str:
    reader, answer = StreamReader(), Accumulator()
    for data in reads:
        answer.extend(reader.feed(data))
    answer.extend(reader.close())
    completion = answer.completion
    assert completion.ending == "completed"
    return completion.text


def rewrite(reads: list[bytes]) -> None:
    reader, writer = StreamReader(), StreamWriter(source="openai_chat", include_usage=True)
    for data in reads:
        writer.write(reader.feed(data))
    writer.write(reader.close())


def read_with_sdk(reads: list[bytes]) -> None:
    for _ in sdk_chunks(reads):
        pass


def sdk_chunks(reads: list[bytes]) -> Iterator[ChatCompletionChunk]:
    response = cast(Any, Response(reads))
    return iter(openai.Stream(cast_to=ChatCompletionChunk, response=response, client=CLIENT))


READERS: dict[str, Callable[[list[bytes]], object]] = {
    "reader": read,
    "+ accumulator": accumulate,
    "+ writer": rewrite,
    "openai": read_with_sdk,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Microseconds per chunk: Penstock's reader beside the openai package.")
    parser.add_argument("--chunks", type=int, default=2000, help="chunks per stream (%(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="times that each side has its turn (%(default)s)")
    options = parser.parse_args()
    loads = list(all_loads(options.chunks))
    for load in loads:
        check(load)
    gc.collect()
    gc.freeze()  # imported modules are never garbage
    version = ".".join(map(str, sys.version_info[:3]))
    print(f"CPU microseconds per chunk; openai {openai.__version__}, Python {version}, {options.rounds} rounds\n")
    print(row("stream", "reads", "bytes", *READERS, "ratio"))
    ratios = []
    for load in loads:
        figures = measure(load, options.rounds)
        medians = [f"{statistics.median(figures[side]):.1f}" if side in figures else "–" for side in READERS]
        ratio = "–"
        if load.sdk_reads_it:
            pairs = zip(figures["openai"], figures["+ accumulator"], strict=True)
            ratios.append(statistics.median(theirs / ours for theirs, ours in pairs))
            ratio = f"{ratios[-1]:.1f}"
        print(row(load.name, load.reads_name, str(sum(map(len, load.reads)) // load.chunks), *medians, ratio))
    print(f"\nratio: openai / (reader + accumulator). The least is {min(ratios):.1f}; the goal is {GOAL:.0f}.")
    return 0 if min(ratios) >= GOAL else 1


def row(stream: str, reads: str, *cells: str) -> str:
    return f"{stream:<26}{reads:<12}{cells[0]:>6}" + "".join(f"{cell:>15}" for cell in cells[1:])


def measure(load: Load, rounds: int) -> dict[str, list[float]]:
    """Microseconds per chunk of each side, by round."""
    figures: dict[str, list[float]] = {side: [] for side in READERS if load.sdk_reads_it or side != "openai"}
    for _ in range(rounds):
        for side, taken in figures.items():
            gc.collect()
            started = time.thread_time_ns()
            READERS[side](load.reads)
            taken.append((time.thread_time_ns() - started) / 1000 / load.chunks)
    return figures


def check(load: Load) -> None:
    """Both sides read the same, or there is nothing to compare."""
    text = accumulate(load.reads)
    chunks = list(sdk_chunks(load.reads)) if load.sdk_reads_it else []
    sdk_text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert (len(chunks), sdk_text) == ((load.chunks, text) if load.sdk_reads_it else (0, ""))


def all_loads(count: int) -> Iterator[Load]:
    seeds = {seed.name[:3]: payloads(seed.read_bytes()) for seed in sorted(SEEDS.glob("*.txt"))}
    streams = {f"seed {number}": stretched(seed, count) for number, seed in seeds.items()}
    streams |= {"tool call": tool_call(count), "reasoning": reasoning(count)}
    for name, chunks in streams.items():
        events = [b"data: %b\n\n" % chunk for chunk in [*chunks, b"[DONE]"]]
        yield from loads(name, events, sdk_reads_it=True)
    # As the reseller framed them: no blank lines. The SDK gets nothing out of that.
    events = [b"data: %b\n" % chunk for chunk in [*streams["seed 001"], b"[DONE]"]]
    yield from loads("seed 001, no blank lines", events, sdk_reads_it=False)


def loads(name: str, events: list[bytes], *, sdk_reads_it: bool) -> Iterator[Load]:
    whole = b"".join(events)
    ways = {
        "whole": [whole],
        "by event": events,
        "200 bytes": [whole[start : start + 200] for start in range(0, len(whole), 200)],
    }
    for reads_name, reads in ways.items():
        yield Load(name, reads_name, reads, len(events) - 1, sdk_reads_it)


def payloads(seed: bytes) -> list[bytes]:
    """The JSON of a seed's chunks, each on a line of its own there."""
    return re.findall(rb"^(?:data: )?(\{.*\})$", seed, flags=re.MULTILINE)


def stretched(chunks: list[bytes], count: int) -> list[bytes]:
    """A stream of so many chunks: those that say something are said again and again."""
    speech = [chunk for chunk in chunks[1:] if b'"content"' in chunk]
    first, *_ = chunks
    last = [chunk for chunk in chunks[1:] if chunk not in speech]
    repeats = count - 1 - len(last)
    return [first, *(speech[number % len(speech)] for number in range(repeats)), *last]


def tool_call(count: int) -> list[bytes]:
    """A long tool call, as OpenAI streams it: a few characters of its arguments in each chunk."""
    start = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "write_file", "arguments": ""}}
    pieces = ['{"text":"', *(f" word{number}" for number in range(count - 5)), '"}']
    deltas = [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces]
    return conversation([{"tool_calls": [start]}, *deltas], "tool_calls")


def reasoning(count: int) -> list[bytes]:
    """A long thought, as DeepSeek streams it: the text in one field, null in the other."""
    thoughts = [{"content": None, "reasoning_content": f" thought{number}"} for number in range(count - 3)]
    return conversation([*thoughts, {"content": "42", "reasoning_content": None}], "stop")


def conversation(deltas: list[Any], finish: str) -> list[bytes]:
    """Chunks in OpenAI's spelling: the role, what is said, the finish."""
    return [
        chunk({"role": "assistant", "content": None}),
        *(chunk(delta) for delta in deltas),
        chunk({}, finish),
    ]


def chunk(delta: object, finish: str | None = None) -> bytes:
    body = {
        "id": "chatcmpl-DEX8EMcDkTdfGQxZp4kzry8W3R3xD",
        "object": "chat.completion.chunk",
        "created": 1772356322,
        "model": "gpt-4o-mini-2024-07-18",
        "service_tier": "default",
        "system_fingerprint": "fp_bfa3527827",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
        "usage": None,
    }
    return json.dumps(body, separators=(",", ":")).encode()


if __name__ == "__main__":
    sys.exit(main())
