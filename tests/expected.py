"""The expected content of a capture: the rows of the tables in the tests of captures."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from penstock import Completion, Ending

Row: TypeAlias = "tuple[str, Expected]"
Call: TypeAlias = tuple[str | None, str, str]
"""The id, the name and the arguments of a tool call."""


class Expected(Struct, frozen=True, kw_only=True):
    """The content of a capture. `repairs`: how often each defect occurs, and the line of the first occurrence."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    finish: str | None = "stop"
    native_finish: str | None = None
    usage: tuple[int, int, int] | None = None
    ending: Ending = "completed"
    fault: tuple[str, int, str] | None = None
    """The code, the line and the words."""
    repairs: Mapping[str, tuple[int, int]] = {}


def repaired(code: str, count: int, line: int, text: str = "", **expected: Any) -> Row:
    """The row of a capture that shows one repair and nothing else."""
    return code, Expected(text=text, **({"repairs": {code: (count, line)}} | expected))


def called(code: str, count: int, line: int, *calls: Call, **expected: Any) -> Row:
    """The same, of an answer that calls tools."""
    return repaired(code, count, line, calls=calls, **({"finish": "tool_calls"} | expected))


def failed(code: str, line: int, words: str, text: str = "", **expected: Any) -> Row:
    """The row of a capture that shows one fault and nothing else."""
    fault = (code, line, words)
    return code, Expected(text=text, finish=None, ending="failed", fault=fault, **expected)


def emitted(answer: Completion) -> Expected:
    """A completion in the terms of the table; none of the captures has more than one choice."""
    assert len(answer.choices) <= 1
    choice = answer.choices[0] if answer.choices else None
    usage, fault = answer.usage, answer.fault
    return Expected(
        text=answer.text,
        reasoning=choice.reasoning if choice else "",
        calls=tuple((call.id, call.name, call.arguments) for call in choice.tool_calls) if choice else (),
        finish=choice.finish_reason if choice else None,
        native_finish=choice.native_finish_reason if choice else None,
        usage=(usage.input or 0, usage.output or 0, usage.total or 0) if usage else None,
        ending=answer.ending or "cancelled",
        fault=(fault.code, fault.line, fault.message) if fault else None,
        repairs={repair.code: (repair.count, repair.line) for repair in answer.repairs},
    )
