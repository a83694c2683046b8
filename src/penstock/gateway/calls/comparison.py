"""AnswerComparison: how the answer of one model differs from that of another to the same request. It has no content.

Two answers of the same model differ too, unless the temperature is 0. So the finish reason and the calls of tools are
compared exactly, because programs act on them, and texts by the words that both have.
"""

import json
from collections import Counter
from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.core.hub.completion import Choice, Completion

SHADOW_KEY = "shadow"
"""The id of the key of repeated calls, which is no client's."""
SHADOW_OF, SHADOW_COMPARED = "shadow_of", "shadow"
"""The tags of a repeated call: the id of the call that it repeats, and how its answer differs."""
Tools: TypeAlias = Literal["same", "arguments", "other"]
"""Whether the calls of tools are the same, differ in their arguments only, or are others."""
# In characters. The words of more take milliseconds.
_MAX_TEXT = 20_000


class AnswerComparison(Struct, frozen=True):
    """How a second answer differs from the first one."""

    finish: bool
    """Whether it ends for the same reason."""
    tools: Tools
    similarity: float
    """The share of words that both texts have, from 0 to 1."""
    length: float
    """The length of its text, as a multiple of the first one's."""

    def __str__(self) -> str:
        finish = "same" if self.finish else "other"
        return f"finish={finish} tools={self.tools} similarity={self.similarity:.2f} length={self.length:.2f}"

    @classmethod
    def parse(cls, text: str) -> "AnswerComparison | None":
        """The comparison from its text; None if it is none."""
        fields = dict(part.partition("=")[::2] for part in text.split())
        try:
            tools, similarity, length = fields["tools"], float(fields["similarity"]), float(fields["length"])
        except (KeyError, ValueError):
            return None
        known: Tools = "same" if tools == "same" else "arguments" if tools == "arguments" else "other"
        return cls(fields.get("finish") == "same", known, similarity, length)


def compare(first: Completion, second: Completion) -> AnswerComparison:
    """How the second answer differs."""
    one, other = (answer.choices[0] if answer.choices else None for answer in (first, second))
    texts = [answer.text[:_MAX_TEXT] for answer in (first, second)]
    lengths = [len(answer.text) for answer in (first, second)]
    return AnswerComparison(
        finish=(one.finish_reason if one else None) == (other.finish_reason if other else None),
        tools=_tools(one, other),
        similarity=_similarity(*texts),
        length=lengths[1] / lengths[0] if lengths[0] else float(not lengths[1]),
    )


def _tools(one: Choice | None, other: Choice | None) -> Tools:
    first, second = (
        [(call.name, _value(call.arguments)) for call in choice.tool_calls] if choice else [] for choice in (one, other)
    )
    if first == second:
        return "same"
    return "arguments" if [name for name, _ in first] == [name for name, _ in second] else "other"


def _value(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _similarity(one: str, other: str) -> float:
    words = Counter(one.lower().split()), Counter(other.lower().split())
    total = words[0].total() + words[1].total()
    return 2 * (words[0] & words[1]).total() / total if total else 1.0
