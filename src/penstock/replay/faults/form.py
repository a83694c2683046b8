"""FaultForm: how a fault is injected into streams of one dialect, or of any, and what Penstock reports of it."""

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from penstock.replay.faults.script import ScriptedResponse


class InjectedFault(Struct, frozen=True):
    """A requested fault with its argument: a number of events or bytes or a status, and seconds."""

    name: str
    count: int | None = None
    seconds: float | None = None


Effect: TypeAlias = Callable[[ScriptedResponse, InjectedFault], ScriptedResponse]


class FaultForm(Struct, frozen=True):
    """A fault in the streams of one dialect, or of any.

    `result` is what Penstock's own reader reports for a healthy stream with this fault: the ending, and the codes of
    `core/hub/repairs.py`.
    """

    result: str
    effect: Effect


def plain(result: str, effect: Callable[[ScriptedResponse], ScriptedResponse]) -> FaultForm:
    """The form of a fault without an argument."""
    return FaultForm(result, lambda script, _fault: effect(script))


def counted(result: str, effect: Callable[[ScriptedResponse, int | None], ScriptedResponse]) -> FaultForm:
    """The form of a fault with an optional number."""
    return FaultForm(result, lambda script, fault: effect(script, fault.count))


def exact(result: str, effect: Callable[[ScriptedResponse, int], ScriptedResponse]) -> FaultForm:
    """The form of a fault with a number."""
    return FaultForm(result, lambda script, fault: effect(script, fault.count or 0))
