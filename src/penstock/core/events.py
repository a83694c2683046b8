"""Events: everything that can happen in a chat completion, as one closed union.

A legal sequence, which `core/grammar.py` alone guarantees:

    Start?                                        once, before every other event but `Repair` and `Fault`
    ( ChoiceStart                                 once per choice, before its deltas
    | TextDelta | ReasoningDelta | RefusalDelta   what the model says, in order
    | ToolCallStart | ToolCallDelta               calls are numbered 0, 1, … within their choice
    | Extra )*                                    provider fields with no meaning to us
    Fault?                                        the provider failed, or its bytes cannot be read
    Finish*                                       at most one per choice, when all it says has been said
    UsageReport?                                  the last word on the bill
    End                                           how it ended, always, and always last

`Repair` may stand anywhere before `End`. Events are values: they compare with `==` and never change.
(`gc=False`: they hold parsed JSON at most, which has no cycles for the collector to find.)
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.core.repairs import Level, level_of
from penstock.core.usage import Usage

Ending: TypeAlias = Literal["completed", "truncated", "failed", "cancelled", "timed_out"]
ToolKind: TypeAlias = Literal["function", "custom", "function_call"]
Place: TypeAlias = Literal["chunk", "choice", "delta", "tool"]


class Start(Struct, frozen=True, gc=False):
    """The answer begins: its id, the model that gives it, and when (Unix seconds), as far as the provider said."""

    id: str
    model: str
    created: int | None


class ChoiceStart(Struct, frozen=True, gc=False):
    """One of the parallel answers begins."""

    choice: int
    role: str


class TextDelta(Struct, frozen=True, gc=False):
    """The model says more text."""

    choice: int
    text: str


class ReasoningDelta(Struct, frozen=True, gc=False):
    """The model thinks aloud. `native` is the field that the provider puts such text into."""

    choice: int
    text: str
    native: str = "reasoning_content"


class RefusalDelta(Struct, frozen=True, gc=False):
    """The model explains why it does not answer."""

    choice: int
    text: str


class ToolCallStart(Struct, frozen=True, gc=False):
    """The model begins to call a tool. `id` is None where the provider gave none."""

    choice: int
    call: int
    id: str | None
    name: str
    kind: ToolKind = "function"


class ToolCallDelta(Struct, frozen=True, gc=False):
    """More of the arguments (JSON text; for a custom tool, its free-form input)."""

    choice: int
    call: int
    arguments: str


class Finish(Struct, frozen=True, gc=False):
    """A choice is whole. `native` is the provider's own word where it sent one beside, or instead of, `reason`."""

    choice: int
    reason: str
    native: str | None = None


class UsageReport(Struct, frozen=True, gc=False):
    """The tokens that the answer consumed."""

    usage: Usage


class Extra(Struct, frozen=True, gc=False):
    """Provider fields with no meaning to us, kept so that the same dialect writes them again."""

    place: Place
    fields: dict[str, object]
    choice: int | None = None
    call: int | None = None


class Repair(Struct, frozen=True, gc=False):
    """A defect was tolerated: which one (a row of `core/repairs.py`) and where it stands in the bytes."""

    code: str
    offset: int
    line: int
    detail: str = ""

    @property
    def level(self) -> Level:
        """`notice` where it is a harmless habit of providers, else `repair`."""
        return level_of(self.code)


class Fault(Struct, frozen=True, gc=False):
    """The provider failed, or its bytes cannot be read without guessing.

    `code` is ours (a row of `core/repairs.py`), `message` holds the provider's own words where there are any, and
    `provider` is the error object as it was sent.
    """

    code: str
    message: str
    offset: int
    line: int
    provider: dict[str, object] | None = None


class End(Struct, frozen=True, gc=False):
    """The stream is over. `detail` says why it is not completed, when it is not."""

    ending: Ending
    detail: str = ""


Event: TypeAlias = (
    Start
    | ChoiceStart
    | TextDelta
    | ReasoningDelta
    | RefusalDelta
    | ToolCallStart
    | ToolCallDelta
    | Finish
    | UsageReport
    | Extra
    | Repair
    | Fault
    | End
)
