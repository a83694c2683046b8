"""How similar a style is to its provider: recorded streams are read, and written again in that style.

Compared are the shape (the names of all fields and their order, for each kind of chunk: `first`, `text`, `finish`, …)
and the framing around the JSON. A kind agrees in a capture if the capture has every shape that we write. A chunk of two
kinds counts for both. Only captures with their original bytes count. If a provider has several styles, the one that
fits a capture best is used.

    .venv/bin/python -m tests.replay.styles.agreement

prints the table of docs/provider-styles.md.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.replay.styles import write_in_style
from penstock.replay.styles.catalog import load_style
from tests.corpus import CORPUS
from tests.streams import read

# Whose captures are compared, and the styles in which that provider has written.
STYLES: dict[str, tuple[str, ...]] = {
    "openai": ("openai", "openai-2025", "openai-2024", "openai-gpt-5"),
    "azure": ("azure",),
    "groq": ("groq",),
    "xai": ("xai",),
    "openrouter": ("openrouter",),
    "deepseek": ("deepseek",),
    "mistral": ("mistral",),
    "cerebras": ("cerebras",),
    "zai": ("zai",),
}
# Fidelities that kept the bytes: the others have sorted keys, or no framing.
FAITHFUL = ("wire", "cassette")
KINDS = ("framing", "first", "text", "reasoning", "call", "arguments", "finish", "usage")


@dataclass
class Agreement:
    """What the comparison of one provider's captures came to: how many had each kind, and how many of them agree."""

    captures: int = 0
    same_bytes: int = 0
    had: Counter[str] = field(default_factory=Counter)
    agreed: Counter[str] = field(default_factory=Counter)

    def share(self, kind: str) -> float:
        return self.agreed[kind] / self.had[kind]


def agreement(provider: str) -> Agreement:
    """Compare every faithful capture of a provider."""
    found = Agreement()
    for wire in faithful_captures(provider):
        real = shapes(wire)
        events, asked = read(wire), asked_for_usage(wire)
        written = [b"".join(write_in_style(events, load_style(name), include_usage=asked)) for name in STYLES[provider]]
        best = max(written, key=lambda ours: (ours == wire, len(agreeing(real, ours))))
        found.captures += 1
        found.same_bytes += best == wire
        agreed = agreeing(real, best)
        for kind in KINDS:
            chunks_of_kind = {chunk for chunk in real if kind in chunk.split("+")}
            found.had[kind] += bool(chunks_of_kind)
            found.agreed[kind] += bool(chunks_of_kind) and chunks_of_kind <= agreed
    return found


def faithful_captures(provider: str) -> Iterator[bytes]:
    index = CORPUS / "INDEX.jsonl"
    for row in map(json.loads, index.read_text().splitlines()) if index.exists() else ():
        real = row["api"] == "chat" and row["kind"] == "stream" and not row["handwritten"]
        if real and row["vendor"] == provider and row["fidelity"] in FAITHFUL:
            yield (CORPUS / row["file"]).read_bytes()


def asked_for_usage(wire: bytes) -> bool:
    """Whether the client requested the usage, as far as the answer shows: it is null at first, or has its own chunk."""
    return any("usage" in chunk and (chunk["usage"] is None or not chunk.get("choices")) for chunk in chunks(wire))


def agreeing(real: dict[str, set[str]], ours: bytes) -> set[str]:
    """The kinds for which we write no shape that the capture lacks."""
    written = shapes(ours)
    return {kind for kind in real if kind in written and written[kind] <= real[kind]}


def shapes(wire: bytes) -> dict[str, set[str]]:
    """The shapes of a stream, by the kind of chunk."""
    found: dict[str, set[str]] = defaultdict(set)
    found["framing"].add(skeleton(wire))
    begun: set[int] = set()
    for chunk in chunks(wire):
        found[kind_of(chunk, begun)].add(shape(chunk))
    return dict(found)


def skeleton(wire: bytes) -> str:
    """The framing around the JSON: each line with its end, repeated chunks once, without comments."""
    lines = re.sub(rb"(?m)^:[^\n]*\n\n", b"", wire)
    lines = re.sub(rb"\{[^\n\r]*\}", b"{}", lines)
    return re.sub(r"(data: ?\{\}[\r\n]+)\1+", r"\1", lines.decode()) + (" spaced" if b'": ' in wire[:200] else "")


def chunks(wire: bytes) -> list[dict[str, object]]:
    """The JSON of every event that is on one line with its `data:`."""
    return [json.loads(line) for line in re.findall(rb"(?m)^data: ?(\{.*\})\r?$", wire)]


def kind_of(chunk: dict[str, object], begun: set[int]) -> str:
    """What a chunk is there for; `begun` are the choices that have begun."""
    choices = chunk.get("choices")
    if "error" in chunk:
        return "error"
    if not isinstance(choices, list) or not choices:
        return "usage" if chunk.get("usage") else "preamble"
    choice = choices[0]
    delta = choice.get("delta") or {}
    kinds = []
    if choice.get("index", 0) not in begun:
        begun.add(choice.get("index", 0))
        kinds.append("first")
    if calls := delta.get("tool_calls"):
        kinds.append("call" if calls[0].get("id") else "arguments")
    elif delta.get("content"):
        kinds.append("text")
    elif delta.get("reasoning") or delta.get("reasoning_content"):
        kinds.append("reasoning")
    elif delta.get("refusal"):
        kinds.append("refusal")
    if choice.get("finish_reason"):
        kinds.append("finish")
    elif chunk.get("usage") and not kinds:
        kinds.append("usage")
    return "+".join(kinds) or "empty"


def shape(value: object) -> str:
    """The names of all fields, in order."""
    match value:
        case dict():
            return "{" + ",".join(name + shape(item) for name, item in value.items() if name != "logprobs") + "}"
        case [first, *_]:
            return f"[{shape(first)}]"
        case _:
            return ""


if __name__ == "__main__":
    print(f"| provider | captures | same bytes | {' | '.join(KINDS)} |")  # noqa: T201
    print("|---|--:|--:|" + "--:|" * len(KINDS))  # noqa: T201
    for name in STYLES:
        seen = agreement(name)
        cells = [f"{seen.agreed[kind]} of {seen.had[kind]}" if seen.had[kind] else "" for kind in KINDS]
        print(f"| {name} | {seen.captures} | {seen.same_bytes} | {' | '.join(cells)} |")  # noqa: T201
